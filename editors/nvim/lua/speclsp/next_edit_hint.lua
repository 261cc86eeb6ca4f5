--- Hint of a next edit that is far away: "Edit at line 12 (Tab)" in the cursor's row of the screen; of an edit in
--- another file "Edit in app.py, line 12 (Tab)"; after the last edit "done: 7 edits", and the uses in files that are not open.
---
---     room behind the line     at its end, before the virtual text of others; in short where only that fits
---     no room                  over the text, at the window's right end, or at its left end where the cursor is in the way
---
--- A wrapped line has several rows: the hint is in the cursor's one. It is shorter in a window too narrow for it.
local api = vim.api

local M = {}
local namespace = api.nvim_create_namespace("speclsp.next_edit_hint")
local PRIORITY = 1 -- below that of diagnostics: virtual text of a lower priority is further left
local GAP = " " -- between the hint and the text

--- Texts of the hint, the longest first. The last one is shown over text only.
---@param line integer from 1
---@param key string|false
---@param file? string the name of another file
local function texts(line, key, file)
  local name = key and " (" .. key:gsub("[<>]", "") .. ")" or ""
  if file then
    return {
      ("Edit in %s, line %d%s"):format(file, line, name),
      ("%s:%d%s"):format(file, line, name),
      ("»%s:%d"):format(file, line),
    }
  end
  return { ("Edit at line %d%s"):format(line, name), ("line %d%s"):format(line, name), ("»%d"):format(line) }
end

---@class speclsp.HintRow
---@field columns integer of the window's text
---@field cursor integer column of the cursor, from 0
---@field room integer columns behind the line's end; 0 where the line goes on in another row or beyond the window

--- The cursor's row of the screen.
---@return speclsp.HintRow
local function cursor_row()
  local window = api.nvim_get_current_win()
  local info = vim.fn.getwininfo(window)[1]
  local columns, left = info.width - info.textoff, info.wincol + info.textoff
  local lnum, col = unpack(api.nvim_win_get_cursor(window))
  local cursor = vim.fn.screenpos(window, lnum, col + 1)
  local finish = vim.fn.screenpos(window, lnum, #api.nvim_get_current_line() + 1)
  local room = finish.row == cursor.row and finish.row > 0 and columns - (finish.col - left) or 0
  if vim.wo.list and vim.opt.listchars:get().eol then
    room = room - 1
  end
  return { columns = columns, cursor = cursor.curscol - left, room = room }
end

--- The text and its place: `eol`, or a column of the window.
---@param row speclsp.HintRow
---@param candidates string[]
---@return string text
---@return integer? column nil for the line's end
local function placed(row, candidates)
  for i = 1, #candidates - 1 do
    if #GAP + vim.fn.strdisplaywidth(candidates[i]) <= row.room then
      return candidates[i]
    end
  end
  for _, text in ipairs(candidates) do
    local width = vim.fn.strdisplaywidth(text) + #GAP
    if row.cursor < row.columns - width then
      return GAP .. text, row.columns - width
    elseif row.cursor >= width then
      return text .. GAP, 0
    end
  end
  return candidates[#candidates], math.max(row.columns - vim.fn.strdisplaywidth(candidates[#candidates]), 0)
end

---@param buf integer
function M.hide(buf)
  api.nvim_buf_clear_namespace(buf, namespace, 0, -1)
end

---@param buf integer
---@param candidates string[]
local function draw(buf, candidates)
  M.hide(buf)
  local text, column = placed(cursor_row(), candidates)
  local lnum, col = unpack(api.nvim_win_get_cursor(0))
  -- Over text: a mark at the cursor's column is drawn in the cursor's row of a wrapped line.
  api.nvim_buf_set_extmark(buf, namespace, lnum - 1, column and col or 0, {
    virt_text = { { text, "SpeclspEditHint" } },
    virt_text_pos = not column and "eol" or nil,
    virt_text_win_col = column,
    hl_mode = not column and "combine" or nil,
    priority = not column and PRIORITY or nil,
  })
end

--- Draw the hint for a line of the current buffer, or of another file.
---@param buf integer
---@param line integer from 1
---@param key string|false
---@param file? string the name of the other file
function M.draw(buf, line, key, file)
  draw(buf, texts(line, key, file))
end

---@param count integer
---@param noun string
local function counted(count, noun)
  return ("%d %s%s"):format(count, noun, count == 1 and "" or "s")
end

--- Draw that no edit follows the accepted ones, and the uses of a renamed name in files that are not open.
---@param buf integer
---@param edits integer
---@param unopened? speclsp.Unopened
function M.draw_done(buf, edits, unopened)
  local done = "done: " .. counted(edits, "edit")
  if not unopened then
    return draw(buf, { done, "done", "»" })
  end
  local places = counted(unopened.uses, "use") .. " in " .. counted(unopened.files, "file")
  local whole = ("%s that %s not open (:Speclsp uses)"):format(places, unopened.files == 1 and "is" or "are")
  local list = { whole, places, ("»%d"):format(unopened.uses) }
  if edits > 0 then
    table.insert(list, 1, done .. "; " .. whole)
  end
  draw(buf, list)
end

return M
