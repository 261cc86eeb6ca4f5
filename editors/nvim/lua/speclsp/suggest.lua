--- Asks the server for suggestions, and shows only the answer to the newest question.
---
---     a key       what is left of the suggestion is redrawn, or it vanishes, before the screen is
---     a question  cancels the one before it, and is asked once for each text and place
---     an answer   counts only if text, cursor and mode are as they were when it was asked for
---
--- There is one cursor, so there is one suggestion and one question.
local api = vim.api
local client_of = require("speclsp.client")
local gate = require("speclsp.gate")
local ghost = require("speclsp.ghost")
local item = require("speclsp.item")
local options = require("speclsp.options")

local INVOKED, AUTOMATIC = 1, 2 -- lsp.InlineCompletionTriggerKind

---@class speclsp.Place
---@field buf integer
---@field tick integer
---@field row integer
---@field col integer bytes

---@class speclsp.Question: speclsp.Place
---@field client vim.lsp.Client
---@field id? integer

---@class speclsp.Held
---@field buf integer
---@field client vim.lsp.Client
---@field suggestions speclsp.Suggestion[]
---@field index integer
---@field by_hand boolean all alternatives were asked for

local M = {}
local held ---@type speclsp.Held?
local question ---@type speclsp.Question?
local asked ---@type speclsp.Place? where the newest question was, answered or not
local timer ---@type uv.uv_timer_t?

---@return speclsp.Place
local function here()
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

--- The suggestion that is shown, and what is left of it here; nil when none is.
---@return speclsp.Held?, speclsp.Rest?
local function fitting()
  local place = here()
  if held and held.buf == place.buf then
    local rest = item.rest(held.suggestions[held.index], line_at(place), place.row, place.col)
    if rest then
      return held, rest
    end
  end
end

local function cancel()
  if timer then
    timer:stop()
  end
  if question and question.id then
    client_of.cancel(question.client, question.id)
  end
  question = nil
end

--- Bring the screen up to date with text, cursor and suggestion. What does not fit any more is forgotten.
local function redraw()
  local now, rest = fitting()
  if not now or not rest then
    held = nil
    return ghost.hide()
  end
  local place = here()
  local count = now.by_hand and ("%d/%d"):format(now.index, #now.suggestions) or nil
  ghost.show(place.buf, place.row, place.col, rest, count)
end

--- Forget the suggestion and the question.
function M.clear()
  cancel()
  held, asked = nil, nil
  ghost.hide()
end

--- The suggestions of an answer that fit where it was asked for, each text once, the one shown now first.
---@param place speclsp.Place
---@param result any
---@param client vim.lsp.Client
---@param first? speclsp.Suggestion
local function read(place, result, client, first)
  local line = line_at(place)
  local found, texts = {}, {} ---@type speclsp.Suggestion[], table<string, true>
  local function add(suggestion)
    local rest = suggestion and item.rest(suggestion, line, place.row, place.col)
    if rest and not texts[rest.add] then
      texts[rest.add] = true
      found[#found + 1] = suggestion
    end
  end
  if first then
    add(first)
  end
  for _, one in ipairs(type(result) == "table" and (result.items or result) or {}) do
    add(item.read(one, line, place.row, place.col, client.offset_encoding))
  end
  return found
end

--- Ask at the cursor.
---@param client vim.lsp.Client
---@param kind integer
---@param step? integer go on by so many from the suggestion shown now
---@param nothing? fun() called when there is none
local function ask(client, kind, step, nothing)
  cancel()
  local mine = here() ---@type speclsp.Question
  mine.client = client
  client_of.in_step(client, mine.buf)
  question, asked = mine, mine
  local params = {
    textDocument = { uri = vim.uri_from_bufnr(mine.buf), version = vim.lsp.util.buf_versions[mine.buf] },
    position = { line = mine.row, character = item.column_of(line_at(mine), mine.col, client.offset_encoding) },
    context = { triggerKind = kind },
  }
  mine.id = client_of.request(client, "textDocument/inlineCompletion", params, function(err, result)
    if question ~= mine then
      return -- a newer question was asked, or this one was given up
    end
    question = nil
    local state = gate.state(mine.buf, kind == INVOKED)
    if err or state == "shut" or not same(mine, here()) then
      return
    end
    local first = step and held and held.suggestions[held.index] or nil
    local found = read(mine, result, client, first)
    if #found == 0 then
      held = nil
      ghost.hide()
      return nothing and nothing()
    end
    local index = first and step % #found + 1 or 1
    held = { buf = mine.buf, client = client, suggestions = found, index = index, by_hand = kind == INVOKED }
    if state == "open" then
      redraw()
    end
  end, mine.buf)
end

--- After anything that may have changed text, cursor or mode.
function M.refresh()
  local place = here()
  local state = gate.state(place.buf)
  if state == "shut" then
    return M.clear()
  elseif state == "hidden" then
    cancel()
    asked = nil
    return ghost.hide()
  end
  redraw()
  if same(asked, place) then
    return
  end
  cancel()
  local client = client_of.get(place.buf)
  if not client then
    return
  elseif options.now.debounce_ms == 0 then
    return ask(client, AUTOMATIC)
  end
  asked = place
  timer = timer or assert(vim.uv.new_timer())
  timer:start(
    options.now.debounce_ms,
    0,
    vim.schedule_wrap(function()
      if same(place, here()) and gate.state(place.buf) == "open" then
        ask(client, AUTOMATIC)
      end
    end)
  )
end

-- ── what the user can do ─────────────────────────────────────────────────────────────────────────────────────────────

--- What would be accepted now; nil when nothing is shown.
---@return speclsp.Held?, speclsp.Rest?
function M.shown()
  if ghost.is_shown() then
    return fitting()
  end
end

--- Which of how many alternatives is shown, "2/3"; nil when they were not asked for.
function M.count()
  return ghost.is_shown() and held and held.by_hand and ("%d/%d"):format(held.index, #held.suggestions) or nil
end

--- Go to another alternative; they are asked for when there is only one.
---@param step integer
---@return boolean acted
function M.cycle(step)
  local now = M.shown()
  if not now then
    return false
  elseif now.by_hand then
    now.index = (now.index - 1 + step) % #now.suggestions + 1
    redraw()
  else
    ask(now.client, INVOKED, step)
  end
  return true
end

--- Forget what is shown until the text changes.
---@return boolean acted
function M.dismiss()
  if not ghost.is_shown() and not question then
    return false
  end
  local acted = ghost.is_shown()
  cancel()
  held = nil
  ghost.hide()
  asked = here()
  return acted
end

--- Ask by hand, for several, also where suggestions are switched off.
---@param nothing? fun() called when there is none
---@return boolean acted
function M.trigger(nothing)
  local buf = api.nvim_get_current_buf()
  local client = client_of.get(buf)
  if not client or gate.state(buf, true) ~= "open" then
    return false
  end
  ask(client, INVOKED, nil, nothing)
  return true
end

return M
