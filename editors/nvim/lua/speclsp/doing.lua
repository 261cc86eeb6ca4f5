--- Tells the server what the user is at, where it wants to know: lines that stay on the screen, text that is yanked.
local api = vim.api
local client_of = require("speclsp.client")

local STILL_MS = 1000 -- on the screen without scrolling: what is scrolled past was not read
local MOST_LINES = 100 -- of a yank; longer ones are no snippet

local M = {}
local timer ---@type uv.uv_timer_t?
local told = "" -- the lines told last

--- Whether a server wants to be told this.
---@param client vim.lsp.Client
---@param what "viewed"|"copied"
local function wants(client, what)
  local experimental = client.server_capabilities and client.server_capabilities.experimental
  local ours = type(experimental) == "table" and experimental.speclsp
  return type(ours) == "table" and ours[what] == true
end

--- Tell the lines on the screen, if they are this buffer's and others than the last time.
---@param client vim.lsp.Client
---@param buf integer
local function tell(client, buf)
  if api.nvim_get_current_buf() ~= buf or vim.fn.getcmdwintype() ~= "" then
    return
  end
  local first, last = vim.fn.line("w0") - 1, vim.fn.line("w$") - 1
  local now = ("%d:%d:%d"):format(buf, first, last)
  if now == told then
    return
  end
  told = now
  client_of.notify(client, "speclsp/viewed", {
    textDocument = { uri = vim.uri_from_bufnr(buf) },
    range = { start = { line = first, character = 0 }, ["end"] = { line = last, character = 0 } },
  })
end

---@param client vim.lsp.Client
---@param buf integer
---@param group integer
function M.watch(client, buf, group)
  local function later()
    if api.nvim_get_current_buf() ~= buf then
      return
    end
    timer = timer or assert(vim.uv.new_timer())
    timer:start(
      STILL_MS,
      0,
      vim.schedule_wrap(function()
        if client_of.get(buf) == client then
          tell(client, buf)
        end
      end)
    )
  end
  if wants(client, "viewed") then
    local what = "speclsp: what is read"
    api.nvim_create_autocmd("BufEnter", { group = group, buffer = buf, callback = later, desc = what })
    api.nvim_create_autocmd("WinScrolled", { group = group, callback = later, desc = what })
    later()
  end
  if wants(client, "copied") then
    api.nvim_create_autocmd("TextYankPost", {
      group = group,
      buffer = buf,
      desc = "speclsp: what is copied",
      callback = function()
        local event = vim.v.event
        if event.operator ~= "y" or #event.regcontents > MOST_LINES then
          return
        end
        client_of.notify(client, "speclsp/copied", {
          text = table.concat(event.regcontents, "\n"),
          textDocument = { uri = vim.uri_from_bufnr(buf) },
        })
      end,
    })
  end
end

return M
