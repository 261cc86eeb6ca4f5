--- Next edits: requests one after each change, and shows it until the text changes.
---
---     a change    removes the shown edit, cancels the open request, and requests the next edit after a pause
---     leaving     the changed line requests it once more: the line is finished then
---     an answer   counts only while the text is that of its request
---     accepting   jumps to an edit that is far away, else applies it and requests the following one
---
--- An edit of another buffer is only announced by a hint: accepting it goes to that buffer, and shows it there.
---
--- One edit is shown at a time, in the current buffer. Ghost text replaces it. While its keys would not act, it is hidden.
---
--- After an accepted edit one key too many is swallowed, until any other key, change or move (`tail`).
---
--- After a rename the hint counts the uses in files that are not open. In one that is opened then the rename goes on.
local api = vim.api
local lsp_client = require("speclsp.client")
local enabled = require("speclsp.enabled")
local diff = require("speclsp.next_edit_diff")
local item = require("speclsp.item")
local options = require("speclsp.options")
local placeholder = require("speclsp.next_edit_placeholder")
local view = require("speclsp.next_edit_view")

local SETTLED_MS, TYPING_PAUSE_MS = 50, 300 -- after a change in normal mode, in insert mode
local REJECT_COMMAND = "speclsp.didRejectEdit"
local COMPUTED_MS, DONE_MS = 3000, 1000 -- limits of the tail: while the next edit is computed, while "done" is shown

---@class speclsp.Text
---@field buf integer
---@field tick integer

---@class speclsp.EditRequest: speclsp.Text
---@field client vim.lsp.Client
---@field uri string
---@field row integer of the cursor
---@field id? integer

---@class speclsp.ShownEdit: speclsp.Text
---@field client vim.lsp.Client
---@field edit { text: string, range: lsp.Range, placeholder?: lsp.Range, textDocument: table, command: lsp.Command }
---@field hunk? speclsp.Hunk nil for an edit of another buffer
---@field target? integer that buffer
---@field unmap fun()

---@class speclsp.Tail: speclsp.Text where and when the last edit was accepted
---@field cursor integer[]
---@field is_done boolean no edit follows
---@field unmap fun()

---@class speclsp.Unopened
---@field uses integer
---@field files integer

local M = {}
local typed_keys = api.nvim_create_namespace("speclsp.next_edit_tail")
local shown ---@type speclsp.ShownEdit?
local tail ---@type speclsp.Tail?
local accepts = 0 -- edits accepted since the user's own change
local pending ---@type speclsp.EditRequest?
local requested ---@type speclsp.EditRequest? the newest request, answered or not
local followed ---@type speclsp.Text? text that is not requested again when the cursor leaves its line
local is_unfinished = false -- the last rename has uses in files that are not open
local left ---@type speclsp.Text? text whose edit was removed because the user left its window
local timer ---@type uv.uv_timer_t?
local tail_timer ---@type uv.uv_timer_t?

---@return speclsp.Text
local function current_text()
  local buf = api.nvim_get_current_buf()
  return { buf = buf, tick = api.nvim_buf_get_changedtick(buf) }
end

---@param a? speclsp.Text
---@param b? speclsp.Text
local function same(a, b)
  return a ~= nil and b ~= nil and a.buf == b.buf and a.tick == b.tick
end

--- True if sidekick.nvim shows next edits in a buffer: of any client that is named after Copilot.
---@param buf integer
local function sidekick_shows(buf)
  local nes = package.loaded["sidekick.nes"]
  if type(nes) ~= "table" or not nes.enabled then
    return false
  end
  for _, client in ipairs(vim.lsp.get_clients({ bufnr = buf })) do
    if client.name:lower():find("copilot", 1, true) then
      return true
    end
  end
  return false
end

--- The reason why a buffer gets no next edits; nil when it gets them.
---@param buf integer
---@return string?
function M.off_reason(buf)
  local client = lsp_client.get(buf)
  local status = client and require("speclsp.status").of(client.id)
  if not options.now.next_edit then
    return "setup has next_edit = false"
  elseif not status then
    return "no server has reported its state"
  elseif not status.next_edit then
    return "next_edit.enabled is off"
  elseif sidekick_shows(buf) then
    return "sidekick.nvim shows them"
  end
  return enabled.off_reason(buf)
