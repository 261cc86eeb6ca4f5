--- Runs the plugin's specs in this Neovim: `nvim --headless -l tests/editors/nvim_spec/run.lua [WORD IN A NAME [FILE...]]`.
---
--- A spec file returns a table of sentences and functions. A function with a parameter gets a fresh Neovim (child.lua).
local here = vim.fs.dirname(vim.fn.fnamemodify(debug.getinfo(1, "S").source:sub(2), ":p"))
package.path = here .. "/?.lua;" .. package.path
vim.opt.rtp:prepend(vim.fs.normalize(here .. "/../../../editors/nvim"))
local child = require("child")

local only, files = arg[1], vim.list_slice(arg, 2)
local failed, passed = {}, 0
for _, file in ipairs(vim.fn.glob(here .. "/*_spec.lua", true, true)) do
  local is_wanted = #files == 0 or vim.list_contains(files, vim.fs.basename(file))
  local specs = is_wanted and dofile(file) or {}
  for name, spec in vim.spairs(specs) do
    if not only or name:find(only, 1, true) then
      local neovim = debug.getinfo(spec, "u").nparams > 0 and child.start(here) or nil
      local ok, problem = xpcall(spec, debug.traceback, neovim)
      if neovim then
        neovim:stop()
      end
      io.stdout:write((ok and "ok    " or "FAILED  ") .. name .. "\n")
      if ok then
        passed = passed + 1
      else
        failed[#failed + 1] = name
        io.stdout:write("    " .. tostring(problem):gsub("\n", "\n    ") .. "\n")
      end
    end
  end
end
io.stdout:write(("%d passed, %d failed, in Neovim %s\n"):format(passed, #failed, tostring(vim.version())))
os.exit((#failed > 0 or passed == 0) and 1 or 0)
