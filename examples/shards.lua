-- One leader for each of many shards, shared out evenly among however many candidates there are.
--   lunarch run --lock '/var/lib/shards/{name}' examples/shards.lua -- SHARDS PROGRAM [ARGUMENTS]
-- A shard's leader keeps `PROGRAM ARGUMENTS SHARD` running.
local shards = require "lunarch.shards"
local count, command = math.tointeger((...)), { select(2, ...) }
assert(count and command[1], "usage: lunarch run --lock '.../{name}' shards.lua -- SHARDS PROGRAM [ARGUMENTS]")

return shards.elections {
  count = count,
  on_leading = function(_, shard)
    local program = { stdout = "inherit", stderr = "inherit", table.unpack(command) }
    program[#program + 1] = tostring(shard)
    while assert(exec(program)) do sleep(1) end
  end,
}
