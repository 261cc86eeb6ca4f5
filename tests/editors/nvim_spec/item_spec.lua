--- Effect of a suggestion on a line (item.lua): laws on lines and columns, without a buffer.
local item = require("speclsp.item")

local function equal(actual, expected)
  assert(vim.deep_equal(actual, expected), ("found %s, expected %s"):format(vim.inspect(actual), vim.inspect(expected)))
end

--- The suggestion of `text` over the bytes from..to of a line, with the cursor at `col`.
local function over(line, text, from, to, col)
  local range = { start = { line = 0, character = from }, ["end"] = { line = 0, character = to } }
  return item.read({ insertText = text, range = range }, line, 0, col, "utf-8")
end

--- The line after accepting the whole suggestion.
local function accepted(line, col, rest)
  return line:sub(1, col) .. rest.add .. line:sub(col + #rest.over + 1)
end

local specs = {}

specs["accepting the rest after any typed prefix gives the line the server meant"] = function()
  local cases = {
    { "x = foo(ba)", "foo(bar, 1)", 4, 11, 10 },
    { "x = ", "1", 4, 4, 4 },
    { "größe = ", "größe * 2", 10, 10, 10 },
    { "a", "a = 1\nb = 2", 0, 1, 1 },
    { "f()", "f(x)(y)", 0, 3, 2 },
  }
  for _, case in ipairs(cases) do
    local line, text, from, to, col = unpack(case)
    local suggestion = over(line, text, from, to, col)
    local meant = line:sub(1, from) .. text .. line:sub(to + 1)
    local rest = item.rest(suggestion, line, 0, col)
    equal(accepted(line, col, rest), meant)
    for _ = 1, 3 do -- type through the suggestion
      local character = vim.fn.strcharpart(rest.add, 0, 1)
      line = line:sub(1, col) .. character .. line:sub(col + 1)
      col = col + #character
      rest = item.rest(suggestion, line, 0, col)
      if not rest then
        break -- all of it is typed, or the typed text conflicts with the replaced text
      end
      equal(accepted(line, col, rest), meant)
    end
  end
end

specs["a line with less indentation fits the deeper line, and the typed beginning of its code"] = function()
  local cases = {
    { "        ", "    else:", "    ", "else:" },
    { "        el", "    else:", "    ", "se:" },
    { "\t\t", "\t}", "\t", "}" },
    { "    ", "end", "", "end" },
  }
  for _, case in ipairs(cases) do
    local line, text, blanks, add = unpack(case)
    local rest = item.rest(over(line, text, 0, #line, #line), line, 0, #line)
    local present = #line:match("^%s*")
    equal({ rest.add, rest.outdent }, { add, { bytes = present, blanks = blanks } })
    equal(rest.outdent.blanks .. line:sub(present + 1) .. rest.add, text)
  end
  equal(item.rest(over("        el", "    else:", 0, 10, 10), "        ex", 0, 10), nil)
  equal(item.rest(over("    ", "        x", 0, 4, 4), "    ", 0, 4).outdent, nil)
end

specs["a suggestion does not fit once another letter was typed, or the line was changed around it"] = function()
  local suggestion = over("x = ", "foo()", 4, 4, 4)
  assert(item.rest(suggestion, "x = fo", 0, 6))
  equal(item.rest(suggestion, "x = fa", 0, 6), nil)
  equal(item.rest(suggestion, "y = fo", 0, 6), nil)
  equal(item.rest(suggestion, "x = fo", 1, 6), nil)
  equal(item.rest(suggestion, "x = fo", 0, 3), nil)
  equal(item.rest(suggestion, "x = foo()", 0, 9), nil)
end

specs["a bracket that another plugin closed is taken into the suggestion that closes it"] = function()
  local suggestion = over("x = foo", "(a, b)", 7, 7, 7)
  local rest = item.rest(suggestion, "x = foo()", 0, 8)
  equal(rest.parts, { { add = "a, b", keep = ")" } })
  equal(accepted("x = foo()", 8, rest), "x = foo(a, b)")
end

specs["the kept text of the line lies between the parts, and all parts make up the suggestion"] = function()
  for _, case in ipairs({
    { "a, b)", ")" },
    { "x](y)", "]()" },
    { "ab", "" },
    { "»é«ü", "éü" },
    { "))", "))" },
    { "a)b)", ")" },
  }) do
    local add, kept = unpack(case)
    local parts, all, keeps = item.weave(add, kept), "", ""
    for _, part in ipairs(parts) do
      all, keeps = all .. part.add .. part.keep, keeps .. part.keep
    end
    equal({ all, keeps }, { add, kept })
  end
  equal(item.weave("abc", "d"), nil)
  equal(item.weave("ab", "ba"), nil)
end

specs["accepting a part replaces only the text that lies in that part"] = function()
  local rest = item.rest(over("f()", "f(x)(y)", 0, 3, 2), "f()", 0, 2)
  equal(rest.parts, { { add = "x)(y", keep = ")" } })
  for bytes, expected in pairs({ [1] = { "", "f(x" }, [3] = { "", "f(x)(" }, [5] = { ")", "f(x)(y)" } }) do
    local replaced, left = item.take(rest, bytes)
    local line = "f(" .. rest.add:sub(1, bytes)
    equal({ replaced, line }, expected)
    equal(line .. (left and left.add or "") .. ("f()"):sub(3 + #replaced + (left and #left.over or 0)), "f(x)(y)")
  end
end

specs["columns in UTF-16 are bytes of the line and back"] = function()
  local line = "aß😀z"
  for column, byte in pairs({ [0] = 0, [1] = 1, [2] = 3, [4] = 7, [5] = 8 }) do
    equal(item.byte_of(line, column, "utf-16"), byte)
    equal(item.column_of(line, byte, "utf-16"), column)
  end
  equal(item.byte_of(line, 99, "utf-16"), #line)
  equal(item.byte_of(line, 3, "utf-32"), 7)
  equal(item.byte_of(line, 3, "utf-8"), 3)
end

specs["a suggestion for another line, or one that does not reach the cursor, is none"] = function()
  local range = { start = { line = 1, character = 0 }, ["end"] = { line = 1, character = 0 } }
  equal(item.read({ insertText = "x", range = range }, "", 0, 0, "utf-8"), nil)
  equal(over("abc", "x", 0, 1, 2), nil)
  equal(over("abc", "x", 3, 3, 2), nil)
end

specs["line ends of any kind are one newline"] = function()
  equal(over("", "a\r\nb\rc\nd", 0, 0, 0).text, "a\nb\nc\nd")
end

return specs
