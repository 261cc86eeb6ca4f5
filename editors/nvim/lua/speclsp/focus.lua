--- Tells the server which buffer the user looks at: it reads that buffer's prompt before the first request.
local api = vim.api
local lsp_client = require("speclsp.client")

local M = {}

--- Report the current buffer and its cursor, if a server is attached to it and suggestions are on there.
function M.report()
  local buf = api.nvim_get_current_buf()
  local client = lsp_client.get(buf)
  if not client or require("speclsp.enabled").off_reason(buf) then
    return
  end
  local params = vim.lsp.util.make_position_params(0, client.offset_encoding)
  lsp_client.notify(client, "speclsp/didFocus", { textDocument = params.textDocument, position = params.position })
end

return M
