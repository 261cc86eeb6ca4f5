--- Reports where the cursor rests, so that the server prefills the prompts there.
local api = vim.api
local lsp_client = require("speclsp.client")

local REST_MS = 300 -- shorter pauses are parts of one movement

local M = {}
local timer ---@type uv.uv_timer_t?
local reported_place ---@type table? cursor position of the newest report

local function cursor_place()
  local buf = api.nvim_get_current_buf()
  return { buf, api.nvim_buf_get_changedtick(buf), api.nvim_win_get_cursor(0) }
end

--- Report the current buffer and its cursor, if a server is attached to it and suggestions are on there.
function M.report()
  local buf = api.nvim_get_current_buf()
  local client = lsp_client.get(buf)
  if not client or require("speclsp.enabled").off_reason(buf) then
    return
  end
  reported_place = cursor_place()
  local params = vim.lsp.util.make_position_params(0, client.offset_encoding)
  lsp_client.notify(client, "speclsp/didFocus", { textDocument = params.textDocument, position = params.position })
end

local report_rest = vim.schedule_wrap(function()
  local is_resting = timer and not timer:is_active() and api.nvim_get_mode().mode:find("^[ni]")
  if is_resting and not vim.deep_equal(cursor_place(), reported_place) then
    M.report()
  end
end)

--- Report the cursor in normal or insert mode when it has rested at a new place; each call restarts the pause.
function M.restart_pause()
  timer = timer or assert(vim.uv.new_timer())
  timer:start(REST_MS, 0, report_rest)
end

return M
