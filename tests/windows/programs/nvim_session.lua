--- A session of the plugin with the real server: `nvim --headless -l nvim_session.lua PLUGIN FOLDER COMMAND...`.
--- Prints facts as JSON: workspace folder, suggestion, version, log file, end.
local plugin, folder = arg[1], arg[2]
local command = vim.list_slice(arg, 3)
local facts = {}

vim.opt.rtp:prepend(plugin)
vim.cmd.runtime("plugin/speclsp.lua")
require("speclsp").setup({ cmd = command })
vim.fn.mkdir(folder .. "/.git", "p")
vim.cmd.edit(vim.fn.fnameescape(folder .. "/ü.py"))
vim.bo.filetype = "python"
vim.api.nvim_buf_set_lines(0, 0, -1, false, { "def add(a, b):", "    return " })

local function client()
  return vim.lsp.get_clients({ name = "speclsp" })[1]
end

local function suggestion()
  local params = {
    textDocument = { uri = vim.uri_from_bufnr(0) },
    position = { line = 1, character = 11 },
    context = { triggerKind = 1 },
  }
  local reply = client():request_sync("textDocument/inlineCompletion", params, 10000, 0)
  local items = reply and reply.result and reply.result.items or {}
  return items[1] and items[1].insertText
end

vim.wait(60000, function()
  return client() ~= nil and client().initialized
end, 50)
vim.wait(90000, function()
  facts.text = suggestion()
  return facts.text ~= nil
end, 500)
facts.folders = vim.tbl_map(function(workspace)
  return workspace.name
end, client().workspace_folders)
facts.version = vim.trim(vim.system(require("speclsp.client").program("--version"), { text = true }):wait().stdout)
local log = require("speclsp.command").log_path()
facts.log = log
facts.log_exists = vim.fn.filereadable(log) == 1
facts.default_log = vim.fs.normalize(require("speclsp.system").default_log("windows", vim.env, vim.fn.expand("~")))
client():stop()
facts.stopped = vim.wait(20000, function()
  return client() == nil
end, 50)
io.stdout:write("\nFACTS " .. vim.json.encode(facts) .. "\n")
os.exit(0)
