--- Accepting: the inserted text, undo and `.` after it, and a key's own action without a suggestion.
local specs = {}

local function equal(actual, expected)
  assert(vim.deep_equal(actual, expected), ("found %s, expected %s"):format(vim.inspect(actual), vim.inspect(expected)))
end

specs["accepting is one undo step, separate from the typing before and after it"] = function(n)
  n:open({ "a" })
  n:lua("fake.items = { 'ccepted\\n    lines' }")
  n:type("A = ")
  n:sees("ccepted\n    lines")
  n:type("<Tab>")
  n:has({ "a = ccepted", "    lines" })
  equal(n:cursor(), { 2, 9 })
  n:type("zz<Esc>")
  n:has({ "a = ccepted", "    lineszz" })
  n:type("u")
  n:has({ "a = ccepted", "    lines" })
  n:type("u")
  n:has({ "a = " })
  n:type("u")
  n:has({ "a" })
end

specs["a dot repeats what was typed and what was accepted"] = function(n)
  n:open({ "    first", "last" })
  n:lua("fake.items = { 'bar()' }")
  n:type("Ofoo")
  n:sees("bar()")
  n:type("<Tab>")
  n:has({ "    foobar()", "    first", "last" })
  n:lua("fake.items = {}")
  n:type("<Esc>G.")
  n:has({ "    foobar()", "    first", "foobar()", "last" })
end

specs["a dot repeats several lines as they are, and what they replaced"] = function(n)
  n:open({ "    f(1)", "    f(2)" })
  n:lua([[
    fake.items = { { insertText = "x):\n        go()", range = { start = { line = 0, character = 6 }, ["end"] = { line = 0, character = 8 } } } }
  ]])
  n:type("f1i")
  n:sees("x):\n        go()")
  n:type("<Tab>")
  n:has({ "    f(x):", "        go()", "    f(2)" })
  n:lua("fake.items = {}")
  n:type("<Esc>G0f2.")
  if vim.fn.has("nvim-0.11") == 1 then -- 0.10 indents what is repeated anew
    n:has({ "    f(x):", "        go()", "    f(x):", "        go()" })
  end
end

specs["indenting, text width, abbreviations and formatting do not touch what is accepted"] = function(n)
  n:open({ "    x" })
  n:lua([[
    vim.bo.textwidth, vim.bo.formatoptions, vim.bo.cindent = 12, "tcroqa", true
    vim.cmd.iabbrev("<buffer> foo WRONG")
    fake.items = { " = foo and a very long line\n  foo\n\tfoo" }
  ]])
  n:type("A")
  n:sees(" = foo and a very long line\n  foo\n        foo")
  n:type("<Tab>")
  n:has({ "    x = foo and a very long line", "  foo", "\tfoo" })
end

