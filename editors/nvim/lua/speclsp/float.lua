--- Read-only floating window for texts of many lines: the message line would end in a prompt for <Enter>.
local api = vim.api

local M = {}
local NAMESPACE = api.nvim_create_namespace("speclsp.float")
local MARGIN = 4 -- rows and columns outside the text: the border and a cell beside it
local window ---@type integer?

--- Close the window.
function M.close()
  if window and api.nvim_win_is_valid(window) then
    api.nvim_win_close(window, true)
  end
  window = nil
end

--- The middle of the screen.
---@param width integer
---@param height integer
local function place(width, height)
  return {
    relative = "editor",
    row = math.max(math.floor((vim.o.lines - height - MARGIN) / 2), 0),
    col = math.max(math.floor((vim.o.columns - width - MARGIN) / 2), 0),
    width = width,
    height = height,
  }
end

--- Show lines in place of those shown before. In normal mode the cursor enters the window: q, <Esc> or another window
--- closes it. In another mode the next movement closes it.
---@param title string
---@param lines { [1]: string, [2]: string }[] label and text; a label is highlighted
---@param text_column integer screen column at which the rows of a wrapped line begin
function M.show(title, lines, text_column)
  M.close()
  local buf = api.nvim_create_buf(false, true)
  local rows, width = {}, vim.fn.strdisplaywidth(title) + 2
  for i, line in ipairs(lines) do
    rows[i] = line[1] .. line[2]:gsub("%s*\n%s*", " ")
    width = math.max(width, vim.fn.strdisplaywidth(rows[i]))
  end
  api.nvim_buf_set_lines(buf, 0, -1, false, rows)
  for i, line in ipairs(lines) do
    api.nvim_buf_set_extmark(buf, NAMESPACE, i - 1, 0, { end_col = #line[1], hl_group = "Label" })
  end
  vim.bo[buf].modifiable, vim.bo[buf].bufhidden = false, "wipe"

  local enter = api.nvim_get_mode().mode == "n"
  local behind = api.nvim_get_current_buf()
  width = math.max(math.min(width, vim.o.columns - MARGIN), 1)
  local config = vim.tbl_extend("error", place(width, 1), {
    style = "minimal",
    border = "rounded",
    title = " " .. title .. " ",
    footer = enter and " q closes " or nil,
  })
  window = api.nvim_open_win(buf, enter, config)
  vim.wo[window].wrap, vim.wo[window].linebreak = true, true
  vim.wo[window].breakindent, vim.wo[window].breakindentopt = true, "shift:" .. text_column
  local height = math.min(api.nvim_win_text_height(window, {}).all, vim.o.lines - MARGIN)
  api.nvim_win_set_config(window, place(width, math.max(height, 1)))

  for _, key in ipairs({ "q", "<Esc>" }) do
    vim.keymap.set("n", key, M.close, { buffer = buf, nowait = true, desc = "speclsp: close" })
  end
  api.nvim_create_autocmd(enter and "BufLeave" or { "CursorMoved", "CursorMovedI", "BufLeave" }, {
    buffer = enter and buf or behind,
    once = true,
    desc = "speclsp: close the floating window",
    callback = vim.schedule_wrap(M.close),
  })
end

return M