end

-- ── showing ──────────────────────────────────────────────────────────────────────────────────────────────────────────

local function cancel()
  if timer then
    timer:stop()
  end
  if pending and pending.id then
    lsp_client.cancel(pending.client, pending.id)
  end
  pending = nil
end

--- Report the user's answer to an edit.
---@param now speclsp.ShownEdit
---@param command string
local function report(now, command)
  local params = { command = command, arguments = now.edit.command.arguments }
  lsp_client.notify(now.client, "workspace/executeCommand", params)
end

--- Remove the shown edit.
local function remove()
  local now = shown
  if not now then
    return
  end
  shown = nil
  view.hide()
  now.unmap()
  pcall(api.nvim_del_augroup_by_name, "speclsp.next_edit")
  require("speclsp.status").changed()
end

--- The edit of the current text, where it is drawn and its keys act; nil for none.
---@return speclsp.ShownEdit?
local function waiting()
  return same(shown, current_text()) and enabled.state(shown.buf, "edit") == "open" and shown or nil
end

--- Draw the shown edit with its hint where its keys act, else hide it.
local function draw()
  local key = options.now.keys.accept_edit
  if not shown or not api.nvim_buf_is_valid(shown.buf) then
    return
  elseif not waiting() then
    view.hide()
  elseif shown.target then
    local file = vim.fs.basename(api.nvim_buf_get_name(shown.target))
    view.draw_elsewhere(shown.buf, file, shown.edit.range.start.line + 1, key)
  elseif view.is_drawn() then
    view.draw_hint(shown.buf, shown.hunk, key)
  else
    view.show(shown.buf, shown.hunk, key)
  end
end

--- Draw or hide the shown edit after each event that may have moved the cursor or changed the state.
local function follow_state()
  local group = api.nvim_create_augroup("speclsp.next_edit", {})
  local function on(events, callback, pattern)
    local purpose = "speclsp: the edit and its hint follow cursor and mode"
    api.nvim_create_autocmd(events, { group = group, pattern = pattern, callback = callback, desc = purpose })
  end
  on({ "CursorMoved", "CursorMovedI", "WinScrolled", "ModeChanged", "RecordingEnter", "CompleteChanged" }, draw)
  on({ "RecordingLeave", "CompleteDone" }, vim.schedule_wrap(draw)) -- the state ends after the event
  on("OptionSet", draw, { "readonly", "modifiable", "buftype" })
end

-- ── after the last edit ──────────────────────────────────────────────────────────────────────────────────────────────

local function end_tail()
  local now = tail
  if not now then
    return
  end
  tail = nil
  tail_timer:stop()
  vim.on_key(nil, typed_keys)
  now.unmap()
  if now.is_done then
    view.hide()
  end
end

---@param limit_ms integer
local function limit_tail(limit_ms)
  tail_timer = tail_timer or assert(vim.uv.new_timer())
  tail_timer:start(limit_ms, 0, vim.schedule_wrap(end_tail))
end

--- Swallow further keys of the one that accepted an edit, which would insert blanks.
---@param buf integer
local function begin_tail(buf)
  tail = current_text() --[[@as speclsp.Tail]]
  tail.cursor, tail.is_done, tail.unmap = api.nvim_win_get_cursor(0), false, require("speclsp.keys").map_edit(buf)
  local accepting = vim.keycode(options.now.keys.accept_edit or "")
  vim.on_key(function(_, typed)
    if typed and typed ~= "" and typed ~= accepting then
      end_tail()
    end
  end, typed_keys)
  limit_tail(COMPUTED_MS)
end

--- True if the key is one too many: the text and the cursor are those after the accepted edit.
local function swallow()
  local is_same = tail and same(tail, current_text()) and vim.deep_equal(tail.cursor, api.nvim_win_get_cursor(0))
  if not is_same or enabled.state(tail.buf, "edit") ~= "open" then
    return false
  end
  if tail.is_done then
    end_tail()
  end
  return true
