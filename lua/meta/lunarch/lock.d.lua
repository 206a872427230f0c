---@meta lunarch.lock
-- luacheck: ignore

---What the record of another election's lock says: who leads, since when, and each change. Nothing here writes, and nobody campaigns.
---Passwords and certificates are those of `--lock`: in the URL, or where the kind of lock looks for them, but for
---LUNARCH_LOCK_PASSWORD, which a script does not see: say `?password_file=`.
---@class lunarch.lock
local lock = {}

---@class lunarch.LockOptions
---@field timeout? number seconds for each look at the store (5)
---@field state_dir? string where a lock that is a plain name is, if it is not the user's own directory (`--state-dir`)

---A record, as `lunarch status` shows it.
---@class lunarch.LockState
---@field lock string its URL, without secrets
---@field state string "leading"; "fencing": its holder fences earlier ones before its term begins; "overdue": its leader has not renewed for its lease; "released"; "absent": there is no record; "no lock": the record of who comes next; "unreadable": only of watch, see error
---@field leader? string the leader's identity
---@field address? string what it publishes
---@field token? integer
---@field term? integer
---@field acquired? number seconds since 1970, by the leader's clock
---@field renewed? number
---@field lease_duration? number seconds
---@field transitions? integer changes of leader
---@field previous_leader? string
---@field released_by_force? string
---@field next? table who comes next: identity, address, priority
---@field verified? string "renews" or "silent": what was seen by watching, whatever clocks say
---@field error? lunarch.Error why it cannot be read

---A past term, or the one that lasts.
---@class lunarch.LockTerm
---@field leader string
---@field token? integer
---@field from? number seconds since 1970
---@field to? number
---@field lasted? number seconds
---@field gap? number seconds without a leader before it
---@field reason? string why it ended
---@field lasts boolean

---A lock. Nothing is sent yet.
---@param url string as for `--lock`
---@param options? lunarch.LockOptions
---@return lunarch.Lock? lock
---@return lunarch.Error? err "invalid": the URL
function lock.open(url, options) end

---The elections whose locks begin so, as `lunarch list` finds them.
---@param url string the beginning of a URL, as "etcd://10.0.0.5/app/"
---@param options? lunarch.LockOptions
---@return lunarch.LockState[]? elections
---@return lunarch.Error? err with a list: why the first of those that could not be read was refused
function lock.list(url, options) end

---What lock.open returns.
---@class lunarch.Lock
local Lock = {}

---What the record says now.
---@return lunarch.LockState? state
---@return lunarch.Error? err "unreachable", "timeout", "denied"; "invalid": it is no record
function Lock:read() end

---The last terms, the oldest first.
---@return lunarch.LockTerm[]? terms
---@return lunarch.Error? err as of read
function Lock:history() end

---For a loop, `for state in lock:watch() do`: what is there now, then a state whenever the leader, its address, its token or the state is another one; a renewal is none. It never ends by itself: with its task, or by `break`.
---@return fun(): lunarch.LockState
function Lock:watch() end

return lock
