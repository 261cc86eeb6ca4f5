--- Loaded at start: the command, the highlight groups, and the autocommand that loads the rest on LspAttach.
if vim.g.loaded_speclsp then
  return
end
vim.g.loaded_speclsp = true

for group, link in pairs({
  SpeclspSuggestion = "Comment",
  SpeclspHint = "NonText",
  SpeclspReplaced = "DiffDelete",
  SpeclspEditAdd = "DiffAdd",
  SpeclspEditDelete = "DiffDelete",
  SpeclspEditHint = "DiagnosticInfo",
  SpeclspEditSign = "DiagnosticSignInfo",
}) do
  vim.api.nvim_set_hl(0, group, { link = link, default = true })
end

vim.api.nvim_create_autocmd("LspAttach", {
  group = vim.api.nvim_create_augroup("speclsp.attach", {}),
  desc = "speclsp: suggest in this buffer",
  callback = function(event)
    local client = event.data and vim.lsp.get_client_by_id(event.data.client_id)
    if client and client.name == "speclsp" then
      require("speclsp.attach").on(client, event.buf)
    end
  end,
})

vim.api.nvim_create_user_command("Speclsp", function(command)
  require("speclsp.command").run(command.fargs)
end, {
  nargs = "*",
  desc = "speclsp: status, toggle, restart, model, log, doctor, …",
  complete = function(lead, line)
    return require("speclsp.command").complete(lead, line)
  end,
})
