--- Options of setup{}: defaults, validation, and one message for each problem.
local notify = require("speclsp.notify")

---@class speclsp.Keys Insert mode unless another is named; false leaves a key alone
---@field accept string|false
---@field accept_word string|false
---@field accept_line string|false
---@field next string|false
---@field prev string|false
---@field dismiss string|false
---@field trigger string|false
---@field accept_edit string|false normal and insert mode
---@field dismiss_edit string|false normal mode

---@class speclsp.Options
---@field cmd string[]|false the server; false looks for it: PATH, then ~/.local/bin
---@field settings table<string, any> the server's own settings, nested or dotted; only these are sent
---@field ui "own"|"builtin" drawing by this plugin, or vim.lsp.inline_completion (0.12)
---@field debounce_ms integer wait this long for the next key before asking
---@field enabled boolean suggest from the start; false waits for `:Speclsp toggle`, and starts nothing
---@field next_edit boolean show the server's next edits
---@field filetypes_off string[] the server never sees these
---@field keys speclsp.Keys
local defaults = {
  cmd = false,
  settings = {},
  ui = "own",
  debounce_ms = 0,
  enabled = true,
  next_edit = true,
  filetypes_off = { "TelescopePrompt", "snacks_picker_input", "dap-repl", "oil", "netrw", "help", "gitrebase" },
  keys = {
    accept = "<Tab>",
    accept_word = "<M-Right>",
    accept_line = "<M-Down>",
    next = "<M-]>",
    prev = "<M-[>",
    dismiss = "<C-]>",
    trigger = "<M-\\>",
    accept_edit = "<Tab>",
    dismiss_edit = "<Esc>",
  },
}

---@type table<string, [fun(value: any): boolean, string]> test of a value, and its description in messages
local rules = {
  cmd = {
    function(value)
      return value == false or (vim.islist(value) and type(value[1]) == "string")
    end,
    'a list like { "speclsp", "lsp" }',
  },
  settings = {
    function(value)
      return type(value) == "table" and (next(value) == nil or not vim.islist(value))
    end,
    'a table like { model = "auto" }',
  },
  ui = {
    function(value)
      return value == "own" or value == "builtin"
    end,
    '"own" or "builtin"',
  },
  debounce_ms = {
    function(value)
      return type(value) == "number" and value >= 0
    end,
    "milliseconds, 0 or more",
  },
  enabled = {
    function(value)
      return type(value) == "boolean"
    end,
    "true or false",
  },
  next_edit = {
    function(value)
      return type(value) == "boolean"
    end,
    "true or false",
  },
  filetypes_off = {
    function(value)
      return vim.islist(value)
    end,
    'a list like { "markdown" }',
  },
}
local key_rule = {
  function(value)
    return value == false or (type(value) == "string" and value ~= "")
  end,
  'a key like "<Tab>", or false',
}

local M = {}

---@type speclsp.Options the options in effect
M.now = vim.deepcopy(defaults)

--- Levenshtein distance of two words.
local function distance(a, b)
  local row = {} ---@type integer[]
  for j = 0, #b do
    row[j] = j
  end
  for i = 1, #a do
    local corner = row[0]
    row[0] = i
    for j = 1, #b do
      local above = row[j]
      local change = a:byte(i) == b:byte(j) and 0 or 1
      row[j] = math.min(above + 1, row[j - 1] + 1, corner + change)
      corner = above
    end
  end
  return row[#b]
end

--- The known word closest to the given one.
---@param word string
---@param known string[]
function M.nearest(word, known)
  table.sort(known, function(a, b)
    local to_a, to_b = distance(word, a), distance(word, b)
    return to_a < to_b or (to_a == to_b and a < b)
  end)
  return known[1]
end

--- Copy the known and valid options from `values` to `base`; add a message to `problems` for each other one.
---@param values table
---@param base table
---@param prefix string
---@param problems string[]
local function copy_valid(values, base, prefix, problems)
  for name, value in pairs(values) do
    local rule = prefix == "" and rules[name] or prefix == "keys." and key_rule or nil
    if base[name] == nil then
      local nearest = M.nearest(tostring(name), vim.tbl_keys(base))
      problems[#problems + 1] = ("setup: unknown option %s%s; did you mean %s%s?"):format(
        prefix,
        tostring(name),
        prefix,
        nearest
      )
    elseif name == "keys" and prefix == "" then
      if type(value) == "table" then
        copy_valid(value, base.keys, "keys.", problems)
      elseif value == false then
        for key in pairs(base.keys) do
          base.keys[key] = false
        end
      else
        problems[#problems + 1] = ("setup: keys is %s; expected a table, or false"):format(vim.inspect(value))
      end
    elseif rule and not rule[1](value) then
      problems[#problems + 1] = ("setup: %s%s is %s; expected %s"):format(prefix, name, vim.inspect(value), rule[2])
    else
      base[name] = vim.deepcopy(value)
    end
  end
end

--- Set the options: the defaults, overridden by the given ones.
---@param opts? table
function M.apply(opts)
  local problems = {} ---@type string[]
  M.now = vim.deepcopy(defaults)
  if opts ~= nil and type(opts) ~= "table" then
    problems[1] = ("setup takes a table, found %s"):format(type(opts))
  else
    copy_valid(opts or {}, M.now, "", problems)
  end
  if M.now.ui == "builtin" and not vim.lsp.inline_completion then
    problems[#problems + 1] = 'setup: ui = "builtin" needs Neovim 0.12; drawing with "own"'
    M.now.ui = "own"
  end
  for _, problem in ipairs(problems) do
    notify.once(problem, vim.log.levels.WARN)
  end
end

return M
