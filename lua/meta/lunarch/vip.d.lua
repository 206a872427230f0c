---@meta lunarch.vip
-- luacheck: ignore

---An IP address that the leader has. Needs root or CAP_NET_ADMIN and CAP_NET_RAW, ip(8), and for IPv4 arping(8) of iputils.
---@class lunarch.vip
local vip = {}

---@class lunarch.VipOptions
---@field announcements? integer how often the neighbours are told, once a second (3); IPv4 only, the kernel does it for IPv6
---@field timeout? number seconds for each program that is run (5)

---The address of a device, for take and release. Changes nothing yet.
---@param address string as "192.0.2.10/24" or "2001:db8::10/64"; without a prefix length: /32, /128
---@param device string as "eth0"
---@param options? lunarch.VipOptions
---@return lunarch.Address
function vip.new(address, device, options) end

---What vip.new returns. As a <close> variable it is released at the end of the block or of the term.
---@class lunarch.Address
local Address = {}

---Adds the address to the device, if it is not there, and tells the neighbours. A task of the calling scope sends the later announcements.
---@return lunarch.Address? self
---@return lunarch.Error? err "denied": no rights; "missing": no such device or program
function Address:take() end

---Removes the address; does nothing if it is not there.
---@return true? released
---@return lunarch.Error? err
function Address:release() end

---Whether the device has the address.
---@return boolean?
---@return lunarch.Error? err
function Address:is_here() end

---Whether the device is up and its cable in.
---@return boolean?
---@return lunarch.Error? err
function Address:has_link() end

return vip
