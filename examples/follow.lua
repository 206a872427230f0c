-- Follows another election, and campaigns in none: whenever another one leads there, or nobody does, a file says where. What reads that
-- file needs no library of the store. The election's lock is OTHER_LOCK.
--
--   OTHER_LOCK=etcd://10.0.0.5/app/db lunarch run follow.lua --lock follow-db

local lock = require "lunarch.lock"
local files = require "lunarch.files"

local other = assert(lock.open(os.getenv "OTHER_LOCK" or "db"))
local place = os.getenv "LEADER_FILE" or "/run/leader"

return {
  on_leading = function()
    for state in other:watch() do
      log.info("the other election", { state = state.state, leader = state.leader, address = state.address })
      if state.state == "leading" and state.address then
        assert(files.write(place, state.address .. "\n"))
      elseif state.state ~= "unreadable" then -- a store that is away for a moment says nothing of the leader
        assert(files.write(place, "\n"))
      end
    end
  end,
}
