--- Keys that arrive together: Neovim looks ahead and evaluates the mapping of the second before it inserts the first.
local child = require("child")

local specs = {}

local function equal(actual, expected)
  assert(vim.deep_equal(actual, expected), ("found %s, expected %s"):format(vim.inspect(actual), vim.inspect(expected)))
end

local RETURN = "return math.pi * radius ** 2"

--- Shows a suggestion after four blanks, which the server does not replace by another.
local function suggest(n, text, setup)
  n:open({ "def circle_area(radius):", "    " }, setup)
  n:lua("fake.items = { ... }", text)
  n:type("jA")
  n:wait("require('speclsp').visible()", "the suggestion")
  n:lua("fake.hold = true")
end

--- The second line.
local function becomes(n, line)
  n:has({ "def circle_area(radius):", line })
end

local together = {
  ["r<Tab>"] = "    " .. RETURN,
  ["re<Tab>"] = "    " .. RETURN,
  ["x<Tab>"] = "    x\t",
  ["rex<Tab>"] = "    rex\t",
  ["x<BS><Tab>"] = "    " .. RETURN,
  ["<BS>x<Tab>"] = "x\t",
  ["r<M-Right>"] = "    return",
  ["r<M-Right><M-Right>"] = "    return math",
  ["r<M-Down>"] = "    " .. RETURN,
  ["r<Tab>z"] = "    " .. RETURN .. "z",
  ["x<Tab>z"] = "    x\tz",
  ["r<Tab><Tab>"] = "    " .. RETURN .. "\t",
}
for _, ui in ipairs(vim.lsp.inline_completion and { "own", "builtin" } or { "own" }) do
  for keys, line in pairs(together) do
    -- The built-in client draws nothing of what is left of a suggestion until the next answer.
    if ui == "own" or not keys:find("<M-Right><M-Right>", 1, true) then
      specs[("%s in one read, with ui = %q"):format(keys, ui)] = function(n)
        suggest(n, RETURN, { ui = ui })
        n:type(keys)
        becomes(n, line)
        equal(n:cursor(), { 2, #line })
      end
    end
  end

  specs[("Tab alone and Tab before a letter, with ui = %q"):format(ui)] = function(n)
    suggest(n, RETURN, { ui = ui })
    n:type("<Tab>z")
    becomes(n, "    " .. RETURN .. "z")
    n:type("<Tab>")
    becomes(n, "    " .. RETURN .. "z\t")
  end
end

for keys, line in pairs({
  ["x<M-Right>"] = "    xMAPPED",
  ["x<M-Down>"] = "    xMAPPED",
  ["x<Tab>"] = "    xMAPPED",
}) do
  specs[keys .. " in one read runs the user's own mapping of the key"] = function(n)
    n:lua("vim.cmd.edit('a.py')")
    n:lua([[
      vim.keymap.set("i", "<Tab>", "MAPPED")
      vim.keymap.set("i", "<M-Right>", function() return "MAPPED" end, { expr = true, buffer = true })
      vim.cmd("imap <M-Down> <Plug>(far)"); vim.cmd("inoremap <Plug>(far) MAPPED")
    ]])
    suggest(n, RETURN)
    n:type(keys)
    becomes(n, line)
  end
end

specs["x<Tab> in one read inserts blanks with 'expandtab', also where Tab's own mapping ends in Tab"] = function(n)
  n:lua([[vim.cmd("imap <expr> <Tab> pumvisible() ? '<C-n>' : '<Tab>'")]])
  suggest(n, RETURN)
  n:lua("vim.bo.expandtab, vim.bo.shiftwidth, vim.bo.softtabstop = true, 4, 4")
  n:type("x<Tab>y<Tab>")
  becomes(n, "    x   y   ")
end

specs["r<Tab> in one read is one undo step behind the r, and a dot repeats both"] = function(n)
  suggest(n, RETURN)
  n:type("r<Tab>")
  becomes(n, "    " .. RETURN)
  n:type("<Esc>u")
  becomes(n, "    r")
  n:type("<C-r>")
  becomes(n, "    " .. RETURN)
  n:lua("fake.items = {}")
  n:type("o<Esc>0D.")
  n:has({ "def circle_area(radius):", "    " .. RETURN, "" })
  n:type("A" .. "x<Esc>u")
  n:has({ "def circle_area(radius):", "    " .. RETURN, "" })
end

specs["a dot repeats a letter and the suggestion accepted in the same read"] = function(n)
  n:open({ "first", "second" })
  n:lua("fake.items = { '(radius)' }")
  n:type("A")
  n:sees("(radius)")
  n:lua("fake.hold = true")
  n:type("(<Tab><Esc>j.")
  n:has({ "first(radius)", "second(radius)" })
end

specs["several lines, and replaced text, after a letter in the same read"] = function(n)
  n:open({ "f(1)" })
  n:lua([[
    fake.items = { { insertText = "x):\n    go()", range = { start = { line = 0, character = 2 }, ["end"] = { line = 0, character = 4 } } } }
  ]])
  n:type("f1i")
  n:wait("require('speclsp').visible()", "the suggestion")
  n:lua("fake.hold = true")
  n:type("x<Tab>")
  n:has({ "f(x):", "    go()" })
end

specs["a snippet after a letter in the same read expands at the cursor, and after another letter not at all"] = function(n)
  suggest(n, { insertText = { kind = "snippet", value = "print(${1:x})$0" } })
  n:type("p<Tab>")
  becomes(n, "    print(x)")
  n:wait("vim.snippet.active()", "the snippet")
  n:lua("vim.snippet.stop(); fake.hold = false; vim.cmd.stopinsert()")
  n:lua("vim.api.nvim_buf_set_lines(0, 1, 2, false, { '    ' })")
  n:type("<Esc>A")
  n:sees("print(x)")
  n:lua("fake.hold = true")
  n:type("q<Tab>")
  becomes(n, "    q\t")
end

specs["keys that a script feeds, with and without looking at the typeahead first"] = function(n)
  suggest(n, RETURN)
  n:lua([[vim.api.nvim_feedkeys(vim.keycode("r<Tab>"), "m", false)]])
  becomes(n, "    " .. RETURN)
  n:type("<Esc>u")
  n:lua("fake.hold = false; vim.api.nvim_set_current_line('    ')")
  n:type("A")
  n:sees(RETURN)
  n:lua([[fake.hold = true; vim.api.nvim_feedkeys(vim.keycode("x<Tab>"), "mt", false)]])
  becomes(n, "    x\t")
end

specs["two calls of nvim_input without a pause between them"] = function(n)
  for keys, line in pairs({ r = "    " .. RETURN, x = "    x\t" }) do
    n:lua("fake.hold = false; vim.cmd.stopinsert(); vim.cmd('silent! %bwipeout!')")
    suggest(n, RETURN)
    vim.rpcnotify(n.channel, "nvim_input", keys)
    vim.rpcnotify(n.channel, "nvim_input", "<Tab>")
    becomes(n, line)
    n:detach()
  end
end

specs["a macro repeats the keys, and no suggestion takes part"] = function(n)
  suggest(n, RETURN)
  n:type("<Esc>")
  n:lua([[vim.fn.setreg("q", vim.keycode("Ar<Tab>x<Esc>"))]])
  n:type("@q")
  becomes(n, "    r\tx")
  n:type("@@")
  becomes(n, "    r\txr\tx")
end

specs["a suggestion is dismissed after a letter in the same read"] = function(n)
  suggest(n, RETURN)
  n:lua("fake.hold = false")
  n:type("r<C-]>")
  n:sees("")
  n:settle()
  n:sees("")
  n:type("e")
  n:sees(RETURN)
end

specs["alternatives are requested at the place after a letter in the same read"] = function(n)
  suggest(n, RETURN)
  n:lua("fake.hold, fake.items = false, { 'x', 'y' }")
  n:type("r<M-Bslash>")
  n:sees("x 1/2")
  equal(n:lua("return fake.requests[#fake.requests].position.character"), 5)
end

specs["an expression mapping of the user that calls accept inserts after the letter, or nothing"] = function(n)
  n:lua([[
    vim.keymap.set("i", "<Tab>", function() return require("speclsp").accept() and "" or "<Tab>" end, { expr = true })
  ]])
  suggest(n, RETURN, { keys = { accept = false } })
  n:type("r<Tab>")
  becomes(n, "    " .. RETURN)
  n:type("<Esc>")
  n:lua("fake.hold = false; vim.api.nvim_set_current_line('    ')")
  n:type("A")
  n:sees(RETURN)
  n:lua("fake.hold = true")
  n:type("x<Tab>")
  becomes(n, "    x")
end

specs["a next edit: a letter in the same read removes it, and Tab does what it did before"] = function(n)
  n:open({ "count = 1", "print(count)" })
  n:lua("fake.status({ next_edit = true }); fake.edit = { text = 'total', range = { 1, 6, 1, 11 } }")
  n:type("ccx = 1")
  n:wait("require('speclsp.next_edit').place()", "the edit")
  n:type("z<Tab>")
  n:has({ "x = 1z\t", "print(count)" })
  n:wait("require('speclsp.next_edit').place()", "the edit")
  n:type("<Tab>z")
  n:has({ "x = 1z\t", "print(totalz)" })
end

specs["in a terminal, whatever arrives in one read"] = function(n)
  local terminal = child.start(n.here, true)
  local ok, problem = pcall(function()
    for keys, line in pairs({
      ["r\t"] = "    " .. RETURN,
      ["x\t"] = "    x\t",
      ["r\27[1;3C"] = "    return",
      ["r\27[1;3B"] = "    " .. RETURN,
    }) do
      terminal:lua("fake.hold = false; vim.cmd.stopinsert(); vim.cmd('silent! %bwipeout!')")
      suggest(terminal, RETURN)
      terminal:press(keys)
      becomes(terminal, line)
      terminal:detach()
    end
  end)
  terminal:stop()
  assert(ok, problem)
end

return specs
