--- Server configuration for `vim.lsp.enable("speclsp")` (Neovim 0.11 and newer).
return require("speclsp.client").config()
