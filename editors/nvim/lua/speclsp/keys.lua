--- Key mappings: each key runs its action, and falls through to its previous mapping when the action did nothing.
---
--- Neovim evaluates an expression mapping while it looks ahead: of two keys that arrive together, the first may not be
--- in the buffer yet. So the mapping only tests whether something is shown. A fed key runs the action or falls through.
---
--- The mappings are local to the buffers that have suggestions. Those of a next edit exist only while one is shown. The
--- previous mapping is the buffer's own, else a global one (looked up when the key is pressed, because plugins may map it
--- late), else the key itself.
local api = vim.api
local options = require("speclsp.options")

local M = {}
local OURS = "speclsp: " -- start of the description of our mappings
local falling = {} ---@type table<string, true> modes and keys whose previous mapping is running
local pressed = {} ---@type table<string, fun()> by mode and key: the action that the fed key runs

---@type table<string, fun(): boolean>
local actions = {
  accept = function()
    return require("speclsp.accept").insert("all")
  end,
  accept_word = function()
    return require("speclsp.accept").insert("word")
  end,
  accept_line = function()
    return require("speclsp.accept").insert("line")
  end,
  next = function()
    return require("speclsp").next()
  end,
  prev = function()
    return require("speclsp").prev()
  end,
  dismiss = function()
    return require("speclsp").dismiss()
  end,
  trigger = function()
    return require("speclsp").trigger()
  end,
  accept_edit = function()
    return require("speclsp").accept_edit()
  end,
  dismiss_edit = function()
    return require("speclsp").dismiss_edit()
  end,
}
local EDIT_MODES = { accept_edit = { "n", "i" }, dismiss_edit = { "n" } } -- the others work in insert mode

--- True if an action may have an effect. Text and cursor may be older than the key.
---@param name string
---@return boolean
local function may_act(name)
  if name == "trigger" then
    return true
  elseif EDIT_MODES[name] then
    return require("speclsp.next_edit").is_shown()
  elseif options.now.ui == "builtin" then
    return require("speclsp.builtin").is_shown()
  elseif name == "dismiss" then
    return require("speclsp.suggest").is_active()
  end
  return require("speclsp.ghost").is_shown()
end

local function raw(key)
  return vim.keycode(key)
end

--- The first mode of an action.
---@param name string
---@return "i"|"n"
function M.mode(name)
  return EDIT_MODES[name] and EDIT_MODES[name][1] or "i"
end

---@class speclsp.Binding
---@field mode "i"|"n"
---@field key string
---@field names string[] actions, the first one that acts ends the list

--- The keys of suggestions, or those of a next edit. A key of both is among the first: the suggestion has precedence.
---@param of_edit boolean
---@return speclsp.Binding[]
local function bindings(of_edit)
  local keys, list = options.now.keys, {} ---@type speclsp.Keys, speclsp.Binding[]
  for name, key in pairs(keys) do
    if key and not of_edit and not EDIT_MODES[name] then
      local names = { name }
      if name == "dismiss" then
        names[2] = "dismiss_edit"
      elseif name == "accept" and keys.accept_edit and raw(key) == raw(keys.accept_edit) then
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
    if map.lhsraw == raw(key) or map.lhsrawalt == raw(key) then
      return map
    end
  end
end

--- True if a mapping is one of ours.
function M.is_ours(map)
  return vim.startswith(map.desc or "", OURS)
end

--- The <Plug> name under which the previous mapping is saved, so that it can be called while our mapping has the key.
local function saved_name(key)
  return "<Plug>(speclsp-before-" .. key:gsub("[<>]", "") .. ")"
end

--- Save a mapping under `saved_name(key)`.
---@param map table as returned by nvim_get_keymap
---@param key string
---@param mode "i"|"n"
local function save(map, key, mode)
  map.lhs, map.lhsraw, map.lhsrawalt = saved_name(key), raw(saved_name(key)), nil
  vim.fn.mapset(mode, false, map)
end

--- Feed a call of a function of this module.
---@param name string
---@param mode_and_key string
local function feed_call(name, mode_and_key)
  local call = ('<Cmd>lua require("speclsp.keys").%s(%q)<CR>'):format(name, (mode_and_key:gsub("<", "<lt>")))
  api.nvim_feedkeys(raw(call), "ni", false)
end

