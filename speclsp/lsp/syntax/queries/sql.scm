; Queries on an SQL syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(create_table (object_reference) @name (column_definitions) @body) @class
(create_view (object_reference) @name (create_query) @body) @class
(create_function (object_reference) @name (function_body) @body) @function

;; text
[(comment) (marginalia)] @comment
((literal) @string (#match? @string "^['\"]"))
