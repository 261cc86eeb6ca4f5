--- A client that asks, checks, applies and executes as sidekick.nvim and copilot-lsp do, against `speclsp lsp --copilot`.
---
--- `nvim --clean --headless -l copilot_clients.lua PYTHON CASE` runs one case and exits with 0 when it holds.
local python, case = arg[1], arg[2]
local METHOD = "textDocument/copilotInlineEdit"
local WAIT_MS = 120000
local LINES = {
  "import lib",
  "",
  "",
  "result_0 = lib.read(open_file, 0)",
  "result_1 = lib.read(open_file, 1)",
  "name = '𐐀é'; result_2 = lib.read(open_file, 2)",
  "result_3 = lib.read(open_file, 3)",
}

local notices = {}
vim.notify = function(text)
  table.insert(notices, text)
end

local function start(name)
  vim.cmd.edit(vim.fn.tempname() .. ".py")
  vim.bo.filetype = "python"
  vim.api.nvim_buf_set_lines(0, 0, -1, false, LINES)
  local id = vim.lsp.start({ name = name, cmd = { python, "-m", "speclsp", "lsp", "--copilot" }, root_dir = vim.fn.getcwd() })
  local client = assert(vim.lsp.get_client_by_id(assert(id)))
  assert(vim.wait(WAIT_MS, function()
    return client.initialized
  end))
  return client
end

--- The answer of a request: an error or no answer fails the case.
local function call(client, method, params)
  local answer = assert(client:request_sync(method, params, WAIT_MS, vim.api.nvim_get_current_buf()), "no answer to " .. method)
  assert(answer.err == nil, vim.inspect(answer.err))
  return answer.result
end

local function params_in(encoding)
  local params = vim.lsp.util.make_position_params(0, encoding)
  params.textDocument.version = vim.lsp.util.buf_versions[vim.api.nvim_get_current_buf()]
  params.context = { triggerKind = 2 }
  return params
end

--- Waits until requests reach the producer, which starts after `initialize`.
local function until_recording(client)
  assert(vim.wait(WAIT_MS, function()
    call(client, METHOD, params_in("utf-16"))
    return call(client, "speclsp/explain", vim.empty_dict()).next_edit ~= nil
  end, 100))
end

--- Makes the same change on two lines, as the user does.
local function change_twice()
  for line = 3, 4 do
    vim.api.nvim_buf_set_text(0, line, 11, line, 29, { "lib.read(shared.file" })
  end
  vim.api.nvim_win_set_cursor(0, { 5, 0 })
end

--- The edits that sidekick.nvim keeps: those of this buffer at its version now.
local function kept(result)
  local buf = vim.api.nvim_get_current_buf()
  return vim.tbl_filter(function(edit)
    return edit.text
      and edit.range
      and vim.uri_to_bufnr(edit.textDocument.uri) == buf
      and edit.textDocument.version == vim.lsp.util.buf_versions[buf]
  end, result.edits)
end

--- Applies edits as `vim.lsp.util.apply_text_edits` wants them.
local function apply(edits, encoding)
  vim.lsp.util.apply_text_edits(
    vim.tbl_map(function(edit)
      return { range = edit.range, newText = edit.text }
    end, edits),
    vim.api.nvim_get_current_buf(),
    encoding
  )
end

local CHANGED = "name = '𐐀é'; result_2 = lib.read(shared.file, 2)"
local cases = {}

cases["sidekick: all kept edits are applied at once, the command is executed, and the next request continues"] = function()
  local client = start("copilot-speclsp")
  until_recording(client)
  change_twice()
  for _ = 1, 2 do
    local edits = kept(call(client, METHOD, params_in(client.offset_encoding)))
    assert(#edits == 1, vim.inspect(edits))
    apply(edits, client.offset_encoding)
    for _, edit in ipairs(edits) do
      client:exec_cmd(edit.command, { bufnr = 0 })
    end
  end
  local lines = vim.api.nvim_buf_get_lines(0, 0, -1, false)
  assert(lines[6] == CHANGED and lines[7] == "result_3 = lib.read(shared.file, 3)", vim.inspect(lines))
  assert(#kept(call(client, METHOD, params_in(client.offset_encoding))) == 0)
  client:notify("textDocument/didFocus", { textDocument = { uri = vim.uri_from_bufnr(0) } })
  client:notify("textDocument/didFocus", vim.empty_dict())
end

cases["sidekick: an edit of an older version of the buffer is dropped"] = function()
  local client = start("copilot-speclsp")
  until_recording(client)
  change_twice()
  local result = call(client, METHOD, params_in(client.offset_encoding))
  assert(#kept(result) == 1)
  vim.api.nvim_buf_set_lines(0, -1, -1, false, { "last" })
  call(client, METHOD, params_in(client.offset_encoding))
  assert(#kept(result) == 0)
end

cases["copilot-lsp: the first edit in utf-16 is shown and applied, and no command is ever executed"] = function()
  local client = start("copilot_ls")
  assert(client.offset_encoding == "utf-16", client.offset_encoding)
  until_recording(client)
  change_twice()
  for _ = 1, 2 do
    local result = call(client, METHOD, params_in("utf-16"))
    for _, edit in ipairs(result.edits) do -- throws on null
      edit.newText = edit.text
    end
    local edit = assert(result.edits[1], "no edit")
    client:notify("textDocument/didShowInlineEdit", { item = { command = edit.command } })
    apply({ edit }, "utf-16")
  end
  local lines = vim.api.nvim_buf_get_lines(0, 0, -1, false)
  assert(lines[6] == CHANGED and lines[7] == "result_3 = lib.read(shared.file, 3)", vim.inspect(lines))
end

cases["copilot-lsp: with nothing to offer there is an empty list, and nothing is shown to the user"] = function()
  local client = start("copilot_ls")
  until_recording(client)
  local result = call(client, METHOD, params_in("utf-16"))
  assert(type(result.edits) == "table" and #result.edits == 0, vim.inspect(result))
end

cases["Neovim executes the announced commands without a warning"] = function()
  local client = start("copilot_ls")
  for _, name in ipairs({ "speclsp.didAcceptEdit", "github.copilot.didAcceptCompletionItem" }) do
    client:exec_cmd({ title = "accept", command = name, arguments = { "no-such-id" } }, { bufnr = 0 })
  end
  until_recording(client)
end

if not case then
  for name in vim.spairs(cases) do
    io.stdout:write(name .. "\n")
  end
  os.exit(0)
end
local ok, problem = xpcall(cases[case], debug.traceback)
if ok and #notices > 0 then
  ok, problem = false, "the user saw: " .. table.concat(notices, "; ")
end
io.stdout:write((ok and "ok    " or "FAILED  ") .. case .. "\n" .. (ok and "" or tostring(problem) .. "\n"))
for _, client in ipairs(vim.lsp.get_clients()) do
  client:stop(true)
end
os.exit(ok and 0 or 1)
