; Queries on a YAML syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(block_mapping_pair key: (_) @name value: (block_node) @body) @class

;; text
(comment) @comment
[(double_quote_scalar) (single_quote_scalar) (block_scalar)] @string
