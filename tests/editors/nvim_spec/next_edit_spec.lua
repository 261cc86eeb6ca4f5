--- Next edits: the cases that a real server cannot be made to reach at will.
local specs = {}

local LINES = { "one = read(a)", "two = read(b)", "three = read(c)", "four = read(d)", "five = read(e)", "six = read(f)" }
local EDIT = [[{ text = "fetch", range = { 2, 8, 2, 12 } }]] -- the third line
local TO_EDIT = [[{ "one = fetch(a)", "two = read(b)", "three = fetch(c)", "four = read(d)", "five = read(e)", "six = read(f)" }]]

local function equal(actual, expected)
  assert(vim.deep_equal(actual, expected), ("found %s, expected %s"):format(vim.inspect(actual), vim.inspect(expected)))
end

--- Each extmark of the shown edit as "ROW:COLUMN" and its texts; words to delete in brackets, the sign left out.
local function drawn(n)
  return n:lua([[
    local out = {}
    for _, name in ipairs({ "speclsp.next_edit", "speclsp.next_edit_hint" }) do
      local namespace = vim.api.nvim_create_namespace(name)
      for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(0, namespace, 0, -1, { details = true })) do
        local _, row, col, details = unpack(mark)
        local function text(chunks)
          return table.concat(vim.tbl_map(function(chunk) return chunk[1] end, chunks))
        end
        if details.hl_group == "SpeclspEditDelete" then
          local last = math.min(details.end_row, vim.api.nvim_buf_line_count(0) - 1)
          local to = details.end_row > last and -1 or details.end_col
          local deleted = vim.api.nvim_buf_get_text(0, row, col, last, to, {})
          out[#out + 1] = ("%d:%d [%s]"):format(row, col, table.concat(deleted, "\\n"))
        end
        if details.virt_text then out[#out + 1] = ("%d:%d %s"):format(row, col, text(details.virt_text)) end
        for _, line in ipairs(details.virt_lines or {}) do out[#out + 1] = ("%d: + %s"):format(row, text(line)) end
      end
    end
    return out
  ]])
end

local function sees(n, expected)
  local last
  local ok = vim.wait(20000, function()
    last = drawn(n)
    return vim.deep_equal(last, expected)
  end, 5)
  assert(ok, ("drawn is %s, expected %s"):format(vim.inspect(last), vim.inspect(expected)))
end

--- The commands by which the plugin has reported the user's answers.
local function reports(n)
  return n:lua([[return vim.tbl_map(function(p) return p.command end, fake.asked("workspace/executeCommand"))]])
end
local ACCEPTED, REJECTED = "speclsp.didAcceptEdit", "speclsp.didRejectEdit"

local function open(n, edit, setup)
  n:open(LINES, setup)
  n:lua("fake.status({ next_edit = true })")
  n:settle()
  n:lua("fake.edit = " .. edit)
end

local HINT = "Edit at line 3 (Tab)"
local SHOWN = { "2:8 [read]", "2:12 →fetch" }

--- Opens LINES and changes the first line; EDIT is shown.
local function shown(n, setup)
  open(n, EDIT, setup)
  n:type("1G6lcwfetch<Esc>")
  sees(n, SHOWN)
end

specs["a change in normal mode shows the words that the next edit changes, and Tab applies them"] = function(n)
  shown(n)
  n:lua("fake.edit = nil")
  n:type("<Tab>")
  n:has(n:lua("return " .. TO_EDIT))
  sees(n, {})
  equal(n:cursor(), { 3, 13 })
  equal(reports(n), { ACCEPTED })
  n:type("u")
  n:has({ "one = fetch(a)", unpack(LINES, 2) })
end

specs["an edit more than two rows away has a hint at the cursor's line, which follows it; Tab jumps, then applies"] = function(n)
  shown(n)
  n:type("G")
  sees(n, { SHOWN[1], SHOWN[2], "5:0 Edit at line 3 (Tab)" })
  equal(n:lua("return require('speclsp').statusline()"), "speclsp edit at 3")
  n:type("k")
  sees(n, SHOWN)
  n:type("j")
  n:type("<Tab>")
  equal(n:cursor(), { 3, 8 })
  equal(n:lines()[3], LINES[3])
  sees(n, SHOWN)
  n:type("''")
  equal(n:cursor()[1], 6)
  n:type("<Tab><Tab>")
  n:has(n:lua("return " .. TO_EDIT))
end

--- Opens another file with LINES behind the first one, and returns to the first one.
local function with_other(n)
  n:lua(
    [[
    local lines = ...
    vim.cmd.edit("b.py")
    vim.bo.filetype = "python"
    vim.api.nvim_buf_set_lines(0, 0, -1, false, lines)
    fake.start()
    other = vim.api.nvim_get_current_buf()
  ]],
    LINES
  )
  n:wait("vim.lsp.util.buf_versions[other] ~= nil", "the other buffer's version")
  n:lua([[
    vim.cmd.buffer("a.py")
    fake.edit = {
      text = "fetch",
      range = { 2, 8, 2, 12 },
      document = { uri = vim.uri_from_bufnr(other), version = vim.lsp.util.buf_versions[other] },
    }
  ]])
end

specs["an edit of another file is announced with its name; Tab goes there and shows it, and the next Tab applies it"] = function(n)
  open(n, "nil")
  with_other(n)
  n:type("1G6lcwfetch<Esc>")
  sees(n, { "0:0 Edit in b.py, line 3 (Tab)" })
  equal(n:lua("return require('speclsp').statusline()"), "speclsp edit in b.py")
  n:type("jj")
  sees(n, { "2:0 Edit in b.py, line 3 (Tab)" })
  n:type("<Tab>")
  n:wait("vim.api.nvim_get_current_buf() == other", "the other file")
  equal(n:cursor(), { 3, 8 })
  sees(n, SHOWN)
  n:lua("fake.edit = nil")
  n:type("<Tab>")
  n:has({ LINES[1], LINES[2], "three = fetch(c)", LINES[4], LINES[5], LINES[6] })
  equal(reports(n), { ACCEPTED })
  n:type("<C-o>")
  n:wait("vim.api.nvim_get_current_buf() ~= other", "the jump back")
end

specs["an edit of another file that has changed meanwhile is not shown, and Esc rejects one that is"] = function(n)
  open(n, "nil")
  with_other(n)
  n:type("1G6lcwfetch<Esc>")
  sees(n, { "0:0 Edit in b.py, line 3 (Tab)" })
  n:type("<Esc>")
  sees(n, {})
  equal(reports(n), { REJECTED })
  n:lua("fake.edit.document.version = fake.edit.document.version + 1")
  n:type("2G6lcwfetch<Esc>")
  n:lua("vim.wait(200)")
  sees(n, {})
end

specs["the hint is visible at a line without room behind it, beside the cursor"] = function(n)
  shown(n)
  n:lua("vim.wo.signcolumn = 'no'")
  n:type("Go" .. ("x"):rep(95) .. "<Esc>")
  for keys, row in pairs({ ["0"] = ("x"):rep(79) .. " " .. HINT, ["$"] = HINT .. " " .. ("x"):rep(74) }) do
    n:type(keys)
    n:wait(([[(function()
      vim.cmd.redraw()
      local row = vim.fn.screenpos(0, 7, 1).row
      local cells = vim.tbl_map(function(column) return vim.fn.screenstring(row, column) end, vim.fn.range(1, 100))
      return vim.trim(table.concat(cells)) == %q
    end)()]]):format(row), "the hint")
  end
end

specs["the next edit is requested once more when the cursor leaves the changed line"] = function(n)
  open(n, "nil")
  n:type("1G6lcwfetch<Esc>")
  n:wait([[#fake.asked("textDocument/copilotInlineEdit") > 0]], "a request")
  n:lua([[local known, since = 0, vim.uv.now()
    vim.wait(5000, function()
      local now = #fake.asked("textDocument/copilotInlineEdit")
      if now ~= known then known, since = now, vim.uv.now() end
      return vim.uv.now() - since > 500
    end, 20)]]) -- a busy machine requests late
  local before = n:lua([[return #fake.asked("textDocument/copilotInlineEdit")]])
  n:type("h")
  n:lua("vim.wait(200)")
  equal(n:lua([[return #fake.asked("textDocument/copilotInlineEdit")]]), before)
  n:lua("fake.edit = " .. EDIT)
  n:type("j")
  sees(n, SHOWN)
  local asked = n:lua([[return fake.asked("textDocument/copilotInlineEdit")]])
  equal({ #asked, asked[#asked].position.line }, { before + 1, 1 })
  n:type("<Esc>")
  sees(n, {})
  n:type("jj")
  n:lua("vim.wait(200)")
  equal(n:lua([[return #fake.asked("textDocument/copilotInlineEdit")]]), before + 1)
end

specs["columns are in the server's encoding"] = function(n)
  n:lua("fake.encoding = 'utf-16'")
  open(n, [[{ text = "fetch", range = { 2, 10, 2, 14 } }]])
  n:lua([[vim.api.nvim_buf_set_lines(0, 2, 3, false, { "x='𐐀é' read(c)" })]])
  n:lua("fake.edit.range = { 2, 8, 2, 12 }")
  n:type("1G6lcwfetch<Esc>")
  sees(n, { "2:11 [read]", "2:15 →fetch" })
  n:lua("fake.edit = nil")
  n:type("<Tab>")
  n:wait([[vim.api.nvim_buf_get_lines(0, 2, 3, false)[1] == "x='𐐀é' fetch(c)"]], "the edit")
end

for name, case in pairs({
  ["lines for fewer lines"] = {
    [[{ text = "both = read(b, c)\n", range = { 1, 0, 3, 0 } }]],
    { "1:0 [two = read(b)\\n]", "2:0 [three = read(c)\\n]", "2: + both = read(b, c)" },
    { LINES[1], "both = read(b, c)", LINES[4], LINES[5], LINES[6] },
  },
  ["inserted lines"] = {
    [[{ text = "\n\tlog(b)\nlog()", range = { 1, 13, 1, 13 } }]],
    { "1: +         log(b)", "1: + log()" },
    { LINES[1], LINES[2], "\tlog(b)", "log()", LINES[3], LINES[4], LINES[5], LINES[6] },
  },
  ["lines before the first one"] = {
    [[{ text = "import io\n", range = { 0, 0, 0, 0 } }]],
    { "0: + import io" },
    { "import io", unpack(LINES) },
  },
  ["deleted lines"] = {
    [[{ text = "", range = { 1, 0, 2, 0 } }]],
    { "1:0 [two = read(b)\\n]" },
    { LINES[1], unpack(LINES, 3) },
  },
}) do
  specs["a block diff: " .. name] = function(n)
    open(n, case[1])
    n:lua("vim.api.nvim_buf_set_lines(0, 0, 1, false, {'changed'})")
    n:type("1Gccone = read(a)<Esc>") -- the line as it was
    sees(n, case[2])
    n:lua("fake.edit = nil")
    n:type("<Tab>")
    n:has(case[3])
    n:type("u")
    n:has(LINES)
  end
end

specs["Esc rejects the edit; the same text is not asked about again"] = function(n)
  shown(n)
  n:type("<Esc>")
  sees(n, {})
  equal(reports(n), { REJECTED })
  local asked = n:lua([[return #fake.asked("textDocument/copilotInlineEdit")]])
  n:type("jk")
  n:lua("vim.wait(200)")
  equal(n:lua([[return #fake.asked("textDocument/copilotInlineEdit")]]), asked)
end

specs["a change of the text removes the edit, whoever made it"] = function(n)
  shown(n)
  n:lua("fake.hold = true")
  n:lua("vim.api.nvim_buf_set_lines(0, -1, -1, false, { 'more' })")
  sees(n, {})
  n:lua("fake.hold = false; fake.answer()")
  sees(n, SHOWN)
  n:type("uuuu<C-r><C-r>u")
  n:lua("fake.edit = nil")
  n:type("Gx")
  sees(n, {})
  equal(n:lua([[return vim.fn.maparg("<Tab>", "n") .. vim.fn.maparg("<Esc>", "n")]]), "")
end

specs["an answer for a text that has changed meanwhile is dropped, and a newer request cancels the older one"] = function(n)
  open(n, EDIT)
  n:lua("fake.hold = true")
  n:type("x")
  n:wait([[#fake.asked("textDocument/copilotInlineEdit") == 1]], "a request")
  n:lua([[
    local answer = fake.answer
    late = fake.open
    fake.open = {}
  ]])
  n:type("x")
  n:wait([[#fake.asked("textDocument/copilotInlineEdit") == 2]], "another request")
  equal(n:lua("return #fake.cancelled"), 1)
  n:lua("for _, answer in pairs(late) do answer() end")
  n:settle()
  sees(n, {})
  n:lua("fake.answer()")
  sees(n, SHOWN)
end

specs["ghost text has precedence: it replaces the edit, and Tab accepts it"] = function(n)
  open(n, EDIT)
  n:type("1G6lcwfetch")
  sees(n, SHOWN)
  n:lua("fake.items = { 'ghost' }")
  n:type("<Right>") -- asks for ghost text; the text stays
  n:sees("ghost")
  sees(n, {})
  n:type("<Tab>")
  n:has({ "one = fetch(ghosta)", unpack(LINES, 2) })
end

specs["in insert mode the edit is shown when typing pauses, Tab walks on without ghost text, and undo separates the edit"] = function(n)
  open(n, EDIT)
  n:type("1G6lcwfetch")
  sees(n, SHOWN)
  n:lua("fake.items, fake.edit = { 'ghost' }, { text = 'fetch', range = { 5, 6, 5, 10 } }")
  n:type("<Tab>")
  n:has(n:lua("return " .. TO_EDIT))
  sees(n, { "5:6 [read]", "5:10 →fetch", "2:0 Edit at line 6 (Tab)" })
  n:sees("")
  n:lua("fake.edit = nil")
  n:type("<Tab><Tab>!<Esc>")
  n:wait("vim.api.nvim_get_current_line() == 'six = fetch!(f)'", "both edits and the typed letter")
  n:type("u")
  n:wait("vim.api.nvim_get_current_line() == 'six = fetch(f)'", "the letter to be undone")
  n:type("u")
  n:has(n:lua("return " .. TO_EDIT))
  n:type("u")
  n:has({ "one = fetch(a)", unpack(LINES, 2) })
end

specs["the user's own mappings of Tab and Esc count while nothing is shown, and are back afterwards"] = function(n)
  n:lua([[
    pressed = {}
    vim.keymap.set("n", "<Tab>", function() table.insert(pressed, "global tab") end)
  ]])
  open(n, EDIT)
  n:lua([[vim.keymap.set("n", "<Esc>", function() table.insert(pressed, "own esc") end, { buffer = true, desc = "mine" })]])
  n:type("<Tab><Esc>")
  n:type("1G6lcwfetch<Esc>")
  sees(n, SHOWN)
  n:type("<Esc>")
  sees(n, {})
  n:type("<Tab><Esc>")
  equal(n:lua("return pressed"), { "global tab", "own esc", "global tab", "own esc" })
  equal(n:lua([[return vim.fn.maparg("<Esc>", "n", false, true).desc]]), "mine")
  equal(n:lines()[3], LINES[3])
end

specs["without an edit Tab moves in the jump list and indents, as ever"] = function(n)
  open(n, "nil")
  n:type("1Gx3Gx")
  n:type("5G<C-o>")
  equal(n:cursor()[1], 3)
  n:type("<Tab>")
  equal(n:cursor()[1], 5)
  n:type("0i<Tab>")
  n:wait("vim.api.nvim_get_current_line() == '\\tfive = read(e)'", "a tab")
end

for name, code in pairs({
  ["the server has them off"] = "fake.status({ next_edit = false })",
  ["the server is older"] = "fake.status({ next_edit = nil })",
  ["setup has next_edit = false"] = "require('speclsp.options').apply({ next_edit = false })",
  ["suggestions are off in the buffer"] = "vim.b.speclsp = false",
  ["sidekick.nvim shows them"] = [[
    package.loaded["sidekick.nes"] = { enabled = true }
    local get_clients = vim.lsp.get_clients
    vim.lsp.get_clients = function(filter)
      local clients = get_clients(filter)
      return filter and filter.name and clients or vim.list_extend({ { name = "speclsp_copilot" } }, clients)
    end
  ]],
}) do
  specs["nothing is asked, shown or mapped while " .. name] = function(n)
    open(n, EDIT)
    n:lua(code)
    n:type("1G6lcwfetch<Esc>")
    n:lua("vim.wait(300)")
    sees(n, {})
    equal(n:lua([[return #fake.asked("textDocument/copilotInlineEdit")]]), 0)
    equal(n:lua([[return vim.fn.maparg("<Tab>", "n") .. vim.fn.maparg("<Esc>", "n")]]), "")
  end
end

specs["an edit that is shown goes when the feature is switched off, and when its server ends"] = function(n)
  shown(n)
  n:lua("fake.status({ next_edit = false })")
  n:settle()
  sees(n, {})
  n:lua("fake.status({ next_edit = true })")
  n:settle()
  n:type("1Gx")
  sees(n, SHOWN)
  n:lua("for _, client in ipairs(vim.lsp.get_clients()) do client:stop(true) end")
  sees(n, {})
  equal(n:lua([[return vim.fn.maparg("<Tab>", "n") .. vim.fn.maparg("<Esc>", "n")]]), "")
end

specs["the edit is drawn exactly where its key acts: not in a macro, a selection, Replace mode or a read-only buffer"] = function(n)
  shown(n)
  n:lua("vim.keymap.set({ 'n', 'x', 's' }, '<Tab>', '<Cmd>let g:tabs = get(g:, \"tabs\", 0) + 1<CR>')")
  for i, keys in ipairs({
    { "qa", "q" },
    { "v", "<Esc>" },
    { "gh", "<Esc>" },
    { "V", "<Esc>" },
    { "<C-v>", "<Esc>" },
    { "R", "<Esc>", typed = "no Tab" },
    { ":set readonly<CR>", ":set noreadonly<CR>" },
    { ":set nomodifiable<CR>", ":set modifiable<CR>" },
    { ":set buftype=nofile<CR>", ":set buftype=<CR>" },
    { ":let b:speclsp = v:false | doautocmd ModeChanged<CR>", ":let b:speclsp = v:true<CR>:<Esc>" },
  }) do
    n:type(keys[1])
    sees(n, {})
    equal(n:lua("return require('speclsp').statusline():find('edit') == nil"), true)
    local tabs = n:lua("return vim.g.tabs or 0")
    n:type(keys.typed and "" or "<Tab>")
    equal(n:lua("return vim.g.tabs or 0"), tabs + (keys.typed and 0 or 1))
    n:type(keys[2])
    sees(n, SHOWN)
  end
  equal(reports(n), {})
  n:type("<Tab>")
  n:has(n:lua("return " .. TO_EDIT))
end

specs["an edit that is found while a macro is recorded is shown after it"] = function(n)
  open(n, EDIT)
  n:type("qa1G6lcwfetch<Esc>")
  n:lua("vim.wait(200)")
  sees(n, {})
  n:type("q")
  sees(n, SHOWN)
end

--- Applies the last edit in insert mode. The limit of what follows is over when `expire()` is called.
local function walked(n, held)
  open(n, EDIT)
  n:type("1G6lcwfetch")
  sees(n, SHOWN)
  n:lua([[vim.uv.new_timer = function()
    return { start = function(_, _, _, callback) expire = callback end, stop = function() end }
  end]])
  n:lua("fake.edit, fake.hold = nil, " .. tostring(held))
  n:type("<Tab>")
  n:has(n:lua("return " .. TO_EDIT))
end

local WALKED = "three = fetch(c)"

specs["after the last edit one Tab too many is swallowed, once, while 'done' is shown"] = function(n)
  walked(n, false)
  sees(n, { "2:0 done: 1 edit" })
  n:type("<Tab>")
  sees(n, {})
  equal(n:lines()[3], WALKED)
  n:type("<Tab>")
  n:wait("vim.api.nvim_get_current_line() == 'three = fetch\\t(c)'", "a tab")
end

specs["after the last edit any other key, a change by others and time give Tab back"] = function(n)
  for _, keys in ipairs({ "x<BS>", "<Left>", "<Esc>", "<C-l>", "" }) do
    walked(n, false)
    sees(n, { "2:0 done: 1 edit" })
    n:type(keys)
    if keys == "" then
      n:lua("expire()")
    end
    sees(n, {})
    n:type((keys == "<Esc>" and "a" or "") .. "<Tab>")
    n:wait("vim.api.nvim_get_current_line():find('\\t')", "a tab after " .. keys)
    n:type("<Esc>")
    n:lua("vim.cmd.bwipeout({ bang = true })")
  end
  walked(n, false)
  sees(n, { "2:0 done: 1 edit" })
  n:lua("vim.api.nvim_buf_set_lines(0, 0, 0, false, { 'more' })")
  n:type("<Tab>")
  n:wait("vim.api.nvim_get_current_line() == 'three = fetch\\t(c)'", "a tab after a change")
end

specs["after the last edit of a rename the uses in files that are not open are counted and listed; it goes on there"] = function(n)
  n:lua("fake.unopened = { uses = 1, files = 1 }")
  walked(n, false)
  local count = "2:0 done: 1 edit; 1 use in 1 file that is not open (:Speclsp uses)"
  sees(n, { count })
  n:type("<Tab>")
  equal(n:lines()[3], WALKED)
  n:lua("expire()")
  sees(n, { count })
  n:type("<Left>")
  sees(n, {})
  n:lua([[
    local file = vim.fn.tempname() .. ".py"
    vim.fn.writefile({ "", "read()" }, file)
    local range = { start = { line = 1, character = 0 }, ["end"] = { line = 1, character = 4 } }
    fake.uses = { { uri = vim.uri_from_fname(file), range = range, line = "read()" } }
    fake.unopened, fake.edit = nil, { text = "fetch", range = { 1, 0, 1, 4 } }
  ]])
  n:type("<Esc>:Speclsp uses<CR>")
  n:wait("vim.bo.buftype == 'quickfix'", "the list")
  n:type("<CR>:setfiletype python<CR>:lua fake.start()<CR>")
  sees(n, { "1:0 [read]", "1:4 →fetch" })
  n:lua([[fake.uses = {} vim.cmd.Speclsp("uses")]])
  n:wait("table.concat(notices):find('no use of a renamed name') ~= nil", "a message")
end

for _, mode in ipairs({ "normal", "insert" }) do
  --- Accepts an edit whose last argument is a guess. Another edit follows.
  local function guessed(n)
    open(n, [[{
      text = "fetch(cé, depth)", range = { 2, 8, 2, 15 },
      placeholder = { start = { line = 2, character = 19 }, ["end"] = { line = 2, character = 24 } },
    }]])
    n:type("1G6lcwfetch" .. (mode == "normal" and "<Esc>" or ""))
    n:wait("require('speclsp').statusline():find('edit at')", "the edit")
    n:lua("fake.edit = { text = 'fetch', range = { 3, 7, 3, 11 } }")
    n:type("<Tab>")
    n:wait("vim.api.nvim_get_mode().mode == 's'", "Select mode")
    sees(n, {})
  end
  local FOLLOWING = { "3:7 [read]", "3:11 →fetch" }

  specs["a placeholder is selected: Tab keeps it and goes on, in " .. mode .. " mode"] = function(n)
    guessed(n)
    n:type("<Tab>")
    sees(n, FOLLOWING)
    equal(n:lines()[3], "three = fetch(cé, depth)")
    equal(n:lua("return vim.api.nvim_get_mode().mode"), mode:sub(1, 1))
    n:lua("fake.edit = nil")
    n:type("<Tab>")
    n:wait("vim.api.nvim_get_current_line() == 'four = fetch(d)'", "the following edit")
    sees(n, { "3:0 done: 2 edits" })
  end

  specs["a placeholder is selected: typing replaces it, and Tab accepts what follows, in " .. mode .. " mode"] = function(n)
    guessed(n)
    n:type("2")
    n:wait("vim.api.nvim_get_current_line() == 'three = fetch(cé, 2)'", "the argument")
    sees(n, FOLLOWING)
    n:lua("fake.edit = nil")
    n:type("<Tab>")
    n:wait("vim.api.nvim_get_current_line() == 'four = fetch(d)'", "the following edit")
  end
end

specs["while the next edit is computed every Tab is swallowed, and none is lost for the edit that comes"] = function(n)
  walked(n, true)
  n:type("<Tab><Tab>")
  equal(n:lines()[3], WALKED)
  sees(n, {})
  n:lua("fake.edit = { text = 'fetch', range = { 3, 7, 3, 11 } }; fake.hold = false; fake.answer()")
  sees(n, { "3:7 [read]", "3:11 →fetch" })
  n:lua("fake.edit = nil")
  n:type("<Tab>")
  n:wait("vim.api.nvim_get_current_line() == 'four = fetch(d)'", "the edit")
  n:type("<Esc><Tab>")
  equal(n:lua([[return vim.fn.maparg("<Tab>", "n")]]), "")
end

specs["another window hides the edit, and coming back shows it"] = function(n)
  shown(n)
  n:type(":vnew<CR>")
  equal(n:lua("return vim.fn.maparg('<Tab>', 'n')"), "")
  n:type(":wincmd p<CR>")
  sees(n, SHOWN)
end

return specs
