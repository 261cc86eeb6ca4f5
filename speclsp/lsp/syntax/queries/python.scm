; Queries on a Python syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(class_definition name: (_) @name body: (_) @body) @class
(function_definition name: (_) @name body: (_) @body) @function

;; imports
[(import_statement) (import_from_statement) (future_import_statement)] @import

;; text
(comment) @comment
(string) @string
(interpolation) @code

;; types
(type) @type
