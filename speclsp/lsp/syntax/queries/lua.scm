; Queries on a Lua syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(function_declaration name: (_) @name body: (_)? @body) @function
(function_definition body: (_)? @body) @function

;; imports
((variable_declaration) @import (#match? @import "=\\s*require\\b"))

;; text
(comment) @comment
(string) @string

;; locals
[(function_declaration) (function_definition)] @scope.function
[(for_statement) (repeat_statement)] @scope
[(function_declaration body: (block) @scope) (function_definition body: (block) @scope)
 (for_statement body: (block) @scope) (while_statement body: (block) @scope) (do_statement body: (block) @scope)
 (if_statement consequence: (block) @scope) (elseif_statement consequence: (block) @scope)
 (else_statement body: (block) @scope)]

(function_declaration name: (identifier) @definition.outer)
(parameters name: (identifier) @definition)
(variable_declaration (assignment_statement (variable_list name: (identifier) @definition))) @after
(variable_declaration (variable_list name: (identifier) @definition)) @after
(for_numeric_clause name: (identifier) @definition) @from
(for_generic_clause (variable_list name: (identifier) @definition)) @from

(dot_index_expression field: (identifier) @member)
(method_index_expression method: (identifier) @member)
(field name: (identifier) @member)
[(goto_statement (identifier) @member) (label_statement (identifier) @member) (attribute (identifier) @member)]
(identifier) @name
