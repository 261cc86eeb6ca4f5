--- One-line messages to the user, short enough that Neovim does not ask for <Enter>.
local M = {}
local shown = {} ---@type table<string, true>

--- True if messages go to the last line, and not to a plugin with a window of its own.
local function is_last_line()
  local source = debug.getinfo(vim.notify, "S").source
  return source:find("vim[/\\]_") ~= nil or source:find("^=?%?$") ~= nil -- in 0.12 the function has no source name
end

--- Shortens a text so that it fits into the last line beside its other contents.
---@param text string
---@param rest string replaces the part that does not fit
local function fitted(text, rest)
  local width = vim.o.columns * math.max(vim.o.cmdheight, 1) - 15
  if vim.fn.strdisplaywidth(text) <= width then
    return text
  end
  local cut = vim.fn.strcharpart(text, 0, math.max(width - #rest - 2, 10))
  return cut .. "… " .. rest
end

--- Show a message.
---@param text string
---@param level? integer vim.log.levels
function M.say(text, level)
  text = "speclsp: " .. text:gsub("%s*\n%s*", " ")
  vim.schedule(function()
    vim.notify(is_last_line() and fitted(text, "(:Speclsp status)") or text, level or vim.log.levels.INFO)
  end)
end

--- Show a message, but each text only once.
---@param text string
---@param level? integer
function M.once(text, level)
  if not shown[text] then
    shown[text] = true
    M.say(text, level)
  end
end

return M
