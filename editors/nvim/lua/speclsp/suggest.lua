--- Requests suggestions from the server, and shows only the answer to the newest request.
---
---     a key       redraws the rest of the suggestion, or removes it, before the screen is redrawn
---     a request   cancels the previous one, and is sent once for each text and cursor position
---     an answer   counts only while text, cursor and mode are those of its request
---     growth      repeats the request of the suggestion on the screen, which stays there until the answer
---     readiness   repeats the newest request if its answer is empty, whether that came before or is still to come
---
--- There is one cursor, so there is one suggestion and one request.
local api = vim.api
local lsp_client = require("speclsp.client")
local enabled = require("speclsp.enabled")
local ghost = require("speclsp.ghost")
local item = require("speclsp.item")
local options = require("speclsp.options")

local INVOKED, AUTOMATIC = 1, 2 -- lsp.InlineCompletionTriggerKind

---@class speclsp.Place
---@field buf integer
---@field tick integer
---@field row integer
---@field col integer bytes

---@class speclsp.Request: speclsp.Place
---@field client vim.lsp.Client
---@field id? integer
---@field is_early? boolean sent before the model was ready: its answer may have been decided by then

---@class speclsp.Shown
---@field buf integer
---@field client vim.lsp.Client
---@field suggestions speclsp.Suggestion[]
---@field index integer
---@field manual boolean the user requested all alternatives

local M = {}
local current ---@type speclsp.Shown?
local pending ---@type speclsp.Request?
local last_place ---@type speclsp.Place? cursor position of the newest request, answered or not
local empty_place ---@type speclsp.Place? cursor position of the newest request, if its answer was empty
local timer ---@type uv.uv_timer_t?

---@return speclsp.Place
local function cursor_place()
  local buf = api.nvim_get_current_buf()
  local cursor = api.nvim_win_get_cursor(0)
  return { buf = buf, tick = api.nvim_buf_get_changedtick(buf), row = cursor[1] - 1, col = cursor[2] }
end

---@param a? speclsp.Place
---@param b speclsp.Place
local function same(a, b)
  return a ~= nil and a.buf == b.buf and a.tick == b.tick and a.row == b.row and a.col == b.col
end

local function line_at(place)
  return api.nvim_buf_get_lines(place.buf, place.row, place.row + 1, false)[1] or ""
end

--- The current suggestion and its rest at the cursor; nil when none fits.
---@return speclsp.Shown?, speclsp.Rest?
local function fitting()
  local place = cursor_place()
  if current and current.buf == place.buf then
    local rest = item.rest(current.suggestions[current.index], line_at(place), place.row, place.col)
    if rest then
      return current, rest
    end
  end
end

local function cancel()
  if timer then
    timer:stop()
  end
  if pending and pending.id then
    lsp_client.cancel(pending.client, pending.id)
  end
  pending = nil
end

