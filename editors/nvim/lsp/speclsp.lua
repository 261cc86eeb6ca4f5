--- What `vim.lsp.enable("speclsp")` starts (Neovim 0.11 and newer).
return require("speclsp.client").config()
