; Queries on a Ruby syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(module name: (_) @name body: (_)? @body) @class
(class name: (_) @name body: (_)? @body) @class
(singleton_class value: (_) @name body: (_)? @body) @class
(method name: (_) @name body: (_)? @body) @function
(singleton_method name: (_) @name body: (_)? @body) @function

;; imports
((call method: (identifier) @_method) @import (#any-of? @_method "require" "require_relative" "load"))

;; text
(comment) @comment
[(string) (heredoc_body) (regex) (string_array) (symbol_array) (subshell)] @string
(interpolation) @code
