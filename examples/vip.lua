-- A virtual IP address that is on the leader, and moves to a machine whose network works when the leader's does not.
--   lunarch run --lock URL examples/vip.lua -- ADDRESS[/PREFIX] DEVICE
-- As root on every machine. Clients of the local network notice nothing but a pause: the new leader tells them where the address is now.
local vip = require "lunarch.vip"

local address, device = ...
assert(address and device, "usage: lunarch run --lock URL vip.lua -- ADDRESS[/PREFIX] DEVICE")
local shared = vip.new(address, device)

return {
  on_start = function() assert(shared:release()) end, -- what a crash has left here

  may_lead = function() return shared:has_link(), "the cable of " .. device .. " is out" end,

  on_leading = function(term)
    assert(shared:take())
    log.info("address_taken", { address = address, device = device, token = term.token })
    term:every(1, function()
      if not shared:has_link() then term:resign(10) end -- and do not campaign for so long: another machine may have a link
    end)
  end,

  on_stopped = function() assert(shared:release()) end,
}
