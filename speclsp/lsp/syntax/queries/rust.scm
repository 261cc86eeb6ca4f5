; Queries on a Rust syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(struct_item name: (_) @name body: (field_declaration_list) @body) @class
(enum_item name: (_) @name body: (_) @body) @class
(trait_item name: (_) @name body: (_) @body) @class
(impl_item type: (_) @name body: (_) @body) @class
(mod_item name: (_) @name body: (_) @body) @class
(function_item name: (_) @name body: (_) @body) @function
(function_signature_item name: (_) @name) @function
(macro_definition name: (_) @name) @function

;; imports
[(use_declaration) (extern_crate_declaration)] @import
(mod_item !body) @import

;; text
[(line_comment) (block_comment)] @comment
[(string_literal) (raw_string_literal) (char_literal)] @string

;; types
[(type_identifier) (generic_type)] @type
