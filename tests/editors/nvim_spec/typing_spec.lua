--- Suggestions while typing, and the effect of each key on them.
local specs = {}

local function equal(actual, expected)
  assert(vim.deep_equal(actual, expected), ("found %s, expected %s"):format(vim.inspect(actual), vim.inspect(expected)))
end

--- The column of the newest request.
local function column(n)
  return n:lua("return fake.requests[#fake.requests].position.character")
end

specs["every key sends a request and cancels the previous one, and only the newest answer is shown"] = function(n)
  n:open()
  n:lua("fake.hold, fake.items = true, { 'ghost' }")
  n:type("ia")
  n:wait("#fake.requests >= 2", "requests")
  n:type("b")
  n:wait("fake.requests[#fake.requests].position.character == 2", "the request after b")
  equal(n:lua("return #fake.cancelled == #fake.requests - 1"), true)
  n:lua("fake.answer()")
  n:sees("ghost")
end

specs["one cursor position is requested once, whatever the number of events"] = function(n)
  n:open()
  n:lua("fake.items = { 'x' }")
  n:type("ia")
  n:sees("x")
  n:type("b")
  n:wait("fake.requests[#fake.requests].position.character == 2", "the request after b")
  local columns = n:lua("return vim.tbl_map(function(params) return params.position.character end, fake.requests)")
  equal(columns, { 0, 1, 2 })
end

specs["typing through a suggestion shrinks it without waiting for an answer"] = function(n)
  n:open()
  n:lua("fake.items = { 'hello world' }")
  n:type("i")
  n:sees("hello world")
  n:lua("fake.hold = true")
  n:type("hel")
  n:sees("lo world")
end

specs["typing something else removes the suggestion without waiting for an answer"] = function(n)
  n:open()
  n:lua("fake.items = { 'hello world' }")
  n:type("i")
  n:sees("hello world")
  n:lua("fake.hold = true")
  n:type("x")
  n:sees("")
end

specs["an empty answer clears what is shown"] = function(n)
  n:open()
  n:lua("fake.items = { 'aa' }")
  n:type("i")
  n:sees("aa")
  n:lua("fake.items = {}")
  n:type("a")
  n:sees("")
end

specs["an answer that comes after insert mode has ended is not shown"] = function(n)
  n:open()
  n:lua("fake.hold, fake.items = true, { 'late' }")
  n:type("ia")
  n:wait("#fake.requests >= 1", "a request")
  n:type("<Esc>")
  n:wait("vim.api.nvim_get_mode().mode == 'n'", "normal mode")
  n:lua("fake.answer()")
  n:settle()
  n:sees("")
end

for name, keys in pairs({
  ["<Esc>"] = "<Esc>",
  ["<C-c>"] = "<C-c>",
  ["replace mode"] = "<Esc>R",
  ["a command line"] = "<C-r>=",
}) do
  specs["the suggestion is gone after " .. name] = function(n)
    n:open({ "abc" })
    n:lua("fake.items = { 'ghost' }")
    n:type("i")
    n:sees("ghost")
    n:type(keys)
    n:sees("")
  end
end

specs["there is none in replace mode, and none while a block is inserted"] = function(n)
  n:open({ "abc", "abc", "abc" })
  n:lua("fake.items = { 'ghost' }")
  n:type("Rx")
  n:has({ "xbc", "abc", "abc" })
  n:settle()
  n:sees("")
  n:type("<Esc>0<C-v>jjI")
  n:wait("vim.api.nvim_get_mode().mode == 'i'", "insert mode")
  n:type("y")
  n:wait("vim.api.nvim_get_current_line() == 'yxbc'", "the y")
  n:settle()
  n:sees("")
  n:type("<Esc>")
  n:has({ "yxbc", "yabc", "yabc" })
  n:type("i")
  n:sees("ghost")
end

specs["there is none while a macro is recorded or executed, and <Tab> is a tab in it"] = function(n)
  n:open({ "a", "b" })
  n:lua("fake.items = { 'ghost' }")
  n:type("qqA<Tab>x<Esc>q")
  n:has({ "a\tx", "b" })
  n:type("j@q")
  n:has({ "a\tx", "b\tx" })
end

specs["it hides behind a completion menu and comes back when that closes"] = function(n)
  n:open({ "alpha alpine", "" })
  n:lua("fake.items = { 'ghost' }")
  n:type("Ga")
  n:sees("ghost")
  n:type("a<C-n>")
  n:wait("vim.fn.pumvisible() == 1", "the menu")
  n:sees("")
  n:type("<C-e>")
  n:sees("ghost")
end

specs["it hides while a snippet is filled in"] = function(n)
  n:open()
  n:lua("fake.items = { 'ghost' }")
  n:type("i")
  n:sees("ghost")
  n:lua("vim.snippet.expand('f(${1:x}, ${2:y})')")
  n:wait("vim.snippet.active()", "the snippet")
  n:sees("")
end

specs["the ghost text surrounds the kept text right of the cursor"] = function(n)
  n:open({ "f()" })
  n:lua(
    [[fake.items = { { insertText = "f(x)(y)", range = { start = { line = 0, character = 0 }, ["end"] = { line = 0, character = 3 } } } }]]
  )
  n:type("f)i")
  n:sees("x)(y")
  n:type("<Tab>")
  n:has({ "f(x)(y)" })
end

specs["the rest of the line is shown after the last of several suggested lines"] = function(n)
  n:open({ "if x: # c" })
  n:lua("fake.items = { '\\n    pass' }")
  n:type("f#i")
  n:sees("   \n    pass# c")
end

