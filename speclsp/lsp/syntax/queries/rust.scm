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

;; locals
(token_tree) @placeholders
[(function_item) (function_signature_item) (closure_expression)] @scope.function
(impl_item body: (_) @scope.class)
(trait_item body: (_) @scope.class)
[(impl_item) (trait_item) (struct_item) (enum_item) (union_item) (type_item) (mod_item) (block) (if_expression)
 (while_expression) (for_expression) (match_arm)] @scope

(function_item name: (identifier) @definition.outer)
(function_signature_item name: (identifier) @definition.outer)
(struct_item name: (type_identifier) @definition.outer)
(enum_item name: (type_identifier) @definition.outer)
(union_item name: (type_identifier) @definition.outer)
(trait_item name: (type_identifier) @definition.outer)
(type_item name: (type_identifier) @definition.outer)
(mod_item name: (identifier) @definition.outer)
(const_item name: (identifier) @definition)
(static_item name: (identifier) @definition)
(macro_definition name: (identifier) @definition @namespace.macro)
(macro_invocation macro: (identifier) @name @namespace.macro)
(type_parameter name: (type_identifier) @definition)
(const_parameter name: (identifier) @definition)
(parameter pattern: (identifier) @definition)
(closure_parameters (identifier) @definition)
(let_declaration pattern: (identifier) @definition)
(let_declaration pattern: (_) @binds) @after
(let_condition pattern: (_) @binds) @from
(if_expression alternative: (_) @outside)
(for_expression pattern: (identifier) @definition)
(for_expression pattern: (_) @binds value: (_) @from)
(mut_pattern (identifier) @definition)
(ref_pattern (identifier) @definition)
(captured_pattern . (identifier) @definition)
(field_pattern name: (shorthand_field_identifier) @definition @shorthand)
([(let_condition pattern: (identifier) @definition)
  (tuple_pattern (identifier) @definition)
  (tuple_struct_pattern type: (_) (identifier) @definition)
  (slice_pattern (identifier) @definition)
  (reference_pattern (identifier) @definition)
  (or_pattern (identifier) @definition)
  (match_pattern . (identifier) @definition)
  (field_pattern pattern: (identifier) @definition)] (#match? @definition "^[a-z_]"))
(use_declaration argument: [(identifier) @definition (scoped_identifier name: (identifier) @definition)])
(use_list [(identifier) @definition (scoped_identifier name: (identifier) @definition)])
(use_as_clause path: (identifier) @member)
(use_as_clause alias: (identifier) @definition)
(extern_crate_declaration !alias name: (identifier) @definition)
(extern_crate_declaration name: (identifier) @member alias: (identifier) @definition)

(impl_item body: (_ (function_item name: (identifier) @namespace.method)))
(trait_item body: (_ [(function_item name: (identifier) @namespace.method)
 (function_signature_item name: (identifier) @namespace.method)]))
(call_expression function: (field_expression value: (self) field: (field_identifier) @member.own @namespace.method))
((scoped_identifier path: (identifier) @_self name: (identifier) @member.own @namespace.method)
 (#eq? @_self "Self"))
[(scoped_identifier name: (identifier) @member) (scoped_type_identifier name: (type_identifier) @member)]
(enum_variant name: (identifier) @member)
[(lifetime (identifier) @member) (label (identifier) @member)]
(token_tree ["." "::"] . (identifier) @member)
(token_tree (identifier) @member . [":" "="])
(token_tree "{" (identifier) @member)
(token_tree "{" (token_tree (identifier) @member))
(token_tree "|" (identifier) @member)
(token_tree (identifier) @member "|")
(shorthand_field_initializer (identifier) @name @shorthand)
[(identifier) (type_identifier)] @name

;; types
[(type_identifier) (generic_type)] @type

;; calls
(function_item name: (identifier) @name parameters: (_) @parameters)
(function_signature_item name: (identifier) @name parameters: (_) @parameters)
(call_expression function: [(identifier) @callee (generic_function function: (identifier) @callee)]
 arguments: (arguments) @arguments)
(call_expression function: (field_expression value: (_) @receiver field: (field_identifier) @callee)
 arguments: (arguments) @arguments)
(call_expression function: (scoped_identifier path: (_) @receiver name: (identifier) @callee)
 arguments: (arguments) @arguments)
