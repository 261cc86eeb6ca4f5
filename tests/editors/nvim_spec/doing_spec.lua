--- What the server is told of what the user is at, and that it is told nothing that it does not want to know.
local specs = {}

local function equal(found, expected)
  assert(vim.deep_equal(found, expected), ("found %s, expected %s"):format(vim.inspect(found), vim.inspect(expected)))
end

local function lines(count)
  local made = {}
  for i = 1, count do
    made[i] = ("line %d"):format(i)
  end
  return made
end

--- Count what the server was told by this method, and keep the last of it.
local function watch(n)
  n:lua([[
    _G.last = function(method)
      local found
      for _, one in ipairs(fake.told) do if one.method == method then found = one.params end end
      return found
    end
    _G.times = function(method)
      local count = 0
      for _, one in ipairs(fake.told) do if one.method == method then count = count + 1 end end
      return count
    end
  ]])
end

specs["lines that stay on the screen are told, once, and those scrolled past are not"] = function(n)
  n:lua("fake.experimental = { speclsp = { viewed = true } }")
  watch(n)
  n:open(lines(200))
  n:wait("times('speclsp/viewed') == 1", "the first lines")
  equal(n:lua("return last('speclsp/viewed').range.start"), { line = 0, character = 0 })
  n:type("50Gzt100Gzt")
  n:wait("times('speclsp/viewed') == 2", "the lines scrolled to")
  equal(n:lua("return last('speclsp/viewed').range.start"), { line = 99, character = 0 })
  equal(n:lua("return last('speclsp/viewed').textDocument.uri == vim.uri_from_bufnr(0)"), true)
end

specs["what is yanked is told, and what is deleted is not"] = function(n)
  n:lua("fake.experimental = { speclsp = { copied = true } }")
  watch(n)
  n:open(lines(5))
  n:type("ggyjGdd")
  n:wait("times('speclsp/copied') == 1", "the yank")
  equal(n:lua("return last('speclsp/copied').text"), "line 1\nline 2")
end

specs["a server that announces nothing is told nothing"] = function(n)
  watch(n)
  n:open(lines(5))
  n:type("yy")
  equal(
    n:lua([[
      local group = "speclsp." .. vim.api.nvim_get_current_buf()
      return #vim.api.nvim_get_autocmds({ group = group, event = { "TextYankPost", "WinScrolled" } })
    ]]),
    0
  )
  equal(n:lua("return times('speclsp/copied') + times('speclsp/viewed')"), 0)
end

return specs
