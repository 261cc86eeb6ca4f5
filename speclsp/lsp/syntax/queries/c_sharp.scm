; Queries on a C# syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(namespace_declaration name: (_) @name body: (_) @body) @class
(class_declaration name: (_) @name body: (_) @body) @class
(struct_declaration name: (_) @name body: (_) @body) @class
(interface_declaration name: (_) @name body: (_) @body) @class
(enum_declaration name: (_) @name body: (_) @body) @class
(record_declaration name: (_) @name body: (_) @body) @class
(constructor_declaration name: (_) @name body: (_) @body) @function
(method_declaration name: (_) @name body: (_)? @body) @function
(property_declaration name: (_) @name accessors: (_) @body) @function
(local_function_statement name: (_) @name body: (_) @body) @function
(lambda_expression body: (block) @body) @function

;; imports
[(using_directive) (file_scoped_namespace_declaration)] @import

;; text
(comment) @comment
[(string_literal) (verbatim_string_literal) (raw_string_literal) (interpolated_string_expression) (character_literal)] @string
(interpolation) @code

;; locals
[(method_declaration) (constructor_declaration) (destructor_declaration) (operator_declaration)
 (conversion_operator_declaration) (indexer_declaration) (accessor_declaration) (delegate_declaration)
 (local_function_statement) (lambda_expression) (anonymous_method_expression)] @scope.function
[(class_declaration) (struct_declaration) (interface_declaration) (record_declaration) (enum_declaration)] @scope.members
[(namespace_declaration) (block) (for_statement) (foreach_statement) (while_statement) (using_statement)
 (catch_clause) (switch_body) (switch_section) (switch_expression_arm) (query_expression)] @scope

[(class_declaration name: (identifier) @definition.outer)
 (struct_declaration name: (identifier) @definition.outer)
 (interface_declaration name: (identifier) @definition.outer)
 (record_declaration name: (identifier) @definition.outer)
 (enum_declaration name: (identifier) @definition.outer)
 (delegate_declaration name: (identifier) @definition.outer)
 (local_function_statement name: (identifier) @definition.outer)]
