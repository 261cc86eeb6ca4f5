--- Settings, commands and notices.
local specs = {}

local function equal(found, expected)
  assert(vim.deep_equal(found, expected), ("found %s, expected %s"):format(vim.inspect(found), vim.inspect(expected)))
end

--- Waits until a notice contains this; returns the number of such notices.
local function hears(n, text)
  n:lua(
    "heard = function(text) local c = 0 for _, said in ipairs(notices) do if said:find(text, 1, true) then c = c + 1 end end return c end"
  )
  n:wait(("heard(%q) > 0"):format(text), "the notice")
  return n:lua("return heard(...)", text)
end

specs["an option that is unknown or of the wrong kind is named with the way out, and the others count"] = function(n)
  n:lua([[require("speclsp.options").take({ debounce = 5, keys = { acept = "x" }, ui = "mine", enabled = false })]])
  hears(n, "unknown option debounce; did you mean debounce_ms?")
  hears(n, "unknown option keys.acept; did you mean keys.accept?")
  hears(n, 'ui is "mine"; expected "own" or "builtin"')
  equal(n:lua("return require('speclsp.options').now.enabled"), false)
  equal(n:lua("return require('speclsp.options').now.ui"), "own")
end

specs["a server that is not found is said once, and typing goes on"] = function(n)
  n:lua([[
    vim.env.PATH, vim.env.HOME = "/nonexistent", "/nonexistent"
    require("speclsp").setup({})
    for _, name in ipairs({ "a.py", "b.py" }) do
      vim.cmd.edit(name)
      vim.bo.filetype = "python"
    end
  ]])
  equal(hears(n, "no `speclsp` found"), 1)
  n:type("ix<Tab>y")
  n:wait("vim.api.nvim_get_current_line():find('y')", "the text")
  equal(n:lua("return vim.v.errmsg"), "")
end

specs["what the user sets is sent to the server, and nothing else"] = function(n)
  n:open({ "" }, { settings = { pair = "small", completion = { multiline = "never" } } })
  local options = n:lua("return fake.told[1].params.initializationOptions")
  equal(options, { pair = "small", completion = { multiline = "never" } })
end

specs["without settings none are sent"] = function(n)
  n:open()
  equal(n:lua("return fake.told[1].params.initializationOptions == nil"), true)
end

specs["buffers that are no files, or of a file type that is off, are left alone"] = function(n)
  n:open()
  local function refused(code)
    return n:lua(
      "vim.cmd.new() " .. code .. " return require('speclsp.client').refusal(vim.api.nvim_get_current_buf()) ~= nil"
    )
  end
  for _, buftype in ipairs({ "nofile", "prompt", "help", "quickfix", "acwrite" }) do
    equal(refused(("vim.bo.buftype = %q"):format(buftype)), true)
  end
  equal(refused("vim.bo.filetype = 'gitrebase'"), true)
  equal(refused("vim.bo.filetype = 'lua'"), false)
end

specs["of the buffers without a name one has suggestions"] = function(n)
  n:lua(
    "vim.o.hidden = true; _G.refused = function() return require('speclsp.client').refusal(vim.api.nvim_get_current_buf()) end"
  )
  n:lua("fake.start()")
  n:wait("#vim.lsp.get_clients({ bufnr = 0 }) == 1", "the server")
  equal(n:lua("return refused() == nil"), true)
  n:lua("vim.cmd.new()")
  assert(n:lua("return refused()"):find("no name", 1, true))
  n:lua("vim.cmd.file('named.py')")
  equal(n:lua("return refused() == nil"), true)
end

specs["a toggle ends suggestions here, for a file type or everywhere, and begins them again"] = function(n)
  n:open()
  n:lua("fake.items = { 'ghost' }")
  for _, scope in ipairs({ "here", "filetype", "all" }) do
    n:lua("vim.cmd.Speclsp({ args = { 'toggle', ... } })", scope)
    n:type("A")
    n:settle()
    n:sees("")
    equal(n:lua("return require('speclsp').statusline()"), "speclsp off")
    n:type("<Esc>")
    n:lua("vim.cmd.Speclsp({ args = { 'toggle', ... } })", scope)
    n:type("A")
    n:sees("ghost")
    n:type("<Esc>")
  end
end

specs["the status line tells of loading, thinking, the last answer and errors"] = function(n)
  n:open()
  local function line(status)
    n:lua("fake.status(...)", status)
    return n:lua("return require('speclsp').statusline()")
  end
  equal(line({ state = "loading", progress = 0.4 }), "speclsp 40%")
  equal(line({ state = "thinking" }), "speclsp …")
  equal(line({ state = "ready", last_latency_ms = 84.6 }), "speclsp 85 ms")
  equal(line({ state = "error", message = "out of memory" }), "speclsp error")
  equal(line({ state = "error", message = "out of memory" }), "speclsp error")
  equal(hears(n, "out of memory"), 1)
  equal(line({ state = "asleep", message = "the model is unloaded" }), "speclsp asleep")
  equal(line({ state = "waiting", message = "in use by 2 other editors" }), "speclsp waiting")
  equal(line({ state = "waiting", message = "in use by 1 other editor" }), "speclsp waiting")
  equal(hears(n, "in use by"), 1)
  equal(line({ state = "stopped", message = "the engine was stopped" }), "speclsp stopped")
  equal(hears(n, "the engine was stopped"), 1)
  equal(n:lua("return heard('unloaded')"), 0)
  n:lua("vim.cmd.new()")
  equal(n:lua("return require('speclsp').statusline()"), "")
