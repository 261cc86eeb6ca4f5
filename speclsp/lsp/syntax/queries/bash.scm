; Queries on a shell script's syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(function_definition name: (_) @name body: (_) @body) @function

;; imports
((command name: (command_name) @_name) @import (#any-of? @_name "source" "."))

;; text
(comment) @comment
[(string) (raw_string) (ansi_c_string) (heredoc_body)] @string
(command_substitution) @code
