--- Keys beside other plugins. The law: a key without effect does the same as without this plugin.
local neighbours = require("neighbours")

local specs = {}
local KEYS = { "<Tab>", "<M-]>", "<M-[>", "<M-Right>", "<M-Down>", "<C-]>" } -- all of insert mode that may have no effect
local OTHER_KEYS = { "<CR>", "<C-y>", "<BS>", "<C-e>" }
local OTHER_SETUP = { accept = "<C-y>", dismiss = "<C-e>", accept_word = "<CR>", accept_line = "<BS>" }

local function equal(actual, expected, case)
  local message = "%s: found %s, expected %s"
  assert(vim.deep_equal(actual, expected), message:format(case, vim.inspect(actual), vim.inspect(expected)))
end

--- Removes all mappings of keys, and opens an empty buffer without the server.
local function reset(n, mode, keys)
  n:detach()
  n:lua(
    [[
    local mode, keys = ...
    vim.cmd.stopinsert()
    vim.cmd("silent! %bwipeout!")
    pcall(vim.api.nvim_del_augroup_by_name, "late")
    neighbours = require("neighbours")
    neighbours.menu_is_open = false
    neighbours.unmap(mode, keys)
    fake.items, fake.hold = {}, false
  ]],
    mode,
    keys
  )
  n:edit()
end

local function map(n, name, keys)
  n:lua("neighbours.map(...)", name, "i", keys)
end

--- Maps keys at every start of insert mode, as completion plugins do.
local function map_late(n, name, keys)
  n:lua(
    [[
    local name, keys = ...
    vim.api.nvim_create_autocmd("InsertEnter", {
      group = vim.api.nvim_create_augroup("late", {}),
      callback = function() neighbours.map(name, "i", keys) end,
    })
  ]],
    name,
    keys
  )
end

--- The lines after each key was typed behind a letter in one read, and the first key also alone.
---@param menu_is_open boolean
local function lines_after(n, keys, menu_is_open)
  n:lua("neighbours.menu_is_open = ...; vim.api.nvim_buf_set_lines(0, 0, -1, false, { 'first' })", menu_is_open)
  for _, key in ipairs(keys) do
    n:type("Gox" .. key)
    n:type(key == keys[1] and key or "y")
    n:type("z<Esc>")
  end
  return n:lines()
end

local function map_in_order(n, name, keys, order, open)
  reset(n, "i", keys)
  n:lua("for number, key in ipairs({ ... }) do vim.keymap.set('i', key, '[' .. number .. ']') end", keys[2], keys[3])
  if order == "before" or order == "twice" then
    map(n, name, keys)
  end
  open()
  if order == "after" then
    map(n, name, keys)
  elseif order ~= "before" then
    map_late(n, name, keys)
  end
end

--- Compares keys without effect with the same keys without the server, at each stage of its life.
local function compare(n, name, keys, order, setup)
  map_in_order(n, name, keys, order, function() end)
  local closed, open = lines_after(n, keys, false), lines_after(n, keys, true)
  map_in_order(n, name, keys, order, function()
    n:attach(setup)
  end)
  equal(lines_after(n, keys, false), closed, name)
  equal(lines_after(n, keys, true), open, name .. " with a menu")
  n:detach()
  equal(lines_after(n, keys, false), closed, name .. " without the server")
  n:attach(setup)
  equal(lines_after(n, keys, false), closed, name .. " with the server again")
end

for order, setups in pairs({
  before = { {}, OTHER_SETUP },
  after = { {} },
  late = { {}, OTHER_SETUP },
  twice = { {} },
}) do
  for _, setup in ipairs(setups) do
    local keys = setup == OTHER_SETUP and OTHER_KEYS or KEYS
    specs[("%s beside a plugin that maps them %s"):format(table.concat(keys, " "), order)] = function(n)
      for _, name in ipairs(neighbours.names) do
        if name ~= "copilot.vim" or order == "before" then -- it maps when Neovim starts
          compare(n, name, keys, order, { keys = setup })
        end
      end
    end
  end
end

--- Accepts a suggestion, then an item of the other plugin's menu.
local function acts_once(n, name, order, ui)
  local case = ("%s, %s, ui = %q"):format(name, order, ui)
  map_in_order(n, name, { "<Tab>", "<M-]>", "<M-[>" }, order, function()
    n:attach({ ui = ui })
  end)
  n:lua("fake.items = { 'suggested' }")
  n:type("i")
  n:wait("require('speclsp').visible()", "the suggestion")
  n:type("<Tab>")
  equal(n:lines(), { "suggested" }, case)
  n:lua("fake.items, neighbours.menu_is_open = {}, true")
  n:type("<Esc>cc<Tab>")
  equal(n:lines(), { "[menu]" }, case .. ", menu")
end

specs["beside a plugin that maps it, <Tab> inserts the menu's item, else the suggestion, and each once"] = function(n)
  for _, name in ipairs({ "nvim-cmp", "blink.cmp", "blink.cmp 1", "vim-vsnip", "lazy.nvim" }) do
    for _, order in ipairs({ "before", "after", "late", "twice" }) do
      acts_once(n, name, order, "own")
    end
    if vim.lsp.inline_completion then
      acts_once(n, name, "late", "builtin")
    end
  end
end

