--- Fits a suggestion to a line: the text still to insert, and the text that it replaces.
---
---     line        x = foo(ba|)         | is the cursor
---     suggestion  foo(bar, 1) over "foo(ba)"
---     rest        add "r, 1)", over ")", shown as "r, 1" before the kept ")"
---
--- Pure functions of lines, byte columns and texts: no buffer and no window.
local M = {}

---@class speclsp.Suggestion
---@field text string lines joined by \n
---@field snippet? string source of the snippet, when it is one
---@field row integer
---@field head string the line left of the replaced text
---@field tail string the line right of the replaced text
---@field replaced string the replaced text right of the cursor, at the time of the request
---@field command? lsp.Command

---@class speclsp.Part
---@field add string text to show
---@field keep string text of the line that follows it

---@class speclsp.Rest The rest of a suggestion at a cursor
---@field add string text still to insert
---@field over string text right of the cursor that it replaces
---@field parts? speclsp.Part[] `add` split around the characters of `over`; nil when `add` does not contain all of them
---@field typed integer bytes of the suggestion that are left of the cursor
---@field outdent? speclsp.Outdent

---@class speclsp.Outdent Less indentation for the cursor's line
---@field bytes integer of the present indentation
---@field blanks string the indentation that replaces it

--- Converts a column in the server's encoding to bytes.
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

--- Converts a byte column to the server's encoding.
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

--- The text of a snippet with its placeholders filled in.
local function plain(source)
  local ok, text = pcall(function()
    return tostring(require("vim.lsp._snippet_grammar").parse(source))
  end)
  return ok and text or source
end

--- Convert an item of the answer to a suggestion for a line and cursor; nil when its range does not fit them. An item
--- without a range is an insertion.
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

--- Split `add` around the characters of `over`, which must occur in it in this order. Matching starts at the end, so
--- that closing brackets stay together.
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
    local inserted = add:sub(at + #character, stop)
    if inserted ~= "" then
      table.insert(parts, 1, { add = inserted, keep = keep })
      keep = ""
    end
    keep = character .. keep
    stop = at - 1
  end
  table.insert(parts, 1, { add = add:sub(1, stop), keep = keep })
  return parts
end

--- The part of `text` after `typed`, the line left of the cursor. A text with less indentation than the line, as
--- `else:`, fits too, and takes the surplus back.
---@param text string
---@param typed string
---@return string? add nil when `text` does not go on from `typed`
---@return speclsp.Outdent? outdent
local function after(text, typed)
  if vim.startswith(text, typed) then
    return text:sub(#typed + 1), nil
  end
  local present, blanks = typed:match("^[ \t]*"), text:match("^[ \t]*")
  local code = typed:sub(#present + 1)
  if #blanks < #present and vim.startswith(text:sub(#blanks + 1), code) then
    return text:sub(#blanks + #code + 1), { bytes = #present, blanks = blanks }
  end
end

--- The rest of a suggestion at a cursor; nil when it does not fit the line, or when nothing remains.
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
  if line:sub(1, #head) ~= head or line:sub(#line - #tail + 1) ~= tail then
    return nil
  end
  local typed = line:sub(#head + 1, col)
  local add, outdent = after(suggestion.text, typed)
  if not add or outdent and head ~= "" then
    return nil
  end
  local over = line:sub(col + 1, #line - #tail)
  local parts = M.weave(add, over)
  if add == "" or add == over or not (parts or over == suggestion.replaced) then
    return nil
  end
  return { add = add, over = over, parts = parts, typed = #typed, outdent = outdent }
end

--- The beginning of the replaced text that goes when only the first `bytes` bytes of `add` are inserted.
local function replaced_by(rest, bytes)
  local replaced, at = "", 0
  for _, part in ipairs(rest.parts or {}) do
    at = at + #part.add
    for _, character in ipairs(vim.fn.split(part.keep, "\\zs")) do
      at = at + #character
      if at > bytes then
        return replaced
      end
      replaced = replaced .. character
    end
  end
  return replaced
end

--- Split a rest for inserting only the first `bytes` bytes of `add`.
---@param rest speclsp.Rest
---@param bytes integer
---@return string over text that these bytes replace
---@return speclsp.Rest? left the rest after them
function M.take(rest, bytes)
  if bytes >= #rest.add then
    return rest.over, nil
  end
  local replaced = replaced_by(rest, bytes)
  local add, over = rest.add:sub(bytes + 1), rest.over:sub(#replaced + 1)
  return replaced, { add = add, over = over, parts = M.weave(add, over), typed = rest.typed + bytes }
end

return M
