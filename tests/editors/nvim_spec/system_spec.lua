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
  local programs = system.programs("unix", "/usr/bin:/opt/a b", "/home/me")
  equal(programs, { "/usr/bin/speclsp", "/opt/a b/speclsp", "/home/me/.local/bin/speclsp" })
  programs = system.programs("windows", [[C:\bin;"D:\a b\";\\server\share]], [[C:\Users\Zoë]])
  local on_path = { "C:/bin/speclsp", "D:/a b/speclsp", "//server/share/speclsp" }
  equal(programs, vim.list_extend(on_path, { [[C:\Users\Zoë/.local/bin/speclsp]] }))
end

specs["relative folders on PATH are skipped"] = function()
  equal(system.on_path("unix", "speclsp", ":.:bin:~/bin:./a"), {})
  equal(system.on_path("windows", "speclsp", [[;.;bin;C:;C:bin;\bin;..\bin]]), {})
end

for name, setup in pairs({ ["without `cmd`"] = "false", ["with a name in `cmd`"] = '{ "speclsp", "lsp" }' }) do
  specs["a program in the current directory is not started, " .. name] = function(n)
    local command, problem = unpack(n:lua(([[
      local client = require("speclsp.client")
      require("speclsp").setup({ cmd = %s })
      local project = vim.fn.tempname()
      vim.fn.mkdir(project .. "/bin", "p")
      for _, program in ipairs({ "speclsp", "speclsp.cmd", "speclsp.exe", "bin/speclsp", "bin/speclsp.cmd" }) do
        vim.fn.writefile({ "@echo hostile\r" }, project .. "/" .. program)
        vim.uv.fs_chmod(project .. "/" .. program, 493)
      end
      vim.fn.chdir(project)
      vim.env.HOME, vim.env.USERPROFILE = project .. "/home", project .. "/home"
      vim.env.PATH = vim.fn.has("win32") == 1 and ".;bin" or ".:bin"
      local command, problem = client.command()
      return { command or vim.NIL, problem }
    ]]):format(setup)))
    equal(command, vim.NIL)
    assert(problem:find("speclsp", 1, true), problem)
  end
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
