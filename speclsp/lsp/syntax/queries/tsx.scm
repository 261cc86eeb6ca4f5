; Queries on a TSX syntax tree: those of TypeScript, and what JSX adds.
; inherits: typescript

;; locals
(jsx_opening_element name: (_) @owner attribute: (jsx_attribute (property_identifier) @label))
(jsx_self_closing_element name: (_) @owner attribute: (jsx_attribute (property_identifier) @label))
([(jsx_opening_element name: (identifier) @ignored) (jsx_closing_element name: (identifier) @ignored)
  (jsx_self_closing_element name: (identifier) @ignored)] (#match? @ignored "^[a-z]"))

;; members
[(jsx_self_closing_element) (jsx_opening_element)] @literal
(jsx_attribute . (property_identifier) @access)
[(jsx_self_closing_element name: (identifier) @callee) (jsx_opening_element name: (identifier) @callee)] @typed @arguments
