--- Suggestions of the language server `speclsp` as ghost text. All a user calls is here; each action returns whether it acted.
---
---     require("speclsp").setup({})     or nothing but vim.lsp.enable("speclsp") on 0.11 and newer
local M = {}

local function options()
  return require("speclsp.options").now
end

local function drawer()
  return require(options().ui == "builtin" and "speclsp.builtin" or "speclsp.suggest")
end

--- Set options and start the server for the buffers that want it.
---@param given? speclsp.Options|{} see |speclsp-options|
function M.setup(given)
  local options_of = require("speclsp.options")
  local client = require("speclsp.client")
  local again = #vim.lsp.get_clients({ name = "speclsp" }) > 0
  local had = options_of.now.settings
  options_of.take(given)
  if again and not vim.deep_equal(had, options_of.now.settings) then
    client.configure(options_of.now.settings)
  end
  client.enable()
end

---@param how "all"|"word"|"line"
local function accept(how)
  if options().ui == "builtin" then
    return require("speclsp.builtin").accept(how)
  end
  return require("speclsp.accept").accept(how)
end

--- Accept all of the suggestion.
---@return boolean acted
function M.accept()
  return accept("all")
end

--- Accept its next word.
---@return boolean acted
function M.accept_word()
  return accept("word")
end

--- Accept its next line.
---@return boolean acted
function M.accept_line()
  return accept("line")
end

--- Show the next alternative.
---@return boolean acted
function M.next()
  return drawer().cycle(1)
end

--- Show the one before.
---@return boolean acted
function M.prev()
  return drawer().cycle(-1)
end

--- Hide the suggestion until the text changes.
---@return boolean acted
function M.dismiss()
  return drawer().dismiss()
end

--- Ask now, for several, also where suggestions are switched off.
---@return boolean acted
function M.trigger()
  if options().ui == "builtin" then
    return false -- it has no way to be asked
  end
  return require("speclsp.suggest").trigger(function()
    local client = require("speclsp.client").get(0)
    local status = client and require("speclsp.status").of(client.id)
    local why = status and (status.last_reason_meaning or status.message) or ""
    require("speclsp.notice").say("nothing to suggest here" .. (why ~= "" and ": " .. why or ""))
  end)
end

--- Switch suggestions off or on again: in this buffer, for its file type, or everywhere.
---@param scope? "here"|"filetype"|"all" all unless given
---@return boolean acted
function M.toggle(scope)
  local buf = vim.api.nvim_get_current_buf()
  local on = require("speclsp.gate").toggle(scope or "all", buf)
  if on then
    require("speclsp.client").enable()
    require("speclsp.client").start(buf)
  end
  if options().ui == "builtin" then
    vim.lsp.inline_completion.enable(on, scope ~= "all" and scope ~= nil and { bufnr = buf } or nil)
  else
    require("speclsp.suggest").refresh()
  end
  local where = ({ here = " in this buffer", filetype = " for " .. vim.bo[buf].filetype })[scope] or ""
  require("speclsp.notice").say(("suggestions are %s%s"):format(on and "on" or "off", where))
  vim.cmd.redrawstatus()
  return true
end

--- Whether a suggestion is shown at the cursor.
---@return boolean
function M.visible()
  if options().ui == "builtin" then
    return require("speclsp.builtin").is_shown()
  end
  return require("speclsp.suggest").shown() ~= nil
end

--- A few characters for the status line: "speclsp 40%", "speclsp 85 ms", "speclsp 2/3"; "" where there is no server.
---@return string
function M.statusline()
  return require("speclsp.status").line()
end

--- What the server of the current buffer last said (|speclsp-status|); nil where there is none.
---@return speclsp.Status?
function M.status()
  local client = require("speclsp.client").get(vim.api.nvim_get_current_buf())
  return client and require("speclsp.status").of(client.id)
end

return M