--- Run the previous mapping of a key.
---@param key string
---@param buf integer
---@param mode "i"|"n"
---@return string keys for Neovim to process as typed
local function fall_through(key, buf, mode)
  local mapping = M.mapped(key, buf, mode)
  if not mapping or not M.is_ours(mapping) then -- ours was removed after the key was pressed
    api.nvim_feedkeys(raw(key), "im", false)
    return ""
  end
  local saved = M.mapped(saved_name(key), buf, mode)
  local global = not saved and M.mapped(key, nil, mode) or nil
  if global then
    save(global, key, mode)
  elseif not saved then
    -- <C-]> first: it triggers an abbreviation, as a typed key does; a fed key does not.
    return raw((mode == "n" or #key == 1 or key:lower() == "<c-]>") and key or "<C-]>" .. key)
  end
  -- The mapping may itself end in this key: `falling` keeps that from being mapped again until the mapping is done.
  falling[mode .. key] = true
  feed_call("fallen", mode .. key)
  api.nvim_feedkeys(raw(saved_name(key)), "im", false)
  return ""
end

--- Mark the previous mapping of a key as done.
---@param mode_and_key string
function M.fallen(mode_and_key)
  falling[mode_and_key] = nil
end

--- Run the action of a key; the fed keys call this.
---@param mode_and_key string
function M.run(mode_and_key)
  pressed[mode_and_key]()
end

--- Run the first action that has an effect, else fall through.
---@param buf integer
---@param binding speclsp.Binding
local function act(buf, binding)
  for _, name in ipairs(binding.names) do
    if actions[name]() then
      return
    end
  end
  api.nvim_feedkeys(fall_through(binding.key, buf, binding.mode), "ni", false)
end

--- Map a key, unless our mapping has it.
---@param buf integer
---@param binding speclsp.Binding
local function map(buf, binding)
  local key, mode = binding.key, binding.mode
  local mapping = M.mapped(key, buf, mode)
  if mapping and M.is_ours(mapping) then
    return
  elseif mapping then
    api.nvim_buf_call(buf, function()
      mapping.buffer = 1
      save(mapping, key, mode)
    end)
  end
  -- An expression mapping: other plugins that fall back to this mapping would run any other kind later, after the
  -- keys typed next.
  vim.keymap.set(mode, key, function()
    if falling[mode .. key] then
      falling[mode .. key] = nil
      return raw(key)
    end
    if not vim.iter(binding.names):any(may_act) then
      return fall_through(key, buf, mode)
    end
    pressed[mode .. key] = function()
      act(buf, binding)
    end
    feed_call("run", mode .. key)
    return ""
  end, { buffer = buf, expr = true, replace_keycodes = false, desc = OURS .. binding.names[1]:gsub("_", " ") })
end

--- Remove our mapping of a key and restore the previous one.
---@param buf integer
---@param binding speclsp.Binding
local function unmap(buf, binding)
  local key, mode = binding.key, binding.mode
  local mapping = M.mapped(key, buf, mode)
  if not mapping or not M.is_ours(mapping) then
    return
  end
  pcall(vim.keymap.del, mode, key, { buffer = buf })
  local saved = M.mapped(saved_name(key), buf, mode)
  if saved then
    api.nvim_buf_call(buf, function()
      saved.lhs, saved.lhsraw, saved.lhsrawalt = key, raw(key), nil
      vim.fn.mapset(mode, false, saved)
    end)
    pcall(vim.keymap.del, mode, saved_name(key), { buffer = buf })
  end
end

--- Map the keys of suggestions.
---@param buf integer
function M.map(buf)
  for _, binding in ipairs(bindings(false)) do
    map(buf, binding)
  end
end

---@param buf integer
function M.unmap(buf)
  for _, binding in ipairs(bindings(false)) do
    unmap(buf, binding)
  end
end

--- Map the keys of a next edit that is shown, and return a function that removes them.
---@param buf integer
---@return fun()
function M.map_edit(buf)
  local mapped = {} ---@type speclsp.Binding[]
  for _, binding in ipairs(bindings(true)) do
    local mapping = M.mapped(binding.key, buf, binding.mode)
    if not (mapping and M.is_ours(mapping)) then -- a key of suggestions stays mapped
      map(buf, binding)
      mapped[#mapped + 1] = binding
    end
  end
  return function()
    for _, binding in ipairs(api.nvim_buf_is_valid(buf) and mapped or {}) do
      unmap(buf, binding)
    end
  end
end

return M
