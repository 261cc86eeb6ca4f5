--- Accepting: inserts a suggestion as if it were typed, as one undo step that `.` repeats.
---
--- Keys are fed, instead of changing the buffer through the API: `.` and a count repeat only text that passes through
--- insert mode's own commands. nvim_paste inserts verbatim: no indenting, no wrapping, no abbreviations.
local api = vim.api
local lsp_client = require("speclsp.client")
local ghost = require("speclsp.ghost")
local item = require("speclsp.item")
local options = require("speclsp.options")
local suggest = require("speclsp.suggest")

-- A word with the white space before it; else a run of other characters; else the remaining white space.
local WORD = [=[^\_s*\%(\k\+\|\%(\k\@![^[:space:]]\)\+\)\|^\_s\+]=]

local M = {}
local waiting = {} ---@type (fun())[] actions that the fed keys will run, in order

---@param keys string
local function feed(keys)
  api.nvim_feedkeys(vim.keycode(keys), "ni", false)
end

--- Run the next waiting action; the fed keys call this.
function M.run_next()
  local action = table.remove(waiting, 1)
  if action then
    action()
  end
end

--- Give the cursor's line less indentation. The cursor stays at its character.
---@param outdent speclsp.Outdent
local function take_back(outdent)
  local row, col = unpack(api.nvim_win_get_cursor(0))
  api.nvim_buf_set_text(0, row - 1, 0, row - 1, outdent.bytes, { outdent.blanks })
  api.nvim_win_set_cursor(0, { row, col - outdent.bytes + #outdent.blanks })
end

--- Replace `over`, which begins at the cursor, by `text`, and move the cursor to its end.
---@param text string
---@param over string
---@param left? speclsp.Rest the part that stays shown
---@param after fun()
---@param outdent? speclsp.Outdent of the cursor's line, before
function M.put(text, over, left, after, outdent)
  waiting = {
    function()
      if outdent then
        take_back(outdent)
      end
      -- Pasting redraws before any event fires, so the remaining part is drawn now, where the paste will push it.
      if left then
        local row, col = unpack(api.nvim_win_get_cursor(0))
        ghost.show(api.nvim_get_current_buf(), row - 1, col, left)
      else
        ghost.hide()
      end
      api.nvim_paste(text, false, -1)
      after()
    end,
  }
  local characters = vim.fn.strchars(over, true) -- <Del> deletes a character together with its combining characters
  feed("<C-g>u" .. ("<Del>"):rep(characters) .. '<Cmd>lua require("speclsp.accept").run_next()<CR><C-g>u')
end

--- Delete the text that a snippet replaces, and expand the snippet.
---@param source string
---@param typed integer bytes left of the cursor
---@param over string text right of the cursor
---@param after fun()
function M.expand(source, typed, over, after)
  waiting = {
    function()
      local row, col = unpack(api.nvim_win_get_cursor(0))
      api.nvim_buf_set_text(0, row - 1, col - typed, row - 1, col + #over, {})
      api.nvim_win_set_cursor(0, { row, col - typed })
      vim.snippet.expand(source)
      after()
    end,
  }
  feed('<C-g>u<Cmd>lua require("speclsp.accept").run_next()<CR>')
end

---@type table<string, fun(add: string): string> the part of the remaining text that each kind accepts
local beginnings = {
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

--- Insert a suggestion that fits, or its beginning. With the plugin's own interface the rest stays shown.
---@param snippet? string its source, if it is one
---@param rest speclsp.Rest
---@param how "all"|"word"|"line"
---@param report fun(characters?: integer) runs the suggestion's command; with the characters inserted, if not all
function M.apply(snippet, rest, how, report)
  if snippet and how == "all" then
    ghost.hide()
    M.expand(snippet, rest.typed, rest.over, report)
    return
  end
  local text = beginnings[how](rest.add)
  local over, left = item.take(rest, #text)
  left = options.now.ui ~= "builtin" and left or nil
  local function after()
    report(#text < #rest.add and vim.fn.strchars(text) or nil)
  end
  M.put(text, over, left, after, rest.outdent)
end

--- Insert the shown suggestion, or its beginning, at the present cursor. The rest stays shown.
---@param how "all"|"word"|"line"
---@return boolean acted
function M.insert(how)
  if options.now.ui == "builtin" then
    return require("speclsp.builtin").insert(how)
  end
  local shown, rest = suggest.shown()
  if not shown or not rest then
    return false
  end
  local suggestion = shown.suggestions[shown.index]
  M.apply(suggestion.snippet, rest, how, function(characters)
    lsp_client.execute(shown.client, suggestion.command, shown.buf, characters)
  end)
  return true
end

--- Feed a key that inserts the shown suggestion, or its beginning, if it still fits then. An expression mapping may
--- call this: text must not change in it, and keys typed before may not be in the buffer yet.
---@param how "all"|"word"|"line"
---@return boolean acted true if a suggestion is shown
function M.accept(how)
  if not require("speclsp").visible() then
    return false
  end
  feed(('<Cmd>lua require("speclsp.accept").insert(%q)<CR>'):format(how))
  return true
end

return M
