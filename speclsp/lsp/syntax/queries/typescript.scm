; Queries on a TypeScript syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(class_declaration name: (_) @name body: (_) @body) @class
(abstract_class_declaration name: (_) @name body: (_) @body) @class
(class body: (_) @body) @class
(interface_declaration name: (_) @name body: (_) @body) @class
(enum_declaration name: (_) @name body: (_) @body) @class
(internal_module name: (_) @name body: (_) @body) @class
(module name: (_) @name body: (_) @body) @class
(function_declaration name: (_) @name body: (_) @body) @function
(generator_function_declaration name: (_) @name body: (_) @body) @function
(method_definition name: (_) @name body: (_) @body) @function
(method_signature name: (_) @name) @function
(abstract_method_signature name: (_) @name) @function
(variable_declarator name: (_) @name value: (arrow_function body: (statement_block) @body)) @function
(variable_declarator name: (_) @name value: (function_expression body: (_) @body)) @function
(arrow_function body: (statement_block) @body) @function
(function_expression body: (_) @body) @function

;; imports
(import_statement) @import
(export_statement source: (_)) @import
([(lexical_declaration) (variable_declaration)] @import (#match? @import "^(const|let|var)[^=]*=\\s*require\\s*\\("))

;; text
(comment) @comment
[(string) (template_string) (regex)] @string
(template_substitution) @code

;; locals
[(function_declaration) (function_expression) (generator_function) (generator_function_declaration) (arrow_function)
 (method_definition) (function_signature) (method_signature) (abstract_method_signature) (call_signature)
 (construct_signature) (function_type) (constructor_type)] @scope.function
(class_body) @scope.class
[(class_declaration) (abstract_class_declaration) (class) (interface_declaration) (type_alias_declaration)
 (statement_block) (for_statement) (for_in_statement) (catch_clause) (switch_body)] @scope

(function_declaration name: (identifier) @definition.outer)
(function_signature name: (identifier) @definition.outer)
(generator_function_declaration name: (identifier) @definition.outer)
(function_expression name: (identifier) @definition)
(class_declaration name: (type_identifier) @definition.outer)
(required_parameter pattern: (identifier) @definition)
(optional_parameter pattern: (identifier) @definition)
(required_parameter (accessibility_modifier) pattern: (identifier) @definition.field)
(abstract_class_declaration name: (type_identifier) @definition.outer)
(arrow_function parameter: (identifier) @definition)
(lexical_declaration (variable_declarator name: (identifier) @definition))
(variable_declaration (variable_declarator name: (identifier) @definition.function))
(for_in_statement kind: _ left: (identifier) @definition)
(catch_clause parameter: (identifier) @definition)
(object_pattern (shorthand_property_identifier_pattern) @definition @shorthand)
(object_assignment_pattern left: (shorthand_property_identifier_pattern) @definition @shorthand)
(pair_pattern value: (identifier) @definition)
(array_pattern (identifier) @definition)
(rest_pattern (identifier) @definition)
(assignment_pattern left: (identifier) @definition)
(import_clause (identifier) @definition)
(namespace_import (identifier) @definition)
(import_specifier !alias name: (identifier) @definition)
(import_specifier name: (identifier) @label alias: (identifier) @definition)
(interface_declaration name: (type_identifier) @definition.outer)
(type_alias_declaration name: (type_identifier) @definition.outer)
(enum_declaration name: (identifier) @definition)
(type_parameter name: (type_identifier) @definition)

(member_expression property: [(property_identifier) (private_property_identifier)] @member)
(member_expression object: (this) property: [(property_identifier) (private_property_identifier)] @member.own)
(assignment_expression left: (member_expression object: (this)
 property: [(property_identifier) (private_property_identifier)] @definition.field))
(public_field_definition name: [(property_identifier) (private_property_identifier)] @definition.field)
(method_definition name: [(property_identifier) (private_property_identifier)] @definition.field)
(pair key: (property_identifier) @label)
(pair_pattern key: (property_identifier) @label)
(nested_type_identifier name: (type_identifier) @member)
(export_statement !source (export_clause (export_specifier !alias name: (identifier) @exported)))
(export_specifier alias: (identifier) @label)
(export_statement (export_clause (export_specifier name: (identifier) @label)) source: (_))
(shorthand_property_identifier) @name @shorthand
[(identifier) (type_identifier)] @name

;; types
[(type_identifier) (predefined_type) (generic_type)] @type

;; members
[(class_declaration name: (_) @type.name body: (_) @type) (class body: (_) @type)
 (abstract_class_declaration name: (_) @type.name body: (_) @type)
 (interface_declaration name: (_) @type.name body: (_) @type)
 (enum_declaration name: (_) @type.name body: (_) @type)
 (type_alias_declaration name: (_) @type.name value: (object_type) @type)
 (type_alias_declaration name: (_) @type.name value: (_ (object_type) @type))
 (object_type) @type]
[(class_declaration name: (_) @type.name (class_heritage (extends_clause value: (identifier) @base)))
 (class_declaration name: (_) @type.name (class_heritage (implements_clause (_) @base)))
 (abstract_class_declaration name: (_) @type.name (class_heritage (extends_clause value: (identifier) @base)))
 (abstract_class_declaration name: (_) @type.name (class_heritage (implements_clause (_) @base)))
 (interface_declaration name: (_) @type.name (extends_type_clause type: (_) @base))
 (type_alias_declaration name: (_) @type.name value: (_) @alias)
 (type_alias_declaration name: (_) @type.name value: (intersection_type [(type_identifier) (generic_type)] @base))]
[(function_declaration body: (_) @function) (generator_function_declaration body: (_) @function)
 (function_expression body: (_) @function) (arrow_function body: (_) @function) (method_definition body: (_) @function)
 (function_declaration return_type: (type_annotation (_) @returns) body: (_) @function)
 (function_expression return_type: (type_annotation (_) @returns) body: (_) @function)
 (arrow_function return_type: (type_annotation (_) @returns) body: (_) @function)
 (method_definition return_type: (type_annotation (_) @returns) body: (_) @function)]

[(public_field_definition name: (_) @field) (property_signature name: (_) @field) (method_definition name: (_) @field)
 (method_signature name: (_) @field) (abstract_method_signature name: (_) @field)
 (enum_body (property_identifier) @field) (enum_assignment name: (_) @field)]
(public_field_definition name: (_) @field type: (type_annotation (_) @is))
(public_field_definition name: (_) @field !type value: (_) @same)
(property_signature name: (_) @field type: (type_annotation (_) @is))
(required_parameter (accessibility_modifier) pattern: (identifier) @field type: (type_annotation (_) @is))
(assignment_expression left: (member_expression object: (this) @object property: (_) @assigned) right: (_) @same)
(return_statement "return" @return . (_) @result)
(property_signature name: (_) @called type: (type_annotation (function_type parameters: (_) @parameters)))
[(function_declaration name: (_) @called parameters: (_) @parameters body: (_) @body)
 (function_declaration name: (_) @called return_type: (type_annotation (_) @returns))
 (function_signature name: (_) @called return_type: (type_annotation (_) @returns))
 (method_definition name: (_) @called parameters: (_) @parameters body: (_) @body)
 (method_definition name: (_) @called return_type: (type_annotation (_) @returns))
 (method_signature name: (_) @called parameters: (_) @parameters)
 (method_signature name: (_) @called return_type: (type_annotation (_) @returns))
 (abstract_method_signature name: (_) @called return_type: (type_annotation (_) @returns))
 (variable_declarator name: (_) @called value: (arrow_function parameters: (_) @parameters body: (_) @body @result))
 (variable_declarator name: (_) @called value: (arrow_function return_type: (type_annotation (_) @returns)))]
(variable_declarator name: (_) @called type: (type_annotation (generic_type type_arguments: (type_arguments . (_) @props)))
 value: (arrow_function))

(member_expression object: (_) @object property: [(property_identifier) (private_property_identifier)] @access) @typed
[(object) (object_pattern)] @literal
(pair key: (property_identifier) @access)
(pair key: (property_identifier) @access value: [(object) (array)] @typed)
(shorthand_property_identifier) @access @shorthand
(pair_pattern key: (property_identifier) @access value: (_) @typed)
(shorthand_property_identifier_pattern) @access @shorthand @destructured @typed

(this) @typed @self
[(required_parameter pattern: (_) @typed type: (type_annotation (_) @is))
 (optional_parameter pattern: (_) @typed type: (type_annotation (_) @is))] @parameter
(variable_declarator type: (type_annotation (generic_type type_arguments: (type_arguments . (_) @is)))
 value: (arrow_function parameters: (formal_parameters . (required_parameter pattern: (_) @typed !type))))
((call_expression function: (member_expression object: (_) @element property: (_) @_method) arguments: (arguments .
  (arrow_function parameters: (formal_parameters . (required_parameter pattern: (_) @typed !type)))))
 (#not-match? @_method "^(reduce|reduceRight|then|catch)$"))
((call_expression function: (member_expression object: (_) @element property: (_) @_method) arguments: (arguments .
  (arrow_function parameter: (_) @typed)))
 (#not-match? @_method "^(reduce|reduceRight|then|catch)$"))
(variable_declarator name: (_) @typed type: (type_annotation (_) @is))
(variable_declarator name: (_) @typed !type value: (_) @same)
(variable_declarator !type value: (object) @typed @itself)
(variable_declarator name: (array_pattern . (identifier) @typed)
 value: (call_expression type_arguments: (type_arguments . (_) @is)))
(for_in_statement left: (_) @typed operator: "of" right: (_) @element)
(for_in_statement left: (array_pattern (_) . (identifier) @typed .) operator: "of" right: (_) @element)
(variable_declarator type: (type_annotation (_) @is) value: [(object) (array)] @typed)
(assignment_expression left: (_) @same right: [(object) (array)] @typed)
(return_statement [(object) (array)] @typed @returned)
(arrow_function return_type: (type_annotation (_) @is) body: (parenthesized_expression (_) @typed))
(call_expression function: (_) @callee arguments: (arguments [(object) (array)] @typed) @arguments)
(new_expression constructor: (_) @callee arguments: (arguments [(object) (array)] @typed) @arguments)
((call_expression function: (_) @_hook type_arguments: (type_arguments . (_) @is) arguments: (arguments . (object) @typed))
 (#match? @_hook "^use"))
(array (object) @typed) @element
(array . [(new_expression) (identifier) (call_expression)] @item) @typed
(satisfies_expression [(object) (array)] @typed (_) @is)
(as_expression [(object) (array)] @typed (_) @is)
[(as_expression (_) (_) @is) (satisfies_expression (_) (_) @is)] @typed
(new_expression constructor: (identifier) @is !type_arguments) @typed
(new_expression constructor: (identifier) @is type_arguments: (_) @of) @typed
[(binary_expression left: (_) @same operator: ["||" "??"]) (ternary_expression consequence: (_) @same)] @typed
(call_expression function: (_) @callee) @typed
[(parenthesized_expression (_) @same) (non_null_expression (_) @same) (await_expression (_) @same)] @typed
(subscript_expression object: (_) @element index: [(number) (identifier)]) @typed

;; calls
(function_declaration name: (identifier) @name parameters: (_) @parameters)
(generator_function_declaration name: (identifier) @name parameters: (_) @parameters)
(method_definition name: (_) @name parameters: (_) @parameters)
(variable_declarator name: (identifier) @name value: (arrow_function parameters: (_) @parameters))
(variable_declarator name: (identifier) @name value: (function_expression parameters: (_) @parameters))
(call_expression function: (identifier) @callee arguments: (arguments) @arguments)
(call_expression function: (member_expression object: (_) @receiver property: (_) @callee) arguments: (arguments) @arguments)
(new_expression constructor: (identifier) @callee arguments: (arguments) @arguments)
(function_signature name: (identifier) @name parameters: (_) @parameters)
(method_signature name: (_) @name parameters: (_) @parameters)
(abstract_method_signature name: (_) @name parameters: (_) @parameters)
