; What speclsp looks for in a CSS tree. Sections are split on the ";;" lines and compiled on first use.

;; scopes
(rule_set (selectors) @name (block) @body) @class
(media_statement (block) @body) @class
(keyframes_statement (keyframes_name) @name (keyframe_block_list) @body) @class

;; blocks
[(block) (keyframe_block_list)] @block

;; imports
[(import_statement) (charset_statement)] @import

;; text
(comment) @comment
(string_value) @string
