; Queries on a C++ syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(class_specifier name: (_) @name body: (_) @body) @class
(struct_specifier name: (_) @name body: (_) @body) @class
(union_specifier name: (_) @name body: (_) @body) @class
(enum_specifier name: (_) @name body: (_) @body) @class
(namespace_definition name: (_)? @name body: (_) @body) @class
(function_definition declarator: (_) @name body: (_) @body) @function
(lambda_expression body: (_) @body) @function

;; imports
[(preproc_include) (using_declaration)] @import

;; text
(comment) @comment
[(string_literal) (raw_string_literal) (char_literal) (system_lib_string)] @string

;; locals
[(function_definition) (lambda_expression)] @scope.function
[(class_specifier) (struct_specifier) (union_specifier)] @scope.members
[(namespace_definition) (compound_statement) (for_statement) (for_range_loop) (if_statement) (while_statement)
 (switch_statement) (catch_clause) (requires_expression) (template_parameter_list) (preproc_function_def)] @scope
(enum_specifier ["class" "struct"]) @scope
(lambda_capture_specifier (identifier) @outside)
(lambda_capture_initializer right: (_) @outside)
[(declaration declarator: (function_declarator parameters: (_) @scope))
 (declaration declarator: (_ (function_declarator parameters: (_) @scope)))
 (declaration declarator: (_ (_ (function_declarator parameters: (_) @scope))))
 (field_declaration declarator: (function_declarator parameters: (_) @scope))
 (field_declaration declarator: (_ (function_declarator parameters: (_) @scope)))
 (init_declarator declarator: (function_declarator parameters: (_) @scope))
 (parameter_declaration declarator: (function_declarator parameters: (_) @scope))
 (type_definition declarator: (function_declarator parameters: (_) @scope))]

[(function_definition type: (_) declarator: (function_declarator declarator: (identifier) @definition.outer))
 (function_definition type: (_) declarator: (_ (function_declarator declarator: (identifier) @definition.outer)))
 (function_definition type: (_) declarator: (_ (_ (function_declarator declarator: (identifier) @definition.outer))))]
(compound_statement (declaration declarator: (function_declarator declarator: (identifier) @definition)))
[(class_specifier name: (type_identifier) @definition.outer body: (_))
 (struct_specifier name: (type_identifier) @definition.outer body: (_))
 (union_specifier name: (type_identifier) @definition.outer body: (_))]
(enum_specifier name: (type_identifier) @definition body: (_))
(enum_specifier ["class" "struct"] name: (type_identifier) @definition.outer body: (_))
(enumerator name: (identifier) @definition)
(namespace_definition name: (namespace_identifier) @definition.outer)
(namespace_alias_definition name: (namespace_identifier) @definition)
(alias_declaration name: (type_identifier) @definition)
(using_declaration (qualified_identifier name: (identifier) @definition))
(using_declaration "namespace" (identifier) @member)
(concept_definition name: (identifier) @definition)
(preproc_def name: (identifier) @definition)
(preproc_function_def name: (identifier) @definition.outer)
(preproc_params (identifier) @definition)
(declaration declarator: (identifier) @definition)
(parameter_declaration declarator: (identifier) @definition)
(optional_parameter_declaration declarator: (identifier) @definition)
(init_declarator declarator: (identifier) @definition)
(pointer_declarator declarator: (identifier) @definition)
(array_declarator declarator: (identifier) @definition)
(reference_declarator (identifier) @definition)
(structured_binding_declarator (identifier) @definition)
(for_range_loop declarator: (identifier) @definition)
(for_range_loop declarator: (_) @binds right: (_) @from)
(declaration declarator: [(identifier) (pointer_declarator) (array_declarator) (reference_declarator)
 (function_declarator)] @binds @from)
(init_declarator declarator: (_) @binds @from)
(lambda_capture_initializer left: (identifier) @definition)
(type_definition declarator: (type_identifier) @definition)
(pointer_declarator declarator: (type_identifier) @definition)
(function_declarator declarator: (type_identifier) @definition)

[(field_declaration declarator: (field_identifier) @definition)
 (field_declaration declarator: (_ (field_identifier) @definition))
 (field_declaration declarator: (_ (_ (field_identifier) @definition)))
 (function_definition declarator: (function_declarator declarator: (field_identifier) @definition.outer))
 (function_definition declarator: (_ (function_declarator
  declarator: (field_identifier) @definition.outer)))]
(field_expression argument: (this) field: (field_identifier) @member.own)
(field_initializer (field_identifier) @member.own)
[(qualified_identifier name: [(identifier) (type_identifier)] @member)
 (qualified_identifier name: (_ name: [(identifier) (type_identifier)] @member))
 (qualified_identifier scope: (_) name: (qualified_identifier scope: (namespace_identifier) @member))]
