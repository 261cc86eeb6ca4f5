; What speclsp looks for in a TOML tree. Sections are split on the ";;" lines and compiled on first use.

;; scopes
(table . (_) @name) @class
(table_array_element . (_) @name) @class

;; blocks
[(table) (table_array_element) (array) (inline_table)] @block

;; text
(comment) @comment
(string) @string