end

--- The lines that an edit replaces and their new text; nil when it changes nothing.
---@param buf integer
---@param edit { text: string, range: lsp.Range }
---@param encoding string
local function hunk_of(buf, edit, encoding)
  local from, to = edit.range.start, edit.range["end"]
  local lines = api.nvim_buf_get_lines(buf, from.line, to.line + 1, false)
  local from_byte = item.byte_of(lines[1] or "", from.character, encoding)
  local to_byte = item.byte_of(lines[to.line - from.line + 1] or "", to.character, encoding)
  local text = edit.text:gsub("\r\n?", "\n")
  return diff.hunk(lines, from.line, to.line - from.line + 1, from_byte, to_byte, text)
end

---@param request speclsp.EditRequest
---@param edit table
---@param hunk? speclsp.Hunk nil for an edit of another buffer
---@param target? integer that buffer
local function show(request, edit, hunk, target)
  end_tail()
  remove()
  local buf = request.buf
  followed = request
  local unmap = require("speclsp.keys").map_edit(buf)
  shown = { buf = buf, tick = request.tick, client = request.client, edit = edit, hunk = hunk, target = target }
  shown.unmap = unmap
  draw()
  lsp_client.notify(request.client, "textDocument/didShowInlineEdit", { item = { command = edit.command } })
  follow_state()
  require("speclsp.status").changed()
end

-- ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────────────

--- True if a buffer has the text that an edit is about.
---@param buf integer
---@param edit table
local function is_version(buf, edit)
  return edit.textDocument.version == vim.lsp.util.buf_versions[buf]
end

--- The loaded buffer of an edit of another document; nil where it has another text by now.
---@param edit table
---@return integer?
local function buffer_of(edit)
  local buf = vim.uri_to_bufnr(edit.textDocument.uri)
  return api.nvim_buf_is_loaded(buf) and is_version(buf, edit) and buf or nil
end

--- Draw the uses in files that are not open, until the cursor or the text changes.
---@param buf integer
---@param unopened speclsp.Unopened
local function announce(buf, unopened)
  view.draw_done(buf, accepts, unopened)
  local group = api.nvim_create_augroup("speclsp.next_edit_unopened", {})
  api.nvim_create_autocmd({ "CursorMoved", "CursorMovedI", "TextChanged", "TextChangedI", "BufLeave" }, {
    group = group,
    desc = "speclsp: remove the count of uses",
    callback = function()
      api.nvim_clear_autocmds({ group = group })
      if not shown then
        view.hide()
      end
    end,
  })
end

---@param request speclsp.EditRequest
---@param err? table
---@param result any
local function answered(request, err, result)
  if pending ~= request then
    return -- a newer request was sent, or this one was cancelled
  end
  pending = nil
  local buf = request.buf
  if err or not same(request, current_text()) or M.off_reason(buf) then
    return
  elseif enabled.state(buf, "edit") ~= "open" or require("speclsp").visible() then
    requested = nil -- so that it is requested again when insert mode ends
    return
  end
  local edit = type(result) == "table" and type(result.edits) == "table" and result.edits[1]
  local other = edit and edit.textDocument.uri ~= request.uri and buffer_of(edit)
  if other then
    return show(request, edit, nil, other)
  end
  local is_current = edit and edit.textDocument.uri == request.uri and is_version(buf, edit)
  local hunk = is_current and hunk_of(buf, edit, request.client.offset_encoding)
  if hunk then
    return show(request, edit, hunk)
  end
  remove()
  local unopened = type(result) == "table" and result.unopened or nil
  is_unfinished = unopened ~= nil
  if same(tail, request) then
    tail.is_done = not unopened -- the count stays longer
    view.draw_done(buf, accepts)
    limit_tail(DONE_MS)
  end
  if unopened then
    announce(buf, unopened)
  end
end

