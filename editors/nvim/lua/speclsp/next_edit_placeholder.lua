--- Placeholder of an accepted next edit: selected, so that typing replaces it. The accepting key leaves it as it is.
local api = vim.api
local item = require("speclsp.item")

local M = {}
local leave_keys ---@type string? nil while nothing is selected

--- Keys that move the cursor, also in Visual mode.
---@param row integer from 1
---@param col integer from 0
local function cursor(row, col)
  return ("<Cmd>call cursor(%d, %d)<CR>"):format(row, col + 1)
end

--- Select a range of the current buffer.
---@param range lsp.Range
---@param encoding string
---@param behind integer[] row and column of the cursor after the selection
---@param left fun() called after the selection if the text is unchanged
function M.select(range, encoding, behind, left)
  local buf = api.nvim_get_current_buf()
  local tick = api.nvim_buf_get_changedtick(buf)
  local is_insert = api.nvim_get_mode().mode:find("^i") ~= nil
  local function place(at, before)
    local line = api.nvim_buf_get_lines(buf, at.line, at.line + 1, false)[1] or ""
    return cursor(at.line + 1, item.byte_of(line, at.character, encoding) - before)
  end
  local function is_unchanged()
    return buf == api.nvim_get_current_buf() and tick == api.nvim_buf_get_changedtick(buf)
  end
  local ends = place(range["end"], vim.o.selection == "exclusive" and 0 or 1)
  local keys = (is_insert and "<Esc>" or "") .. place(range.start, 0) .. "v" .. ends .. "<C-g>"
  vim.schedule(function() -- after the undo break that follows the accepting key
    if not is_unchanged() then
      return
    end
    local unmap = require("speclsp.keys").map_edit(buf)
    leave_keys = "<Esc>" .. (is_insert and "i" or "") .. cursor(behind[1], behind[2])
    api.nvim_feedkeys(vim.keycode(keys), "ni", false)
    api.nvim_create_autocmd("ModeChanged", {
      pattern = "s:*",
      once = true,
      desc = "speclsp: the selection of the placeholder has ended",
      callback = vim.schedule_wrap(function() -- a typed character has replaced it then
        leave_keys = nil
        unmap()
        if is_unchanged() then
          left()
        end
      end),
    })
  end)
end

--- End the selection, and leave the placeholder as it is.
---@return boolean left
function M.leave()
  if not leave_keys then
    return false
  end
  api.nvim_feedkeys(vim.keycode(leave_keys), "ni", false)
  leave_keys = nil
  return true
end

return M
