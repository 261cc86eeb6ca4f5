--- Key mappings: each key runs its action, and falls through to its previous mapping when the action did nothing.
---
--- The mappings are local to the buffers that have suggestions. Those of a next edit exist only while one is shown. The
--- previous mapping is the buffer's own, else a global one (looked up when the key is pressed, because plugins may map it
--- late), else the key itself.
---
--- A mapping is a `<Cmd>` as text. It runs in turn: Neovim evaluates an expression mapping while it looks ahead, before
--- the keys in front of it are in the buffer. A plugin that maps the key over ours can feed the text as its fallback.
---
--- A plugin's fallback, or a mapping that ends in its own key, may call ours again. So for one press each of our mappings
--- runs its previous mapping once; then it feeds the key itself, without mappings.
local api = vim.api
local options = require("speclsp.options")

local M = {}
local OURS = "speclsp: " -- start of the description of our mappings
local PREVIOUS = "<Plug>(speclsp-previous)" -- key of the previous mapping while it runs

---@class speclsp.Binding
---@field mode "i"|"n"
---@field key string
---@field names string[] actions, the first one that acts ends the list
---@field previous? table the buffer's mapping that ours replaced, as returned by nvim_buf_get_keymap

local bindings = {} ---@type speclsp.Binding[] each one that was mapped; its mapping calls it by number
local running = {} ---@type table<integer, table> by binding: the previous mapping that runs for the present press
local typed_keys = "" -- origin of the key that is processed; "" if a mapping, macro or script fed it

vim.on_key(function(_, keys)
  typed_keys = keys
  if keys ~= "" then -- keys that the last press fed come before typed ones, or an error has discarded them
    running = {}
  end
end, api.nvim_create_namespace("speclsp.keys"))

local PARTS = { accept = "all", accept_word = "word", accept_line = "line" }
local EDIT_MODES = { accept_edit = { "n", "i", "s" }, dismiss_edit = { "n" } } -- the others work in insert mode

--- Run an action.
---@param name string
---@return boolean acted
local function act(name)
  if PARTS[name] then
    return require("speclsp.accept").insert(PARTS[name])
  end
  return require("speclsp")[name]()
end

--- The first mode of an action.
---@param name string
---@return "i"|"n"
function M.mode(name)
  return EDIT_MODES[name] and EDIT_MODES[name][1] or "i"
end

