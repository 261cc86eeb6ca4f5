--- Conditions for showing a suggestion: the on/off switches, the mode, and open menus.
local options = require("speclsp.options")

local M = {}
--- True during blockwise insert: its end copies the text typed in the first line to the other lines.
M.block_insert = false
local off_everywhere = false
local snooze_ends_s ---@type number? seconds since 1970; math.huge is until Neovim ends
local filetypes = {} ---@type table<string, boolean> toggled since setup: true is on

--- Pause automatic suggestions for some minutes; math.huge is until Neovim ends, 0 ends the pause.
---@param minutes number
function M.snooze(minutes)
  snooze_ends_s = minutes > 0 and os.time() + minutes * 60 or nil
end

--- "until 14:35" or "for this session"; nil without a snooze.
---@return string?
function M.snoozed()
  if not snooze_ends_s or os.time() >= snooze_ends_s then
    return nil
  end
  return snooze_ends_s == math.huge and "for this session" or os.date("until %H:%M", math.floor(snooze_ends_s)) --[[@as string]]
end

--- The reason why suggestions are off in a buffer; nil when they are on.
---@param buf integer
---@return string?
function M.off_reason(buf)
  if vim.b[buf].speclsp == false then
    return "switched off here"
  elseif M.snoozed() then
    return "snoozed " .. M.snoozed()
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

--- Toggle suggestions. Returns true if they are on afterwards.
---@param scope "here"|"filetype"|"all"
---@param buf integer
---@return boolean
function M.toggle(scope, buf)
  local on = M.off_reason(buf) ~= nil
  snooze_ends_s = nil
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

--- True if a completion menu is open, Neovim's own or a plugin's.
function M.menu_is_open()
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

--- True while a menu, a macro or a snippet is active: ghost text and next edits are hidden, and shown again afterwards.
local function busy()
  return M.menu_is_open()
    or vim.fn.reg_recording() ~= ""
    or vim.fn.reg_executing() ~= ""
    or (vim.snippet ~= nil and vim.snippet.active())
end

---@param buf integer
local function writable(buf)
  return vim.bo[buf].modifiable
    and not vim.bo[buf].readonly
    and vim.bo[buf].buftype == ""
    and vim.fn.getcmdwintype() == ""
end

--- True in the modes of ghost text: plain insert mode, not replace, completion or block insert. A next edit is also for
--- normal mode. While a command is typed, after an operator or after `:`, it stays: it would blink with each command.
---@param mode string
---@param kind? "manual"|"edit"
local function fits_mode(mode, kind)
  if kind == "edit" and mode:find("^[nc]") then
    return true
  end
  return mode == "i" and not M.block_insert and not vim.o.paste
end

--- Decides for ghost text and for next edits, for drawing and for keys: "open" (draw it, its keys act), "hidden" (keep
--- it, draw it later) or "shut" (discard ghost text, hide a next edit).
---@param buf integer
---@param kind? "manual"|"edit" ghost text that the user requested, so the switches do not count; or a next edit
---@return "open"|"hidden"|"shut"
function M.state(buf, kind)
  local is_off = kind ~= "manual" and M.off_reason(buf) ~= nil
  if is_off or not writable(buf) or not fits_mode(vim.api.nvim_get_mode().mode, kind) then
    return "shut"
  end
  return busy() and "hidden" or "open"
end

return M
