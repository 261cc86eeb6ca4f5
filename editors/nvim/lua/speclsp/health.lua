--- `:checkhealth speclsp`: each line reports a fact and, where that is a problem, the fix.
local M = {}

-- stylua: ignore
local OTHERS = { -- other plugins with ghost text: name, and a test that it is loaded
  { "copilot.vim", function() return vim.g.loaded_copilot ~= nil end },
  { "copilot.lua", function() return package.loaded["copilot.suggestion"] ~= nil end },
  { "supermaven", function() return package.loaded["supermaven-nvim"] ~= nil end },
  { "codeium / windsurf", function() return vim.g.loaded_codeium ~= nil or package.loaded["codeium"] ~= nil end },
  { "llama.vim", function() return vim.fn.exists("*llama#init") == 1 end },
  { "minuet", function() return package.loaded["minuet.virtualtext"] ~= nil end },
  { "tabnine", function() return package.loaded["tabnine"] ~= nil end },
  { "llm.nvim", function() return package.loaded["llm.completion"] ~= nil end },
}

local function neovim()
  vim.health.start("speclsp: Neovim")
  local version = tostring(vim.version())
  if vim.fn.has("nvim-0.10") == 0 then
    return vim.health.error("Neovim " .. version .. " is too old", "Install Neovim 0.10 or newer.")
  end
  vim.health.ok("Neovim " .. version)
  if vim.fn.has("nvim-0.11") == 0 then
    vim.health.info('0.10: start it with require("speclsp").setup{}; vim.lsp.enable is in 0.11')
  end
end

--- The checkout of this plugin: editors/nvim/lua/speclsp/health.lua is five levels below it.
local CHECKOUT = vim.fn.fnamemodify(debug.getinfo(1, "S").source:sub(2), ":p:h:h:h:h:h")

local function executable()
  vim.health.start("speclsp: the server")
  local lsp_client = require("speclsp.client")
  local command, problem = lsp_client.command()
  if not command then
    return vim.health.error(problem, {
      "It is looked for on PATH, then in ~/.local/bin.",
      "Install it from the checkout this plugin came with: uv tool install " .. CHECKOUT,
      'Or say where it is: require("speclsp").setup{ cmd = { "/path/to/speclsp", "lsp" } }.',
    })
  end
  vim.health.ok("command: " .. table.concat(command, " "))
  local ran, result = pcall(function()
    return vim.system(lsp_client.program("--version"), { text = true, timeout = 20000 }):wait()
  end)
  if ran and result.code == 0 then
    vim.health.ok("version: " .. vim.trim(result.stdout))
  else
    local message = ran and vim.trim(result.stderr or "") or tostring(result)
    vim.health.error("`--version` failed: " .. message, "Run `speclsp doctor` in a terminal (:Speclsp doctor).")
  end
end

---@param status? speclsp.Status
local function report_status(status)
  if not status then
    return vim.health.warn("the server has not told its state", "Wait a moment; then :Speclsp log, :Speclsp restart.")
  end
  local line = ("state: %s; model %s on %s"):format(status.state, status.model, status.device)
  if status.state == "error" then
    local advice = ":Speclsp retry tries again."
    vim.health.error(status.message, { advice, ":Speclsp doctor checks machine, weights and a completion." })
  elseif status.state == "off" then
    vim.health.warn(line, "completion.enabled is false: in config.toml, or in setup{ settings = … }.")
  elseif status.state == "stopped" then
    vim.health.warn(status.message, ":Speclsp retry starts it again.")
  elseif status.state == "loading" or status.state == "starting" then
    vim.health.info(line .. (status.message ~= "" and ": " .. status.message or ""))
  else
    vim.health.ok(line .. (status.message ~= "" and ": " .. status.message or ""))
  end
  local engine = require("speclsp.status").engine(status)
  if engine then
    vim.health.info("engine: " .. engine)
  end
  if status.remote and status.remote ~= "" then
    vim.health.info("your code is sent to " .. status.remote)
  end
  for _, problem in ipairs(status.problems or {}) do
    vim.health.warn(problem)
  end
end

local function client()
  vim.health.start("speclsp: the client")
  local options = require("speclsp.options").now
  local clients = vim.lsp.get_clients({ name = "speclsp" })
  if #clients == 0 then
    return vim.health.warn("no server is running", {
      options.enabled and 'Open a file; before, call vim.lsp.enable("speclsp") (0.11) or require("speclsp").setup{}.'
        or "setup has enabled = false: :Speclsp toggle starts it.",
      ":checkhealth vim.lsp and :Speclsp log tell more.",
    })
  end
  if #clients > 1 then
    vim.health.warn(("%d servers are running; one is enough"):format(#clients), ":Speclsp restart")
  end
  for _, running in ipairs(clients) do
    local bufs = vim.tbl_count(running.attached_buffers)
    vim.health.ok(("client %d: %d buffers, positions in %s"):format(running.id, bufs, running.offset_encoding))
    if not running.server_capabilities.inlineCompletionProvider then
      vim.health.error("the server does not offer textDocument/inlineCompletion", "Is it speclsp? :checkhealth vim.lsp")
    end
    report_status(require("speclsp.status").of(running.id))
  end
  local buf = next(clients[1].attached_buffers)
  local reason = buf and require("speclsp.next_edit").off_reason(buf)
  vim.health.info("next edits: " .. (reason and "off: " .. reason or "on"))
end

local function keys()
  vim.health.start("speclsp: keys and neighbours")
  local options = require("speclsp.options").now
  local key_maps = require("speclsp.keys")
  local clients = vim.lsp.get_clients({ name = "speclsp" })
  local buf = clients[1] and next(clients[1].attached_buffers)
  for name, key in vim.spairs(options.keys) do
    local mode = key_maps.mode(name)
    local here = key and buf and key_maps.mapped(key, buf, mode)
    local global = key and key_maps.mapped(key, nil, mode)
    local function describe(map)
      return map.desc or map.rhs or "a Lua function"
    end
    if not key then
      vim.health.info(name .. ": no key")
    elseif here and mode == "i" and not key_maps.is_ours(here) then
      vim.health.warn(("%s: %s is taken in the buffer by: %s"):format(name, key, describe(here)), {
        "If that mapping does not fall back to others, call the action from it: :help speclsp-recipes.",
      })
    elseif global then
      vim.health.info(("%s: %s; when there is nothing to do: %s"):format(name, key, describe(global)))
    else
      vim.health.ok(("%s: %s"):format(name, key))
    end
  end
  for _, other in ipairs(OTHERS) do
    if other[2]() then
      vim.health.warn(other[1] .. " is active: two suggestions may be shown at once", "Use one of them.")
    end
  end
  local inline = vim.lsp.inline_completion
  if inline and options.ui == "own" and buf and inline.is_enabled({ bufnr = buf }) then
    vim.health.info("vim.lsp.inline_completion is enabled too; it is left to the other servers")
  end
  if vim.o.paste then
    vim.health.warn("'paste' is set: no suggestions and no mappings in insert mode", ":set nopaste")
  end
end

function M.check()
  neovim()
  executable()
  client()
  keys()
  vim.health.info("`speclsp doctor` (:Speclsp doctor) checks the machine, the weights and a completion")
end

return M
