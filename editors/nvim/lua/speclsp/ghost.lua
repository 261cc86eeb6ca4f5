--- Ghost text: draws the rest of a suggestion at the cursor. The extmarks are its only state.
local api = vim.api

local M = {}
local namespace = api.nvim_create_namespace("speclsp.ghost")
local shown_in ---@type integer?

--- Expands tabs as at a screen column, because virtual text has no tab stops. Returns the text and its end column.
---@param text string
---@param column integer
function M.expanded(text, column)
  local out, width = {}, column
  for piece, tab in text:gmatch("([^\t]*)(\t?)") do
    piece = piece:gsub("%c", vim.fn.strtrans)
    out[#out + 1] = piece
    width = width + vim.fn.strdisplaywidth(piece, width)
    if tab ~= "" then
      local blanks = vim.fn.strdisplaywidth("\t", width)
      out[#out + 1] = (" "):rep(blanks)
      width = width + blanks
    end
  end
  return table.concat(out), width
end

--- Set an extmark. Text in the line has its own highlight only: the cursor is often at a bracket that matchparen
--- highlights, and combining would give the text that look.
---@param buf integer
---@param row integer
---@param col integer
---@param opts vim.api.keyset.set_extmark
local function mark(buf, row, col, opts)
  local is_in_line = opts.virt_text_pos == "inline" or opts.virt_text_pos == "overlay"
  opts.hl_mode, opts.strict = is_in_line and "replace" or "combine", false
  if opts.virt_lines and vim.fn.has("nvim-0.11") == 1 and not vim.wo.wrap then
    opts.virt_lines_overflow = "scroll" -- so that they scroll sideways with the text above them
  end
  api.nvim_buf_set_extmark(buf, namespace, row, col, opts)
end

--- Draw one line: around the kept text, or before the text that is struck out.
local function draw_line(buf, row, col, rest, width, hint)
  if not rest.parts then
    local text = M.expanded(rest.add, width)
    mark(buf, row, col, { virt_text = { { text, "SpeclspSuggestion" }, hint }, virt_text_pos = "inline" })
    mark(buf, row, col, { end_col = col + #rest.over, hl_group = "SpeclspReplaced" })
    return
  end
  local text
  for i, part in ipairs(rest.parts) do
    text, width = M.expanded(part.add, width)
    local last = i == #rest.parts
    if text ~= "" or (last and hint) then
      local chunks = { { text, "SpeclspSuggestion" }, last and part.keep == "" and hint or nil }
      mark(buf, row, col, { virt_text = chunks, virt_text_pos = "inline" })
    end
    width = width + vim.fn.strdisplaywidth(part.keep, width)
    col = col + #part.keep
    if last and part.keep ~= "" and hint then
      mark(buf, row, col, { virt_text = { hint }, virt_text_pos = "inline" })
    end
  end
end

--- Draw a line that takes back indentation: over the present line, at its later place.
---@param buf integer
---@param row integer
---@param col integer
---@param rest speclsp.Rest
---@param line string
---@param hint? [string, string]
local function draw_outdented(buf, row, col, rest, line, hint)
  local outdent = assert(rest.outdent)
  local code, code_end = M.expanded(outdent.blanks .. line:sub(outdent.bytes + 1, col), 0)
  local text, text_end = M.expanded(rest.add, code_end)
  local blank = (" "):rep(vim.fn.strdisplaywidth(line) - text_end)
  local chunks = { { code, "Normal" }, { text, "SpeclspSuggestion" }, { blank, "Normal" }, hint }
  mark(buf, row, 0, { virt_text = chunks, virt_text_pos = "overlay" })
end

--- Draw several lines. Text right of the cursor that stays is shown at its later place, after the last line.
local function draw_lines(buf, row, col, rest, line, width, hint)
  local right = line:sub(col + 1)
  local stays = line:sub(col + #rest.over + 1)
  local lines = vim.split(rest.add, "\n", { plain = true })
  local first = M.expanded(lines[1], width)
  local below = {} ---@type [string, string?][][]
  for i = 2, #lines do
    local text, to = M.expanded(lines[i], 0)
    below[i - 1] = { { text, "SpeclspSuggestion" } }
    if i == #lines and stays ~= "" then
      table.insert(below[i - 1], { (M.expanded(stays, to)), "Normal" })
    end
  end
  table.insert(below[#below], hint)
  -- Unlike inline text, an overlay that replaces highlights loses that of the cursor's line, too.
  local has_cursorline = vim.wo.cursorline and vim.wo.cursorlineopt ~= "number"
  local group = has_cursorline and right ~= "" and { "CursorLine", "SpeclspSuggestion" } or "SpeclspSuggestion"
  local blank = vim.fn.strdisplaywidth(right, width) - vim.fn.strdisplaywidth(first, width)
  mark(buf, row, col, {
    virt_text = { { first .. (" "):rep(blank), group } },
    virt_text_pos = right == "" and "inline" or "overlay",
    virt_lines = below,
  })
end

--- Scroll until the lines below the cursor are visible: at a window's last row, where new code is often written, they
--- would be below its edge.
---@param buf integer
---@param count integer lines below the cursor's
function M.make_room(buf, count)
  if api.nvim_get_current_buf() ~= buf then
    return
  end
  local view = vim.fn.winsaveview()
  local hidden = vim.fn.winline() + count - api.nvim_win_get_height(0)
  local above = view.lnum - view.topline - vim.wo.scrolloff
  if math.min(hidden, above) > 0 then
    vim.fn.winrestview({ topline = view.topline + math.min(hidden, above) })
  end
end

function M.hide()
  if shown_in and api.nvim_buf_is_valid(shown_in) then
    api.nvim_buf_clear_namespace(shown_in, namespace, 0, -1)
  end
  shown_in = nil
end

--- Draw a suggestion, replacing the one drawn before.
---@param buf integer
---@param row integer
---@param col integer
---@param rest speclsp.Rest
---@param count? string number among the alternatives, "2/3"
---@param latency? string drawn at the end of the line, "85 ms"
function M.show(buf, row, col, rest, count, latency)
  M.hide()
  local line = api.nvim_buf_get_lines(buf, row, row + 1, false)[1] or ""
  local width = vim.fn.strdisplaywidth(line:sub(1, col))
  local hint = count and { " " .. count, "SpeclspHint" } or nil
  if rest.outdent then
    draw_outdented(buf, row, col, rest, line, hint)
  elseif rest.add:find("\n", 1, true) then
    draw_lines(buf, row, col, rest, line, width, hint)
    M.make_room(buf, select(2, rest.add:gsub("\n", "")))
  else
    draw_line(buf, row, col, rest, width, hint)
  end
  if latency then
    mark(buf, row, col, { virt_text = { { latency, "SpeclspHint" } }, virt_text_pos = "eol" })
  end
  shown_in = buf
end

function M.is_shown()
  return shown_in ~= nil
end

return M