--- Redraw the suggestion for the present text and cursor. One that no longer fits is discarded.
local function redraw()
  local now, rest = fitting()
  if not now or not rest then
    current = nil
    return ghost.hide()
  end
  local place = cursor_place()
  local count = now.manual and ("%d/%d"):format(now.index, #now.suggestions) or nil
  require("speclsp.next_edit").clear()
  ghost.show(place.buf, place.row, place.col, rest, count, require("speclsp.status").latency(now.client.id))
end

--- Discard the suggestion and cancel the request.
function M.clear()
  cancel()
  current, last_place, empty_place = nil, nil, nil
  ghost.hide()
end

--- The suggestions of an answer that fit the place of its request: each text once, the shown one first.
---@param place speclsp.Place
---@param result any
---@param client vim.lsp.Client
---@param first? speclsp.Suggestion
local function read(place, result, client, first)
  local line = line_at(place)
  local suggestions, texts = {}, {} ---@type speclsp.Suggestion[], table<string, true>
  local function add(suggestion)
    local rest = suggestion and item.rest(suggestion, line, place.row, place.col)
    if rest and not texts[rest.add] then
      texts[rest.add] = true
      suggestions[#suggestions + 1] = suggestion
    end
  end
  if first then
    add(first)
  end
  for _, entry in ipairs(type(result) == "table" and (result.items or result) or {}) do
    add(item.read(entry, line, place.row, place.col, client.offset_encoding))
  end
  return suggestions
end

--- The document, its version and the position of a request.
---@param client vim.lsp.Client
---@param place speclsp.Place
local function request_params(client, place)
  return {
    textDocument = { uri = vim.uri_from_bufnr(place.buf), version = vim.lsp.util.buf_versions[place.buf] },
    position = { line = place.row, character = item.column_of(line_at(place), place.col, client.offset_encoding) },
  }
end

--- Send a request for the cursor position.
---@param client vim.lsp.Client
---@param kind integer
---@param step? integer select the alternative this far from the shown one
---@param on_empty? fun() called when there is no suggestion
local function ask(client, kind, step, on_empty)
  cancel()
  local request = cursor_place() ---@type speclsp.Request
  request.client = client
  lsp_client.sync_text(client, request.buf)
  pending, last_place, empty_place = request, request, nil
  local params = request_params(client, request)
  params.context = { triggerKind = kind }
  request.id = lsp_client.request(client, "textDocument/inlineCompletion", params, function(err, result)
    if pending ~= request then
      return -- a newer request was sent, or this one was cancelled
    end
    pending = nil
    if err or not same(request, cursor_place()) then -- first: the buffer may have been wiped
      return
    end
    local state = enabled.state(request.buf, kind == INVOKED and "manual" or nil)
    if state == "shut" then
      return
    end
    local first = step and current and current.suggestions[current.index] or nil
    local suggestions = read(request, result, client, first)
    if #suggestions == 0 then
      current, empty_place = nil, request
      ghost.hide()
      if on_empty then
        on_empty()
      end
      return request.is_early and M.request_again()
    end
    local index = first and step % #suggestions + 1 or 1
    current = { buf = request.buf, client = client, suggestions = suggestions, index = index, manual = kind == INVOKED }
    if state == "open" then
      redraw()
    end
  end, request.buf)
end

--- The server has further lines of the suggestion that it sent for `place`: request it again if it is on the screen.
---@param client_id integer
---@param place { textDocument: { uri: string, version: integer }, position: lsp.Position }
function M.grew(client_id, place)
  local now = M.shown()
  if not now or now.manual or now.client.id ~= client_id or pending then
    return
  end
  local here = cursor_place()
  local params = request_params(now.client, here)
  if vim.deep_equal({ params.textDocument, params.position }, { place.textDocument, place.position }) then
    ask(now.client, AUTOMATIC)
  end
end

--- Redraw and request, after any event that may have changed text, cursor or mode.
function M.refresh()
  local place = cursor_place()
  local state = enabled.state(place.buf)
  if state == "shut" then
    return M.clear()
  elseif state == "hidden" then
    cancel()
    last_place = nil
    return ghost.hide()
  end
  redraw()
  if same(last_place, place) then
    return
  end
  cancel()
  local client = lsp_client.get(place.buf)
  if not client then
    return
  elseif options.now.debounce_ms == 0 then
    return ask(client, AUTOMATIC)
  end
  last_place = place
  timer = timer or assert(vim.uv.new_timer())
  timer:start(
    options.now.debounce_ms,
    0,
    vim.schedule_wrap(function()
      if same(place, cursor_place()) and enabled.state(place.buf) == "open" then
        ask(client, AUTOMATIC)
      end
    end)
  )
end

--- The model has become ready: request again where the last answer was empty, if the cursor is still there. The answer
--- to a request under way may have been decided before, and arrives after the status.
function M.request_again()
  if pending then
    pending.is_early = true
    return
  end
  local is_open = enabled.state(api.nvim_get_current_buf()) == "open"
  if is_open and not ghost.is_shown() and same(empty_place, cursor_place()) then
    last_place = nil
    M.refresh()
  end
end

-- ── user actions ─────────────────────────────────────────────────────────────────────────────────────────────────────

--- The shown suggestion and its rest, as accepting would use them; nil when none is shown.
---@return speclsp.Shown?, speclsp.Rest?
function M.shown()
  if ghost.is_shown() then
    return fitting()
  end
end

--- Number of the shown alternative, "2/3"; nil when alternatives were not requested.
function M.count()
  local counted = ghost.is_shown() and current and current.manual
  return counted and ("%d/%d"):format(current.index, #current.suggestions) or nil
end

--- Show another alternative; requests them when they are not there yet.
---@param step integer
---@return boolean acted
function M.cycle(step)
  local now = M.shown()
  if not now then
    return false
  elseif now.manual then
    now.index = (now.index - 1 + step) % #now.suggestions + 1
    redraw()
  else
    ask(now.client, INVOKED, step)
  end
  return true
end

--- Discard the shown suggestion until the text changes.
---@return boolean acted
function M.dismiss()
  if not ghost.is_shown() and not pending then
    return false
  end
  local acted = ghost.is_shown()
  cancel()
  current, empty_place = nil, nil
  ghost.hide()
  last_place = cursor_place()
  return acted
end

--- Show and request nothing at the present text and cursor position.
function M.skip()
  cancel()
  current, last_place, empty_place = nil, cursor_place(), nil
  ghost.hide()
end

--- Request several alternatives for the user, also where suggestions are off.
---@param on_empty? fun() called when there is no suggestion
---@return boolean acted
function M.trigger(on_empty)
  local buf = api.nvim_get_current_buf()
  local client = lsp_client.get(buf)
  if not client or enabled.state(buf, "manual") ~= "open" then
    return false
  end
  ask(client, INVOKED, nil, on_empty)
  return true
end

return M
