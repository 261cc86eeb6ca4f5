; What speclsp looks for in an HTML tree. Sections are split on the ";;" lines and compiled on first use.

;; scopes
(element (start_tag (tag_name) @name) @body) @class

;; blocks
[(element) (script_element) (style_element)] @block

;; imports
(doctype) @import

;; text
(comment) @comment
(quoted_attribute_value) @string
