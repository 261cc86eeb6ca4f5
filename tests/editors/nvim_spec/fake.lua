--- A language server inside the Neovim under test with scripted answers: `fake.items`, or `fake.hold` and `fake.answer`.
---
--- The next answers contain `fake.items`; an item is a text for the cursor, or a whole item. Those of next edits contain
--- `fake.edit`: text and range, and the document if it is another one. Requests and cancellations are recorded. Without
--- a process and a clock, the result of a spec depends only on its keys.
local EDIT = "textDocument/copilotInlineEdit"
local fake = {
  items = {}, ---@type (string|table)[]
  edit = nil, ---@type { text: string, range: integer[], document?: table }? range: line, column, line, column
  hold = false, -- keep requests open until `answer`
  requests = {}, ---@type table[] params of all requests
  cancelled = {}, ---@type integer[]
  messages = {}, ---@type table[] other notifications and requests
  open = {}, ---@type table<integer, fun()>
  encoding = "utf-8",
}

local function answer_to(params)
  local items = {}
  for i, item in ipairs(fake.items) do
    items[i] = item
    if type(item) == "string" then
      items[i] = { insertText = item, range = { start = params.position, ["end"] = params.position } }
    end
  end
  return { items = items }
end

local function next_edit(params)
  if not fake.edit then
    return { edits = {}, unopened = fake.unopened }
  end
  local range = fake.edit.range
  local edit = {
    command = { command = "speclsp.didAcceptEdit", arguments = { "edit " .. #fake.asked(EDIT) } },
    text = fake.edit.text,
    range = {
      start = { line = range[1], character = range[2] },
      ["end"] = { line = range[3], character = range[4] },
    },
    textDocument = fake.edit.document or params.textDocument,
    kind = "edit",
    placeholder = fake.edit.placeholder,
  }
  return { edits = { edit } }
end

local replies = {
  initialize = function()
    return {
      capabilities = {
        positionEncoding = fake.encoding,
        textDocumentSync = { openClose = true, change = 2 },
        inlineCompletionProvider = vim.empty_dict(),
        executeCommandProvider = { commands = { "did" } },
        workspace = { workspaceFolders = { supported = true, changeNotifications = true } },
      },
    }
  end,
  shutdown = function()
    return vim.NIL
  end,
  ["speclsp/here"] = function()
    return { on = true, reason = "", message = "" }
  end,
  ["speclsp/retry"] = function()
    return fake.retry -- nil: an older server
  end,
  ["speclsp/explain"] = function()
    return fake.explanation -- nil: an older server
  end,
  ["speclsp/uses"] = function()
    return { uses = fake.uses or {} }
  end,
  ["speclsp/models"] = function()
    return {
      current = "small",
      models = { { name = "small", fits = true, fetched = true }, { name = "large", fits = false, why = "too large" } },
    }
  end,
}

--- The `cmd` of vim.lsp.start.
function fake.cmd(dispatchers)
  fake.dispatchers = dispatchers
  local closing, last = false, 0
  return {
    request = function(method, params, callback, replied)
      last = last + 1
      local id = last
      fake.messages[#fake.messages + 1] = { method = method, params = params }
      local answer = ({ ["textDocument/inlineCompletion"] = answer_to, [EDIT] = next_edit })[method]
      if not answer then
        local reply = replies[method]
        vim.schedule(function()
          if replied then
            replied(id)
          end
          callback(nil, reply and reply(params) or vim.NIL)
        end)
        return true, id
      end
      if answer == answer_to then
        fake.requests[#fake.requests + 1] = vim.deepcopy(params)
      end
      fake.open[id] = function()
        fake.open[id] = nil
        replied(id)
        callback(nil, answer(params))
      end
      if not fake.hold then
        vim.schedule(function()
          if fake.open[id] then
            fake.open[id]()
          end
        end)
      end
      return true, id
    end,
    notify = function(method, params)
      fake.messages[#fake.messages + 1] = { method = method, params = vim.deepcopy(params) }
      if method == "$/cancelRequest" then
        fake.cancelled[#fake.cancelled + 1] = params.id
      elseif method == "exit" then
        closing = true
        vim.schedule(function()
          dispatchers.on_exit(0, 0)
        end)
      end
      return true
    end,
    is_closing = function()
      return closing
    end,
    terminate = function()
      if not closing then
        closing = true
        vim.schedule(function()
          dispatchers.on_exit(0, 15)
        end)
      end
    end,
  }
end

--- The params of all messages of a method.
function fake.asked(method)
  local messages = vim.tbl_filter(function(message)
    return message.method == method
  end, fake.messages)
  return vim.tbl_map(function(message)
    return message.params
  end, messages)
end

--- Answers all open requests in order.
function fake.answer()
  local ids = vim.tbl_keys(fake.open)
  table.sort(ids)
  for _, id in ipairs(ids) do
    fake.open[id]()
  end
end

function fake.status(status)
  status =
    vim.tbl_extend("keep", status, { state = "ready", model = "small", device = "cpu", message = "", problems = {} })
  fake.dispatchers.notification("speclsp/status", status)
end

--- Reports that further lines have joined the suggestion of a request.
---@param request? table the params of a request; default: the newest
function fake.grew(request)
  request = request or fake.requests[#fake.requests]
  fake.dispatchers.notification("speclsp/suggestionGrew", {
    textDocument = request.textDocument,
    position = request.position,
  })
end

--- Starts it for the current buffer, with the plugin's own configuration.
function fake.start()
  local config = require("speclsp.client").config()
  config.cmd, config.root_dir = fake.cmd, nil
  vim.lsp.start(config, { reuse_client = config.reuse_client })
end

return fake
