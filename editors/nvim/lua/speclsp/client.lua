--- LSP client of the server: search and start, with the differences between Neovim 0.10, 0.11 and 0.12.
local notify = require("speclsp.notify")
local options = require("speclsp.options")
local system = require("speclsp.system")

local NAME = "speclsp"
local HAS_11 = vim.fn.has("nvim-0.11") == 1
local ROOTS = { ".git", ".hg", ".jj", "pyproject.toml", "package.json", "Cargo.toml", "go.mod", "Makefile" }

local M = {}

-- ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────────────

--- The client that is attached to a buffer.
---@param buf integer
---@return vim.lsp.Client?
function M.get(buf)
  return vim.lsp.get_clients({ name = NAME, bufnr = buf })[1]
end

--- Call a method of a client: 0.10 has them as plain functions.
local function call(client, method, ...)
  if HAS_11 then
    return client[method](client, ...)
  end
  return client[method](...)
end

---@param client vim.lsp.Client
---@param method string
---@param params table
---@param handler fun(err?: table, result?: any)
---@param buf integer
---@return integer? id
function M.request(client, method, params, handler, buf)
  local sent, id = call(client, "request", method, params, handler, buf)
  return sent and id or nil
end

---@param client vim.lsp.Client
---@param id integer
function M.cancel(client, id)
  call(client, "cancel_request", id)
end

---@param client vim.lsp.Client
function M.notify(client, method, params)
  call(client, "notify", method, params)
end

--- Send the whole text if the server's copy is outdated. Neovim sends changes, but it stops listening to a buffer that
--- changes while no server is attached, and does not resume when a server attaches (0.11, 0.12). Without this, text
--- typed after a crash would never reach the next server.
---@param client vim.lsp.Client
---@param buf integer
function M.sync_text(client, buf)
  local version = vim.api.nvim_buf_get_changedtick(buf)
  if vim.lsp.util.buf_versions[buf] == version then
    return
  end
  vim.lsp.util.buf_versions[buf] = version
  local ending = ({ dos = "\r\n", mac = "\r" })[vim.bo[buf].fileformat] or "\n"
  local text = table.concat(vim.api.nvim_buf_get_lines(buf, 0, -1, true), ending)
  M.notify(client, "textDocument/didChange", {
    textDocument = { uri = vim.uri_from_bufnr(buf), version = version },
    contentChanges = { { text = text .. (vim.bo[buf].endofline and ending or "") } },
  })
end

--- Run the command of an accepted item, if it has one.
---@param client vim.lsp.Client
---@param command? lsp.Command
---@param buf integer
---@param characters? integer accepted, if not all of them
function M.execute(client, command, buf, characters)
  if not command then
    return
  elseif characters then
    command = vim.deepcopy(command)
    command.arguments = vim.list_extend(command.arguments or {}, { characters })
  end
  if HAS_11 then
    client:exec_cmd(command, { bufnr = buf })
  else
    local params = { command = command.command, arguments = command.arguments }
    M.request(client, "workspace/executeCommand", params, function() end, buf)
  end
end

--- Send the settings to all running servers, and store them for workspace/configuration requests.
---@param settings table
function M.configure(settings)
  for _, client in ipairs(vim.lsp.get_clients({ name = NAME })) do
    client.settings = { speclsp = settings }
    M.notify(client, "workspace/didChangeConfiguration", { settings = { speclsp = settings } })
  end
end

-- ── program ──────────────────────────────────────────────────────────────────────────────────────────────────────────

--- The command line in vim.lsp.config, for users who configure there instead of in setup{}.
local function configured()
  local config = HAS_11 and vim.lsp.config[NAME]
  return config and type(config.cmd) == "table" and config.cmd or nil
end

--- The first of these paths that is a program, with its extension on Windows; nil if none is.
---@param paths string[]
---@return string?
local function first_program(paths)
  for _, path in ipairs(paths) do
    if vim.fn.executable(path) == 1 then
      return vim.fn.exepath(path)
    end
  end
end

