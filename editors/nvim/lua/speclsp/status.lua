--- Server status: the newest one of each client, and a short form for the status line.
local notify = require("speclsp.notify")

---@class speclsp.Status
---@field state "starting"|"loading"|"ready"|"thinking"|"asleep"|"stopped"|"off"|"error"
---@field model string
---@field model_reason? string why model = "auto" chose it
---@field target string
---@field draft string
---@field device string
---@field message string
---@field progress? number
---@field last_latency_ms? number
---@field last_reason? string
---@field last_reason_meaning? string
---@field remote? string host that receives the code, "" when it stays on this machine
---@field clients? integer number of editors that use the engine, including this one
---@field engine_pid? integer
---@field trigger? "automatic"|"manual" the setting completion.trigger
---@field eagerness? string the setting completion.eagerness
---@field show_latency? boolean the setting completion.show_latency
---@field next_edit? boolean the setting next_edit.enabled
---@field problems string[]
---@field log? string path of the server's log, "" when it writes none

local M = {}
local statuses = {} ---@type table<integer, speclsp.Status> by client
local loading = {} ---@type table<integer, { since_ms: integer, quarter: integer }> by client
local IS_READY = { ready = true, thinking = true, asleep = true } -- an engine that is asleep wakes for a request
local LONG_MS = 3000 -- longer loading is reported, at each quarter
local in_statusline = false
local last_line = ""
local last_log = nil ---@type string?

--- Path of the log of the last server that wrote one; it is of use after that server has ended, too.
---@return string?
function M.log()
  return last_log
end

--- The newest status of a client.
---@param client_id integer
---@return speclsp.Status?
function M.of(client_id)
  return statuses[client_id]
end

--- The time of the model's last suggestion, "85 ms"; nil unless completion.show_latency is on.
---@param client_id integer
---@return string?
function M.latency(client_id)
  local status = statuses[client_id]
  if status and status.show_latency and status.last_latency_ms then
    return ("%.0f ms"):format(status.last_latency_ms)
  end
end

--- Report the progress of a long load, such as a download. Neovim 0.12 shows progress by itself.
---@param client_id integer
---@param status speclsp.Status
local function report_loading(client_id, status)
  if status.state ~= "loading" or vim.fn.has("nvim-0.12") == 1 then
    loading[client_id] = nil
    return
  end
  local now_ms, quarter = vim.uv.now(), math.floor((status.progress or 0) * 4)
  local progress = loading[client_id] or { since_ms = now_ms, quarter = -1 }
  loading[client_id] = progress
  if now_ms - progress.since_ms > LONG_MS and quarter > progress.quarter then
    progress.quarter = quarter
    notify.say(status.message)
  end
end

--- Store a status from the server. Errors and invalid settings are shown to the user, each once.
---@param client_id integer
---@param status speclsp.Status
function M.receive(client_id, status)
  for name, value in pairs(status) do
    if value == vim.NIL then
      status[name] = nil
    end
  end
  local old = statuses[client_id]
  statuses[client_id] = status
  if status.log and status.log ~= "" then
    last_log = status.log
  end
  for _, problem in ipairs(status.problems or {}) do
    notify.once(problem, vim.log.levels.WARN)
  end
  if status.state == "error" and not (old and old.state == "error" and old.message == status.message) then
    notify.say(status.message, vim.log.levels.ERROR)
  end
  if status.state == "stopped" and not (old and old.state == status.state) then
    notify.say(status.message)
  end
  report_loading(client_id, status)
  if IS_READY[status.state] and not (old and IS_READY[old.state]) then
    require("speclsp.focus").report()
    require("speclsp.suggest").request_again()
  end
  require("speclsp.next_edit").refresh()
  vim.api.nvim_exec_autocmds("User", { pattern = "SpeclspStatus", data = status, modeline = false })
  M.changed()
end

--- Redraw the status line if its text has changed.
function M.changed()
  local old_line = last_line
  if in_statusline and M.line() ~= old_line then
    vim.cmd.redrawstatus()
  end
end

--- Process id and users of the engine; nil without an engine.
---@param status speclsp.Status
---@return string?
function M.engine(status)
  if not status.engine_pid or status.engine_pid == 0 then
    return nil
  end
  local others = (status.clients or 1) - 1
  local users = others > 0 and ("shared with %d more editor%s"):format(others, others > 1 and "s" or "")
    or "used by this Neovim"
  return ("process %d, %s"):format(status.engine_pid, users)
end

---@param status speclsp.Status
local function short(status)
  if status.state == "loading" then
    return status.progress and ("%d%%"):format(math.floor(status.progress * 100)) or "loading"
  elseif status.state == "ready" then
    return status.last_latency_ms and ("%.0f ms"):format(status.last_latency_ms) or "ready"
  elseif status.state == "thinking" then
    return "…"
  end
  return status.state
end

--- Status line text for the current buffer; "" without a server.
---@return string
function M.line()
  local buf = vim.api.nvim_get_current_buf()
  local client = require("speclsp.client").get(buf)
  in_statusline = true
  last_line = ""
  if client then
    local status = statuses[client.id]
    local enabled = require("speclsp.enabled")
    local snooze = enabled.snoozed()
    local edit = require("speclsp.next_edit").place()
    local text = snooze and "snoozed " .. snooze
      or enabled.off_reason(buf) and "off"
      or require("speclsp.suggest").count()
      or edit and "edit " .. edit
      or (status and short(status) or "starting")
    last_line = "speclsp " .. text
  end
  return last_line
end

return M
