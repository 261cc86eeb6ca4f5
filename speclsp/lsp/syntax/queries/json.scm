; What speclsp looks for in a JSON tree. Sections are split on the ";;" lines and compiled on first use.

;; scopes
(pair key: (_) @name value: [(object) (array)] @body) @class

;; blocks
[(object) (array)] @block

;; text
(comment) @comment
(string) @string
