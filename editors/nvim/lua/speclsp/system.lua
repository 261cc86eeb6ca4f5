--- Paths that differ between operating systems. Functions take the system, so that each is tested on any of them.
local M = {}

---@alias speclsp.System "windows"|"mac"|"unix"

--- The system that Neovim runs on.
---@return speclsp.System
function M.current()
  return vim.fn.has("win32") == 1 and "windows" or vim.fn.has("mac") == 1 and "mac" or "unix"
end

--- Absolute paths of a program on PATH, in search order. On Windows, `executable()` adds the extensions of PATHEXT.
--- For a bare name it looks in the current directory first there, and everywhere at relative entries of PATH: the files
--- of a foreign project would start.
---@param system speclsp.System
---@param name string
---@param path string the value of PATH
---@return string[]
function M.on_path(system, name, path)
  local windows, paths = system == "windows", {} ---@type boolean, string[]
  for _, folder in ipairs(vim.split(path, windows and ";" or ":", { plain = true })) do
    folder = windows and folder:gsub('"', ""):gsub("\\", "/") or folder
    if folder:find(windows and "^%a:/" or "^/") or (windows and folder:find("^//[^/]")) then
      paths[#paths + 1] = folder:gsub("/+$", "") .. "/" .. name
    end
  end
  return paths
end

--- Absolute paths where `speclsp` is looked for: on PATH, then in the directory of uv and pipx.
---@param system speclsp.System
---@param path string the value of PATH
---@param home string
---@return string[]
function M.programs(system, path, home)
  return vim.list_extend(M.on_path(system, "speclsp", path), { home .. "/.local/bin/speclsp" })
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