---@param client vim.lsp.Client
local function ask(client)
  cancel()
  local request = current_text() ---@type speclsp.EditRequest
  request.client = client
  lsp_client.sync_text(client, request.buf)
  pending, requested, left = request, request, nil
  local row, col = unpack(api.nvim_win_get_cursor(0))
  request.row, request.uri = row, vim.uri_from_bufnr(request.buf)
  local column = item.column_of(api.nvim_get_current_line(), col, client.offset_encoding)
  local params = {
    textDocument = { uri = request.uri, version = vim.lsp.util.buf_versions[request.buf] },
    position = { line = row - 1, character = column },
  }
  request.id = lsp_client.request(client, "textDocument/copilotInlineEdit", params, function(err, result)
    answered(request, err, result)
  end, request.buf)
end

--- Request the next edit of the current buffer after a pause, if its text is still the same then.
---@param pause_ms integer
local function ask_after(pause_ms)
  local text = current_text()
  timer = timer or assert(vim.uv.new_timer())
  timer:start(
    pause_ms,
    0,
    vim.schedule_wrap(function()
      local client = same(text, current_text()) and not same(requested, text) and lsp_client.get(text.buf)
      local is_open = client and not M.off_reason(text.buf) and enabled.state(text.buf, "edit") == "open"
      if client and is_open and not require("speclsp").visible() then
        ask(client)
      end
    end)
  )
end

--- React to a change of the text, or to the end of insert mode.
---@param is_typing boolean
function M.changed(is_typing)
  local text = current_text()
  if shown and not same(shown, text) then
    remove()
  end
  if tail and not same(tail, text) then
    end_tail()
  end
  if same(requested, text) then
    return
  end
  is_unfinished = false
  cancel()
  accepts = 0
  if not M.off_reason(text.buf) then
    ask_after(is_typing and TYPING_PAUSE_MS or SETTLED_MS)
  end
end

--- React to a move of the cursor.
function M.moved()
  local text = current_text()
  if shown or not same(requested, text) or same(followed, text) then
    return
  end
  if requested and requested.row ~= api.nvim_win_get_cursor(0)[1] then
    followed, requested = text, nil
    M.changed(false)
  end
end

--- Remove the shown edit and cancel the request.
function M.clear()
  cancel()
  end_tail()
  remove()
  requested = nil
end

--- Draw or hide the shown edit after a change of the state. Remove it if next edits were turned off.
function M.refresh()
  if shown and (not api.nvim_buf_is_valid(shown.buf) or M.off_reason(shown.buf)) then
    return M.clear()
  end
  draw()
end

--- Start to request next edits in a buffer.
---@param buf integer
---@param group integer
function M.on(buf, group)
  local function on(events, callback, purpose)
    api.nvim_create_autocmd(events, { group = group, buffer = buf, callback = callback, desc = "speclsp: " .. purpose })
  end
  on({ "TextChangedI", "TextChangedP" }, function()
    M.changed(true)
  end, "request the next edit when typing pauses")
  on({ "TextChanged", "InsertLeave" }, function()
    M.changed(false)
  end, "request the next edit")
  on("RecordingLeave", vim.schedule_wrap(function()
    M.changed(false)
  end), "request the next edit after a macro")
  on({ "CursorMoved", "CursorMovedI" }, M.moved, "request the next edit when a line is finished")
  on({ "BufLeave", "WinLeave" }, function()
    left = shown or pending or left
    M.clear()
  end, "one cursor, one edit")
  on({ "BufEnter", "WinEnter" }, function()
    if is_unfinished or same(left, current_text()) then
      ask_after(SETTLED_MS)
    end
  end, "show the edit again, or go on with a rename")
  if is_unfinished and api.nvim_get_current_buf() == buf then
    ask_after(SETTLED_MS)
  end
end

-- ── user actions ─────────────────────────────────────────────────────────────────────────────────────────────────────

--- The place of the shown edit for the status line: "at 12", or "in app.py" for one of another buffer; nil for none.
---@return string?
function M.place()
  if not waiting() then
    return nil
  elseif shown.target then
    return "in " .. vim.fs.basename(api.nvim_buf_get_name(shown.target))
  end
  return ("at %d"):format((view.place(shown.buf, shown.hunk)) + 1)
