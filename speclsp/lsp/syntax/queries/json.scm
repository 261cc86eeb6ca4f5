; Queries on a JSON syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(pair key: (_) @name value: [(object) (array)] @body) @class

;; text
(comment) @comment
(string) @string
