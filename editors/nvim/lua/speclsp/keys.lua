--- Gives each key to the plugin first, and to whatever it did before when the plugin had nothing to do with it.
---
--- The mappings are local to the buffers that have suggestions. What a key did before: a mapping of the buffer, else a
--- global one (looked up when the key is pressed: plugins come late), else the key itself.
local api = vim.api
local options = require("speclsp.options")

local M = {}
local OURS = "speclsp: "
local falling = {} ---@type table<string, true> keys on their way to what they did before

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

--- A mapping of a key, the buffer's (`buf`) or the global one.
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

--- Whether a mapping is one of ours.
function M.is_ours(map)
  return vim.startswith(map.desc or "", OURS)
end

--- Under another name, so that it can be called while our mapping has the key.
local function before(key)
  return "<Plug>(speclsp-before-" .. key:gsub("[<>]", "") .. ")"
end

---@param map table as nvim_get_keymap gives it
local function keep(map, key)
  map.lhs, map.lhsraw, map.lhsrawalt = before(key), raw(before(key)), nil
  vim.fn.mapset("i", false, map)
end

--- Do what the key did before.
---@param key string
---@param buf integer
---@return string keys for Neovim to take as typed
local function fall_through(key, buf)
  local kept = M.mapped(before(key), buf)
  local global = not kept and M.mapped(key) or nil
  if global then
    keep(global, key)
  elseif not kept then
    -- <C-]> first: a key that is fed does not trigger an abbreviation before it, one that is typed does.
    return raw((#key == 1 or key:lower() == "<c-]>") and key or "<C-]>" .. key)
  end
  -- The mapping may end in this very key, not to be mapped again: `falling` says so until all of it is done.
  falling[key] = true
  local done = ('<Cmd>lua require("speclsp.keys").fallen(%q)<CR>'):format(key:gsub("<", "<lt>"))
  api.nvim_feedkeys(raw(done), "ni", false)
  api.nvim_feedkeys(raw(before(key)), "im", false)
  return ""
end

--- What the key did before is done.
function M.fallen(key)
  falling[key] = nil
end

---@param buf integer
function M.map(buf)
  for name, key in pairs(options.now.keys) do
    local there = key and M.mapped(key, buf)
    if key and not (there and M.is_ours(there)) then
      if there then
        api.nvim_buf_call(buf, function()
          there.buffer = 1
          keep(there, key)
        end)
      end
      -- An expression, for other plugins that fall back to this one call what is none later, behind what is typed next.
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

--- Take the keys away, and give back what they did before.
---@param buf integer
function M.unmap(buf)
  for _, key in pairs(options.now.keys) do
    local there = key and M.mapped(key, buf)
    if there and M.is_ours(there) then
      pcall(vim.keymap.del, "i", key, { buffer = buf })
      local kept = M.mapped(before(key), buf)
      if kept then
        api.nvim_buf_call(buf, function()
          kept.lhs, kept.lhsraw, kept.lhsrawalt = key, raw(key), nil
          vim.fn.mapset("i", false, kept)
        end)
        pcall(vim.keymap.del, "i", before(key), { buffer = buf })
      end
    end
  end
end

return M
