; Queries on a Svelte syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(element (start_tag (tag_name) @name) @body) @class
(script_element (start_tag (tag_name) @name) @body) @class
(style_element (start_tag (tag_name) @name) @body) @class

;; text
(comment) @comment
(quoted_attribute_value) @string
(expression) @code
