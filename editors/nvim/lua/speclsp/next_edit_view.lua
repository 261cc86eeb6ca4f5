--- Drawing of a next edit: an inline or block diff, a sign, and a hint at the cursor's line where the edit is far away.
--- The extmarks are its only state.
local api = vim.api
local ghost = require("speclsp.ghost")

local NEAR_ROWS = 2
local SIGN = "»"

local M = {}
local namespace = api.nvim_create_namespace("speclsp.next_edit")
local hint_namespace = api.nvim_create_namespace("speclsp.next_edit_hint")
local shown_in ---@type integer?

---@param buf integer
---@param row integer
---@param col integer
---@param opts vim.api.keyset.set_extmark
local function mark(buf, row, col, opts)
  opts.strict = false
  api.nvim_buf_set_extmark(buf, namespace, row, col, opts)
end

--- The last row that the hunk replaces; for an insertion, the row above it.
---@param hunk speclsp.Hunk
local function last_row(hunk)
  return math.max(hunk.first + #hunk.old - 1, 0)
end

--- The row of a hunk, inside the buffer.
---@param buf integer
---@param hunk speclsp.Hunk
local function row_of(buf, hunk)
  return math.min(hunk.first, api.nvim_buf_line_count(buf) - 1)
end

--- Draw the changed words inside their lines.
local function draw_words(buf, hunk)
  for i, line in ipairs(hunk.words) do
    local row = hunk.first + i - 1
    for _, word in ipairs(line) do
      if word.to > word.from then
        mark(buf, row, word.from, { end_col = word.to, hl_group = "SpeclspEditDelete" })
      end
      if word.add ~= "" then
        local text = ghost.expanded(word.add, vim.fn.strdisplaywidth(hunk.old[i]:sub(1, word.to)))
        mark(buf, row, word.to, { virt_text = { { text, "SpeclspEditAdd" } }, virt_text_pos = "inline" })
      end
    end
  end
end

--- Draw the removed lines, and the new lines below them.
local function draw_block(buf, hunk)
  for i = 1, #hunk.old do
    local row = hunk.first + i - 1
    mark(buf, row, 0, { end_row = row + 1, hl_group = "SpeclspEditDelete", hl_eol = true })
  end
  local lines = {} ---@type [string, string][][]
  for i, line in ipairs(hunk.new) do
    lines[i] = { { line == "" and " " or (ghost.expanded(line, 0)), "SpeclspEditAdd" } }
  end
  if #lines > 0 then
    local above = #hunk.old == 0 and hunk.first == 0
    mark(buf, last_row(hunk), 0, { virt_lines = lines, virt_lines_above = above })
    if above and vim.fn.line("w0") == 1 then
      vim.fn.winrestview({ topfill = #lines }) -- lines above the first one are hidden otherwise
    end
  end
end

--- True if the hunk is out of view, folded, or more than NEAR_ROWS rows away from the cursor.
---@param hunk speclsp.Hunk
function M.is_far(hunk)
  local row, last = row_of(0, hunk), last_row(hunk)
  local cursor = api.nvim_win_get_cursor(0)[1] - 1
  return row - cursor > NEAR_ROWS
    or cursor - last > NEAR_ROWS
    or row + 1 < vim.fn.line("w0")
    or row + 1 > vim.fn.line("w$")
    or vim.fn.foldclosed(row + 1) ~= -1
end

--- Column for a hint that has no room behind the cursor's line: at the window's right end, or at the left end where the
--- cursor is in the way; nil when there is room.
---@param text string
---@return integer?
local function overlay_column(text)
  local window = vim.fn.getwininfo(api.nvim_get_current_win())[1]
  local columns, width = window.width - window.textoff, vim.fn.strdisplaywidth(text)
  if vim.fn.virtcol("$") + width <= columns then
    return nil
  end
  local column, cursor = math.max(columns - width, 0), vim.fn.virtcol(".")
  return (cursor <= column or cursor > columns) and column or 0
end

--- Draw the hint at the cursor's line, or remove it where the hunk is near. Returns true if it is drawn.
---@param buf integer
---@param hunk speclsp.Hunk
---@param key string|false
function M.draw_hint(buf, hunk, key)
  api.nvim_buf_clear_namespace(buf, hint_namespace, 0, -1)
  if api.nvim_get_current_buf() ~= buf or not M.is_far(hunk) then
    return false
  end
  local name = key and " (" .. key:gsub("[<>]", "") .. ")" or ""
  local text = ("Edit at line %d%s"):format(row_of(buf, hunk) + 1, name)
  local row = api.nvim_win_get_cursor(0)[1] - 1
  local column = overlay_column(text)
  api.nvim_buf_set_extmark(buf, hint_namespace, row, 0, {
    virt_text = { { text, "SpeclspEditHint" } },
    virt_text_pos = not column and "eol" or nil,
    virt_text_win_col = column,
    hl_mode = not column and "combine" or nil,
  })
  return true
end

--- Scroll until the new lines of a hunk at the cursor are visible.
---@param buf integer
---@param hunk speclsp.Hunk
function M.make_room(buf, hunk)
  if not hunk.words then
    ghost.make_room(buf, math.max(#hunk.old - 1, 0) + #hunk.new)
  end
end

--- Place of the first change: row, and byte column.
---@param buf integer
---@param hunk speclsp.Hunk
function M.place(buf, hunk)
  local word = hunk.words and hunk.words[1] and hunk.words[1][1]
  return row_of(buf, hunk), word and word.from or #(hunk.old[1] or ""):match("^%s*")
end

--- Remove everything drawn.
function M.hide()
  if shown_in and api.nvim_buf_is_valid(shown_in) then
    api.nvim_buf_clear_namespace(shown_in, namespace, 0, -1)
    api.nvim_buf_clear_namespace(shown_in, hint_namespace, 0, -1)
  end
  shown_in = nil
end

--- Draw an edit, replacing the one drawn before.
---@param buf integer
---@param hunk speclsp.Hunk
---@param key string|false
function M.show(buf, hunk, key)
  M.hide()
  shown_in = buf
  if hunk.words then
    draw_words(buf, hunk)
  else
    draw_block(buf, hunk)
  end
  mark(buf, row_of(buf, hunk), 0, { sign_text = SIGN, sign_hl_group = "SpeclspEditSign" })
  M.draw_hint(buf, hunk, key)
end

return M