-- Mappings of <Tab>, and the text that "<Tab>", "x<Tab>" and "<Tab><Tab>" insert in three reads
local mappings = {
  ["a mapping that appends its key"] = {
    [[vim.keymap.set("i", "<Tab>", function() vim.api.nvim_feedkeys("\t", "m", false) end)]],
    "\tx\t\t\t",
  },
  ["a mapping that inserts its key before the others"] = {
    [[vim.keymap.set("i", "<Tab>", function() vim.api.nvim_feedkeys("\t", "im", false) end)]],
    "\tx\t\t\t",
  },
  ["a mapping that inserts a text and its key"] = { [[vim.cmd("imap <Tab> -<Tab>")]], "-\tx-\t-\t-\t" },
  ["a mapping that feeds its key through a <Plug> name"] = {
    [[vim.cmd("imap <Tab> <Plug>(far)"); vim.cmd("imap <Plug>(far) <Tab>")]],
    "\tx\t\t\t",
  },
  ["a remapped key"] = { [[vim.cmd("imap <Tab> <C-n>"); vim.cmd("inoremap <C-n> +")]], "+x+++" },
  ["an expression"] = { [[vim.cmd("inoremap <expr> <Tab> '+'")]], "+x+++" },
  ["the expression register"] = { [[vim.cmd("inoremap <silent> <Tab> <C-r>='+'<CR>")]], "+x+++" },
  ["a mapping that fails in an expression"] = {
    [[failed = false; vim.keymap.set("i", "<Tab>", function()
      failed = not failed
      return failed and vim.api.nvim_eval("Unknown()") or "+"
    end, { expr = true })]],
    "x++",
  },
  ["a mapping that is interrupted"] = { [[vim.cmd("inoremap <Tab> +<C-c>a")]], "+x+++" },
  ["a mapping that leaves insert mode"] = { [[vim.cmd("inoremap <Tab> +<Esc>a")]], "+x+++" },
}

specs["the previous mapping of <Tab> runs once for each press, and never again from itself"] = function(n)
  n:lua("vim.o.showmode = false") -- Neovim would show an error for a second
  for name, case in vim.spairs(mappings) do
    local orders = { "a global mapping after", "a global mapping before", "a mapping of the buffer before" }
    for _, order in ipairs(name:find("fails") and { orders[1] } or orders) do
      reset(n, "i", { "<Tab>" })
      if order:find("after") then
        n:attach()
      end
      n:lua(case[1])
      if order:find("buffer") then
        n:lua([[
          local map = vim.fn.maparg("<Tab>", "i", false, true)
          vim.keymap.del("i", "<Tab>")
          map.buffer = 1
          vim.fn.mapset("i", false, map)
        ]])
      end
      if order:find("before") then
        n:attach()
      end
      for _, keys in ipairs({ "i<Tab>", "x<Tab>", "<Tab><Tab>", "<Esc>" }) do
        n:type(keys)
      end
      equal(n:lines(), { case[2] }, name .. ", " .. order)
    end
  end
end

specs["a macro runs the previous mapping of <Tab> at each press, beside another plugin too"] = function(n)
  for name, inserted in pairs({ ["nvim-cmp"] = "++", ["blink.cmp 1"] = "++", [""] = "++" }) do
    reset(n, "i", { "<Tab>" })
    n:lua("vim.keymap.set('i', '<Tab>', '+')")
    n:attach()
    if name ~= "" then
      map(n, name, { "<Tab>" })
    end
    n:lua([[vim.fn.setreg("q", vim.keycode("A<Tab><Tab><Esc>"))]])
    n:type("2@q")
    equal(n:lines(), { inserted .. inserted }, name)
  end
end

specs["<Tab> survives the server's end below and above other plugins that map it again and again"] = function(n)
  reset(n, "i", { "<Tab>" })
  n:lua("vim.keymap.set('i', '<Tab>', '+', { buffer = true })")
  for _, name in ipairs({ "nvim-cmp", "blink.cmp", "nvim-cmp", "blink.cmp 1" }) do
    n:attach()
    n:lua("neighbours.again(...)", name, "i", "<Tab>")
    n:type("cc<Tab>")
    n:type("x<Esc>")
    n:has({ "+x" })
    n:detach()
    n:type("cc<Tab>")
    n:type("x<Esc>")
    n:has({ "+x" })
    n:type("cc<Tab><Esc>") -- blink.cmp feeds its fallback behind <Esc>
    n:type("<Esc>")
    equal(n:lua("return { vim.api.nvim_get_current_line():gsub('+', ''), vim.v.errmsg }"), { "", "" }, name)
  end
end

specs["a next edit's keys act once beside another plugin that maps them in normal mode, and are restored"] = function(n)
  for _, name in ipairs({ "nvim-cmp", "blink.cmp", "copilot.vim", "vim-vsnip" }) do
    for _, is_first in ipairs({ true, false }) do
      local keys = { "<Tab>", "<Esc>" }
      reset(n, "n", keys)
      n:lua("vim.keymap.set('n', '<Tab>', 'a+<Esc>'); vim.keymap.set('n', '<Esc>', 'a-<Esc>')")
      n:attach()
      if is_first then
        n:lua("neighbours.map(...)", name, "n", keys)
      end
      n:lua("vim.api.nvim_buf_set_lines(0, 0, -1, false, { 'count = 1', 'print(count)' })")
      n:lua("fake.status({ next_edit = true }); fake.edit = { text = 'total', range = { 1, 6, 1, 11 } }")
      n:type("ggccx = 1<Esc>")
      n:wait("require('speclsp.next_edit').place()", "the edit")
      if not is_first then
        n:lua("neighbours.map(...)", name, "n", keys)
      end
      n:lua("fake.edit = nil")
      n:type("<Tab>")
      equal(n:lines(), { "x = 1", "print(total)" }, name)
      n:type("gg$<Tab>")
      n:type("<Esc>")
      local replaces = not is_first or name == "vim-vsnip"
      equal(n:lines(), { replaces and n:lines()[1] or "x = 1+-", "print(total)" }, name .. ", after it")
    end
  end
end

return specs
