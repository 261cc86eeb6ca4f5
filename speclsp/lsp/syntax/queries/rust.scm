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

;; members
[(struct_item name: (_) @type.name body: (_) @type) (union_item name: (_) @type.name body: (_) @type)
 (enum_item name: (_) @type.name body: (_) @type) (trait_item name: (_) @type.name body: (_) @type)
 (enum_variant name: (_) @type.name body: (field_declaration_list) @type) (impl_item type: (_) @type.name body: (_) @type)]
(struct_item name: (_) @type.name)
(impl_item trait: (_) @base type: [(type_identifier) @type.name (generic_type type: (type_identifier) @type.name)])
[(function_item body: (_) @function) (closure_expression body: (_) @function)]

(field_declaration name: (_) @field type: (_) @is)
(enum_variant name: (_) @field)
(function_item name: (_) @field @called)
(function_signature_item name: (_) @field @called)
[(function_item name: (_) @called return_type: (_) @returns)
 (function_signature_item name: (_) @called return_type: (_) @returns)]

(field_expression value: (_) @object field: (field_identifier) @access) @typed
(scoped_identifier path: (_) @object name: (_) @access) @typed
(scoped_type_identifier path: (_) @object name: (_) @access) @typed
(token_tree [(identifier) (self)] @object . ["." "::"] . (identifier) @access)
[(field_initializer_list) (struct_pattern)] @literal
(field_initializer field: (_) @access)
(shorthand_field_initializer (identifier) @access @shorthand)
(field_pattern name: (shorthand_field_identifier) @access @shorthand @typed)
(field_pattern name: (field_identifier) @access pattern: (_) @typed)
(struct_expression name: (_) @is body: (_) @typed)
(struct_pattern type: (_) @is) @typed

(self) @typed @self
(parameter pattern: (_) @typed type: (_) @is)
(let_declaration pattern: (_) @typed type: (_) @is)
(let_declaration pattern: (_) @typed !type value: (_) @same)
[(static_item name: (_) @typed type: (_) @is) (const_item name: (_) @typed type: (_) @is)]
([(let_condition pattern: (tuple_struct_pattern type: (identifier) @_form (identifier) @typed) value: (_) @same)
  (let_declaration pattern: (tuple_struct_pattern type: (identifier) @_form (identifier) @typed) value: (_) @same)]
 (#any-of? @_form "Some" "Ok"))
(for_expression pattern: (_) @typed value: (_) @element)
((for_expression pattern: (tuple_pattern (_) . (identifier) @typed .)
  value: (call_expression function: (field_expression value: (_) @element field: (_) @_method)))
 (#eq? @_method "enumerate"))
((call_expression function: (field_expression value: (_) @element field: (_) @_method)
  arguments: (arguments . (closure_expression parameters: (closure_parameters . (_) @typed))))
 (#not-match? @_method "^(fold|map_err|unwrap_or_else)$"))
(struct_expression name: (_) @is) @typed
(type_cast_expression type: (_) @is) @typed
((call_expression function: (scoped_identifier path: (identifier) @_wrapper) arguments: (arguments . (_) @same)) @typed
 (#any-of? @_wrapper "Box" "Rc" "Arc"))
((call_expression function: (identifier) @_form arguments: (arguments . (_) @same)) @typed (#any-of? @_form "Some" "Ok"))
(call_expression function: (_) @callee) @typed
[(reference_expression value: (_) @same) (unary_expression (_) @same) (parenthesized_expression (_) @same)
 (try_expression (_) @same) (await_expression (_) @same)] @typed
(index_expression . (_) @element) @typed
