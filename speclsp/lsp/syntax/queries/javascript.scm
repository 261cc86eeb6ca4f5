; Queries on a JavaScript or JSX syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(class_declaration name: (_) @name body: (_) @body) @class
(class body: (_) @body) @class
(function_declaration name: (_) @name body: (_) @body) @function
(generator_function_declaration name: (_) @name body: (_) @body) @function
(method_definition name: (_) @name body: (_) @body) @function
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
 (method_definition)] @scope.function
[(class_declaration) (class)] @scope.class
[(statement_block) (for_statement) (for_in_statement) (catch_clause) (switch_body)] @scope

(function_declaration name: (identifier) @definition.outer)
(generator_function_declaration name: (identifier) @definition.outer)
(function_expression name: (identifier) @definition)
(class_declaration name: (identifier) @definition.outer)
(formal_parameters (identifier) @definition)
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

(member_expression property: [(property_identifier) (private_property_identifier)] @member)
(member_expression object: (this) property: [(property_identifier) (private_property_identifier)] @member.own)
(assignment_expression left: (member_expression object: (this)
 property: [(property_identifier) (private_property_identifier)] @definition.field))
(field_definition property: [(property_identifier) (private_property_identifier)] @definition.field)
(method_definition name: [(property_identifier) (private_property_identifier)] @definition.field)
(pair key: (property_identifier) @label)
(pair_pattern key: (property_identifier) @label)
(jsx_opening_element name: (_) @owner attribute: (jsx_attribute (property_identifier) @label))
(jsx_self_closing_element name: (_) @owner attribute: (jsx_attribute (property_identifier) @label))
([(jsx_opening_element name: (identifier) @ignored) (jsx_closing_element name: (identifier) @ignored)
  (jsx_self_closing_element name: (identifier) @ignored)] (#match? @ignored "^[a-z]"))
(export_statement !source (export_clause (export_specifier !alias name: (identifier) @exported)))
(export_specifier alias: (identifier) @label)
(export_statement (export_clause (export_specifier name: (identifier) @label)) source: (_))
(shorthand_property_identifier) @name @shorthand
[(identifier)] @name

;; members
[(class_declaration name: (_) @type.name body: (_) @type) (class body: (_) @type)]
(class_declaration name: (_) @type.name (class_heritage (identifier) @base))
[(function_declaration body: (_) @function) (generator_function_declaration body: (_) @function)
 (function_expression body: (_) @function) (arrow_function body: (_) @function) (method_definition body: (_) @function)]

[(field_definition property: (_) @field) (method_definition name: (_) @field)]
(field_definition property: (_) @field value: (_) @same)
(assignment_expression left: (member_expression object: (this) @object property: (_) @assigned) right: (_) @same)
(return_statement "return" @return . (_) @result)
[(function_declaration name: (_) @called parameters: (_) @parameters body: (_) @body)
 (method_definition name: (_) @called parameters: (_) @parameters body: (_) @body)
 (variable_declarator name: (_) @called value: (arrow_function parameters: (_) @parameters body: (_) @body @result))]

(member_expression object: (_) @object property: [(property_identifier) (private_property_identifier)] @access) @typed
[(object) (object_pattern) (jsx_self_closing_element) (jsx_opening_element)] @literal
(pair key: (property_identifier) @access)
(pair key: (property_identifier) @access value: [(object) (array)] @typed)
(shorthand_property_identifier) @access @shorthand
(pair_pattern key: (property_identifier) @access value: (_) @typed)
(shorthand_property_identifier_pattern) @access @shorthand @destructured @typed
(jsx_attribute . (property_identifier) @access)

(this) @typed @self
((call_expression function: (member_expression object: (_) @element property: (_) @_method) arguments: (arguments .
  (arrow_function parameters: (formal_parameters . (_) @typed))))
 (#not-match? @_method "^(reduce|reduceRight|then|catch)$"))
((call_expression function: (member_expression object: (_) @element property: (_) @_method) arguments: (arguments .
  (arrow_function parameter: (_) @typed)))
 (#not-match? @_method "^(reduce|reduceRight|then|catch)$"))
(variable_declarator name: (_) @typed value: (_) @same)
(variable_declarator value: (object) @typed @itself)
(for_in_statement left: (_) @typed operator: "of" right: (_) @element)
(for_in_statement left: (array_pattern (_) . (identifier) @typed .) operator: "of" right: (_) @element)
(array (object) @typed) @element
(array . [(new_expression) (identifier) (call_expression)] @item) @typed
(new_expression constructor: (identifier) @is) @typed
[(binary_expression left: (_) @same operator: ["||" "??"]) (ternary_expression consequence: (_) @same)] @typed
(call_expression function: (_) @callee) @typed
[(parenthesized_expression (_) @same) (await_expression (_) @same)] @typed
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
