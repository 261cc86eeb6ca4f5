--- What a suggestion means for a line: what of it is still to come, and what of the line it replaces.
---
---     line        x = foo(ba|)         | is the cursor
---     suggestion  foo(bar, 1) over "foo(ba)"
---     to come     add "r, 1)", over ")", woven as "r, 1" before the kept ")"
---
--- No buffer and no window here: lines, byte columns and texts in, texts out.
local M = {}

---@class speclsp.Suggestion
---@field text string lines joined by \n
---@field snippet? string its source, when it is one
---@field row integer
---@field head string the line left of what is replaced
---@field tail string the line right of it
---@field replaced string what is replaced, right of where the cursor was when asked
---@field command? lsp.Command

---@class speclsp.Part
---@field add string to show
---@field keep string of the line, right after it

---@class speclsp.Rest What is left of a suggestion at a cursor
---@field add string to come
---@field over string text right of the cursor that goes
---@field parts? speclsp.Part[] `add` around what it has in common with `over`; nil when `over` is not all in it
---@field typed integer bytes of the suggestion that stand left of the cursor

--- A column as the server counts it, in bytes.
---@param line string
---@param column integer
---@param encoding string
function M.byte_of(line, column, encoding)
  if encoding == "utf-8" then
    return math.min(column, #line)
  end
  local _, units = vim.str_utfindex(line)
  local points = select(1, vim.str_utfindex(line))
  if column >= (encoding == "utf-16" and units or points) then
    return #line
  end
  return vim.str_byteindex(line, column, encoding == "utf-16")
end

--- A byte column as the server counts.
---@param line string
---@param byte integer
---@param encoding string
function M.column_of(line, byte, encoding)
  if encoding == "utf-8" then
    return byte
  end
  local points, units = vim.str_utfindex(line, byte)
  return encoding == "utf-16" and units or points
end

--- A snippet's text with its placeholders filled in.
local function plain(source)
  local ok, text = pcall(function()
    return tostring(require("vim.lsp._snippet_grammar").parse(source))
  end)
  return ok and text or source
end

--- Read an item of the answer for a line and cursor. Without a range it is an insertion.
---@param item lsp.InlineCompletionItem
---@param line string
---@param row integer
---@param col integer
---@param encoding string
---@return speclsp.Suggestion?
function M.read(item, line, row, col, encoding)
  local from, to = col, col
  if item.range then
    if item.range.start.line ~= row or item.range["end"].line ~= row then
      return nil
    end
    from = M.byte_of(line, item.range.start.character, encoding)
    to = M.byte_of(line, item.range["end"].character, encoding)
  end
  if from > col or to < col then
    return nil
  end
  local text, snippet = item.insertText, nil
  if type(text) == "table" then
    snippet = text.value
    text = plain(snippet)
  end
  return {
    text = text:gsub("\r\n?", "\n"),
    snippet = snippet,
    row = row,
    head = line:sub(1, from),
    tail = line:sub(to + 1),
    replaced = line:sub(col + 1, to),
    command = item.command,
  }
end

--- Lay `add` around the characters of `over`, which must come in it in this order; those that end it stay together.
---@param add string
---@param over string
---@return speclsp.Part[]?
function M.weave(add, over)
  local parts = {} ---@type speclsp.Part[]
  local stop, keep = #add, ""
  local characters = vim.fn.split(over, "\\zs")
  for i = #characters, 1, -1 do
    local character, at = characters[i], nil
    for first = stop - #character + 1, 1, -1 do
      if add:sub(first, first + #character - 1) == character then
        at = first
        break
      end
    end
    if not at then
      return nil
    end
    local between = add:sub(at + #character, stop)
    if between ~= "" then
      table.insert(parts, 1, { add = between, keep = keep })
      keep = ""
    end
    keep = character .. keep
    stop = at - 1
  end
  table.insert(parts, 1, { add = add:sub(1, stop), keep = keep })
  return parts
end

--- What is left of a suggestion with the cursor here; nil when it does not fit the line, or nothing is left.
---@param suggestion speclsp.Suggestion
---@param line string
---@param row integer
---@param col integer
---@return speclsp.Rest?
function M.rest(suggestion, line, row, col)
  local head, tail = suggestion.head, suggestion.tail
  if row ~= suggestion.row or col < #head or #line - #tail < col then
    return nil
  end
  local typed = line:sub(#head + 1, col)
  if
    line:sub(1, #head) ~= head
    or line:sub(#line - #tail + 1) ~= tail
    or not vim.startswith(suggestion.text, typed)
  then
    return nil
  end
  local add, over = suggestion.text:sub(#typed + 1), line:sub(col + 1, #line - #tail)
  local parts = M.weave(add, over)
  if add == "" or add == over or not (parts or over == suggestion.replaced) then
    return nil
  end
  return { add = add, over = over, parts = parts, typed = #typed }
end

--- How much of what is replaced goes when only the first bytes of `add` are inserted.
local function eaten_by(rest, taken)
  local eaten, at = "", 0
  for _, part in ipairs(rest.parts or {}) do
    at = at + #part.add
    for _, character in ipairs(vim.fn.split(part.keep, "\\zs")) do
      at = at + #character
      if at > taken then
        return eaten
      end
      eaten = eaten .. character
    end
  end
  return eaten
end

--- Insert only the first `taken` bytes of what is to come.
---@param rest speclsp.Rest
---@param taken integer
---@return string over what they replace
---@return speclsp.Rest? left what is still to come after them
function M.take(rest, taken)
  if taken >= #rest.add then
    return rest.over, nil
  end
  local eaten = eaten_by(rest, taken)
  local add, over = rest.add:sub(taken + 1), rest.over:sub(#eaten + 1)
  return eaten, { add = add, over = over, parts = M.weave(add, over), typed = rest.typed + taken }
end

return M
