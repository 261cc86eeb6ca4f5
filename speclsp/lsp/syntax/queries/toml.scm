; Queries on a TOML syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(table . (_) @name) @class
(table_array_element . (_) @name) @class

;; text
(comment) @comment
(string) @string
