; Queries on an HTML syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(element (start_tag (tag_name) @name) @body) @class

;; imports
(doctype) @import

;; text
(comment) @comment
(quoted_attribute_value) @string
