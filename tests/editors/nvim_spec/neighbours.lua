--- Other plugins' ways to map a key and to fall back to the mapping that they replaced. They run beside the plugin.
---
--- A neighbour acts (inserts "[menu]") while its menu is open, else it falls back.
local M = { menu_is_open = false }
local DESC = "neighbour"

local function feed(keys, flags)
  vim.api.nvim_feedkeys(keys:find("\128") and keys or vim.keycode(keys), flags, false)
end

--- The mapping that a new mapping of the buffer replaces: the buffer's own, else the global one, else {}.
local function mapped(mode, key)
  return vim.fn.maparg(key, mode, false, true)
end

--- The keys of an expression mapping.
local function evaluate(map)
  local keys = map.callback and map.callback() or not map.callback and vim.api.nvim_eval(vim.keycode(map.rhs)) or ""
  return map.replace_keycodes == 1 and vim.keycode(keys) or keys
end

local function act()
  feed("[menu]", "in")
end

local ways = {}

--- nvim-cmp: a function that feeds a replaced expression mapping under a <Plug> name, and another one's keys.
ways["nvim-cmp"] = function(mode, key)
  local replaced = mapped(mode, key)
  local name = "<Plug>(cmp-" .. key:gsub("[<>]", "") .. ")"
  local is_local = replaced.buffer == 1
  vim.keymap.set(mode, key, function()
    if M.menu_is_open then
      act()
    elseif replaced.expr == 1 then
      vim.keymap.set(mode, name, function()
        return evaluate(replaced)
      end, { buffer = is_local, expr = true, remap = replaced.noremap == 0, replace_keycodes = false })
      feed(name, "im")
    elseif replaced.callback then
      replaced.callback()
    else
      feed(replaced.rhs or key, replaced.noremap == 0 and "im" or "in")
    end
  end, { buffer = is_local, desc = DESC })
end

--- blink.cmp: a function of the buffer that calls the replaced mapping's callback, and feeds the keys behind all others.
ways["blink.cmp"] = function(mode, key)
  local replaced = mapped(mode, key)
  vim.keymap.set(mode, key, function()
    local flags = replaced.noremap == 0 and "m" or "n"
    if M.menu_is_open then
      act()
    elseif replaced.callback and replaced.expr == 0 then
      vim.schedule(replaced.callback)
    else
      local keys = replaced.expr == 1 and evaluate(replaced) or replaced.rhs
      feed((keys or "") ~= "" and keys or key, keys and flags or "n")
    end
  end, { buffer = true, desc = DESC })
end

--- blink.cmp 1: an expression mapping of the buffer that returns the keys of the replaced mapping.
ways["blink.cmp 1"] = function(mode, key)
  local replaced = mapped(mode, key)
  vim.keymap.set(mode, key, function()
    if M.menu_is_open then
      act()
    elseif replaced.callback and replaced.expr == 0 then
      vim.schedule(replaced.callback)
    elseif replaced.expr == 1 then
      return evaluate(replaced)
    else
      return vim.keycode(replaced.rhs or key)
    end
  end, { buffer = true, expr = true, replace_keycodes = false, desc = DESC })
end

local copilot_keys = {} ---@type { key: string, replaced: table }[]

--- The keys of a mapping of copilot.vim.
function M.copilot(number)
  local key, replaced = copilot_keys[number].key, copilot_keys[number].replaced
  return M.menu_is_open and "[menu]" or replaced.expr == 1 and evaluate(replaced) or vim.keycode(replaced.rhs or key)
end

--- copilot.vim: a global expression mapping with the text of the replaced mapping in it.
ways["copilot.vim"] = function(mode, key)
  table.insert(copilot_keys, { key = key, replaced = mapped(mode, key) })
  local call = ("v:lua.require'neighbours'.copilot(%d)"):format(#copilot_keys)
  vim.api.nvim_set_keymap(mode, key, call, { script = true, nowait = true, expr = true, desc = DESC })
end

--- lazy.nvim: a global mapping that loads a plugin at the first press, which maps the key, and then feeds the key.
ways["lazy.nvim"] = function(mode, key)
  vim.keymap.set(mode, key, function()
    vim.keymap.del(mode, key)
    ways["nvim-cmp"](mode, key)
    feed("<Ignore>" .. key, "i")
    return ""
  end, { expr = true, desc = DESC })
end

--- coq_nvim, mini.completion: a global expression mapping that returns its own key, without mappings.
ways["coq_nvim"] = function(mode, key)
  vim.keymap.set(mode, key, function()
    return M.menu_is_open and "[menu]" or key
  end, { expr = true, desc = DESC })
end

--- vim-vsnip, UltiSnips: a global expression mapping that returns its own key or a <Plug> name, with mappings.
ways["vim-vsnip"] = function(mode, key)
  vim.keymap.set(mode, "<Plug>(vsnip)", "[menu]")
  vim.keymap.set(mode, key, function()
    return M.menu_is_open and "<Plug>(vsnip)" or key
  end, { expr = true, remap = true, desc = DESC })
end

--- nvim-autopairs: an expression mapping of the buffer that returns its own key, without mappings.
ways["nvim-autopairs"] = function(mode, key)
  vim.keymap.set(mode, key, function()
    return M.menu_is_open and "[menu]" or vim.keycode(key)
  end, { buffer = true, expr = true, replace_keycodes = false, desc = DESC })
end

M.names = vim.tbl_keys(ways)
table.sort(M.names)

--- Map keys in the present buffer as a plugin does, except those that it has mapped.
---@param name string one of `names`
---@param mode string
---@param keys string[]
function M.map(name, mode, keys)
  for _, key in ipairs(keys) do
    if mapped(mode, key).desc ~= DESC then
      ways[name](mode, key)
    end
  end
end

--- Map a key once more, over the plugin's own mapping.
---@param name string
---@param mode string
---@param key string
function M.again(name, mode, key)
  ways[name](mode, key)
end

--- Remove the global and the buffer's mappings of keys.
---@param mode string
---@param keys string[]
function M.unmap(mode, keys)
  for _, key in ipairs(keys) do
    pcall(vim.keymap.del, mode, key, { buffer = true })
    pcall(vim.keymap.del, mode, key)
  end
end

return M
