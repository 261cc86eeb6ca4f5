--- Settings, commands and notices.
local specs = {}

local function equal(actual, expected)
  assert(vim.deep_equal(actual, expected), ("found %s, expected %s"):format(vim.inspect(actual), vim.inspect(expected)))
end

--- Waits until a notice contains this; returns the number of such notices.
local function notified(n, text)
  n:lua(
    "count_notices = function(text) local c = 0 for _, notice in ipairs(notices) do if notice:find(text, 1, true) then c = c + 1 end end return c end"
  )
  n:wait(("count_notices(%q) > 0"):format(text), "the notice")
  return n:lua("return count_notices(...)", text)
end

specs["an unknown or invalid option is named with its correction, and the others count"] = function(n)
  n:lua([[require("speclsp.options").apply({ debounce = 5, keys = { acept = "x" }, ui = "mine", enabled = false })]])
  notified(n, "unknown option debounce; did you mean debounce_ms?")
  notified(n, "unknown option keys.acept; did you mean keys.accept?")
  notified(n, 'ui is "mine"; expected "own" or "builtin"')
  equal(n:lua("return require('speclsp.options').now.enabled"), false)
  equal(n:lua("return require('speclsp.options').now.ui"), "own")
end

specs["a missing server is reported once, and typing goes on"] = function(n)
  n:lua([[
    vim.env.PATH, vim.env.HOME = "/nonexistent", "/nonexistent"
    require("speclsp").setup({})
    for _, name in ipairs({ "a.py", "b.py" }) do
      vim.cmd.edit(name)
      vim.bo.filetype = "python"
    end
  ]])
  equal(notified(n, "no `speclsp` found"), 1)
  n:type("ix<Tab>y")
  n:wait("vim.api.nvim_get_current_line():find('y')", "the text")
  equal(n:lua("return vim.v.errmsg"), "")
end

specs["the settings that the user sets are sent to the server, and no others"] = function(n)
  n:open({ "" }, { settings = { model = "small", completion = { multiline = "never" } } })
  local options = n:lua("return fake.messages[1].params.initializationOptions")
  equal(options, { model = "small", completion = { multiline = "never" } })
end

specs["without settings none are sent"] = function(n)
  n:open()
  equal(n:lua("return fake.messages[1].params.initializationOptions == nil"), true)
end

specs["buffers that are no files, or of a file type that is off, get no suggestions"] = function(n)
  n:open()
  local function refused(code)
    return n:lua(
      "vim.cmd.new() " .. code .. " return require('speclsp.client').exclusion_reason(vim.api.nvim_get_current_buf()) ~= nil"
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
    "vim.o.hidden = true; _G.refused = function() return require('speclsp.client').exclusion_reason(vim.api.nvim_get_current_buf()) end"
  )
  n:lua("fake.start()")
  n:wait("#vim.lsp.get_clients({ bufnr = 0 }) == 1", "the server")
  equal(n:lua("return refused() == nil"), true)
  n:lua("vim.cmd.new()")
  assert(n:lua("return refused()"):find("no name", 1, true))
  n:lua("vim.cmd.file('named.py')")
  equal(n:lua("return refused() == nil"), true)
end

--- The names, languages and texts that the server holds open, after each didOpen, didChange and didClose in turn.
local DOCUMENTS = [[
  documents = function()
    local open = {}
    for _, message in ipairs(fake.messages) do
      local document = (message.params or {}).textDocument
      local name = document and vim.fs.basename(document.uri)
      if message.method == "textDocument/didOpen" then
        assert(not open[name], name .. " is opened twice")
        open[name] = document.languageId .. ": " .. vim.trim(document.text)
      elseif message.method == "textDocument/didClose" then
        assert(open[name], name .. " is closed, and was not open")
        open[name] = nil
      elseif message.method == "textDocument/didChange" or message.method == "textDocument/inlineCompletion" then
        assert(open[name], name .. " is not open at " .. message.method)
      end
    end
    return open
  end
]]

