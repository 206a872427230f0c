---@meta lunarch.shards
-- luacheck: ignore

---Many shards, each an election, shared out evenly among the candidates that are up.
---@class lunarch.shards
local shards = {}

---@class lunarch.Shards
---@field count integer how many: they have the numbers from 1 on
---@field on_leading fun(term: lunarch.Term, shard: integer): boolean?, string?
---@field on_stopping? fun(term: lunarch.Term, reason: string, shard: integer) before it moves: the term still leads
---@field on_stopped? fun(term: lunarch.Term, reason: lunarch.Reason, shard: integer)
---@field may_lead? fun(shard: integer): boolean?, string?
---@field lock? string as "etcd://h/jobs/{name}": {name} is shard-1 and so on, and candidate-1 and so on
---@field candidates? integer so many share the work, the others wait until one of them leaves (16)
---@field patience? number seconds: a shard that nobody has led for so long is taken by anybody (15)
---@field identity? string as of an election, as the following
---@field address? string|fun(): string
---@field lease_duration? number
---@field renew_deadline? number
---@field retry_period? number
---@field stop_grace? number
---@field shutdown_grace? number
---@field may_lead_timeout? number
---@field reclaim? boolean
---@field max_term? number

---The elections of a script, for it to return.
---@param options lunarch.Shards
---@return lunarch.Election[]
function shards.elections(options) end

---@class lunarch.ShardCandidate
---@field identity string
---@field address string
---@field slot integer
---@field is_self boolean

---Who shares the work now, as far as is known here.
---@return lunarch.ShardCandidate[]
function shards.candidates() end

---The shard of a key: the same in all versions.
---@param key string
---@param count integer how many shards there are
---@return integer shard from 1 on
function shards.of(key, count) end

return shards