--- The keys of suggestions, or those of a next edit. A key of both is among the first: the suggestion has precedence.
---@param of_edit boolean
---@return speclsp.Binding[]
local function configured(of_edit)
  local keys, list = options.now.keys, {} ---@type speclsp.Keys, speclsp.Binding[]
  for name, key in pairs(keys) do
    if key and not of_edit and not EDIT_MODES[name] then
      local names = { name }
      if name == "dismiss" then
        names[2] = "dismiss_edit"
      elseif name == "accept" and keys.accept_edit and vim.keycode(key) == vim.keycode(keys.accept_edit) then
        names[2] = "accept_edit"
      end
      list[#list + 1] = { mode = "i", key = key, names = names }
    end
    for _, mode in ipairs(key and of_edit and EDIT_MODES[name] or {}) do
      list[#list + 1] = { mode = mode, key = key, names = { name } }
    end
  end
  return list
end

--- The mapping of a key in a buffer (`buf`), or its global mapping. nil for a buffer that was wiped.
---@param key string
---@param buf? integer
---@param mode? "i"|"n" "i" unless given
function M.mapped(key, buf, mode)
  mode = mode or "i"
  if buf and not api.nvim_buf_is_valid(buf) then
    return nil
  end
  local maps = buf and api.nvim_buf_get_keymap(buf, mode) or api.nvim_get_keymap(mode)
  for _, map in ipairs(maps) do
    if map.lhsraw == vim.keycode(key) or map.lhsrawalt == vim.keycode(key) then
      return map
    end
  end
end

--- True if a mapping is one of ours.
function M.is_ours(map)
  return vim.startswith(map.desc or "", OURS)
end

--- Text of our mapping of a binding.
---@param number integer
local function text(number)
  return ('<Cmd>lua require("speclsp.keys").press(%d)<CR>'):format(number)
end

--- Feed keys as the next ones.
---@param keys string
---@param mode? "m"|"n" "n" (without mappings) unless given
local function feed(keys, mode)
  api.nvim_feedkeys(vim.keycode(keys), "i" .. (mode or "n"), false)
end

--- Run the first action that has an effect, else the previous mapping, else the key itself. Our mappings call this.
---@param number integer
function M.press(number)
  local binding = bindings[number]
  local key, mode = binding.key, binding.mode
  local is_insert = api.nvim_get_mode().mode:find("^[iR]") ~= nil
  local is_in_mode = is_insert == (mode == "i") -- false if a plugin fed this text behind a key that changed the mode
  if is_in_mode and vim.iter(binding.names):any(act) then
    return
  end
  local previous = is_in_mode and (binding.previous or M.mapped(key, nil, mode))
  if not previous or vim.deep_equal(previous, running[number]) then
    -- <C-]> first: it triggers an abbreviation, as a typed key does; a fed key does not.
    return feed((is_insert and #key > 1 and key:lower() ~= "<c-]>" and "<C-]>" or "") .. key)
  end
  running[number] = previous
  if typed_keys ~= vim.keycode(key) then -- in a macro the same key may come again before a typed one
    feed(('<Cmd>lua require("speclsp.keys").finish(%d)<CR>'):format(number))
  end
  local map = vim.tbl_extend("force", previous, { lhs = PREVIOUS, lhsraw = vim.keycode(PREVIOUS), buffer = 1 })
  map.lhsrawalt = nil
  vim.fn.mapset(mode, false, map)
  feed(PREVIOUS, "m")
end

--- Mark the previous mapping of a binding as finished; the fed keys call this.
---@param number integer
function M.finish(number)
  running[number] = nil
end

--- Map a binding, unless our mapping has its key.
---@param buf integer
---@param binding speclsp.Binding
---@return boolean mapped
local function map(buf, binding)
  binding.previous = M.mapped(binding.key, buf, binding.mode)
  if binding.previous and M.is_ours(binding.previous) then
    return false
  end
  local number = 1
  while bindings[number] and not vim.deep_equal(bindings[number], binding) do
    number = number + 1
  end
  bindings[number] = binding
  local desc = OURS .. binding.names[1]:gsub("_", " ")
  vim.keymap.set(binding.mode, binding.key, text(number), { buffer = buf, desc = desc })
  return true
end

--- Remove our mapping of a key and restore the previous one.
---@param buf integer
---@param key string
---@param mode "i"|"n"
local function unmap(buf, key, mode)
  local mapping = M.mapped(key, buf, mode)
  if not mapping or not M.is_ours(mapping) then
    return
  end
  vim.keymap.del(mode, key, { buffer = buf })
  local previous = bindings[tonumber(mapping.rhs:match("%d+"))].previous
  if previous then
    api.nvim_buf_call(buf, function()
      vim.fn.mapset(mode, false, previous)
    end)
  end
end

--- Map the keys of suggestions.
---@param buf integer
function M.map(buf)
  for _, binding in ipairs(configured(false)) do
    map(buf, binding)
  end
end

---@param buf integer
function M.unmap(buf)
  for _, binding in ipairs(configured(false)) do
    unmap(buf, binding.key, binding.mode)
  end
end

--- Map the keys of a next edit that is shown, and return a function that removes them. A key of suggestions stays mapped.
---@param buf integer
---@return fun()
function M.map_edit(buf)
  local mapped = vim.tbl_filter(function(binding)
    return map(buf, binding)
  end, configured(true))
  return function()
    for _, binding in ipairs(mapped) do
      unmap(buf, binding.key, binding.mode)
    end
  end
end

return M
