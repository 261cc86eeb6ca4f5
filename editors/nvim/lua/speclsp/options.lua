--- What the user may set, what it is when he does not, and one clear sentence for what cannot be used.
local notice = require("speclsp.notice")

---@class speclsp.Keys Insert mode; false leaves a key alone
---@field accept string|false
---@field accept_word string|false
---@field accept_line string|false
---@field next string|false
---@field prev string|false
---@field dismiss string|false
---@field trigger string|false

---@class speclsp.Options
---@field cmd string[]|false the server; false looks for it: PATH, then ~/.local/bin
---@field settings table<string, any> the server's own settings, nested or dotted; only these are sent
---@field ui "own"|"builtin" who draws: this plugin, or vim.lsp.inline_completion (0.12)
---@field debounce_ms integer wait this long for the next key before asking
---@field enabled boolean suggest from the start; false waits for `:Speclsp toggle`, and starts nothing
---@field filetypes_off string[] the server never sees these
---@field keys speclsp.Keys
local defaults = {
  cmd = false,
  settings = {},
  ui = "own",
  debounce_ms = 0,
  enabled = true,
  filetypes_off = { "TelescopePrompt", "snacks_picker_input", "dap-repl", "oil", "netrw", "help", "gitrebase" },
  keys = {
    accept = "<Tab>",
    accept_word = "<M-Right>",
    accept_line = "<M-Down>",
    next = "<M-]>",
    prev = "<M-[>",
    dismiss = "<C-]>",
    trigger = "<M-\\>",
  },
}

---@type table<string, [fun(value: any): boolean, string]> what is right, and how to say it
local expected = {
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
    'a table like { pair = "auto" }',
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
  filetypes_off = {
    function(value)
      return vim.islist(value)
    end,
    'a list like { "markdown" }',
  },
}
local a_key = {
  function(value)
    return value == false or (type(value) == "string" and value ~= "")
  end,
  'a key like "<Tab>", or false',
}

local M = {}

---@type speclsp.Options what counts now
M.now = vim.deepcopy(defaults)

--- How many letters lie between two words.
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
---@param given string
---@param known string[]
function M.nearest(given, known)
  table.sort(known, function(a, b)
    local to_a, to_b = distance(given, a), distance(given, b)
    return to_a < to_b or (to_a == to_b and a < b)
  end)
  return known[1]
end

--- Take from `given` what is known and well formed; the sentences say what was not.
---@param given table
---@param base table
---@param at string
---@param problems string[]
local function take(given, base, at, problems)
  for name, value in pairs(given) do
    local rule = at == "" and expected[name] or at == "keys." and a_key or nil
    if base[name] == nil then
      local nearest = M.nearest(tostring(name), vim.tbl_keys(base))
      problems[#problems + 1] = ("setup: unknown option %s%s; did you mean %s%s?"):format(
        at,
        tostring(name),
        at,
        nearest
      )
    elseif name == "keys" and at == "" then
      if type(value) == "table" then
        take(value, base.keys, "keys.", problems)
      elseif value == false then
        for key in pairs(base.keys) do
          base.keys[key] = false
        end
      else
        problems[#problems + 1] = ("setup: keys is %s; expected a table, or false"):format(vim.inspect(value))
      end
    elseif rule and not rule[1](value) then
      problems[#problems + 1] = ("setup: %s%s is %s; expected %s"):format(at, name, vim.inspect(value), rule[2])
    else
      base[name] = vim.deepcopy(value)
    end
  end
end

--- Start from the defaults and take what is given.
---@param given? table
function M.take(given)
  local problems = {} ---@type string[]
  M.now = vim.deepcopy(defaults)
  if given ~= nil and type(given) ~= "table" then
    problems[1] = ("setup takes a table, found %s"):format(type(given))
  else
    take(given or {}, M.now, "", problems)
  end
  if M.now.ui == "builtin" and not vim.lsp.inline_completion then
    problems[#problems + 1] = 'setup: ui = "builtin" needs Neovim 0.12; drawing with "own"'
    M.now.ui = "own"
  end
  for _, problem in ipairs(problems) do
    notice.once(problem, vim.log.levels.WARN)
  end
end

return M