--- The server's command line, or nil and the problem. A name without a directory becomes a path on PATH.
---@return string[]?, string?
function M.command()
  local cmd = options.now.cmd or configured()
  local os_name, path = system.current(), vim.env.PATH or ""
  if cmd then
    local is_name = not cmd[1]:find(os_name == "windows" and "[/\\:]" or "/")
    local program = first_program(is_name and system.on_path(os_name, cmd[1], path) or { cmd[1] })
    if program then
      return { program, unpack(cmd, 2) }
    end
    return nil, ("cmd is %s, which cannot be run"):format(cmd[1])
  end
  local program = first_program(system.programs(os_name, path, vim.fn.expand("~")))
  if program then
    return { program, "lsp" }
  end
  return nil, "no `speclsp` found: :checkhealth speclsp says how to install it"
end

--- The command line of another subcommand of the program.
---@param ... string
---@return string[]?, string?
function M.program(...)
  local command, problem = M.command()
  if not command then
    return nil, problem
  end
  local program = {} ---@type string[]
  for _, word in ipairs(command) do
    if word == "lsp" then
      break
    end
    program[#program + 1] = word
  end
  return vim.list_extend(program, { ... })
end

-- ── buffers ──────────────────────────────────────────────────────────────────────────────────────────────────────────

--- The reason why a buffer gets no suggestions; nil when it gets them.
---@param buf integer
---@return string?
function M.exclusion_reason(buf)
  if vim.bo[buf].buftype ~= "" then
    return ("'buftype' is %s"):format(vim.bo[buf].buftype)
  end
  local filetype = vim.bo[buf].filetype
  for _, off in ipairs(options.now.filetypes_off) do
    if off == filetype then
      return ("%s is in filetypes_off"):format(filetype)
    end
  end
  if vim.api.nvim_buf_get_name(buf) == "" then
    -- All buffers without a name have the URI "file://": the server could not tell two of them apart.
    for _, client in ipairs(vim.lsp.get_clients({ name = NAME })) do
      for other in pairs(client.attached_buffers) do
        if other ~= buf and vim.api.nvim_buf_is_valid(other) and vim.api.nvim_buf_get_name(other) == "" then
          return "it has no name, and another buffer without one has suggestions (:file NAME)"
        end
      end
    end
  end
end

---@param buf integer
local function root(buf)
  return vim.fs.root(buf, ROOTS)
end

--- True if the server can be started for a buffer. A missing program is reported once, not at every key.
---@param buf integer
local function startable(buf)
  if not options.now.enabled or M.exclusion_reason(buf) then
    return false
  end
  local command, problem = M.command()
  if not command then
    notify.once(problem .. "; see :checkhealth speclsp", vim.log.levels.WARN)
  end
  return command ~= nil
end

-- ── starting ─────────────────────────────────────────────────────────────────────────────────────────────────────────

--- Report an unexpected exit in one line: Neovim's own message makes most windows ask for <Enter>.
---@param dispatchers vim.lsp.rpc.Dispatchers
local function with_short_exit_message(dispatchers)
  return vim.tbl_extend("force", dispatchers, {
    on_exit = function(code, signal)
      if code ~= 0 or (signal ~= 0 and signal ~= 15) then
        local how = signal ~= 0 and ("signal " .. signal) or ("exit code " .. code)
        notify.say(("the server ended (%s); :Speclsp restart"):format(how), vim.log.levels.WARN)
      end
      dispatchers.on_exit(0, 0)
    end,
  })
end

---@return vim.lsp.ClientConfig
function M.config()
  return {
    name = NAME,
    cmd = function(dispatchers)
      return vim.lsp.rpc.start(assert(M.command()), with_short_exit_message(dispatchers))
    end,
    root_dir = function(buf, on_dir)
      if startable(buf) then
        on_dir(root(buf))
      end
    end,
    -- One server for all projects of this Neovim; add_folder adds a new project when a buffer attaches.
    reuse_client = function(client, config)
      return client.name == config.name and not call(client, "is_stopped")
    end,
    flags = { debounce_text_changes = 0 },
    before_init = function(params)
      -- The built-in interface can neither draw less indentation nor repeat a request without hiding its suggestion.
      if options.now.ui == "own" then
        local abilities = { outdent = true, suggestionGrew = true, nextEditElsewhere = true, nextEditPlaceholder = true }
        local announced = { experimental = { speclsp = abilities } }
        params.capabilities = vim.tbl_deep_extend("force", params.capabilities or {}, announced)
      end
      if next(options.now.settings) then
        params.initializationOptions =
          vim.tbl_deep_extend("force", params.initializationOptions or {}, options.now.settings)
      end
    end,
    handlers = {
      ["speclsp/status"] = function(_, status, context)
        require("speclsp.status").receive(context.client_id, status)
      end,
      ["speclsp/suggestionGrew"] = function(_, place, context)
        require("speclsp.suggest").grew(context.client_id, place)
      end,
    },
  }
end

--- Add the project of a buffer to the server's workspace folders.
---@param client vim.lsp.Client
---@param buf integer
function M.add_folder(client, buf)
  local path = root(buf)
  if not path or (vim.fn.has("win32") == 0 and path == "/") then
    return
  end
  local folders = client.workspace_folders or {}
  local uri = vim.uri_from_fname(path)
  for _, folder in ipairs(folders) do
    if folder.uri == uri then
      return
    end
  end
  local folder = { uri = uri, name = path }
  client.workspace_folders = vim.list_extend(folders, { folder })
  M.notify(client, "workspace/didChangeWorkspaceFolders", { event = { added = { folder }, removed = {} } })
end

--- Start the server for a buffer, or join the running one.
---@param buf integer
function M.start(buf)
  if not vim.api.nvim_buf_is_loaded(buf) or M.get(buf) or not startable(buf) then
    return
  end
  local config = HAS_11 and vim.deepcopy(vim.lsp.config[NAME]) or M.config()
  config.root_dir = root(buf)
  vim.lsp.start(config, { bufnr = buf, reuse_client = config.reuse_client })
end

--- Close the document of a buffer that gets another name or language. Neovim does so at the next `:write` only, and not
--- at all for a language (0.11).
---@param buf integer
function M.close(buf)
  local client = M.get(buf)
  if client then
    vim.lsp.buf_detach_client(buf, client.id)
  end
end

--- Open the document of a buffer again, if the server runs and it has none.
---@param buf integer
function M.reopen(buf)
  local is_wanted = vim.api.nvim_buf_is_valid(buf) and vim.bo[buf].filetype ~= ""
  if is_wanted and #vim.lsp.get_clients({ name = NAME }) > 0 then
    M.start(buf)
  end
end

--- Start the server for each buffer with a file type: the present ones, and those to come.
function M.enable()
  if HAS_11 then
    vim.lsp.enable(NAME)
    return
  end
  vim.api.nvim_create_autocmd("FileType", {
    group = vim.api.nvim_create_augroup("speclsp.start", {}),
    callback = function(event)
      M.start(event.buf)
    end,
  })
  for _, buf in ipairs(vim.api.nvim_list_bufs()) do
    if vim.bo[buf].filetype ~= "" then
      M.start(buf)
    end
  end
end

--- Stop all servers, then start one for the buffers that they were attached to.
function M.restart()
  local bufs = {} ---@type table<integer, true>
  local clients = vim.lsp.get_clients({ name = NAME })
  for _, client in ipairs(clients) do
    for buf in pairs(client.attached_buffers) do
      bufs[buf] = true
    end
    call(client, "stop")
  end
  bufs[vim.api.nvim_get_current_buf()] = true
  local waited_ms = 0
  local function start_when_stopped()
    local running = vim.tbl_filter(function(client)
      return vim.lsp.get_client_by_id(client.id) ~= nil
    end, clients)
    if #running > 0 and waited_ms < 5000 then
      waited_ms = waited_ms + 50
      if waited_ms == 3000 then -- it ignores the shutdown request: force it
        for _, client in ipairs(running) do
          call(client, "stop", true)
        end
      end
      return vim.defer_fn(start_when_stopped, 50)
    end
    for buf in pairs(bufs) do
      if vim.api.nvim_buf_is_valid(buf) then
        M.start(buf)
      end
    end
  end
  vim.defer_fn(start_when_stopped, 50)
end

return M
