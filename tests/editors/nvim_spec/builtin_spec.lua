--- Neovim's own vim.lsp.inline_completion (0.12) draws; these specs cover the plugin's additions.
if not vim.lsp.inline_completion then
  io.stdout:write('NOT COVERED: ui = "builtin" needs Neovim 0.12\n')
  return {}
end

local specs = {}

--- Waits until the built-in client shows a suggestion.
local function wait_until_shown(n)
  n:wait("require('speclsp').visible()", "the built-in ghost text")
end

specs["the built-in client draws, and <Tab> accepts at the present cursor"] = function(n)
  n:open({ "f()" }, { ui = "builtin" })
  n:lua(
    [[fake.items = { { insertText = "f(abc, d)", range = { start = { line = 0, character = 0 }, ["end"] = { line = 0, character = 3 } } } }]]
  )
  n:type("f)i")
  wait_until_shown(n)
  n:lua("fake.hold = true")
  n:type("ab<Tab>")
  n:has({ "f(abc, d)" })
end

specs["the built-in client's suggestions are accepted word by word and line by line"] = function(n)
  n:open({ "" }, { ui = "builtin" })
  n:lua("fake.items = { 'one two\\nthree' }")
  n:type("i")
  wait_until_shown(n)
  n:type("<M-Right>")
  n:has({ "one" })
  n:lua("fake.items = { ' two\\nthree' }")
  wait_until_shown(n)
  n:type("<M-Down>")
  n:has({ "one two" })
end

specs["accepting what the built-in client shows is one undo step, and a dot repeats it"] = function(n)
  n:open({ "x" }, { ui = "builtin" })
  n:lua("fake.items = { 'cd\\nef' }")
  n:type("Oab")
  wait_until_shown(n)
  n:type("<Tab>")
  n:has({ "abcd", "ef", "x" })
  n:lua("fake.items = {}")
  n:type("<Esc>.")
  n:has({ "abcd", "abcd", "ef", "ef", "x" })
  n:type("u")
  n:has({ "abcd", "ef", "x" })
  n:type("u")
  n:has({ "ab", "x" })
end

specs["a new name keeps the built-in client's suggestions"] = function(n)
  n:open({ "" }, { ui = "builtin", cmd = { vim.v.progpath } })
  n:lua("fake.items = { 'ghost' }")
  n:type(":file b.py<CR>")
  n:type("i")
  wait_until_shown(n)
  n:type("<Tab>")
  n:has({ "ghost" })
end

specs["with the plugin drawing, the built-in client leaves our server alone and serves the others"] = function(n)
  n:lua("vim.lsp.inline_completion.enable()")
  n:open()
  n:lua("fake.items = { 'ghost' }")
  n:type("ia")
  n:sees("ghost")
  n:wait(
    [[vim.lsp.inline_completion.is_enabled({ bufnr = 0 })
    and not vim.lsp.inline_completion.is_enabled({ bufnr = 0, client_id = vim.lsp.get_clients()[1].id })]],
    "one drawer"
  )
end

specs["the built-in interface does not announce that it follows growth: it would hide the suggestion"] = function(n)
  n:open({ "" }, { ui = "builtin" })
  local ours = n:lua("return fake.asked('initialize')[1].capabilities.experimental or false")
  assert(not ours, vim.inspect(ours))
end

return specs
