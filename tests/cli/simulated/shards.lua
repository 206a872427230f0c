local shards = require "lunarch.shards"
local kind, count = ...
return shards.elections {
  count = tonumber(count) or 10,
  may_lead = function() return kind ~= "idle", "it is idle" end,
  on_leading = function(_, shard)
    print("+ " .. shard)
    print("of " .. table.concat({ shards.of("", 64), shards.of("a", 64), shards.of("user-4711", 64), shards.of("käse", 1000) }, " "))
    exec { "work", tostring(shard) }
  end,
  on_stopped = function(_, _, shard) print("- " .. shard) end,
}
