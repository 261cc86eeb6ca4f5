--- Neovim's own vim.lsp.inline_completion (0.12) as the one that draws: what it lacks, accepting in parts and at the right place.
---
--- It keeps an item's range as it was when the answer came. Text typed since then lies behind that range and would be
--- left over (neovim#36529), so what is accepted here is laid around the cursor as it is now.
local api = vim.api
local accept = require("speclsp.accept")
local client_of = require("speclsp.client")
local item = require("speclsp.item")

local M = {}

---@class speclsp.Asked
---@field line string
---@field row integer
---@field col integer

local asked = {} ---@type table<integer, table<integer, speclsp.Asked>> by buffer and request
local answered = {} ---@type table<integer, speclsp.Asked> by buffer: where the shown item's question was

---@param client vim.lsp.Client
---@param buf integer
---@param group integer
function M.on(client, buf, group)
  vim.lsp.inline_completion.enable(true, { bufnr = buf })
  api.nvim_create_autocmd({ "InsertEnter", "TextChangedI" }, {
    group = group,
    buffer = buf,
    desc = "speclsp: the server has the text before it is asked",
    callback = function()
      client_of.in_step(client, buf)
    end,
  })
  api.nvim_create_autocmd("LspRequest", {
    group = group,
    buffer = buf,
    desc = "speclsp: where the built-in client asked",
    callback = function(event)
      local data = event.data
      if data.client_id ~= client.id or data.request.method ~= "textDocument/inlineCompletion" then
        return
      end
      asked[buf] = asked[buf] or {}
      if data.request.type == "pending" then
        local cursor = api.nvim_win_get_cursor(0)
        asked[buf][data.request_id] = { line = api.nvim_get_current_line(), row = cursor[1] - 1, col = cursor[2] }
      elseif data.request.type == "complete" then
        answered[buf] = asked[buf][data.request_id]
        asked[buf][data.request_id] = nil
      end
    end,
  })
end

--- The built-in's item as it lies around the cursor now; nil when it does not fit any more.
---@param now vim.lsp.inline_completion.Item
---@param buf integer
---@return speclsp.Suggestion?, speclsp.Rest?
local function anchored(now, buf)
  local row, col = unpack(api.nvim_win_get_cursor(0))
  local line = api.nvim_get_current_line()
  local at = answered[buf] or { line = line, row = row - 1, col = col }
  local range
  if now.range then
    local start_row, start_col, _, end_col = now.range:to_extmark()
    local function place(column)
      return { line = start_row, character = column }
    end
    range = { start = place(start_col), ["end"] = place(end_col) }
  end
  local suggestion =
    item.read({ insertText = now.insert_text, range = range, command = now.command }, at.line, at.row, at.col, "utf-8")
  return suggestion, suggestion and item.rest(suggestion, line, row - 1, col)
end

--- Accept what the built-in client shows, or its beginning.
---@param how "all"|"word"|"line"
---@return boolean acted
function M.accept(how)
  local buf = api.nvim_get_current_buf()
  return vim.lsp.inline_completion.get({
    on_accept = function(now)
      local client = vim.lsp.get_client_by_id(now.client_id)
      if not client or client.name ~= "speclsp" then
        return how == "all" and now or nil -- another server's: as Neovim does it
      end
      local suggestion, rest = anchored(now, buf)
      if not suggestion or not rest then
        return
      end
      local function execute()
        if now.command then
          client_of.execute(client, now.command, buf)
        end
      end
      if suggestion.snippet and how == "all" then
        return accept.expand(suggestion.snippet, rest.typed, rest.over, execute)
      end
      local text = accept.beginning(rest.add, how)
      local over, left = item.take(rest, #text)
      accept.put(text, over, nil, not left and execute or nil)
    end,
  })
end

--- Go to another of the alternatives that are there: the built-in client cannot be made to ask for more.
---@param step integer
---@return boolean acted
function M.cycle(step)
  if not M.is_shown() then
    return false
  end
  vim.lsp.inline_completion.select({ count = step })
  return true
end

function M.is_shown()
  local namespace = api.nvim_create_namespace("nvim.lsp.inline_completion")
  return #api.nvim_buf_get_extmarks(0, namespace, 0, -1, { limit = 1 }) > 0
end

--- Forget what is shown.
---@return boolean acted
function M.dismiss()
  if not M.is_shown() then
    return false
  end
  local buf = api.nvim_get_current_buf()
  vim.lsp.inline_completion.enable(false, { bufnr = buf })
  vim.lsp.inline_completion.enable(true, { bufnr = buf })
  return true
end

return M