(method_declaration name: (identifier) @definition.outer)
(property_declaration name: (identifier) @definition)
((property_declaration type: (identifier) @_type name: (identifier) @ignored) (#eq? @_type @ignored))
(enum_member_declaration name: (identifier) @definition)
(type_parameter name: (identifier) @definition)
(using_directive name: (identifier) @definition)
(using_directive !name (identifier) @member)
(parameter name: (identifier) @definition)
(parameter_list name: (identifier) @definition)
(implicit_parameter) @definition
(variable_declarator name: (identifier) @definition)
(local_declaration_statement (variable_declaration (variable_declarator name: (identifier) @binds) @from))
(tuple_pattern name: (identifier) @definition)
(declaration_expression name: (identifier) @definition)
(foreach_statement left: (identifier) @definition)
(foreach_statement left: (_) @binds right: (_) @from)
(catch_declaration name: (identifier) @definition)
(declaration_pattern name: (identifier) @definition)
(recursive_pattern name: (identifier) @definition)
(var_pattern name: (identifier) @definition)
(from_clause name: (identifier) @definition)
(let_clause . (identifier) @definition)

(member_access_expression expression: "this" name: (identifier) @member.own)
(member_access_expression name: [(identifier) @member (generic_name (identifier) @member)])
(member_binding_expression name: (identifier) @member)
(qualified_name name: (identifier) @member)
(namespace_declaration name: (identifier) @member)
(invocation_expression function: [(identifier) @owner (member_access_expression name: (identifier) @owner)]
 arguments: (argument_list (argument name: (identifier) @label)))
(object_creation_expression type: (identifier) @owner
 arguments: (argument_list (argument name: (identifier) @label)))
(argument name: (identifier) @label)
(attribute_argument name: (identifier) @member)
(initializer_expression (assignment_expression left: (identifier) @member))
(anonymous_object_creation_expression ["{" ","] . (identifier) @member)
(subpattern . (identifier) @member . (_))
[(labeled_statement . (identifier) @member) (goto_statement (identifier) @member)]
([(accessor_declaration body: (block (expression_statement (assignment_expression right: (identifier) @member))))
  (accessor_declaration body: (arrow_expression_clause (assignment_expression right: (identifier) @member)))]
 (#eq? @member "value"))
(identifier) @name

;; calls
(method_declaration name: (identifier) @name parameters: (_) @parameters)
(constructor_declaration name: (identifier) @name parameters: (_) @parameters)
(local_function_statement name: (identifier) @name parameters: (_) @parameters)
(invocation_expression function: [(identifier) @callee (generic_name . (identifier) @callee)]
 arguments: (argument_list) @arguments)
(invocation_expression function: (member_access_expression expression: _ @receiver name: (identifier) @callee)
 arguments: (argument_list) @arguments)
(invocation_expression function: (conditional_access_expression condition: (_) @receiver
 (member_binding_expression name: (identifier) @callee)) arguments: (argument_list) @arguments)
(object_creation_expression type: [(identifier) @callee (generic_name . (identifier) @callee)]
 arguments: (argument_list) @arguments)

;; members
[(class_declaration name: (_) @type.name body: (_) @type) (struct_declaration name: (_) @type.name body: (_) @type)
 (interface_declaration name: (_) @type.name body: (_) @type) (record_declaration name: (_) @type.name body: (_) @type)
 (enum_declaration name: (_) @type.name body: (_) @type)]
[(class_declaration name: (_) @type.name (base_list (_) @base))
 (struct_declaration name: (_) @type.name (base_list (_) @base))
 (interface_declaration name: (_) @type.name (base_list (_) @base))
 (record_declaration name: (_) @type.name (base_list (_) @base))]
[(method_declaration body: (_) @function) (constructor_declaration body: (_) @function)
 (local_function_statement body: (_) @function) (lambda_expression body: (_) @function)]

(field_declaration (variable_declaration type: (_) @is (variable_declarator name: (_) @field)))
(property_declaration type: (_) @is name: (_) @field)
(method_declaration returns: (_) @returns name: (_) @field @called)
(record_declaration name: (_) @type.name)
(record_declaration name: (_) @owner (parameter_list (parameter type: (_) @is name: (_) @field)))
(enum_member_declaration name: (_) @field)

(member_access_expression expression: (_) @object name: (identifier) @access) @typed
(conditional_access_expression condition: (_) @object (member_binding_expression name: (identifier) @access)) @typed
(with_expression . (_) @object (with_initializer . (identifier) @access))
[(initializer_expression) (recursive_pattern)] @literal
(initializer_expression (assignment_expression left: (identifier) @access))
(subpattern . (identifier) @access)
(object_creation_expression type: (_) @is initializer: (_) @typed)
(variable_declaration type: (_) @is
 (variable_declarator (implicit_object_creation_expression (initializer_expression) @typed)))
(recursive_pattern type: (_) @is) @typed
(is_pattern_expression expression: (_) @same pattern: (recursive_pattern) @typed)

(member_access_expression expression: "this" @typed @self)
(parameter type: (_) @is name: (_) @typed)
(variable_declaration type: (_) @is (variable_declarator name: (_) @typed . (_) @same))
(variable_declaration type: (_) @is (variable_declarator name: (_) @typed .))
(foreach_statement type: (_) @is left: (identifier) @typed right: (_) @element)
(declaration_pattern type: (_) @is name: (_) @typed)
((invocation_expression function: (member_access_expression expression: (_) @element name: (_) @_method)
  arguments: (argument_list . (argument (lambda_expression parameters: (implicit_parameter) @typed))))
 (#not-match? @_method "^(Aggregate|ContinueWith)$"))
[(cast_expression type: (_) @is) (object_creation_expression type: (_) @is)] @typed
(invocation_expression function: (_) @callee) @typed
[(parenthesized_expression (_) @same) (await_expression (_) @same)] @typed
(element_access_expression expression: (_) @element) @typed

;; types
[(variable_declaration type: (_) @type)
 (parameter type: (_) @type)
 (property_declaration type: (_) @type)
 (method_declaration returns: (_) @type)
 (type_argument_list (_) @type)]
