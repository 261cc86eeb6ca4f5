--- Set-up of a buffer when the server attaches to it: the autocommands that request and redraw, and the key mappings.
local api = vim.api
local options = require("speclsp.options")

local M = {}
local menus_watched = {} ---@type table<string, true>

--- Make completion plugins' menus hide ghost text and next edits when they open, and show them again when they close.
local function watch_menus()
  local refresh = vim.schedule_wrap(function()
    require("speclsp.suggest").refresh()
    require("speclsp.next_edit").refresh()
  end)
  local cmp = package.loaded["cmp"]
  if type(cmp) == "table" and cmp.event and not menus_watched.cmp then
    menus_watched.cmp = true
    cmp.event:on("menu_opened", refresh)
    cmp.event:on("menu_closed", refresh)
  end
  if not menus_watched.blink then
    menus_watched.blink = true
    api.nvim_create_autocmd("User", {
      group = api.nvim_create_augroup("speclsp.menus", {}),
      pattern = { "BlinkCmpMenuOpen", "BlinkCmpMenuClose" },
      callback = refresh,
      desc = "speclsp: hide behind blink.cmp's menu",
    })
  end
end

---@param group integer
---@param buf integer
local function watch(group, buf)
  local enabled, suggest = require("speclsp.enabled"), require("speclsp.suggest")
  local function on(events, callback, purpose)
    api.nvim_create_autocmd(events, { group = group, buffer = buf, callback = callback, desc = "speclsp: " .. purpose })
  end
  on({ "TextChangedI", "TextChangedP", "CursorMovedI", "CompleteChanged" }, suggest.refresh, "ask and redraw")
  on("CompleteDone", vim.schedule_wrap(suggest.refresh), "show again behind a menu")
  on("InsertEnter", watch_menus, "notice completion plugins")
  on("ModeChanged", function()
    local from, to = vim.v.event.old_mode, vim.v.event.new_mode
    if to == "i" and from == "\22" then
      enabled.block_insert = true
    elseif not to:find("^n?i") and not to:find("^c") then
      enabled.block_insert = false
    end
    if to:sub(1, 1) == "i" or from:sub(1, 1) == "i" then
      suggest.refresh()
    end
  end, "hide outside insert mode")
  on({ "BufLeave", "WinLeave" }, suggest.clear, "one cursor, one suggestion")
end

--- Close a document before its buffer gets another name, and open it with that name. No BufFilePost follows a name that
--- is refused because another buffer has it.
local function watch_names()
  local client = require("speclsp.client")
  local group = api.nvim_create_augroup("speclsp.names", {})
  local function on(event, callback)
    api.nvim_create_autocmd(event, { group = group, callback = callback, desc = "speclsp: the server learns the name" })
  end
  on("BufFilePre", function(event)
    client.close(event.buf)
    vim.schedule(function()
      client.reopen(event.buf)
    end)
  end)
  on("BufFilePost", function(event)
    client.reopen(event.buf)
  end)
end
watch_names()

---@param client vim.lsp.Client
---@param buf integer
function M.on(client, buf)
  require("speclsp.client").add_folder(client, buf)
  require("speclsp.keys").map(buf)
  local group = api.nvim_create_augroup("speclsp." .. buf, {})
  if options.now.ui == "builtin" then
    require("speclsp.builtin").on(client, buf, group)
  else
    if vim.lsp.inline_completion then -- enabled for other servers, it would draw our suggestion a second time
      vim.schedule(function()
        local is_on = api.nvim_buf_is_valid(buf)
          and vim.lsp.inline_completion.is_enabled({ client_id = client.id, bufnr = buf })
        if is_on then
          vim.lsp.inline_completion.enable(false, { client_id = client.id })
        end
      end)
    end
    watch(group, buf)
    watch_menus()
  end
  require("speclsp.next_edit").on(buf, group)
  local filetype = vim.bo[buf].filetype
  api.nvim_create_autocmd("FileType", {
    group = group,
    buffer = buf,
    desc = "speclsp: the server learns the new language",
    callback = function()
      if vim.bo[buf].filetype ~= filetype then
        require("speclsp.client").close(buf)
        require("speclsp.client").reopen(buf)
      end
    end,
  })
  api.nvim_create_autocmd("BufEnter", {
    group = group,
    buffer = buf,
    desc = "speclsp: read the prompt ahead",
    callback = vim.schedule_wrap(require("speclsp.focus").report),
  })
  api.nvim_create_autocmd({ "CursorMoved", "CursorMovedI", "TextChanged", "TextChangedI", "ModeChanged" }, {
    group = group,
    buffer = buf,
    desc = "speclsp: read the prompts ahead where the cursor rests",
    callback = require("speclsp.focus").restart_pause,
  })
  api.nvim_create_autocmd("LspDetach", {
    group = group,
    buffer = buf,
    desc = "speclsp: leave the buffer as it was",
    callback = function(event)
      if event.data.client_id == client.id then
        M.off(buf)
      end
    end,
  })
  require("speclsp.focus").report()
  if options.now.ui == "own" and api.nvim_get_current_buf() == buf then
    require("speclsp.suggest").refresh()
  end
end

---@param buf integer
function M.off(buf)
  require("speclsp.next_edit").clear()
  pcall(api.nvim_del_augroup_by_name, "speclsp." .. buf)
  if api.nvim_buf_is_valid(buf) then
    require("speclsp.keys").unmap(buf)
  end
  require("speclsp.suggest").clear()
end

return M
