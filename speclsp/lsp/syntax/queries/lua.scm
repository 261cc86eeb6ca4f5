; Queries on a Lua syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(function_declaration name: (_) @name body: (_)? @body) @function
(function_definition body: (_)? @body) @function

;; imports
((variable_declaration) @import (#match? @import "=\\s*require\\b"))

;; text
(comment) @comment
(string) @string

;; definitions
(function_declaration name: (_) @name body: (_)? @body) @function
(chunk (variable_declaration (assignment_statement (variable_list name: (identifier) @name))) @variable)