[(identifier) (type_identifier) (namespace_identifier)] @name

;; types
[(type_identifier) (primitive_type)] @type

;; calls
(function_declarator declarator: (identifier) @name parameters: (parameter_list) @parameters)
(call_expression function: (identifier) @callee arguments: (argument_list) @arguments)
(function_declarator declarator: (field_identifier) @name parameters: (parameter_list) @parameters)
(function_declarator declarator: (qualified_identifier scope: (_) @owner name: (identifier) @name)
 parameters: (parameter_list) @parameters)
(call_expression function: (template_function name: (identifier) @callee) arguments: (argument_list) @arguments)
(call_expression function: (field_expression argument: (_) @receiver field: (field_identifier) @callee)
 arguments: (argument_list) @arguments)
(call_expression function: (qualified_identifier scope: (_) @receiver name: (identifier) @callee)
 arguments: (argument_list) @arguments)
(new_expression type: (type_identifier) @callee arguments: (argument_list) @arguments)
(declaration type: (type_identifier) @callee declarator: (init_declarator value: (argument_list) @arguments))

;; members
[(struct_specifier name: (_) @type.name body: (_) @type) (class_specifier name: (_) @type.name body: (_) @type)
 (union_specifier name: (_) @type.name body: (_) @type) (enum_specifier name: (_) @type.name body: (_) @type)]
[(struct_specifier name: (_) @type.name (base_class_clause [(type_identifier) (template_type)] @base))
 (class_specifier name: (_) @type.name (base_class_clause [(type_identifier) (template_type)] @base))]
[(function_definition declarator: (function_declarator declarator: (qualified_identifier scope: (_) @type.name)))
 (function_definition declarator: (_ (function_declarator declarator: (qualified_identifier scope: (_) @type.name))))] @type

(field_declaration type: (_) @is declarator: [(field_identifier) @field (pointer_declarator declarator: (field_identifier) @field)
 (reference_declarator (field_identifier) @field) (array_declarator declarator: (field_identifier) @field)])
[(field_declaration type: (_) @returns declarator: (function_declarator declarator: (field_identifier) @field @called))
 (field_declaration type: (_) @returns declarator: (_ (function_declarator declarator: (field_identifier) @field @called)))
 (function_definition type: (_) @returns declarator: (function_declarator declarator: (field_identifier) @field @called))
 (function_definition type: (_) @returns declarator: (_ (function_declarator declarator: (field_identifier) @field @called)))
 (function_definition type: (_) @returns declarator: (function_declarator declarator: (identifier) @called))
 (function_definition type: (_) @returns declarator: (_ (function_declarator declarator: (identifier) @called)))]
(function_declarator declarator: (qualified_identifier scope: (_) @owner name: (identifier) @assigned))
(field_initializer . (field_identifier) @assigned)
(enumerator name: (_) @field)

(field_expression argument: (_) @object field: (field_identifier) @access) @typed
(qualified_identifier scope: (_) @object name: (identifier) @access) @typed
(qualified_identifier scope: (namespace_identifier) @typed @is)
(initializer_list) @literal
(field_designator (field_identifier) @access)
(initializer_pair designator: (field_designator (field_identifier) @access) value: (initializer_list) @typed)
(declaration type: (_) @is declarator: (init_declarator value: (initializer_list) @typed))
(compound_literal_expression type: (_) @is value: (_) @typed)

(this) @typed @self
(parameter_declaration type: (_) @is declarator: [(identifier) @typed (pointer_declarator declarator: (identifier) @typed)
 (reference_declarator (identifier) @typed)])
(declaration type: (_) @is declarator: [(identifier) @typed (pointer_declarator declarator: (identifier) @typed)])
(declaration type: (_) @is declarator: (init_declarator declarator: [(identifier) @typed
 (pointer_declarator declarator: (identifier) @typed) (reference_declarator (identifier) @typed)] value: (_) @same))
(for_range_loop type: (_) @is declarator: [(identifier) @typed (pointer_declarator declarator: (identifier) @typed)
 (reference_declarator (identifier) @typed)] right: (_) @element)
[(new_expression type: (_) @is) (cast_expression type: (_) @is) (compound_literal_expression type: (_) @is)] @typed
(call_expression function: (template_function arguments: (template_argument_list . (type_descriptor) @is))) @typed
(call_expression function: (qualified_identifier name: (template_function
 arguments: (template_argument_list . (type_descriptor) @is)))) @typed
(call_expression function: (_) @callee) @typed
[(pointer_expression argument: (_) @same) (parenthesized_expression (_) @same)] @typed
(subscript_expression argument: (_) @element) @typed
