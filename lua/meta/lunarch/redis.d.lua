---@meta lunarch.redis
-- luacheck: ignore

---Commands to a Redis server, through redis-cli(1), and writes that the server refuses to a former leader. Over TLS redis-cli
---verifies that the authority signed the server's certificate, and not for which name.
---@class lunarch.redis
local redis = {}

---@class lunarch.RedisOptions
---@field timeout? number seconds for each command (5)
---@field user? string
---@field password? string else what the URL says, or the environment (REDISCLI_AUTH)
---@field ca? string for rediss://: a file of certificate authorities; else the URL's ?ca=
---@field cert? string the client's certificate, where the server asks for one; else the URL's ?cert=
---@field key? string its key; else the URL's ?key=
---@field sentinel_password? string the Sentinels' own; its user is the URL's ?sentinel_username=
---@field fence? string the key that holds the largest token ("lunarch:fence"); not of redis.beside

---A server. Nothing is sent yet. Of several hosts, the first that can be reached and is no replica is asked; where they are
---Sentinels, the server that more than half of them name when a command is sent.
---@param url string as "redis://HOST:PORT/DB" or "redis+sentinel://S1,S2,S3/MASTER/DB"
---@param options? lunarch.RedisOptions
---@return lunarch.Store
function redis.connect(url, options) end

---The server of the term's own lock, fenced by the lock's counter: as soon as another leader is elected, it refuses.
---@param term lunarch.Term its lock is redis://..., rediss://... or redis+sentinel://...
---@param options? lunarch.RedisOptions
---@return lunarch.Store
function redis.beside(term, options) end

---A Redis server. Values are texts in UTF-8, numbers, lists, tables; nil is json.null.
---@class lunarch.Store
local Store = {}

---Sends a command.
---@param ... string|number as "LPUSH", "list", 1
---@return any? value
---@return lunarch.Error? err "failed": the server refused; "unreachable": it was not sent; else it may have been done
function Store:call(...) end

---Sends a command that is done only if no larger token than the term's has been seen.
---@param term lunarch.Term
---@param ... string|number as "SET", "key", "value"
---@return any? value
---@return lunarch.Error? err "fenced": there is a newer leader, and nothing was done
function Store:fenced(term, ...) end

---Runs a script on the server, in the same step as the check of the token.
---@param term lunarch.Term
---@param script string Lua; sees KEYS and ARGV
---@param keys string[]
---@param ... string|number
---@return any? value
---@return lunarch.Error? err "fenced"
function Store:fenced_eval(term, script, keys, ...) end

return redis