specs["a buffer that gets another name or language is closed and opened with it, and suggestions go on"] = function(n)
  n:lua(DOCUMENTS .. [[fake.items = { "ghost" }; vim.o.hidden = true; vim.cmd.cd(vim.fn.tempname():match(".*/"))]])
  n:open({ "one" }, { cmd = { vim.v.progpath } })
  for _, case in ipairs({
    { ":file b.py<CR>", { ["b.py"] = "python: one" } },
    { ":lua vim.api.nvim_buf_set_name(0, 'c.py')<CR>", { ["c.py"] = "python: one" } },
    { ":saveas! d.py<CR>", { ["d.py"] = "python: one" } },
    { ":set filetype=lua<CR>", { ["d.py"] = "lua: one" } },
    { ":file .env<CR>", { [".env"] = "lua: one" } },
    { ":write! e.lua<CR>:file e2.lua<CR>:write!<CR>", { ["e2.lua"] = "lua: one" } },
    { ":new other.lua<CR>:wincmd p<CR>:file other.lua<CR>", { ["e2.lua"] = "lua: one" } }, -- refused: E95
    { ":0file<CR>", { [""] = "lua: one" } },
    { ":file f.lua<CR>", { ["f.lua"] = "lua: one" } },
    { ":set filetype=gitrebase<CR>", {} },
    { ":set filetype=lua<CR>", {} }, -- no `vim.lsp.enable` here, which starts it again
  }) do
    n:type(case[1] .. "<CR>")
    n:wait("vim.api.nvim_get_mode().mode == 'n'", "normal mode")
    n:settle()
    local expected = case[2]
    equal(n:lua("return documents()"), next(expected) and expected or n:lua("return vim.empty_dict()"))
    n:type("A")
    n:sees(next(expected) and "ghost" or "")
    n:type("<Esc>")
  end
end

specs["a name in insert mode keeps what is typed, and a second buffer without a name gets suggestions with it"] = function(n)
  n:lua(DOCUMENTS .. [[fake.items = { "ghost" }; vim.o.hidden = true]])
  n:open({ "one" }, { cmd = { vim.v.progpath } })
  n:type("A two")
  n:lua("vim.api.nvim_buf_set_name(0, 'b.py'); vim.api.nvim_feedkeys(' three', 't', false)")
  n:has({ "one two three" })
  n:sees("ghost")
  n:type("<Esc>:enew<CR>:set filetype=python<CR>")
  n:lua("fake.start()")
  n:type(":new<CR>:set filetype=python<CR>Ax<Esc>:file c.py<CR>A")
  n:sees("ghost")
  equal(n:lua("return documents()"), { ["b.py"] = "python: one two", [""] = "python: ", ["c.py"] = "python: x" })
end

--- `focused()`: the file name, line and column of each report in turn.
local FOCUSED = [[
  focused = function()
    return vim.tbl_map(function(params)
      return { vim.fs.basename(params.textDocument.uri), params.position.line, params.position.character }
    end, fake.asked("speclsp/didFocus"))
  end
]]

