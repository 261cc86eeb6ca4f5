--- Public interface: suggestions of the language server `speclsp` as ghost text. Each action returns true if it acted.
---
---     require("speclsp").setup({})     on 0.11 and newer, vim.lsp.enable("speclsp") alone is enough
local M = {}

local function options()
  return require("speclsp.options").now
end

local function drawer()
  return require(options().ui == "builtin" and "speclsp.builtin" or "speclsp.suggest")
end

--- Set options and start the server for the buffers that want it.
---@param opts? speclsp.Options|{} see |speclsp-options|
function M.setup(opts)
  local options_module = require("speclsp.options")
  local client = require("speclsp.client")
  local running = #vim.lsp.get_clients({ name = "speclsp" }) > 0
  local old_settings = options_module.now.settings
  options_module.apply(opts)
  if running and not vim.deep_equal(old_settings, options_module.now.settings) then
    client.configure(options_module.now.settings)
  end
  require("speclsp.next_edit").refresh()
  client.enable()
end

--- Accept all of the suggestion.
---@return boolean acted
function M.accept()
  return require("speclsp.accept").accept("all")
end

--- Accept the next word of the suggestion.
---@return boolean acted
function M.accept_word()
  return require("speclsp.accept").accept("word")
end

--- Accept the next line of the suggestion.
---@return boolean acted
function M.accept_line()
  return require("speclsp.accept").accept("line")
end

--- Show the next alternative.
---@return boolean acted
function M.next()
  return drawer().cycle(1)
end

--- Show the previous alternative.
---@return boolean acted
function M.prev()
  return drawer().cycle(-1)
end

--- Hide the suggestion until the text changes.
---@return boolean acted
function M.dismiss()
  return drawer().dismiss()
end

--- Request several alternatives now, also where suggestions are off.
---@return boolean acted
function M.trigger()
  if options().ui == "builtin" then
    return false -- the built-in client cannot be triggered
  end
  return require("speclsp.suggest").trigger(function()
    local client = require("speclsp.client").get(0)
    local status = client and require("speclsp.status").of(client.id)
    local reason = status and (status.last_reason_meaning or status.message) or ""
    require("speclsp.notify").say("nothing to suggest here" .. (reason ~= "" and ": " .. reason or ""))
  end)
end

--- Toggle suggestions: in this buffer, for its file type, or everywhere.
---@param scope? "here"|"filetype"|"all" all unless given
---@return boolean acted
function M.toggle(scope)
  local buf = vim.api.nvim_get_current_buf()
  local on = require("speclsp.enabled").toggle(scope or "all", buf)
  if on then
    require("speclsp.client").enable()
    require("speclsp.client").start(buf)
  end
  if options().ui == "builtin" then
    vim.lsp.inline_completion.enable(on, scope ~= "all" and scope ~= nil and { bufnr = buf } or nil)
  else
    require("speclsp.suggest").refresh()
  end
  require("speclsp.next_edit").refresh()
  local where = ({ here = " in this buffer", filetype = " for " .. vim.bo[buf].filetype })[scope] or ""
  require("speclsp.notify").say(("suggestions are %s%s"):format(on and "on" or "off", where))
  vim.cmd.redrawstatus()
  return true
end

--- Choose how many suggestions come, until Neovim ends. A click of the status line passes a number: it opens the menu.
---@param level? "low"|"medium"|"high"|integer from a menu unless a level is given
---@return boolean acted
function M.eagerness(level)
  require("speclsp.eagerness").set(type(level) == "string" and level or nil)
  return true
end

--- Redraw for a snooze that began or ended.
local function snooze_changed()
  if options().ui == "builtin" then
    local buf = vim.api.nvim_get_current_buf()
    vim.lsp.inline_completion.enable(require("speclsp.enabled").off_reason(buf) == nil)
  else
    require("speclsp.suggest").refresh()
  end
  require("speclsp.next_edit").refresh()
  vim.cmd.redrawstatus()
end

--- Pause automatic suggestions. A manual request still works.
---@param minutes? number 10 unless given; math.huge is until Neovim ends, 0 ends the pause
---@return boolean acted
function M.snooze(minutes)
  local enabled = require("speclsp.enabled")
  minutes = minutes or 10
  enabled.snooze(minutes)
  snooze_changed()
  if minutes > 0 and minutes < math.huge then
    vim.defer_fn(snooze_changed, math.ceil(minutes * 60 * 1000) + 1000) -- os.time() counts whole seconds
  end
  local period = enabled.snoozed()
  require("speclsp.notify").say(period and "suggestions are snoozed " .. period or "the snooze has ended")
  return true
end

--- True while a suggestion is shown at the cursor.
---@return boolean
function M.visible()
  if options().ui == "builtin" then
    return require("speclsp.builtin").is_shown()
  end
  return require("speclsp.suggest").shown() ~= nil
end

--- Jump to the next edit that is shown if it is out of view or more than 2 rows away, else accept it.
---@return boolean acted
function M.accept_edit()
  return require("speclsp.next_edit").accept()
end

--- Reject the next edit that is shown.
---@return boolean acted
function M.dismiss_edit()
  return require("speclsp.next_edit").dismiss()
end

--- Short text for the status line: "speclsp 40%", "speclsp 85 ms", "speclsp 2/3"; "" without a server.
---@return string
function M.statusline()
  return require("speclsp.status").line()
end

--- Newest status of the current buffer's server (|speclsp-status|); nil without a server.
---@return speclsp.Status?
function M.status()
  local client = require("speclsp.client").get(vim.api.nvim_get_current_buf())
  return client and require("speclsp.status").of(client.id)
end

return M
