--- Levels of completion.eagerness: their menu, and the choice of one until Neovim ends.
local levels = require("speclsp.levels")
local lsp_client = require("speclsp.client")
local notify = require("speclsp.notify")
local options = require("speclsp.options")

local M = {}

---@return string[]
function M.names()
  return vim.tbl_map(function(level)
    return level.name
  end, levels)
end

---@param name string
local function use(name)
  local settings = options.now.settings
  settings["completion.eagerness"] = nil
  settings.completion = vim.tbl_extend("force", settings.completion or {}, { eagerness = name })
  lsp_client.configure(settings)
  notify.say(("eagerness %s until Neovim ends; for good: config.toml or setup"):format(name))
end

--- Show the levels in a menu; the current one is marked.
local function choose()
  local status = require("speclsp").status()
  local mouse = vim.o.mouse
  vim.o.mouse = mouse .. "c" -- the built-in list accepts clicks
  vim.ui.select(levels, {
    prompt = "speclsp: how many suggestions",
    format_item = function(level)
      local mark = status and status.eagerness == level.name and " (in use)" or ""
      return ("%s%s: %s"):format(level.name, mark, level.shows)
    end,
  }, function(level)
    if level then
      use(level.name)
    end
  end)
  vim.o.mouse = mouse
end

--- Use a level, or choose one from a menu.
---@param name? string
function M.set(name)
  if not name then
    return choose()
  elseif not vim.tbl_contains(M.names(), name) then
    local nearest = options.nearest(name, M.names())
    return notify.say(("no level %s; did you mean %s?"):format(name, nearest), vim.log.levels.WARN)
  end
  use(name)
end

return M
