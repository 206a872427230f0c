-- Compacts a log of changes: of all lines "KEY VALUE" the last of each key is kept; a KEY alone deletes it.
--   lunarch run --lock URL examples/compact.lua -- DIRECTORY [SECONDS]
-- Writers rename what they have finished to DIRECTORY/NUMBER.log or NUMBER.log.gz, with growing numbers of eight digits. The leader streams it, a line at
-- a time, into DIRECTORY/state, and removes it. The first line of the state says how far it has come, and it is replaced as a whole, so that a crash
-- at any point loses nothing and does nothing twice; its token guard keeps out a leader that was frozen.
local files = require "lunarch.files"
local directory, seconds = ...
seconds = tonumber(seconds) or 60
assert(directory, "usage: lunarch run compact.lua -- DIRECTORY [SECONDS]")
local path = directory .. "/state"

local function read_state()
  local text, err = files.read(path)
  if not text and err.code ~= "missing" then error(err.message) end
  local values, last = {}, "00000000"
  for key, value in (text or ""):gmatch "([^ \n]+) ([^\n]*)\n" do
    if key == "#" then last = value else values[key] = value end
  end
  return values, last
end

local function write_state(term, values, last)
  local lines = {}
  for key, value in pairs(values) do lines[#lines + 1] = key .. " " .. value end
  table.sort(lines)
  local written, err = files.write(path, "# " .. last .. "\n" .. table.concat(lines, "\n") .. "\n", { token = term.token })
  if not written then error(err.message) end
end

local function merge(values, segment)
  local child <close> = assert(exec { "gzip", "-cdf", segment, background = true }) -- what is not compressed it passes on
  for line in child:lines() do
    local key, value = line:match "^([^ ]+) ?(.*)$"
    if key then values[key] = value ~= "" and value or nil end
  end
  local r = assert(child:wait())
  if not r.ok then error(segment .. ": " .. r.stderr) end -- half of it is worse than nothing: it stays for somebody to look at
end

local function compact(term)
  local list = assert(exec { "find", directory, "-maxdepth", "1", "-regex", ".*/[0-9]+\\.log\\(\\.gz\\)?" }).stdout
  local segments = {}
  for name in list:gmatch "[^\n]+" do segments[#segments + 1] = name end
  if #segments == 0 then return end
  table.sort(segments)
  local values, last = read_state()
  for _, segment in ipairs(segments) do
    local number = segment:match "(%d+)%.log[^/]*$"
    if number > last then merge(values, segment) last = number end
  end
  write_state(term, values, last)
  for _, segment in ipairs(segments) do os.remove(segment) end
  log.info("compacted", { segments = #segments, up_to = last })
end

return {
  on_leading = function(term) term:every(seconds, function() compact(term) end, { now = true }) end,
}
