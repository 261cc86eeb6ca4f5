--- Paths that differ between operating systems. Functions take the system, so that each is tested on any of them.
local M = {}

---@alias speclsp.System "windows"|"mac"|"unix"

--- The system that Neovim runs on.
---@return speclsp.System
function M.current()
  return vim.fn.has("win32") == 1 and "windows" or vim.fn.has("mac") == 1 and "mac" or "unix"
end

--- Where `speclsp` is looked for: the name on PATH, then the directory of uv and pipx. On Windows, Neovim adds the
--- extensions of PATHEXT.
---@param home string
---@return string[]
function M.programs(home)
  return { "speclsp", home .. "/.local/bin/speclsp" }
end

--- The server's log, where speclsp writes it by default: the directories of the Python package platformdirs.
---@param system speclsp.System
---@param env table<string, string?>
---@param home string
---@return string
function M.default_log(system, env, home)
  if system == "mac" then
    return home .. "/Library/Logs/speclsp/lsp.log"
  end
  local state = (env.XDG_STATE_HOME or ""):gsub("\\", system == "windows" and "/" or "%0")
  local is_absolute = state:find(system == "windows" and "^%a:/" or "^/") ~= nil -- a relative path does not count
  if system == "windows" and not is_absolute then
    local data = env.LOCALAPPDATA or home .. "/AppData/Local"
    return data:gsub("\\", "/") .. "/speclsp/Logs/lsp.log"
  end
  return (is_absolute and state or home .. "/.local/state") .. "/speclsp/log/lsp.log"
end

return M
