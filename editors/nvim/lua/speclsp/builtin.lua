--- Suggestions drawn by Neovim's own vim.lsp.inline_completion (0.12). This module adds accepting by word and by line.
---
--- The built-in client keeps an item's range as it was when the answer came. Text typed since then lies behind that
--- range and would remain (neovim#36529), so accepting here fits the item to the present cursor.
local api = vim.api
local accept = require("speclsp.accept")
local lsp_client = require("speclsp.client")
local item = require("speclsp.item")

local M = {}

---@class speclsp.RequestPosition
---@field line string
---@field row integer
---@field col integer

local requests = {} ---@type table<integer, table<integer, speclsp.RequestPosition>> by buffer and request id
local shown_positions = {} ---@type table<integer, speclsp.RequestPosition> by buffer: request of the shown item

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
      lsp_client.sync_text(client, buf)
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
      requests[buf] = requests[buf] or {}
      if data.request.type == "pending" then
        local cursor = api.nvim_win_get_cursor(0)
        requests[buf][data.request_id] = { line = api.nvim_get_current_line(), row = cursor[1] - 1, col = cursor[2] }
      elseif data.request.type == "complete" then
        shown_positions[buf] = requests[buf][data.request_id]
        requests[buf][data.request_id] = nil
      end
    end,
  })
end

--- The built-in client's item, fitted to the present cursor; nil when it no longer fits.
---@param inline vim.lsp.inline_completion.Item
---@param buf integer
---@return speclsp.Suggestion?, speclsp.Rest?
local function fitted(inline, buf)
  local row, col = unpack(api.nvim_win_get_cursor(0))
  local line = api.nvim_get_current_line()
  local at = shown_positions[buf] or { line = line, row = row - 1, col = col }
  local range
  if inline.range then
    local start_row, start_col, _, end_col = inline.range:to_extmark()
    local function place(column)
      return { line = start_row, character = column }
    end
    range = { start = place(start_col), ["end"] = place(end_col) }
  end
  local lsp_item = { insertText = inline.insert_text, range = range, command = inline.command }
  local suggestion = item.read(lsp_item, at.line, at.row, at.col, "utf-8")
  return suggestion, suggestion and item.rest(suggestion, line, row - 1, col)
end

--- Insert an item at the present cursor, or its beginning.
---@param inline vim.lsp.inline_completion.Item
---@param client vim.lsp.Client
---@param how "all"|"word"|"line"
---@return boolean acted
local function insert(inline, client, how)
  local buf = api.nvim_get_current_buf()
  local suggestion, rest = fitted(inline, buf)
  if not suggestion or not rest then
    return false
  end
  accept.apply(suggestion.snippet, rest, how, function(characters)
    lsp_client.execute(client, inline.command, buf, characters)
  end)
  return true
end

--- Insert the suggestion that the built-in client shows, or its beginning, at the present cursor.
---@param how "all"|"word"|"line"
---@return boolean acted
function M.insert(how)
  local acted, schedule = false, vim.schedule
  vim.schedule = function(callback) -- get() schedules the rest of its work: the keys typed next would come first
    vim.schedule = schedule
    callback()
  end
  local ok, problem = pcall(vim.lsp.inline_completion.get, {
    on_accept = function(inline)
      local client = vim.lsp.get_client_by_id(inline.client_id)
      if client and client.name == "speclsp" then
        acted = insert(inline, client, how)
      elseif how == "all" then
        acted = true
        return inline -- an item of another server: Neovim accepts it
      end
    end,
  })
  vim.schedule = schedule
  if not ok then
    error(problem, 0)
  end
  return acted
end

--- Select another alternative of the present answer: the built-in client cannot request more.
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

--- Discard the shown suggestion.
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