specs["the buffer that gets the focus is reported with its cursor, and again when the model is ready"] = function(n)
  n:open({ "one", "two" })
  n:lua(FOCUSED .. [[
    status = function(state) fake.dispatchers.notification("speclsp/status", { state = state, problems = {} }) end
    first = vim.fs.basename(vim.api.nvim_buf_get_name(0))
  ]])
  local count = #n:lua("return focused()")
  n:lua("vim.api.nvim_win_set_cursor(0, { 2, 0 }) status('loading') status('ready') status('thinking') status('ready')")
  n:wait(("#focused() == %d"):format(count + 1), "the model is ready")
  equal(n:lua("return focused()[#focused()]"), { n:lua("return first"), 1, 0 })
  n:lua("vim.cmd.enew() vim.cmd('buffer #')")
  n:wait(("#focused() == %d"):format(count + 2), "the focus is back")
  n:lua("require('speclsp.enabled').snooze(5) vim.cmd.enew() vim.cmd('buffer #')")
  equal(#n:lua("return focused()"), count + 2)
end

specs["a cursor that rests is reported once for each place and text, in normal and in insert mode"] = function(n)
  n:open({ "one", "two", "three" })
  n:lua(FOCUSED)
  local count = #n:lua("return focused()")
  for _, case in ipairs({
    { "j", 1, 0 },
    { "x", 1, 0 },
    { "jll", 2, 2 },
    { "hl", nil },
    { "i", nil },
    { "<Up>", 1, 2 },
    { "ab", 1, 4 },
    { "<Esc>", 1, 3 },
    { "v0", nil },
    { ":", nil },
    { "<Esc>", 1, 0 },
  }) do
    n:type(case[1])
    if case[2] then
      count = count + 1
      n:wait(("#focused() == %d"):format(count), "the report after " .. case[1])
      equal(n:lua("return focused()[#focused()]"), { "a.py", case[2], case[3] })
    end
    n:lua("vim.wait(400)")
    equal(#n:lua("return focused()"), count)
  end
end

specs["no cursor is reported within 300 ms of a move, however the moves follow each other"] = function(n)
  n:open({ ("x"):rep(90) })
  n:lua(FOCUSED .. [[
    local moved_ms = 0
    pauses_ms = {} -- from the last move to a report
    vim.api.nvim_create_autocmd("CursorMoved", { callback = function() moved_ms = vim.uv.now() end })
    local rpc = vim.lsp.get_clients()[1].rpc
    local notify = rpc.notify
    rpc.notify = function(method, params)
      if method == "speclsp/didFocus" then table.insert(pauses_ms, vim.uv.now() - moved_ms) end
      return notify(method, params)
    end
  ]])
  math.randomseed(1)
  for _ = 1, 30 do
    n:type("l")
    vim.wait(math.random(0, 150) * math.random(1, 3))
  end
  n:wait("focused()[#focused()][3] == 30", "the report of the last place")
  local pauses_ms = n:lua("return pauses_ms")
  assert(#pauses_ms > 0)
  for _, pause_ms in ipairs(pauses_ms) do
    assert(pause_ms >= 300, ("a report %d ms after a move"):format(pause_ms))
  end
end

specs["a cursor is not reported where suggestions are off"] = function(n)
  n:open({ "one", "two", "three" })
  n:lua(FOCUSED .. "vim.b.speclsp = false")
  local count = #n:lua("return focused()")
  n:type("j")
  n:lua("vim.wait(400)")
  equal(#n:lua("return focused()"), count)
  n:lua("vim.b.speclsp = nil")
  n:type("j")
  n:wait(("#focused() == %d"):format(count + 1), "the report")
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
  equal(notified(n, "out of memory"), 1)
  equal(line({ state = "asleep", message = "the model is unloaded" }), "speclsp asleep")
  equal(line({ state = "stopped", message = "the engine was stopped" }), "speclsp stopped")
  equal(notified(n, "the engine was stopped"), 1)
  equal(n:lua("return count_notices('unloaded')"), 0)
  n:lua("vim.cmd.new()")
  equal(n:lua("return require('speclsp').statusline()"), "")
end

specs["the log is the file that the server reported"] = function(n)
  n:open()
  local function path()
    return n:lua("return require('speclsp.command').log_path()")
  end
  equal(path():match("/speclsp/[%w/]*lsp%.log$") ~= nil, true)
  n:lua("fake.status(...)", { log = "/elsewhere/lsp.log" })
  equal(path(), "/elsewhere/lsp.log")
  n:lua("fake.status(...)", { log = "" })
  equal(path(), "/elsewhere/lsp.log")
end

specs["the status names the engine's users and the host that receives the code"] = function(n)
  n:open()
  local function engine(status)
    return n:lua("return require('speclsp.status').engine(...)", status)
  end
  equal(engine({ state = "ready", engine_pid = 7, clients = 1 }), "process 7, used by this Neovim")
  equal(engine({ engine_pid = 7, clients = 2 }), "process 7, shared with 1 more editor")
  equal(engine({ engine_pid = 7, clients = 4 }), "process 7, shared with 3 more editors")
  equal(engine({ engine_pid = 0 }), vim.NIL)
  n:lua("fake.status(...)", { state = "ready", model = "p", device = "d", message = "", remote = "gpu.example:8000" })
  n:lua("vim.cmd.checkhealth('speclsp')")
  n:wait("table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), '\\n'):find('gpu.example:8000', 1, true)", "it")
end

specs["the event User SpeclspStatus carries the server's status"] = function(n)
  n:open()
  n:lua(
    [[vim.api.nvim_create_autocmd("User", { pattern = "SpeclspStatus", callback = function(event) state = event.data.state end })]]
  )
  n:lua("fake.status({ state = 'thinking' })")
  n:wait("state == 'thinking'", "the event")
end

specs["the status of an engine that was stopped or has failed names the plugin's own command"] = function(n)
  n:open()
  for state, is_named in pairs({ stopped = true, error = true, ready = false, loading = false }) do
    n:lua("fake.status({ state = ..., message = 'why' })", state)
    n:settle()
    n:lua("vim.cmd.Speclsp('status')")
    n:wait("vim.api.nvim_win_get_config(0).relative ~= ''", "the window")
    equal(table.concat(n:lines(), "\n"):find("try again   :Speclsp retry", 1, true) ~= nil, is_named)
    n:type("q")
  end
end

specs[":Speclsp retry asks the server to retry, and its reply is shown"] = function(n)
  n:open()
  n:lua("fake.retry = { retrying = true, message = 'trying again' }")
  n:lua("vim.cmd.Speclsp('retry')")
  notified(n, "trying again")
  n:lua("fake.retry = { retrying = false, message = 'nothing to retry; the state is ready' }")
  n:lua("vim.cmd.Speclsp('retry')")
  notified(n, "nothing to retry")
  n:lua("fake.retry = nil")
  n:lua("vim.cmd.Speclsp('retry')")
  notified(n, ":Speclsp restart")
end

specs["an unknown subcommand is answered with the nearest one, and the known ones complete"] = function(n)
  n:open()
  n:lua("vim.cmd.Speclsp('toggel')")
  notified(n, "no subcommand toggel; did you mean toggle?")
  equal(n:lua("return vim.fn.getcompletion('Speclsp to', 'cmdline')"), { "toggle" })
  equal(n:lua("return vim.fn.getcompletion('Speclsp toggle ', 'cmdline')"), { "here", "filetype", "all" })
  equal(n:lua("return vim.fn.getcompletion('Speclsp model ', 'cmdline')"), { "auto", "small", "large" })
end

specs["a model is chosen by name or from a list, and sent to the server"] = function(n)
  n:open()
  n:lua(
    "sent_model = function() local last = fake.messages[#fake.messages]; return vim.tbl_get(last, 'params', 'settings', 'speclsp', 'model') end"
  )
  n:lua("vim.cmd.Speclsp({ args = { 'model', 'large' } })")
  n:wait("sent_model() == 'large'", "the settings")
  n:lua([[
    vim.ui.select = function(items, options, choose) shown = vim.tbl_map(options.format_item, items) choose(items[1]) end
    vim.cmd.Speclsp('model')
  ]])
  n:wait("sent_model() == 'small'", "the settings")
  equal(n:lua("return shown"), { "small (in use)", "large (too large)" })
  n:lua("vim.cmd.Speclsp({ args = { 'model', 'smal' } })")
  notified(n, "no model smal; did you mean small?")
end

specs["a level is chosen by name or from a list with its words, and sent to the server beside the other settings"] = function(
  n
)
  n:open({ "" }, { settings = { completion = { multiline = "never" }, ["completion.eagerness"] = "medium" } })
  n:lua("sent = function() return fake.messages[#fake.messages].params.settings end")
  n:lua("vim.cmd.Speclsp({ args = { 'eagerness', 'high' } })")
  equal(n:lua("return sent()"), { speclsp = { completion = { multiline = "never", eagerness = "high" } } })
  n:lua("fake.status({ eagerness = 'high' })")
  n:lua([[
    vim.o.mouse = "nvi"
    vim.ui.select = function(items, options, choose)
      shown, mouse = vim.tbl_map(options.format_item, items), vim.o.mouse
      choose(items[1])
    end
    require("speclsp").eagerness(0) -- as a click of the status line calls it
  ]])
  equal(n:lua("return { mouse, vim.o.mouse }"), { "nvic", "nvi" }) -- without c a terminal sends no clicks to the list
  equal(n:lua("return sent().speclsp.completion.eagerness"), "low")
  local words = n:lua("return require('speclsp.levels')")
  equal(n:lua("return shown"), {
    "low: " .. words[1].shows,
    "medium: " .. words[2].shows,
    "high (in use): " .. words[3].shows,
  })
  n:lua("vim.cmd.Speclsp({ args = { 'eagerness', 'hgh' } })")
  notified(n, "no level hgh; did you mean high?")
end

specs["one server serves all projects, and gets the folder of each"] = function(n)
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
    "vim.iter(fake.messages):any(function(m) return m.method == 'workspace/didChangeWorkspaceFolders' and m.params.event.added[1].uri:find('two') end)",
    "the folder"
  )
  equal(n:lua("return #vim.lsp.get_clients()"), 1)
end

specs["health reports the state, the model and the device"] = function(n)
  n:open()
  n:lua("fake.status({ state = 'ready' }); vim.cmd.checkhealth('speclsp')")
  n:wait(
    "table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), '\\n'):find('state: ready; model small on cpu', 1, true)",
    "the report"
  )
end

--- The rows of the floating window; nil without one.
local FLOAT = [[(function()
  for _, window in ipairs(vim.api.nvim_list_wins()) do
    if vim.api.nvim_win_get_config(window).relative ~= "" then
      return vim.api.nvim_buf_get_lines(vim.api.nvim_win_get_buf(window), 0, -1, false)
    end
  end
end)()]]

specs[":Speclsp explain shows what the server knows, and reports a server without it"] = function(n)
  n:open()
  n:lua([[
    fake.explanation = { asked = true, outcome = "unsure", meaning = "the model is not sure enough", line = 3 }
    fake.explanation.cut, fake.explanation.files = { { why = "block_end", characters = 2 } }, {}
    fake.explanation.reused, fake.explanation.confidence = false, vim.NIL
    vim.cmd.Speclsp("explain")
  ]])
  equal(n:wait(FLOAT, "the explanation"), {
    "nothing shown: the model is not sure enough",
    "cut                 characters 2, why block_end",
    "line                3",
    "outcome             unsure",
  })
  n:type("q")
  n:wait("not " .. FLOAT, "the window to be closed")
  n:lua([[fake.explanation = nil vim.cmd.Speclsp("explain")]])
  notified(n, "does not know how to explain")
end

specs[":Speclsp shows a status of any length without a prompt for <Enter>, and q, <Esc> or leaving closes it"] = function(n)
  n:open({ "one" })
  n:lua("fake.status({ model_reason = 'the reason', message = ('long '):rep(60), problems = { 'one', 'two', 'three' } })")
  for _, way in ipairs({ "q", "<Esc>", "<C-w>w" }) do
    n:type(":Speclsp<CR>")
    local rows = n:wait(FLOAT, "the status")
    assert(vim.tbl_contains(rows, "model       small"), vim.inspect(rows))
    assert(not table.concat(rows, "\n"):find("the reason", 1, true), "the reason for the model is in setup and doctor")
    equal(n:lua("return vim.api.nvim_get_mode()"), { mode = "n", blocking = false })
    n:type(way)
    n:wait("not " .. FLOAT, "the window to be closed by " .. way)
    equal(n:lines(), { "one" })
  end
end

specs["a status that arrives in insert mode leaves the cursor where it is"] = function(n)
  n:open({ "" })
  n:type("i")
  n:lua("vim.cmd.Speclsp()")
  n:wait(FLOAT, "the status")
  n:type("x")
  n:has({ "x" })
  n:wait("not " .. FLOAT, "the window to be closed")
end

--- Work that the plugin does later in its modules: the keys and calls that schedule all of it.
local function use_everything(n)
  n:lua("fake.items, fake.edit = { 'ghost' }, { text = 'new', range = { 0, 0, 0, 3 } }")
  n:open({ "one", "two" }, { debounce_ms = 1 })
  n:lua("fake.status({ state = 'ready', next_edit = true })")
  for _, keys in ipairs({ "ofour", "<Tab>", "<Esc>x", "<Tab>", ":Speclsp<CR>", "<Esc>" }) do
    pcall(n.type, n, keys)
  end
  n:lua([[
    fake.explanation = { asked = false }
    for _, words in ipairs({ { "explain" }, { "model" }, { "retry" }, { "trigger" }, { "snooze", "1" } }) do
      vim.cmd.Speclsp({ args = words })
    end
  ]])
  n:wait("vim.uv.hrtime() > " .. n:lua("return vim.uv.hrtime()") + 200e6, "timers")
  n:settle()
end

local WIPE_BEFORE = [[
  local wanted = ...
  callbacks = 0
  vim.ui.select = function() end
  local function ours(callback)
    return debug.getinfo(callback, "S").source:find("lua/speclsp/", 1, true) ~= nil
  end
  local function wiping(callback)
    if not ours(callback) then
      return callback
    end
    return function(...)
      callbacks = callbacks + 1
      if callbacks == wanted then
        vim.cmd("silent! %bwipeout!")
      end
      return callback(...)
    end
  end
  local schedule, wrap, defer = vim.schedule, vim.schedule_wrap, vim.defer_fn
  vim.schedule = function(callback) schedule(wiping(callback)) end
  vim.schedule_wrap = function(callback) return wrap(wiping(callback)) end
  vim.defer_fn = function(callback, ms) return defer(wiping(callback), ms) end
  local start = fake.cmd
  fake.cmd = function(dispatchers)
    local client = start(dispatchers)
    local request = client.request
    client.request = function(method, params, callback, replied)
      return request(method, params, function(...)
        callbacks = callbacks + 1
        if callbacks == wanted and method ~= "initialize" then
          vim.cmd("silent! %bwipeout!")
        end
        callback(...)
      end, replied)
    end
    return client
  end
]]

specs["no callback or answer that comes after its buffer was wiped raises an error"] = function()
  local child = require("child")
  local here = vim.fs.dirname(vim.fs.normalize(debug.getinfo(1, "S").source:sub(2)))
  local count, wanted = 1, 0
  while wanted <= count do -- 0 wipes nothing, and counts
    local n = child.start(here)
    n:lua(WIPE_BEFORE, wanted)
    local ok, problem = pcall(use_everything, n)
    local has_waited = wanted > 0 and tostring(problem):find("waited for", 1, true) -- for what the wiped buffer had
    assert(ok or has_waited, ("wiped before callback %d: %s"):format(wanted, problem))
    local messages = n:lua("return vim.fn.execute('messages')")
    count = wanted == 0 and n:lua("return callbacks") or count
    n:stop()
    assert(not messages:find("stack traceback", 1, true), ("wiped before callback %d: %s"):format(wanted, messages))
    wanted = wanted + 1
  end
  assert(count > 10, "callbacks: " .. count)
end

return specs
