--- Tells the user something in one line, never so much that Neovim asks for <Enter>.
local M = {}
local said = {} ---@type table<string, true>

--- Whether messages go to the last line, and not to a plugin that shows them in a window of its own.
local function is_last_line()
  local source = debug.getinfo(vim.notify, "S").source
  return source:find("vim[/\\]_") ~= nil or source:find("^=?%?$") ~= nil -- 0.12 has it without its source's name
end

--- Text that is sure to fit beside what else stands in the last line.
---@param text string
---@param rest string what to say instead of what does not fit
local function fitted(text, rest)
  local room = vim.o.columns * math.max(vim.o.cmdheight, 1) - 15
  if vim.fn.strdisplaywidth(text) <= room then
    return text
  end
  local cut = vim.fn.strcharpart(text, 0, math.max(room - #rest - 2, 10))
  return cut .. "… " .. rest
end

---@param text string
---@param level? integer vim.log.levels
function M.say(text, level)
  text = "speclsp: " .. text:gsub("%s*\n%s*", " ")
  vim.schedule(function()
    vim.notify(is_last_line() and fitted(text, "(:Speclsp status)") or text, level or vim.log.levels.INFO)
  end)
end

--- The same, but each text only once.
---@param text string
---@param level? integer
function M.once(text, level)
  if not said[text] then
    said[text] = true
    M.say(text, level)
  end
end

return M
