; Queries on a CSS syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(rule_set (selectors) @name (block) @body) @class
(media_statement (block) @body) @class
(keyframes_statement (keyframes_name) @name (keyframe_block_list) @body) @class

;; imports
[(import_statement) (charset_statement)] @import

;; text
(comment) @comment
(string_value) @string
