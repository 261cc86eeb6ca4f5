--- Drawing of a next edit: an inline or block diff, a sign, and a hint at the cursor's line where the edit is far away.
--- The extmarks are its only state.
local api = vim.api
local ghost = require("speclsp.ghost")
local hint = require("speclsp.next_edit_hint")

local NEAR_ROWS = 2
local SIGN = "»"
local ARROW = "→" -- between an old word and the new one, for those who see no difference of colours

local M = {}
local namespace = api.nvim_create_namespace("speclsp.next_edit")
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

--- The least and the greatest number of signs that a window's sign column has room for.
---@param option string 'signcolumn'
---@return integer least
---@return integer most
local function sign_room(option)
  if option == "no" then
    return 0, 0
  elseif option:find("^yes") then
    local count = tonumber(option:match("%d+")) or 1
    return count, count
  end
  local least, most = option:match("^auto:(%d+)%-(%d+)$")
  return tonumber(least) or 0, tonumber(most or option:match("^auto:(%d+)$")) or 1
end

--- True if one more sign in a row would move the text of a window, or replace the line's number.
---@param buf integer
---@param row integer
local function is_in_the_way(buf, row)
  local counts, widest = {}, 0 ---@type table<integer, integer>
  for _, sign in ipairs(api.nvim_buf_get_extmarks(buf, -1, 0, -1, { details = true, type = "sign" })) do
    if sign[4].sign_text then
      counts[sign[2]] = (counts[sign[2]] or 0) + 1
      widest = math.max(widest, counts[sign[2]])
    end
  end
  return vim.iter(vim.fn.win_findbuf(buf)):any(function(window)
    local is = vim.wo[window]
    if is.signcolumn == "number" and (is.number or is.relativenumber) then
      return true
    end
    local least, most = sign_room(is.signcolumn)
    return math.min((counts[row] or 0) + 1, most) > math.max(least, math.min(widest, most))
  end)
end

--- Colour the line's number, and draw the sign where there is a column for it.
---@param buf integer
---@param row integer
local function draw_sign(buf, row)
  local sign = { number_hl_group = "SpeclspEditSign" } ---@type vim.api.keyset.set_extmark
  if not is_in_the_way(buf, row) then
    sign.sign_text, sign.sign_hl_group = SIGN, "SpeclspEditSign"
  end
  mark(buf, row, 0, sign)
end

--- Draw the changed words inside their lines.
local function draw_words(buf, hunk)
  for i, line in ipairs(hunk.words) do
    local row = hunk.first + i - 1
    for _, word in ipairs(line) do
      local is_replaced = word.to > word.from
      if is_replaced then
        mark(buf, row, word.from, { end_col = word.to, hl_group = "SpeclspEditDelete" })
      end
      if word.add ~= "" then
        local text = ghost.expanded(word.add, vim.fn.strdisplaywidth(hunk.old[i]:sub(1, word.to)))
        local chunks = { { text, "SpeclspEditAdd" } }
        if is_replaced then
          table.insert(chunks, 1, { ARROW, "SpeclspEditHint" })
        end
        mark(buf, row, word.to, { virt_text = chunks, virt_text_pos = "inline" })
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

--- Place of the first change: row, and byte column.
---@param buf integer
---@param hunk speclsp.Hunk
function M.place(buf, hunk)
  local word = hunk.words and hunk.words[1] and hunk.words[1][1]
  return row_of(buf, hunk), word and word.from or #(hunk.old[1] or ""):match("^%s*")
end

--- True if the place is left or right of the view, in a window that scrolls long lines sideways.
---@param row integer
---@param col integer
local function is_beside(row, col)
  if vim.wo.wrap then
    return false
  end
  local info = vim.fn.getwininfo(api.nvim_get_current_win())[1]
  local column, left = vim.fn.virtcol({ row + 1, col + 1 }), vim.fn.winsaveview().leftcol
  return column <= left or column > left + info.width - info.textoff
end

--- True if the hunk is out of view, folded, or more than NEAR_ROWS rows away from the cursor.
---@param hunk speclsp.Hunk
function M.is_far(hunk)
  local last = last_row(hunk)
  local row, col = M.place(0, hunk)
  local cursor = api.nvim_win_get_cursor(0)[1] - 1
  return row - cursor > NEAR_ROWS
    or cursor - last > NEAR_ROWS
    or row + 1 < vim.fn.line("w0")
    or row + 1 > vim.fn.line("w$")
    or vim.fn.foldclosed(row + 1) ~= -1
    or is_beside(row, col)
end

--- Draw the hint at the cursor's line, or remove it where the hunk is near.
---@param buf integer
---@param hunk speclsp.Hunk
---@param key string|false
function M.draw_hint(buf, hunk, key)
  if api.nvim_get_current_buf() == buf and M.is_far(hunk) then
    hint.draw(buf, row_of(buf, hunk) + 1, key)
  else
    hint.hide(buf)
  end
end

--- Draw the hint for an edit of another file at the cursor's line.
---@param buf integer the current buffer
---@param file string
---@param line integer from 1
---@param key string|false
function M.draw_elsewhere(buf, file, line, key)
  if api.nvim_get_current_buf() == buf then
    shown_in = buf
    hint.draw(buf, line, key, file)
  end
end

--- Draw at the cursor's line that no edit follows, and the uses of a renamed name in files that are not open.
---@param buf integer the current buffer
---@param edits integer accepted in this chain
---@param unopened? speclsp.Unopened
function M.draw_done(buf, edits, unopened)
  shown_in = buf
  hint.draw_done(buf, edits, unopened)
end

--- Scroll until the new lines of a hunk at the cursor are visible.
---@param buf integer
---@param hunk speclsp.Hunk
function M.make_room(buf, hunk)
  if not hunk.words then
    ghost.make_room(buf, math.max(#hunk.old - 1, 0) + #hunk.new)
  end
end

--- True while anything is drawn.
function M.is_drawn()
  return shown_in ~= nil
end

--- Remove everything drawn.
function M.hide()
  if shown_in and api.nvim_buf_is_valid(shown_in) then
    api.nvim_buf_clear_namespace(shown_in, namespace, 0, -1)
    hint.hide(shown_in)
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
  draw_sign(buf, row_of(buf, hunk))
  M.draw_hint(buf, hunk, key)
end

return M