end

specs["the status says whose the engine is, and where the code goes"] = function(n)
  n:open()
  local function engine(status)
    return n:lua("return require('speclsp.status').engine(...)", status)
  end
  equal(engine({ state = "ready", engine_pid = 7, shared = true, clients = 1 }), "process 7, used by this Neovim")
  equal(engine({ engine_pid = 7, shared = true, clients = 2 }), "process 7, shared with 1 more editor")
  equal(engine({ engine_pid = 7, shared = true, clients = 4 }), "process 7, shared with 3 more editors")
  equal(engine({ engine_pid = 7, shared = false, clients = 1 }), "process 7, of this Neovim alone")
  equal(engine({ engine_pid = 0 }), vim.NIL)
  n:lua("fake.status(...)", { state = "ready", pair = "p", device = "d", message = "", remote = "gpu.example:8000" })
  n:lua("vim.cmd.checkhealth('speclsp')")
  n:wait("table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), '\\n'):find('gpu.example:8000', 1, true)", "it")
end

specs["User SpeclspStatus tells what the server said"] = function(n)
  n:open()
  n:lua(
    [[vim.api.nvim_create_autocmd("User", { pattern = "SpeclspStatus", callback = function(event) state = event.data.state end })]]
  )
  n:lua("fake.status({ state = 'thinking' })")
  n:wait("state == 'thinking'", "the event")
end

specs["what was given up is tried again by name, and what comes of that is said"] = function(n)
  n:open()
  n:lua("fake.retry = { retrying = true, message = 'trying again' }")
  n:lua("vim.cmd.Speclsp('retry')")
  hears(n, "trying again")
  n:lua("fake.retry = { retrying = false, message = 'nothing was given up; the state is ready' }")
  n:lua("vim.cmd.Speclsp('retry')")
  hears(n, "nothing was given up")
  n:lua("fake.retry = nil")
  n:lua("vim.cmd.Speclsp('retry')")
  hears(n, ":Speclsp restart")
end

specs["a subcommand that is unknown is named with the nearest, and those there are complete"] = function(n)
  n:open()
  n:lua("vim.cmd.Speclsp('toggel')")
  hears(n, "no subcommand toggel; did you mean toggle?")
  equal(n:lua("return vim.fn.getcompletion('Speclsp to', 'cmdline')"), { "toggle" })
  equal(n:lua("return vim.fn.getcompletion('Speclsp toggle ', 'cmdline')"), { "here", "filetype", "all" })
  equal(n:lua("return vim.fn.getcompletion('Speclsp pair ', 'cmdline')"), { "auto", "small", "large" })
end

specs["a pair is chosen by name or from a list, and the server is told"] = function(n)
  n:open()
  n:lua(
    "told = function() local last = fake.told[#fake.told]; return vim.tbl_get(last, 'params', 'settings', 'speclsp', 'pair') end"
  )
  n:lua("vim.cmd.Speclsp({ args = { 'pair', 'large' } })")
  n:wait("told() == 'large'", "the settings")
  n:lua([[
    vim.ui.select = function(items, options, choose) shown = vim.tbl_map(options.format_item, items) choose(items[1]) end
    vim.cmd.Speclsp('pair')
  ]])
  n:wait("told() == 'small'", "the settings")
  equal(n:lua("return shown"), { "small (in use)", "large (too large)" })
  n:lua("vim.cmd.Speclsp({ args = { 'pair', 'smal' } })")
  hears(n, "no pair smal; did you mean small?")
end

specs["one server serves all projects, and is told of each"] = function(n)
  n:lua([[
    root = vim.fn.tempname()
    for _, project in ipairs({ "one", "two" }) do
      vim.fn.mkdir(root .. "/" .. project .. "/.git", "p")
      vim.cmd.edit(root .. "/" .. project .. "/a.py")
      vim.bo.filetype = "python"
      fake.start()
    end
  ]])
  n:wait(
    "vim.iter(fake.told):any(function(m) return m.method == 'workspace/didChangeWorkspaceFolders' and m.params.event.added[1].uri:find('two') end)",
    "the folder"
  )
  equal(n:lua("return #vim.lsp.get_clients()"), 1)
end

specs["health says what was found"] = function(n)
  n:open()
  n:lua("fake.status({ state = 'ready' }); vim.cmd.checkhealth('speclsp')")
  n:wait(
    "table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), '\\n'):find('state: ready; pair small on cpu', 1, true)",
    "the report"
  )
end

specs[":Speclsp explain shows the server's own words, and says so where there are none"] = function(n)
  n:open()
  n:lua([[
    echoed = {}
    vim.api.nvim_echo = function(chunks) echoed[#echoed + 1] = chunks end
    fake.explanation = { asked = true, text = "suggested: 7 characters\n  at  a.py, line 1" }
    vim.cmd.Speclsp("explain")
  ]])
  n:wait("#echoed > 0", "the explanation")
  equal(n:lua("return echoed[1]"), { { "suggested: 7 characters", "Title" }, { "\n  at  a.py, line 1" } })
  n:lua([[fake.explanation = nil vim.cmd.Speclsp("explain")]])
  hears(n, "does not know how to explain")
end

return specs
