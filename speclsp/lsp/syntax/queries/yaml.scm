; What speclsp looks for in a YAML tree. Sections are split on the ";;" lines and compiled on first use.

;; scopes
(block_mapping_pair key: (_) @name value: (block_node) @body) @class

;; blocks
[(block_mapping) (block_sequence) (flow_mapping) (flow_sequence)] @block

;; text
(comment) @comment
[(double_quote_scalar) (single_quote_scalar) (block_scalar)] @string
