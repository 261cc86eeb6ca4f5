--- Puts a suggestion into the text as if it had been typed: one undo step, and `.` repeats it.
---
--- The keys are fed, and the buffer not changed through the API, for only what passes through insert mode's own
--- commands is repeated by `.` and by a count. nvim_paste inserts as it is: no indenting, no wrapping, no abbreviation.
local api = vim.api
local client_of = require("speclsp.client")
local ghost = require("speclsp.ghost")
local item = require("speclsp.item")
local suggest = require("speclsp.suggest")

-- A word, with what leads up to it; else a run of other characters; else the blanks that are left.
local WORD = [=[^\_s*\%(\k\+\|\%(\k\@![^[:space:]]\)\+\)\|^\_s\+]=]

local M = {}
local waiting = {} ---@type (fun())[] what the fed keys are to do

---@param keys string
local function feed(keys)
  api.nvim_feedkeys(vim.keycode(keys), "ni", false)
end

--- What the keys that `accept` feeds call.
function M.go_on()
  local action = table.remove(waiting, 1)
  if action then
    action()
  end
end

--- Replace `over`, which begins at the cursor, by `text`, and leave the cursor behind it.
---@param text string
---@param over string
---@param left? speclsp.Rest what stays shown
---@param after? fun()
function M.put(text, over, left, after)
  waiting = {
    function()
      -- Pasting redraws before any event tells of it. What stays is drawn where the paste will push it.
      if left then
        local row, col = unpack(api.nvim_win_get_cursor(0))
        ghost.show(api.nvim_get_current_buf(), row - 1, col, left)
      else
        ghost.hide()
      end
      api.nvim_paste(text, false, -1)
      if after then
        after()
      end
    end,
  }
  local characters = vim.fn.strchars(over, true) -- <Del> takes a character with all that combines with it
  feed("<C-g>u" .. ("<Del>"):rep(characters) .. '<Cmd>lua require("speclsp.accept").go_on()<CR><C-g>u')
end

--- Replace what a snippet replaces, and expand it.
---@param source string
---@param typed integer bytes left of the cursor
---@param over string right of it
---@param after? fun()
function M.expand(source, typed, over, after)
  waiting = {
    function()
      local row, col = unpack(api.nvim_win_get_cursor(0))
      api.nvim_buf_set_text(0, row - 1, col - typed, row - 1, col + #over, {})
      api.nvim_win_set_cursor(0, { row, col - typed })
      vim.snippet.expand(source)
      if after then
        after()
      end
    end,
  }
  feed('<C-g>u<Cmd>lua require("speclsp.accept").go_on()<CR>')
end

---@type table<string, fun(add: string): string> the beginning of what is to come
local take = {
  all = function(add)
    return add
  end,
  word = function(add)
    local word = vim.fn.matchstr(add, WORD)
    return word ~= "" and word or add
  end,
  line = function(add)
    return add:match("^\n*[^\n]*")
  end,
}

--- The beginning of a text that one kind of accepting takes.
---@param add string
---@param how "all"|"word"|"line"
function M.beginning(add, how)
  return take[how](add)
end

--- Accept what is shown, or its beginning. What is left of it stays on the screen.
---@param how "all"|"word"|"line"
---@return boolean acted
function M.accept(how)
  local held, rest = suggest.shown()
  if not held or not rest then
    return false
  end
  local suggestion = held.suggestions[held.index]
  local function execute()
    if suggestion.command then
      client_of.execute(held.client, suggestion.command, held.buf)
    end
  end
  if suggestion.snippet and how == "all" then
    ghost.hide()
    M.expand(suggestion.snippet, rest.typed, rest.over, execute)
    return true
  end
  local text = M.beginning(rest.add, how)
  local over, left = item.take(rest, #text)
  M.put(text, over, left, not left and execute or nil)
  return true
end

return M
