--- Differences between operating systems. The paths of each system are checked on all of them.
local system = require("speclsp.system")
local specs = {}

local function equal(actual, expected)
  assert(vim.deep_equal(actual, expected), ("found %s, expected %s"):format(vim.inspect(actual), vim.inspect(expected)))
end

specs["the log is in the directory of each system"] = function()
  local home = "C:\\Users\\Zoë B"
  local windows = { LOCALAPPDATA = "D:\\Local Data" }
  equal(system.default_log("windows", windows, home), "D:/Local Data/speclsp/Logs/lsp.log")
  windows.XDG_STATE_HOME = "relative"
  equal(system.default_log("windows", windows, home), "D:/Local Data/speclsp/Logs/lsp.log")
  windows.XDG_STATE_HOME = "E:\\State"
  equal(system.default_log("windows", windows, home), "E:/State/speclsp/log/lsp.log")
  equal(system.default_log("windows", {}, home), "C:/Users/Zoë B/AppData/Local/speclsp/Logs/lsp.log")
  equal(system.default_log("mac", { XDG_STATE_HOME = "/s" }, "/Users/zoë"), "/Users/zoë/Library/Logs/speclsp/lsp.log")
  equal(system.default_log("unix", {}, "/home/zoë"), "/home/zoë/.local/state/speclsp/log/lsp.log")
  equal(system.default_log("unix", { XDG_STATE_HOME = "/s" }, "/home/zoë"), "/s/speclsp/log/lsp.log")
  for _, state in ipairs({ "", "relative" }) do
    local path = system.default_log("unix", { XDG_STATE_HOME = state }, "/home/zoë")
    equal(path, "/home/zoë/.local/state/speclsp/log/lsp.log")
  end
end

specs["the program is looked for on PATH, then where uv and pipx install it"] = function()
  equal(system.programs("/home/me"), { "speclsp", "/home/me/.local/bin/speclsp" })
end

for place, folder in pairs({ ["on PATH"] = "a b ü", ["below the home directory"] = ".local/bin" }) do
  specs["a program " .. place .. " is found and runs, by the extension that the system adds"] = function(n)
    n:lua(
      [[
      local folder = ...
      local home = vim.fn.tempname()
      local bin = home .. "/" .. folder
      vim.fn.mkdir(bin, "p")
      local on_windows = vim.fn.has("win32") == 1
      local program = bin .. "/speclsp" .. (on_windows and ".cmd" or "")
      vim.fn.writefile(on_windows and { "@echo version 1\r" } or { "#!/bin/sh", "echo version 1" }, program)
      vim.uv.fs_chmod(program, 493)
      if folder == ".local/bin" then
        vim.env.HOME, vim.env.PATH = home, vim.fs.dirname(vim.v.progpath)
      else
        vim.env.PATH = bin .. (on_windows and ";" or ":") .. vim.env.PATH
      end
    ]],
      folder
    )
    local command = n:lua([[return require("speclsp.client").command()]])
    equal(vim.fs.basename(vim.fs.normalize(command[1])):gsub("%.cmd$", ""), "speclsp")
    equal(command[2], "lsp")
    local output = n:lua([[return vim.system(require("speclsp.client").program("--version")):wait().stdout]])
    equal(vim.trim(output), "version 1")
  end
end

return specs
