--- Another Neovim to type into: keys enter as from a keyboard, and checks repeat until they hold. It may run in a terminal.
local TIMEOUT_MS = 20000
local NO_PYTHON = "let g:loaded_python3_provider = 0" -- Neovim's own Python files start Python to look for its provider

---@class Child
---@field channel integer RPC
---@field job integer
local Child = {}
Child.__index = Child

--- Starts Neovim in a terminal, and connects to it.
---@return integer job
---@return integer channel
local function in_terminal()
  local socket = vim.fn.tempname()
  local command = { vim.v.progpath, "--listen", socket, "--clean", "-n", "--cmd", NO_PYTHON }
  local options = { pty = true, width = 100, height = 20, env = { TERM = "xterm-256color" } }
  local job, channel = vim.fn.jobstart(command, options), nil
  assert(job > 0, "no Neovim was started")
  vim.wait(TIMEOUT_MS, function()
    local ok, connected = pcall(vim.fn.sockconnect, "pipe", socket, { rpc = true })
    channel = ok and connected or nil
    return ok
  end, 20)
  return job, assert(channel, "no connection to the terminal's Neovim")
end

--- Starts a fresh Neovim with the plugin and, in the buffer `a.py`, the fake server.
---@param here string
---@param terminal? boolean
function Child.start(here, terminal)
  local job, channel
  if terminal then
    job, channel = in_terminal()
  else
    local command = { vim.v.progpath, "--embed", "--headless", "--clean", "-n", "--cmd", NO_PYTHON }
    job = vim.fn.jobstart(command, { rpc = true })
    channel = job
  end
  assert(job > 0, "no Neovim was started")
  local self = setmetatable({ channel = channel, job = job, here = here }, Child)
  self:lua(
    [[
    local here = ...
    package.path = here .. "/?.lua;" .. package.path
    vim.opt.rtp:prepend(here .. "/../../../editors/nvim")
    vim.cmd.runtime("plugin/speclsp.lua")
    vim.o.shortmess = vim.o.shortmess .. "I"
    _G.fake = require("fake")
    vim.o.columns, vim.o.lines, vim.o.timeoutlen = 100, 20, 100
    notices = {}
    vim.notify = function(text) table.insert(notices, text) end
  ]],
    here
  )
  return self
end

--- Opens `a.py` with these lines.
---@param lines? string[]
function Child:edit(lines)
  self:lua(
    [[
    vim.cmd.edit("a.py")
    vim.bo.filetype = "python"
    vim.bo.indentexpr, vim.bo.autoindent, vim.bo.expandtab = "", true, false
    vim.bo.tabstop, vim.bo.softtabstop, vim.bo.shiftwidth = 8, 0, 8
    vim.api.nvim_buf_set_lines(0, 0, -1, false, ...)
  ]],
    lines or { "" }
  )
end

--- Starts the server for the buffer.
---@param setup? table options of the plugin
function Child:attach(setup)
  self:lua("if ... then require('speclsp.options').apply(...) end; fake.start()", setup)
  self:wait('pcall(vim.api.nvim_get_autocmds, { group = "speclsp." .. vim.api.nvim_get_current_buf() })', "the plugin")
end

--- Stops the server, and waits until the buffer has none.
function Child:detach()
  self:lua("vim.lsp.stop_client(vim.lsp.get_clients())")
  self:wait("#vim.lsp.get_clients() == 0", "the server to end")
end

--- Opens `a.py` with these lines, and starts the server for it.
---@param lines? string[]
---@param setup? table options of the plugin
function Child:open(lines, setup)
  self:edit(lines)
  self:attach(setup)
end

function Child:lua(code, ...)
  return vim.rpcrequest(self.channel, "nvim_exec_lua", code, { ... })
end

--- Types, and waits until all keys are processed. A Neovim that loops is killed, so that the spec fails.
---@param keys string
function Child:type(keys)
  local timer, pid = assert(vim.uv.new_timer()), vim.fn.jobpid(self.job)
  timer:start(TIMEOUT_MS, 0, function()
    vim.uv.kill(pid, "sigkill")
  end)
  local ok, problem = pcall(function()
    vim.rpcrequest(self.channel, "nvim_input", keys)
    self:settle()
  end)
  timer:close()
  assert(ok, ("after %s: %s"):format(keys, problem))
end

--- Sends bytes to the terminal in one write.
---@param bytes string
function Child:press(bytes)
  vim.fn.chansend(self.job, bytes)
end

--- Waits until keys, scheduled work and answers are done.
function Child:settle()
  for _ = 1, 3 do
    vim.rpcrequest(self.channel, "nvim_eval", "1") -- not an API-fast call: the main loop answers it in turn
    self:lua(
      [[local done = false; vim.schedule(function() done = true end); vim.wait(5000, function() return done end, 1)]]
    )
  end
end

--- Evaluates a Lua expression until it is true.
---@param expression string
---@param what string
function Child:wait(expression, what)
  local value
  local ok = vim.wait(TIMEOUT_MS, function()
    value = self:lua("return " .. expression)
    return value ~= nil and value ~= false and value ~= vim.NIL
  end, 5)
  assert(ok, "waited for " .. what .. ": " .. expression)
  return value
end

---@return string[]
function Child:lines()
  return vim.rpcrequest(self.channel, "nvim_buf_get_lines", 0, 0, -1, false)
end

--- Line (from 1) and byte column.
function Child:cursor()
  return vim.rpcrequest(self.channel, "nvim_win_get_cursor", 0)
end

--- The ghost text: the pieces inside the line, joined with "|", and the lines below.
---@return string
function Child:ghost()
  return self:lua([[
    local namespace = vim.api.nvim_get_namespaces()["speclsp.ghost"]
    if not namespace then return "" end
    local out, below = {}, {}
    for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(0, namespace, 0, -1, { details = true })) do
      local function text(chunks)
        return table.concat(vim.tbl_map(function(chunk) return chunk[1] end, chunks))
      end
      if mark[4].virt_text then table.insert(out, text(mark[4].virt_text)) end
      for _, line in ipairs(mark[4].virt_lines or {}) do table.insert(below, text(line)) end
    end
    return table.concat(vim.list_extend({ table.concat(out, "|") }, below), "\n")
  ]])
end

--- Waits until the ghost text is exactly this.
---@param text string
function Child:sees(text)
  local last
  local ok = vim.wait(TIMEOUT_MS, function()
    last = self:ghost()
    return last == text
  end, 5)
  assert(ok, ("the ghost text is %q, expected %q; the buffer is %s"):format(last, text, vim.inspect(self:lines())))
end

--- Waits until the buffer has exactly these lines.
---@param lines string[]
function Child:has(lines)
  local last
  local ok = vim.wait(TIMEOUT_MS, function()
    last = self:lines()
    return vim.deep_equal(last, lines)
  end, 5)
  assert(ok, ("the buffer is %s, expected %s"):format(vim.inspect(last), vim.inspect(lines)))
end

function Child:stop()
  vim.fn.jobstop(self.job)
  vim.fn.jobwait({ self.job }, 5000)
end

return Child
