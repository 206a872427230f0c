-- Rotated, checksummed tar backups of a directory, made by whoever leads.
--   lunarch run examples/backup.lua -- SOURCE TARGET [SECONDS] [KEEP]
-- The token is in each file's name: it grows with every term, so a backup of an older leader can never pass for a newer
-- one, and a file that exists is never written again.
local source, target = ...
local seconds, keep = tonumber((select(3, ...))) or 60, math.tointeger(tonumber((select(4, ...))) or 7)
assert(source and target, "usage: lunarch run backup.lua -- SOURCE TARGET [SECONDS] [KEEP]")

local function run(...)
  local result, err = exec { ... }
  if not result then return nil, err.message end
  if not result.ok then return nil, result.stderr end
  return result.stdout
end

-- Names sort by token, then by number: the oldest come first.
local function rotate()
  local list = assert(run("find", target, "-name", "backup-*.tar.gz"))
  local names = {}
  for name in list:gmatch("[^\n]+") do names[#names + 1] = name end
  table.sort(names)
  for i = 1, #names - keep do
    os.remove(names[i])
    os.remove(names[i] .. ".sha256")
  end
end

local function backup(term, number)
  local name = ("%s/backup-%020d-%06d.tar.gz"):format(target, term.token, number)
  local part = name .. ".part"
  assert(run("tar", "-czf", part, "-C", source, "."))
  local sum = assert(run("sha256sum", part)):match("^%x+")
  if not term:is_leading() then return end -- too late: the next leader makes its own
  local f = assert(io.open(name .. ".sha256", "w"))
  assert(f:write(sum, "  ", name:match("[^/]+$"), "\n"))
  assert(f:close())
  assert(os.rename(part, name)) -- last: an archive that is there is whole, and has its checksum
  log.info("backup", { file = name, token = term.token })
  rotate()
end

return {
  on_start = function() assert(run("mkdir", "-p", target)) end,
  on_leading = function(term)
    local number = 0
    term:every(seconds, function()
      number = number + 1
      backup(term, number)
    end, { now = true })
  end,
  on_stopped = function(term) -- what was being written when the term ended; never what the next leader writes already
    run("find", target, "-name", ("backup-%020d-*.part"):format(term.token), "-delete")
  end,
}
