--- `:Speclsp WORD ...`: subcommands and their completion.
local api = vim.api
local float = require("speclsp.float")
local lsp_client = require("speclsp.client")
local notify = require("speclsp.notify")
local options = require("speclsp.options")
local system = require("speclsp.system")

local M = {}

--- The client of the current buffer, or of any other; without one, report the reason.
local function client()
  local server = lsp_client.get(api.nvim_get_current_buf()) or vim.lsp.get_clients({ name = "speclsp" })[1]
  if not server then
    local _, problem = lsp_client.command()
    notify.say((problem or "no server runs for this buffer") .. "; see :checkhealth speclsp", vim.log.levels.WARN)
  end
  return server
end

--- Run a subcommand of the program in a terminal below.
local function terminal(...)
  local program, problem = lsp_client.program(...)
  if not program then
    return notify.say(problem .. "; see :checkhealth speclsp", vim.log.levels.WARN)
  end
  vim.cmd("botright new")
  if vim.fn.has("nvim-0.11") == 1 then
    vim.fn.jobstart(program, { term = true })
  else
    vim.fn.termopen(program)
  end
  vim.cmd.startinsert()
end

local LABEL_COLUMNS = 12

--- The status as rows of label and text.
---@param buf integer
---@param status? speclsp.Status
---@param here? table reply to speclsp/here
local function status_lines(buf, status, here)
  local off = require("speclsp.enabled").off_reason(buf) or lsp_client.exclusion_reason(buf)
  local lines = { { "here", off and "off: " .. off or "on" } }
  if here and not here.on then
    lines[1] = { "here", "off: " .. (here.message ~= "" and here.message or here.reason) }
  end
  local edits_off = require("speclsp.next_edit").off_reason(buf)
  lines[2] = { "next edits", edits_off and "off: " .. edits_off or "on" }
  if not status then
    return vim.list_extend({ { "state", "nothing heard from a server" } }, lines)
  end
  local percent = status.progress and (" %d%%"):format(math.floor(status.progress * 100)) or ""
  table.insert(lines, 1, { "state", status.state .. percent })
  if status.trigger == "manual" and lines[2][2] == "on" then
    lines[2][2] = "on, on request only (completion.trigger is manual)"
  end
  local function add(name, value)
    if value ~= nil and value ~= "" then
      lines[#lines + 1] = { name, value }
    end
  end
  add("message", status.message)
  add("try again", (status.state == "error" or status.state == "stopped") and ":Speclsp retry" or nil)
  add("model", status.model)
  add("target", status.target)
  add("draft", status.draft)
  add("device", status.device)
  add("sent to", status.remote)
  add("engine", require("speclsp.status").engine(status))
  add("last", status.last_latency_ms and ("%.0f ms"):format(status.last_latency_ms))
  add("nothing", status.last_reason_meaning)
  for _, problem in ipairs(status.problems or {}) do
    add("problem", problem)
  end
  return lines
end

local function show_status()
  local buf = api.nvim_get_current_buf()
  local server = client()
  if not server then
    return
  end
  local function show(here)
    if not api.nvim_buf_is_valid(buf) then
      return
    end
    local rows = status_lines(buf, require("speclsp.status").of(server.id), here)
    for _, row in ipairs(rows) do
      row[1] = row[1] .. (" "):rep(LABEL_COLUMNS - #row[1])
    end
    float.show("speclsp", rows, LABEL_COLUMNS)
  end
  local params = { textDocument = { uri = vim.uri_from_bufnr(buf) } }
  local sent = lsp_client.request(server, "speclsp/here", params, function(err, here)
    vim.schedule(function()
      show(not err and type(here) == "table" and here or nil)
    end)
  end, buf)
  if not sent then
    show(nil)
  end
end

--- Ask the server to retry after an error or a stop; where none runs, start one.
local function retry()
  local server = lsp_client.get(api.nvim_get_current_buf()) or vim.lsp.get_clients({ name = "speclsp" })[1]
  if not server then
    return lsp_client.restart()
  end
  lsp_client.request(server, "speclsp/retry", vim.empty_dict(), function(err, answer)
    local message = not err and type(answer) == "table" and answer.message
    local level = not message and vim.log.levels.WARN or nil
    notify.say(message or "the server does not know how to try again: :Speclsp restart", level)
  end, api.nvim_get_current_buf())
end

--- A value of an explanation in one line; "" for one that says nothing, as 0 and false.
---@param value any
---@return string
local function flat(value)
  if type(value) ~= "table" then
    return (value == vim.NIL or not value or value == 0) and "" or tostring(value)
  end
  local parts = {}
  for name, part in vim.spairs(value) do
    local text = flat(part)
    parts[#parts + 1] = text ~= "" and (type(name) == "number" and text or name .. " " .. text) or nil
  end
  return table.concat(parts, ", ")
end

--- The lines of an explanation: its headline, then each member.
---@param answer table
---@return { [1]: string, [2]: string }[] label and text
local function explanation_lines(answer)
  local headline = "no requests yet"
  if answer.asked then
    local shown = ("suggested: %d characters"):format(answer.shown_characters or 0)
    headline = answer.outcome == "shown" and shown or "nothing shown: " .. answer.meaning
  end
  local lines = { { "", headline } }
  for name, value in vim.spairs(answer) do
    local text = flat(value)
    if text ~= "" and name ~= "asked" and name ~= "meaning" then
      lines[#lines + 1] = { ("%-20s"):format((name:gsub("_", " "))), text }
    end
  end
  return lines
end

--- Show the server's explanation of the last suggestion, or the reason why there was none.
local function explain()
  local server = client()
  if not server then
    return
  end
  lsp_client.request(server, "speclsp/explain", vim.empty_dict(), function(err, answer)
    vim.schedule(function()
      if err or type(answer) ~= "table" then
        return notify.say("the server does not know how to explain: :Speclsp restart", vim.log.levels.WARN)
      end
      float.show("speclsp explain", explanation_lines(answer), 20)
    end)
  end, api.nvim_get_current_buf())
end

--- List the uses of the last renamed name that are left in other files.
local function list_uses()
  local server = client()
  if not server then
    return
  end
  lsp_client.request(server, "speclsp/uses", vim.empty_dict(), function(err, answer)
    local uses = not err and type(answer) == "table" and answer.uses or {}
    vim.schedule(function()
      if #uses == 0 then
        return notify.say("no use of a renamed name is left in other files")
      end
      local items = vim.lsp.util.locations_to_items(uses, server.offset_encoding)
      vim.fn.setqflist({}, " ", { title = "speclsp: uses of the old name", items = items })
      vim.cmd("botright copen")
    end)
  end, api.nvim_get_current_buf())
end

---@param name string
local function use_model(name)
  options.now.settings.model = name
  lsp_client.configure(options.now.settings)
  notify.say(("model %s until Neovim ends; for good: config.toml or setup"):format(name))
end

--- Request the list of models from the server.
---@param on_reply fun(answer: { current: string, models: table[] })
local function with_models(on_reply)
  local server = client()
  if not server then
    return
  end
  lsp_client.request(server, "speclsp/models", vim.empty_dict(), function(err, answer)
    if err or type(answer) ~= "table" then
      return notify.say(
        "the server sent no list of models: " .. (err and err.message or "no answer"),
        vim.log.levels.WARN
      )
    end
    vim.schedule(function()
      on_reply(answer)
    end)
  end, api.nvim_get_current_buf())
end

---@param model table
---@param current string
local function model_label(model, current)
  local facts = {} ---@type string[]
  facts[#facts + 1] = model.name == current and "in use" or nil
  if model.fits == false then
    facts[#facts + 1] = model.why
  elseif not model.fetched and model.download_mib then
    facts[#facts + 1] = ("%d MiB to download"):format(model.download_mib)
  end
  return model.name .. (#facts > 0 and " (" .. table.concat(facts, ", ") .. ")" or "")
end

local function choose_model(name)
  with_models(function(answer)
    if name then
      local names = vim.tbl_map(function(model)
        return model.name
      end, answer.models)
      if name ~= "auto" and not vim.tbl_contains(names, name) then
        local nearest = options.nearest(name, names)
        return notify.say(("no model %s; did you mean %s?"):format(name, nearest), vim.log.levels.WARN)
      end
      return use_model(name)
    end
    vim.ui.select(answer.models, {
      prompt = "speclsp: model",
      format_item = function(model)
        return model_label(model, answer.current)
      end,
    }, function(model)
      if model then
        use_model(model.name)
      end
    end)
  end)
end

--- Path of the server's log: as the last server reported it, else the default of its system.
function M.log_path()
  local reported = require("speclsp.status").log()
  if reported then
    return reported
  end
  return system.default_log(system.current(), vim.env, vim.fn.expand("~"))
end

local function open_log()
  local path = M.log_path()
  if vim.fn.filereadable(path) == 0 then
    return notify.say(("there is no %s yet"):format(path), vim.log.levels.WARN)
  end
  vim.cmd.split(vim.fn.fnameescape(path))
  vim.bo.readonly, vim.bo.modifiable = true, false
  vim.bo.autoread, vim.bo.bufhidden = true, "wipe"
  vim.cmd("normal! G")
end

---@class speclsp.Subcommand
---@field run fun(word?: string)
---@field words? fun(): string[] its arguments; nil when it takes none

---@type table<string, speclsp.Subcommand>
local subcommands = {
  status = { run = show_status },
  toggle = {
    run = function(scope)
      scope = scope or "all"
      if scope ~= "here" and scope ~= "filetype" and scope ~= "all" then
        return notify.say(("toggle %s: expected here, filetype or all"):format(scope), vim.log.levels.WARN)
      end
      require("speclsp").toggle(scope)
    end,
    words = function()
      return { "here", "filetype", "all" }
    end,
  },
  snooze = {
    run = function(word)
      local minutes = ({ off = 0, session = math.huge })[word] or tonumber(word or 10)
      if not minutes or minutes < 0 then
        return notify.say(("snooze %s: expected minutes, session or off"):format(word), vim.log.levels.WARN)
      end
      require("speclsp").snooze(minutes)
    end,
    words = function()
      return { "10", "session", "off" }
    end,
  },
  retry = { run = retry },
  restart = {
    run = function()
      notify.say("restarting")
      lsp_client.restart()
    end,
  },
  stop = {
    run = function()
      terminal("engine", "stop")
    end,
  },
  trigger = {
    run = function()
      -- A command line ends insert mode: return to it first, then request at that cursor.
      vim.cmd.startinsert({ bang = api.nvim_win_get_cursor(0)[2] >= #api.nvim_get_current_line() - 1 })
      vim.schedule(require("speclsp").trigger)
    end,
  },
  model = {
    run = choose_model,
    words = function()
      local names = { "auto" }
      local server = lsp_client.get(api.nvim_get_current_buf()) or vim.lsp.get_clients({ name = "speclsp" })[1]
      if server then
        local answered = false
        lsp_client.request(server, "speclsp/models", vim.empty_dict(), function(_, answer)
          answered = true
          for _, model in ipairs(type(answer) == "table" and answer.models or {}) do
            names[#names + 1] = model.name
          end
        end, api.nvim_get_current_buf())
        vim.wait(1000, function()
          return answered
        end, 10)
      end
      return names
    end,
  },
  eagerness = {
    run = function(name)
      require("speclsp.eagerness").set(name)
    end,
    words = function()
      return require("speclsp.eagerness").names()
    end,
  },
  explain = { run = explain },
  uses = { run = list_uses },
  log = { run = open_log },
  doctor = {
    run = function()
      terminal("doctor")
    end,
  },
  stats = {
    run = function()
      terminal("stats")
    end,
  },
}

local function names()
  local all = vim.tbl_keys(subcommands)
  table.sort(all)
  return all
end

---@param words string[]
function M.run(words)
  local name = words[1] or "status"
  local subcommand = subcommands[name]
  if not subcommand then
    local nearest = options.nearest(name, names())
    return notify.say(
      ("no subcommand %s; did you mean %s? <Tab> lists them"):format(name, nearest),
      vim.log.levels.ERROR
    )
  end
  if words[2] and not subcommand.words then
    return notify.say(("%s takes no argument, found %s"):format(name, words[2]), vim.log.levels.ERROR)
  end
  subcommand.run(words[2])
end

--- Completion of the command line.
---@param lead string
---@param line string
---@return string[]
function M.complete(lead, line)
  local words = vim.split(vim.trim(line:sub(1, #line - #lead)), "%s+")
  local candidates = {} ---@type string[]
  if #words == 1 then
    candidates = names()
  elseif #words == 2 then
    local subcommand = subcommands[words[2]]
    candidates = subcommand and subcommand.words and subcommand.words() or {}
  end
  return vim.tbl_filter(function(candidate)
    return vim.startswith(candidate, lead)
  end, candidates)
end

return M
