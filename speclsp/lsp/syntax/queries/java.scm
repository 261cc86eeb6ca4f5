; Queries on a Java syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(class_declaration name: (_) @name body: (_) @body) @class
(interface_declaration name: (_) @name body: (_) @body) @class
(enum_declaration name: (_) @name body: (_) @body) @class
(record_declaration name: (_) @name body: (_) @body) @class
(annotation_type_declaration name: (_) @name body: (_) @body) @class
(constructor_declaration name: (_) @name body: (_) @body) @function
(method_declaration name: (_) @name body: (_)? @body) @function
(lambda_expression body: (block) @body) @function

;; imports
[(package_declaration) (import_declaration)] @import

;; text
[(line_comment) (block_comment)] @comment
[(string_literal) (character_literal)] @string

;; locals
[(method_declaration) (constructor_declaration) (compact_constructor_declaration) (lambda_expression)] @scope.function
[(class_declaration) (interface_declaration) (enum_declaration) (record_declaration)
 (annotation_type_declaration)] @scope.members
(object_creation_expression (class_body) @scope.members)
(enum_constant body: (class_body) @scope.members)
[(block) (constructor_body) (for_statement) (enhanced_for_statement) (try_with_resources_statement) (catch_clause)
 (if_statement) (while_statement) (switch_block) (switch_rule) (switch_block_statement_group)] @scope

(class_declaration name: (identifier) @definition.outer)
(interface_declaration name: (identifier) @definition.outer)
(enum_declaration name: (identifier) @definition.outer)
(record_declaration name: (identifier) @definition.outer)
(annotation_type_declaration name: (identifier) @definition.outer)
(type_parameter (type_identifier) @definition)
(import_declaration (scoped_identifier name: (identifier) @definition) . ";")
(field_declaration declarator: (variable_declarator name: (identifier) @definition))
(constant_declaration declarator: (variable_declarator name: (identifier) @definition))
(enum_constant name: (identifier) @definition)
(record_declaration parameters: (_ (formal_parameter name: (identifier) @definition)))
(method_declaration name: (identifier) @definition.outer @namespace.method)
(formal_parameter name: (identifier) @definition)
(spread_parameter (variable_declarator name: (identifier) @definition))
(catch_formal_parameter name: (identifier) @definition)
(lambda_expression parameters: (identifier) @definition)
(inferred_parameters (identifier) @definition)
(enhanced_for_statement name: (identifier) @definition)
(resource name: (identifier) @definition) @from
(local_variable_declaration declarator: (variable_declarator name: (identifier) @definition) @from)
(instanceof_expression name: (identifier) @definition) @after
(instanceof_expression pattern: (_) @binds) @after
(type_pattern (_) (identifier) @definition .)
(record_pattern_component (_) (identifier) @definition .)

(field_access object: (this) field: (identifier) @member.own)
(field_access field: (identifier) @member)
(method_invocation !object name: (identifier) @name @namespace.method)
(method_invocation object: (this) name: (identifier) @member.own @namespace.method)
(method_invocation object: (_) name: (identifier) @member @namespace.method)
(method_reference (this) (identifier) @member.own @namespace.method)
(method_reference (_) (identifier) @member)
(scoped_identifier name: (identifier) @member)
(scoped_type_identifier (_) (type_identifier) @member)
(element_value_pair key: (identifier) @member)
(switch_label . (identifier) @member)
[(labeled_statement . (identifier) @member) (break_statement (identifier) @member) (continue_statement (identifier) @member)]
[(identifier) (type_identifier)] @name

;; types
[(type_identifier) (generic_type)] @type

;; calls
(method_declaration name: (identifier) @name parameters: (_) @parameters)
(constructor_declaration name: (identifier) @name parameters: (_) @parameters)
(method_invocation !object name: (identifier) @callee arguments: (argument_list) @arguments)
(method_invocation object: (_) @receiver name: (identifier) @callee arguments: (argument_list) @arguments)
(object_creation_expression type: [(type_identifier) @callee (generic_type (type_identifier) @callee)]
 arguments: (argument_list) @arguments)

;; members
[(class_declaration name: (_) @type.name body: (_) @type) (interface_declaration name: (_) @type.name body: (_) @type)
 (enum_declaration name: (_) @type.name body: (_) @type) (record_declaration name: (_) @type.name body: (_) @type)]
[(class_declaration name: (_) @type.name superclass: (superclass (_) @base))
 (class_declaration name: (_) @type.name interfaces: (super_interfaces (type_list (_) @base)))
 (record_declaration name: (_) @type.name interfaces: (super_interfaces (type_list (_) @base)))
 (enum_declaration name: (_) @type.name interfaces: (super_interfaces (type_list (_) @base)))
 (interface_declaration name: (_) @type.name (extends_interfaces (type_list (_) @base)))]
[(method_declaration body: (_) @function) (constructor_declaration body: (_) @function)
 (lambda_expression body: (_) @function)]

(field_declaration type: (_) @is declarator: (variable_declarator name: (_) @field))
(record_declaration name: (_) @owner parameters: (formal_parameters (formal_parameter type: (_) @is name: (_) @field)))
(enum_constant name: (_) @field)
(method_declaration type: (_) @returns name: (_) @field @called)

(field_access object: (_) @object field: (identifier) @access) @typed
(method_invocation object: (_) @object name: (_) @access) @typed
(method_reference . (_) @object (identifier) @access .)
(switch_expression condition: (parenthesized_expression (_) @object) body: (switch_block (_ (switch_label (identifier) @access))))

(this) @typed @self
(formal_parameter type: (_) @is name: (_) @typed)
(local_variable_declaration type: (_) @is declarator: (variable_declarator name: (_) @typed !value))
(local_variable_declaration type: (_) @is declarator: (variable_declarator name: (_) @typed value: (_) @same))
(enhanced_for_statement type: (_) @is name: (_) @typed value: (_) @element)
(instanceof_expression right: (_) @is name: (_) @typed)
((method_invocation object: (_) @element name: (_) @_method arguments: (argument_list .
  (lambda_expression parameters: (identifier) @typed))) (#not-match? @_method "^(reduce|ifPresent|collect)$"))
[(cast_expression type: (_) @is) (object_creation_expression type: (_) @is)] @typed
(parenthesized_expression (_) @same) @typed
(array_access array: (_) @element) @typed
