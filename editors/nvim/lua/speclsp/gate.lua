--- Whether a suggestion may be shown now: what was switched off, and what has the user's attention.
local options = require("speclsp.options")

local M = {}
M.block = false -- a block is inserted: text typed in its first line goes into all of them, afterwards
local off_everywhere = false
local filetypes = {} ---@type table<string, boolean> switched since setup: true is on

--- Why there are no suggestions in a buffer; nil when there are.
---@param buf integer
---@return string?
function M.off(buf)
  if vim.b[buf].speclsp == false then
    return "switched off here"
  elseif vim.b[buf].speclsp == true then
    return nil
  end
  local filetype = vim.bo[buf].filetype
  if filetypes[filetype] == false then
    return ("switched off for %s"):format(filetype)
  elseif off_everywhere or not options.now.enabled then
    return "switched off"
  end
end

--- Switch off or on; what is on afterwards.
---@param scope "here"|"filetype"|"all"
---@param buf integer
---@return boolean
function M.toggle(scope, buf)
  local on = M.off(buf) ~= nil
  if scope == "here" then
    vim.b[buf].speclsp = on
  elseif scope == "filetype" then
    local filetype = vim.bo[buf].filetype
    filetypes[filetype] = on
    vim.b[buf].speclsp = nil
    if on then
      off_everywhere, options.now.enabled = false, true
      options.now.filetypes_off = vim.tbl_filter(function(other)
        return other ~= filetype
      end, options.now.filetypes_off)
    end
  else
    off_everywhere = not on
    if on then
      options.now.enabled, filetypes[vim.bo[buf].filetype], vim.b[buf].speclsp = true, nil, nil
    end
  end
  return on
end

--- Whether a completion menu is open, Neovim's own or a plugin's.
function M.menu()
  if vim.fn.pumvisible() == 1 then
    return true
  end
  local cmp, blink = package.loaded["cmp"], package.loaded["blink.cmp"]
  if type(cmp) == "table" and cmp.visible then
    local ok, visible = pcall(cmp.visible)
    if ok and visible then
      return true
    end
  end
  if type(blink) == "table" then
    local ok, visible = pcall(blink.is_menu_visible or blink.is_visible or function() end)
    return ok and visible or false
  end
  return false
end

--- Whether the user is about something else: ghost text is hidden, and comes back.
local function busy()
  return M.menu()
    or vim.fn.reg_recording() ~= ""
    or vim.fn.reg_executing() ~= ""
    or (vim.snippet ~= nil and vim.snippet.active())
end

--- Whether text is being typed here: insert mode proper, not replace, completion or block insert.
---@param buf integer
local function typing(buf)
  return vim.api.nvim_get_mode().mode == "i"
    and not M.block
    and not vim.o.paste
    and vim.bo[buf].modifiable
    and not vim.bo[buf].readonly
    and vim.bo[buf].buftype == ""
    and vim.fn.getcmdwintype() == ""
end

--- "open", "hidden" (keep it, show it later) or "shut" (forget it).
---@param buf integer
---@param by_hand? boolean asked for: also where it is switched off
---@return "open"|"hidden"|"shut"
function M.state(buf, by_hand)
  if (M.off(buf) and not by_hand) or not typing(buf) then
    return "shut"
  end
  return busy() and "hidden" or "open"
end

return M
