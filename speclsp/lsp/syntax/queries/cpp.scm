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

;; definitions
(function_definition declarator: (_) @declarator body: (_) @body) @function
(translation_unit (declaration declarator: [(function_declarator) (pointer_declarator)] @declarator) @prototype)
(preproc_ifdef (declaration declarator: [(function_declarator) (pointer_declarator)] @declarator) @prototype)
(preproc_if (declaration declarator: [(function_declarator) (pointer_declarator)] @declarator) @prototype)
(linkage_specification (declaration_list
  (declaration declarator: [(function_declarator) (pointer_declarator)] @declarator) @prototype))
(class_specifier name: (_) @name body: (_) @body) @class
(struct_specifier name: (_) @name body: (_) @body) @class
(union_specifier name: (_) @name body: (_) @body) @class
(enum_specifier name: (_) @name body: (_) @body) @enum
(enumerator name: (_) @name) @member
(field_declaration declarator: (_) @declarator) @field
(type_definition type: (struct_specifier body: (_) @body) declarator: (_) @declarator) @class
(type_definition declarator: (_) @declarator) @type
(preproc_def name: (_) @name) @macro
(preproc_function_def name: (_) @name value: (_)? @body) @macro
(translation_unit (declaration declarator: [(init_declarator) (identifier)] @declarator) @variable)
(namespace_definition name: (_) @name body: (_) @body) @module
(declaration_list (declaration declarator: [(function_declarator) (pointer_declarator)] @declarator) @prototype)
(field_declaration_list (declaration declarator: (function_declarator) @declarator) @prototype)
(alias_declaration name: (_) @name) @type
