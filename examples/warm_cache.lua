-- Answers from a cache that takes long to load. Whoever comes next loads it before it leads.
--   lunarch run --lock URL examples/warm_cache.lua -- DIRECTORY PROGRAM [ARG...]
-- PROGRAM prints a line "KEY VALUE" for each entry. A client writes DIRECTORY/KEY.ask and finds DIRECTORY/KEY.answer.
-- on_next only reads: it has no token, and another leads meanwhile. What may have changed until the term begins is
-- loaded again every minute.
local directory = ...
local program = { select(2, ...) }
assert(directory and #program > 0, "usage: lunarch run warm_cache.lua -- DIRECTORY PROGRAM [ARG...]")

local function load_cache()
  local result, err = exec(program)
  if not (result and result.ok) then error(err and err.message or result.stderr) end
  local cache = {}
  for key, value in result.stdout:gmatch "(%S+) ([^\n]*)\n" do cache[key] = value end
  log.info("cache_loaded", {})
  return cache
end

local function answer(cache, term)
  local list = assert(exec { "find", directory, "-maxdepth", "1", "-name", "*.ask", "-printf", "%f\n" })
  for key in list.stdout:gmatch "([^\n]+)%.ask\n" do
    if not term:is_leading() then return end
    local path = directory .. "/" .. key
    local f <close> = assert(io.open(path .. ".new", "w"))
    f:write(cache[key] or "unknown", "\n")
    f:close()
    os.remove(path .. ".ask")
    os.rename(path .. ".new", path .. ".answer")
  end
end

return {
  on_next = function(s) s.data.cache = load_cache() end,
  on_leading = function(term)
    local cache = term.warm and term.warm.cache or load_cache()
    term:every(60, function() cache = load_cache() end)
    term:every(0.05, function() answer(cache, term) end, { now = true })
  end,
}