specs["words and lines are accepted one by one, and what is left stays shown"] = function(n)
  n:open()
  n:lua("fake.items = { 'größe = f(x)\\n    日本 = 2' }")
  n:type("i")
  n:sees("größe = f(x)\n    日本 = 2")
  n:lua("fake.hold = true")
  local so_far = ""
  for _, word in ipairs({ "größe", " =", " f", "(", "x", ")" }) do
    n:type("<M-Right>")
    so_far = so_far .. word
    n:has({ so_far })
    equal(n:cursor(), { 1, #so_far })
  end
  n:sees("\n    日本 = 2")
  n:type("<M-Down>")
  n:has({ so_far, "    日本 = 2" })
  n:sees("")
  n:type("<Esc>u")
  n:has({ so_far })
end

specs["the marks of the last change hold what was accepted"] = function(n)
  n:open({ "ab" })
  n:lua("fake.items = { 'cd\\nef' }")
  n:type("A")
  n:sees("cd\nef")
  n:type("<Tab>")
  n:has({ "abcd", "ef" })
  equal(n:lua('return { vim.fn.line("\'["), vim.fn.line("\']") }'), { 1, 2 })
end

specs["expanding a snippet removes the typed prefix and the replaced text"] = function(n)
  n:open({ "()" })
  n:lua([[
    fake.items = { { insertText = { kind = "snippet", value = "print(${1:x}, ${2:y})$0" }, range = { start = { line = 0, character = 0 }, ["end"] = { line = 0, character = 1 } } } }
  ]])
  n:lua("vim.api.nvim_set_current_line('p)')")
  n:type("a")
  n:sees("rint(x, y)")
  n:type("<Tab>")
  n:has({ "print(x, y))" })
  n:wait("vim.snippet.active()", "the snippet")
end

specs["an item's command is run once it is accepted, with the characters of a part"] = function(n)
  n:open()
  n:lua([[fake.items = { { insertText = "äb c", command = { command = "did", arguments = { 4 } } } }]])
  n:lua([[ran = function()
    local runs = vim.tbl_filter(function(m) return m.method == "workspace/executeCommand" end, fake.messages)
    return vim.tbl_map(function(m) return m.params.arguments end, runs)
  end]])
  n:type("i")
  n:sees("äb c")
  n:type("<M-Right>")
  n:has({ "äb" })
  n:wait("vim.deep_equal(ran(), { { 4, 2 } })", "the command for a word")
  n:lua([[fake.items = { { insertText = " c", command = { command = "did", arguments = { 2 } } } }]])
  n:type("<Esc>a")
  n:sees(" c")
  n:type("<Tab>")
  n:has({ "äb c" })
  n:wait("vim.deep_equal(ran(), { { 4, 2 }, { 2 } })", "the command")
end

specs["alternatives are requested on demand, counted, and cycled through"] = function(n)
  n:open()
  n:lua("fake.items = { 'one' }")
  n:type("i")
  n:sees("one")
  n:lua("fake.items = { 'one', 'two', 'three' }")
  n:type("<M-]>")
  n:sees("two 2/3")
  equal(n:lua("return fake.requests[#fake.requests].context.triggerKind"), 1)
  equal(n:lua("return require('speclsp').statusline()"), "speclsp 2/3")
  n:type("<M-]>")
  n:sees("three 3/3")
  n:type("<M-]>")
  n:sees("one 1/3")
  n:type("<M-[>")
  n:sees("three 3/3")
  n:type("<Tab>")
  n:has({ "three" })
end

specs["a dismissed suggestion stays away until the text changes"] = function(n)
  n:open()
  n:lua("fake.items = { 'ghost' }")
  n:type("ia")
  n:sees("ghost")
  n:type("<C-]>")
  n:sees("")
  n:settle()
  n:sees("")
  n:type("b")
  n:sees("ghost")
end

specs["a manual request shows a suggestion also where they are switched off"] = function(n)
  n:open()
  n:lua("fake.items = { 'ghost' }; require('speclsp').toggle('here')")
  n:type("ia")
  n:settle()
  n:sees("")
  n:type("<M-Bslash>")
  n:sees("ghost 1/1")
  n:type("<Tab>")
  n:has({ "aghost" })
end

specs["a snooze pauses automatic suggestions only, and ends"] = function(n)
  n:open()
  n:lua("fake.items = { 'ghost' }; vim.cmd('Speclsp snooze')")
  n:type("ia")
  n:settle()
  n:sees("")
  n:wait("require('speclsp').statusline():find('^speclsp snoozed until %d%d:%d%d$')", "the time it ends")
  n:type("<M-Bslash>")
  n:sees("ghost 1/1")
  n:type("<Tab>")
  n:has({ "aghost" })
  n:lua("require('speclsp').snooze(0)")
  n:type("b")
  n:sees("ghost")
  n:lua("require('speclsp').snooze(math.huge)")
  n:sees("")
  n:wait("require('speclsp').statusline() == 'speclsp snoozed for this session'", "the session")
end

specs["the latency stands at the end of the line where the setting asks for it"] = function(n)
  n:open()
  n:lua("fake.items = { 'ghost' }; fake.status({ last_latency_ms = 85.4 })")
  n:type("ia")
  n:sees("ghost")
  n:lua("fake.status({ last_latency_ms = 85.4, show_latency = true })")
  n:type("g")
  n:wait("require('speclsp.status').latency(vim.lsp.get_clients({ name = 'speclsp' })[1].id) == '85 ms'", "the status")
  n:type("x")
  n:sees("ghost|85 ms")
end

specs["a manual request without a suggestion shows the reason"] = function(n)
  n:open()
  n:type("ia")
  n:lua("fake.status({ last_reason = 'inside_word', last_reason_meaning = 'an identifier goes on' })")
  n:type("<M-Bslash>")
  n:wait("(notices[#notices] or ''):find('an identifier goes on', 1, true)", "the reason")
end

-- ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

specs["<Tab> indents and <C-]> completes an abbreviation when nothing is shown"] = function(n)
  n:lua("pcall(vim.keymap.del, 'i', '<Tab>')") -- what 0.11 maps it to triggers no abbreviation
  n:open()
  n:lua("vim.bo.expandtab, vim.bo.shiftwidth, vim.bo.softtabstop = true, 4, 4; vim.cmd.iabbrev('<buffer> teh the')")
  n:type("i<Tab>x teh<Tab>y teh<C-]>")
  n:has({ "    x the   y the" })
end

local mappings = {
  ["a global mapping"] = [[vim.keymap.set("i", "<Tab>", "MAPPED")]],
  ["a mapping of the buffer"] = [[vim.keymap.set("i", "<Tab>", "MAPPED", { buffer = true })]],
  ["a Lua function"] = [[vim.keymap.set("i", "<Tab>", function() vim.api.nvim_put({ "MAPPED" }, "c", false, true) end)]],
  ["a Lua expression"] = [[vim.keymap.set("i", "<Tab>", function() return "MAPPED" end, { expr = true })]],
  ["an expression of Vim"] = [[vim.cmd("inoremap <expr> <Tab> 'MAP' .. 'PED'")]],
  ["a mapping that is mapped again"] = [[vim.cmd("imap <Tab> <Plug>(far)"); vim.cmd("inoremap <Plug>(far) MAPPED")]],
  ["a script's own function"] = [[vim.cmd("function! g:Mapped()\nreturn 'MAPPED'\nendfunction\nimap <silent><expr> <Tab> g:Mapped()")]],
}
for kind, map in pairs(mappings) do
  specs["<Tab> still does what it did: " .. kind] = function(n)
    n:lua("vim.cmd.edit('a.py')")
    n:lua(map)
    n:open()
    n:lua("fake.items = { 'ghost' }")
    n:type("i")
    n:sees("ghost")
    n:type("<Tab>")
    n:has({ "ghost" })
    n:lua("fake.items = {}")
    n:type("a")
    n:sees("")
    n:type("<Tab>b<Tab>")
    n:has({ "ghostaMAPPEDbMAPPED" })
  end
end

specs["<Tab> still does what it did: a mapping that ends in <Tab> itself"] = function(n)
  n:lua([[vim.cmd("imap <expr> <Tab> pumvisible() ? '<C-n>' : '<Tab>'")]])
  n:open()
  n:type("ia<Tab>b<Tab>c")
  n:has({ "a\tb\tc" })
end

specs["a key set to false is left alone, and another can be given"] = function(n)
  n:open({ "" }, { keys = { accept = "<C-f>", dismiss = false } })
  n:lua("fake.items = { 'ghost' }")
  equal(
    n:lua("return { vim.fn.maparg('<Tab>', 'i', false, true).buffer or 0, vim.fn.maparg('<C-]>', 'i') }"),
    { 0, "" }
  )
  n:type("i<Tab>")
  n:sees("ghost")
  n:type("<C-f>")
  n:has({ "\tghost" })
end

specs["the buffer's own mappings are restored after the server stops"] = function(n)
  n:lua([[vim.cmd.edit('a.py'); vim.keymap.set("i", "<Tab>", "MAPPED", { buffer = true })]])
  n:open()
  n:lua("vim.lsp.stop_client(vim.lsp.get_clients())")
  n:wait("#vim.lsp.get_clients() == 0 and vim.fn.maparg('<Tab>', 'i') == 'MAPPED'", "the old mapping")
  n:type("i<Tab>")
  n:has({ "MAPPED" })
end

specs["an expression mapping of the user may call accept and fall back by itself"] = function(n)
  n:open({ "" }, { keys = { accept = false } })
  n:lua([[
    vim.keymap.set("i", "<Tab>", function() return require("speclsp").accept() and "" or "<Tab>" end, { expr = true })
    fake.items = { "ghost" }
  ]])
  n:type("i")
  n:sees("ghost")
  n:type("<Tab>")
  n:has({ "ghost" })
end

specs["the server hears that lines with less indentation can be drawn, except by Neovim's own interface"] = function(n)
  n:open()
  local capabilities = n:lua('return fake.asked("initialize")[1].capabilities')
  equal(capabilities.experimental.speclsp.outdent, true)
  equal(type(capabilities.textDocument), "table")
  n:lua('require("speclsp.options").now.ui = "builtin"')
  equal(
    n:lua([[
      local params = { capabilities = {} }
      require("speclsp.client").config().before_init(params)
      return params.capabilities.experimental == nil
    ]]),
    true
  )
end

specs["a line with less indentation is accepted whole or by word, as one undo step"] = function(n)
  local items = [[
    fake.items = { { insertText = "    elif more():", range = { start = { line = 2, character = 0 }, ["end"] = { line = 2, character = 8 } } } }
  ]]
  n:open({ "    if ready():", "        go()", "        " })
  n:lua(items)
  for key, line in pairs({ ["<Tab>"] = "    elif more():", ["<M-Right>"] = "    elif" }) do
    n:type("GA")
    n:sees("    elif more():")
    n:type(key)
    n:has({ "    if ready():", "        go()", line })
    equal(n:cursor(), { 3, #line })
    n:type("<Esc>u")
    n:has({ "    if ready():", "        go()", "        " })
  end
end

return specs
