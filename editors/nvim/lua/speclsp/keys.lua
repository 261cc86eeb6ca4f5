--- Key mappings: each key runs its action, and falls through to its previous mapping when the action did nothing.
---
--- The mappings are local to the buffers that have suggestions. The previous mapping is the buffer's own, else a global
--- one (looked up when the key is pressed, because plugins may map it late), else the key itself.
local api = vim.api
local options = require("speclsp.options")

local M = {}
local OURS = "speclsp: " -- start of the description of our mappings
local falling = {} ---@type table<string, true> keys whose previous mapping is running

---@type table<string, fun(): boolean>
local actions = {
  accept = function()
    return require("speclsp").accept()
  end,
  accept_word = function()
    return require("speclsp").accept_word()
  end,
  accept_line = function()
    return require("speclsp").accept_line()
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
}

local function raw(key)
  return vim.keycode(key)
end

--- The mapping of a key in a buffer (`buf`), or its global mapping.
---@param key string
---@param buf? integer
function M.mapped(key, buf)
  local maps = buf and api.nvim_buf_get_keymap(buf, "i") or api.nvim_get_keymap("i")
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
local function save(map, key)
  map.lhs, map.lhsraw, map.lhsrawalt = saved_name(key), raw(saved_name(key)), nil
  vim.fn.mapset("i", false, map)
end

--- Run the previous mapping of a key.
---@param key string
---@param buf integer
---@return string keys for Neovim to process as typed
local function fall_through(key, buf)
  local saved = M.mapped(saved_name(key), buf)
  local global = not saved and M.mapped(key) or nil
  if global then
    save(global, key)
  elseif not saved then
    -- <C-]> first: it triggers an abbreviation, as a typed key does; a fed key does not.
    return raw((#key == 1 or key:lower() == "<c-]>") and key or "<C-]>" .. key)
  end
  -- The mapping may itself end in this key: `falling` keeps that from being mapped again until the mapping is done.
  falling[key] = true
  local done = ('<Cmd>lua require("speclsp.keys").fallen(%q)<CR>'):format(key:gsub("<", "<lt>"))
  api.nvim_feedkeys(raw(done), "ni", false)
  api.nvim_feedkeys(raw(saved_name(key)), "im", false)
  return ""
end

--- Mark the previous mapping of a key as done.
function M.fallen(key)
  falling[key] = nil
end

---@param buf integer
function M.map(buf)
  for name, key in pairs(options.now.keys) do
    local mapping = key and M.mapped(key, buf)
    if key and not (mapping and M.is_ours(mapping)) then
      if mapping then
        api.nvim_buf_call(buf, function()
          mapping.buffer = 1
          save(mapping, key)
        end)
      end
      -- An expression mapping: other plugins that fall back to this mapping would run any other kind later, after the
      -- keys typed next.
      vim.keymap.set("i", key, function()
        if falling[key] then
          falling[key] = nil
          return raw(key)
        end
        return actions[name]() and "" or fall_through(key, buf)
      end, { buffer = buf, expr = true, replace_keycodes = false, desc = OURS .. name:gsub("_", " ") })
    end
  end
end

--- Remove our mappings and restore the previous ones.
---@param buf integer
function M.unmap(buf)
  for _, key in pairs(options.now.keys) do
    local mapping = key and M.mapped(key, buf)
    if mapping and M.is_ours(mapping) then
      pcall(vim.keymap.del, "i", key, { buffer = buf })
      local saved = M.mapped(saved_name(key), buf)
      if saved then
        api.nvim_buf_call(buf, function()
          saved.lhs, saved.lhsraw, saved.lhsrawalt = key, raw(key), nil
          vim.fn.mapset("i", false, saved)
        end)
        pcall(vim.keymap.del, "i", saved_name(key), { buffer = buf })
      end
    end
  end
end

return M