end

--- Move the cursor to the shown edit.
---@param now speclsp.ShownEdit
local function jump(now)
  vim.cmd("normal! m'")
  local row, col = view.place(now.buf, now.hunk)
  api.nvim_win_set_cursor(0, { row + 1, col })
  vim.cmd("normal! zv")
  view.make_room(now.buf, now.hunk)
  draw()
end

--- Go to the buffer of the shown edit, and show it there.
---@param now speclsp.ShownEdit
local function go(now)
  local edit, client = now.edit, now.client
  cancel()
  remove()
  local location = { uri = edit.textDocument.uri, range = edit.range }
  vim.lsp.util.show_document(location, client.offset_encoding, { reuse_win = true, focus = true })
  local request = current_text() ---@type speclsp.EditRequest
  request.client, request.uri = client, edit.textDocument.uri
  request.row = api.nvim_win_get_cursor(0)[1]
  if request.buf == now.target and is_version(request.buf, edit) and not M.off_reason(request.buf) then
    show(request, edit, hunk_of(request.buf, edit, client.offset_encoding))
  end
end

--- Apply the shown edit as one undo step, move the cursor to its end, and request the following edit.
---@param now speclsp.ShownEdit
local function apply(now)
  local edit, encoding = now.edit, now.client.offset_encoding
  local start = edit.range.start
  local line = api.nvim_buf_get_lines(now.buf, start.line, start.line + 1, false)[1] or ""
  local lines = vim.split(edit.text:gsub("\r\n?", "\n"), "\n", { plain = true })
  local row, col = start.line + #lines, #lines[#lines]
  if #lines == 1 then
    col = col + item.byte_of(line, start.character, encoding)
  elseif col == 0 then
    row, col = row - 1, #lines[#lines - 1]
  end
  remove()
  vim.go.undolevels = vim.go.undolevels -- ends the undo step before
  vim.lsp.util.apply_text_edits({ { range = edit.range, newText = edit.text } }, now.buf, encoding)
  row = math.min(row, api.nvim_buf_line_count(now.buf))
  api.nvim_win_set_cursor(0, { row, col })
  report(now, edit.command.command)
  accepts = accepts + 1
  local function go_on()
    begin_tail(now.buf)
    ask(now.client)
  end
  if not edit.placeholder then
    return go_on()
  end
  followed = current_text()
  requested = vim.tbl_extend("error", followed, { row = row }) -- leaving insert mode requests nothing
  placeholder.select(edit.placeholder, encoding, { row, col }, go_on)
end

local acts = {
  accept = function(now)
    if now.target then
      go(now)
    elseif view.is_far(now.hunk) then
      jump(now)
    else
      apply(now)
    end
    require("speclsp.suggest").skip() -- ghost text at the new place would take the key for the following edit
  end,
  dismiss = function(now)
    cancel()
    remove()
    report(now, REJECT_COMMAND)
  end,
}

--- Act on the shown edit; the fed keys call this.
---@param name "accept"|"dismiss"
function M.act(name)
  local now = waiting()
  if now then
    acts[name](now)
  end
end

--- Feed keys that act on the shown edit: an expression mapping must not change text itself.
---@param name "accept"|"dismiss"
---@return boolean acted
local function feed(name)
  if not waiting() then
    return false
  end
  local undo_break = api.nvim_get_mode().mode:sub(1, 1) == "i" and "<C-g>u" or ""
  local keys = ('%s<Cmd>lua require("speclsp.next_edit").act(%q)<CR>%s'):format(undo_break, name, undo_break)
  api.nvim_feedkeys(vim.keycode(keys), "ni", false)
  return true
end

--- Jump to the shown edit if it is far away, else apply it. After the last edit, swallow one key too many.
---@return boolean acted
function M.accept()
  return placeholder.leave() or swallow() or feed("accept")
end

--- Reject the shown edit: it does not come back until the user makes the change again.
---@return boolean acted
function M.dismiss()
  return feed("dismiss")
end

return M