specs["tabs in it are as wide as they will be"] = function(n)
  n:open({ "" })
  n:lua("vim.bo.tabstop = 8; fake.items = { 'ab\\tc\\n\\tд\\te' }")
  n:type("i")
  n:sees("ab      c\n        д       e")
end

specs["positions are in the negotiated encoding, whatever text is before them"] = function(n)
  n:lua("fake.encoding = 'utf-16'")
  n:open({ "" })
  n:lua("fake.items = { 'größe' }")
  n:type("i😀ß")
  n:sees("größe")
  equal(column(n), 3)
  n:type("<Tab>")
  n:has({ "😀ßgröße" })
  equal(n:cursor(), { 1, #"😀ßgröße" })
end

specs["undo in insert mode and text that is pasted leave no stale suggestion"] = function(n)
  n:open({ "one" })
  n:lua("fake.items = { 'ghost' }")
  n:type("A two")
  n:sees("ghost")
  n:lua("fake.hold = true")
  n:lua("vim.api.nvim_paste('x y\\nz', false, -1)")
  n:sees("")
  n:type("<C-o>u")
  n:wait("vim.api.nvim_get_mode().mode == 'i'", "insert mode")
  n:sees("")
end

specs["it is dropped when the buffer is left"] = function(n)
  n:open({ "one" })
  n:lua("fake.items = { 'ghost' }")
  n:type("A")
  n:sees("ghost")
  n:lua("first = vim.api.nvim_get_current_buf(); vim.cmd.new()")
  equal(
    n:lua("return #vim.api.nvim_buf_get_extmarks(first, vim.api.nvim_get_namespaces()['speclsp.ghost'], 0, -1, {})"),
    0
  )
end

specs["a debounce waits for the next key"] = function(n)
  n:open({ "" }, { debounce_ms = 200 })
  n:lua("fake.items = { 'ghost' }")
  n:type("iabc")
  n:sees("ghost")
  equal(n:lua("return #fake.requests < 4"), true)
  equal(column(n), 3)
end

specs["an empty answer from before the model was ready is requested again once, whichever of the two comes first"] = function(
  n
)
  n:open({ "" })
  n:type("i")
  local function is(state)
    n:lua("fake.status({ state = ... })", state)
    n:wait(("require('speclsp.status').of(vim.lsp.get_clients()[1].id).state == %q"):format(state), "the status")
  end
  local function empty()
    n:lua("fake.hold, fake.items = false, {}; fake.answer()")
    n:settle()
  end
  for _, state in ipairs({ "ready", "thinking", "asleep" }) do
    for _, order in ipairs({ { empty, is }, { is, empty } }) do
      is("loading")
      n:lua("fake.hold = true")
      n:type("a")
      local requests = n:lua("return #fake.requests")
      order[1](state)
      order[2](state)
      n:settle()
      equal(n:lua("return #fake.requests"), requests + 1)
      equal(n:lua("return vim.deep_equal(fake.requests[#fake.requests], fake.requests[#fake.requests - 1])"), true)
      is("loading")
      n:lua("fake.items = { 'ghost' }")
      is(state)
      n:sees("ghost")
      is("thinking")
      is("ready")
      n:settle()
      equal(n:lua("return #fake.requests"), requests + 2)
    end
  end
end

--- Shows "one" at the end of "a", and makes the server know a second line of it.
local function shown_one(n)
  n:open()
  n:lua("fake.items = { 'one' }")
  n:type("ia")
  n:sees("one")
  n:lua("fake.items = { 'one\\n    two' }")
  return n:lua("return #fake.requests")
end

specs["the own interface announces that it follows growth"] = function(n)
  n:open()
  equal(n:lua("return fake.asked('initialize')[1].capabilities.experimental.speclsp.suggestionGrew"), true)
end

specs["a suggestion that has grown is requested again and stays on the screen until the answer"] = function(n)
  local requests = shown_one(n)
  n:lua("fake.hold = true; fake.grew()")
  n:wait(("#fake.requests == %d"):format(requests + 1), "the repeated request")
  equal(n:lua("return vim.deep_equal(fake.requests[#fake.requests], fake.requests[#fake.requests - 1])"), true)
  n:sees("one")
  n:lua("fake.answer()")
  n:sees("one\n    two")
  n:type("<Tab>")
  n:has({ "aone", "    two" })
end

specs["an accept before the grown answer takes what is shown, and the answer is not shown any more"] = function(n)
  shown_one(n)
  n:lua("fake.hold = true; fake.grew()")
  n:sees("one")
  n:type("<Tab>")
  n:has({ "aone" })
  n:lua("fake.items = {}; fake.answer()")
  n:settle()
  n:sees("")
  n:has({ "aone" })
end

for name, case in pairs({
  ["was dismissed"] = { keys = "<C-]>" },
  ["was typed away from"] = { keys = "x" },
  ["is of an older version"] = { change = "request.textDocument.version = request.textDocument.version - 1" },
  ["is at another position"] = { change = "request.position.character = 0" },
  ["is in another document"] = { change = "request.textDocument.uri = 'file:///other.py'" },
  ["was hidden by the end of insert mode"] = { keys = "<Esc>" },
}) do
  specs["nothing is requested again where the suggestion that has grown " .. name] = function(n)
    shown_one(n)
    n:lua("before = vim.deepcopy(fake.requests[#fake.requests])")
    if case.keys then
      n:type(case.keys)
    end
    local requests = n:lua("return #fake.requests")
    n:lua("local request = before\n" .. (case.change or "") .. "\nfake.grew(request)")
    n:settle()
    equal(n:lua("return #fake.requests"), requests)
  end
end

return specs
