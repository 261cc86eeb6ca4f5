; Queries on a Lua syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(function_declaration name: (_) @name body: (_)? @body) @function
(function_definition body: (_)? @body) @function

;; imports
((variable_declaration) @import (#match? @import "=\\s*require\\b"))

;; text
(comment) @comment
(string) @string
