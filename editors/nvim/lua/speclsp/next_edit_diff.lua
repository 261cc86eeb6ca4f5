--- Differences of a next edit: the lines that it replaces, and the words that differ in them.
---
---     old    total = sum(values)          words    delete "values", insert "prices"
---     new    total = sum(prices)
---
--- Pure functions of lines and byte columns: no buffer and no window.
local M = {}
local diff = vim.text and vim.text.diff or vim.diff -- renamed in 0.12
local MAX_KINDS = 2 -- of changes in a line; more of them are easier to read as one
local MAX_LINES = 3 -- shown word by word; longer hunks are shown as blocks

---@class speclsp.Word
---@field from integer byte column of the deleted text
---@field to integer byte column after it, where `add` is inserted
---@field add string

---@class speclsp.Hunk
---@field first integer row of the first replaced line
---@field old string[] replaced lines; empty for an insertion before `first`
---@field new string[]
---@field words? speclsp.Word[][] differences of each line; nil for a hunk to show as a block

--- Identifiers, blanks, operators and single other characters of a line.
---@param line string
local function tokens(line)
  local list, at = {}, 1
  while at <= #line do
    local token = line:match("^[%w_\128-\255]+", at) or line:match("^%s+", at)
    token = token or line:match("^[=<>!&|+*/%%^-]+", at) or line:sub(at, at)
    list[#list + 1] = token
    at = at + #token
  end
  return list
end

---@param list string[]
---@param first integer
---@param count integer
local function joined(list, first, count)
  return table.concat(list, "", first, first + count - 1)
end

--- The words that differ between two lines. Blanks or an accessor alone do not part two of them: `console.log` is one.
---@param old string
---@param new string
---@return speclsp.Word[]
local function words(old, new)
  local old_tokens, new_tokens = tokens(old), tokens(new)
  local function lines(list)
    return #list > 0 and table.concat(list, "\n") .. "\n" or ""
  end
  local list = {} ---@type speclsp.Word[]
  for _, change in ipairs(diff(lines(old_tokens), lines(new_tokens), { result_type = "indices" })) do
    local start_old, count_old, start_new, count_new = unpack(change)
    -- A count of 0 means: after the token `start`.
    local before = count_old == 0 and start_old or start_old - 1
    local from = #joined(old_tokens, 1, before)
    local to = from + #joined(old_tokens, before + 1, count_old)
    local add = count_new > 0 and joined(new_tokens, start_new, count_new) or ""
    local last = list[#list]
    local gap = last and old:sub(last.to + 1, from)
    if gap and (gap:find("^%s+$") or gap:find("^[.:?>-]+$")) then
      last.to, last.add = to, last.add .. gap .. add
    else
      list[#list + 1] = { from = from, to = to, add = add }
    end
  end
  local kinds, is_removing, is_adding = {}, false, false
  for _, word in ipairs(list) do
    kinds[old:sub(word.from + 1, word.to) .. "\n" .. word.add] = true
    is_removing, is_adding = is_removing or word.to > word.from, is_adding or word.add ~= ""
  end
  if vim.tbl_count(kinds) <= MAX_KINDS or not (is_removing and is_adding) then
    return list
  end
  local from, to = list[1].from, list[#list].to
  return { { from = from, to = to, add = new:sub(from + 1, #new - #old + to) } }
end

--- The differences of each line; nil where a block is easier to read: the lines have no pairs, are many, are indented
--- anew, or are mostly new.
---@param old string[]
---@param new string[]
---@return speclsp.Word[][]?
local function words_of_lines(old, new)
  if #old ~= #new or #new > MAX_LINES then
    return nil
  end
  local list, added, whole = {}, 0, 0
  for i, line in ipairs(old) do
    if line:match("^%s*") ~= new[i]:match("^%s*") then
      return nil
    end
    list[i] = words(line, new[i])
    whole = whole + #vim.trim(new[i])
    for _, word in ipairs(list[i]) do
      added = added + #vim.trim(word.add)
    end
  end
  return (#new == 1 or added * 2 <= whole) and list or nil
end

--- The hunk of an edit; nil when it changes nothing.
---@param lines string[] lines of the edit's range; one less than the range has where it ends behind the last line
---@param first integer row of the first one
---@param rows integer number of rows of the range
---@param from integer byte column in the first line
---@param to integer byte column in the last line
---@param text string with lines joined by \n
---@return speclsp.Hunk?
function M.hunk(lines, first, rows, from, to, text)
  local old, behind = vim.list_slice(lines), #lines < rows
  if behind then
    old[#old + 1] = ""
  end
  local new = vim.split(old[1]:sub(1, from) .. text .. old[#old]:sub(to + 1), "\n", { plain = true })
  while #old > 0 and #new > 0 and old[#old] == new[#new] do
    old[#old], new[#new] = nil, nil
    behind = false
  end
  if behind then
    old[#old] = nil
  end
  while #old > 0 and #new > 0 and old[1] == new[1] do
    table.remove(old, 1)
    table.remove(new, 1)
    first = first + 1
  end
  if #old + #new == 0 then
    return nil
  end
  return { first = first, old = old, new = new, words = #old > 0 and words_of_lines(old, new) or nil }
end

return M
