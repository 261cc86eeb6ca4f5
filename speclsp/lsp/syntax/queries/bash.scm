; What speclsp looks for in a shell script's tree. Sections are split on the ";;" lines and compiled on first use.

;; scopes
(function_definition name: (_) @name body: (_) @body) @function

;; blocks
[(compound_statement) (do_group) (subshell) (if_statement) (case_statement)] @block

;; imports
((command name: (command_name) @_name) @import (#any-of? @_name "source" "."))

;; text
(comment) @comment
[(string) (raw_string) (ansi_c_string) (heredoc_body)] @string
(command_substitution) @code

;; definitions
(function_definition name: (_) @name body: (_) @body) @function
