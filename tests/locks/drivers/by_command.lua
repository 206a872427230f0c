-- A lock in a hash of Redis, by redis-cli(1): an example of a store that is not asked through http.
local redis = require "lunarch.redis"
local hash = require "lunarch.hash"

local SWAP <const> = "if (redis.call('HGET', KEYS[1], 'version') or '') ~= ARGV[1] then return 'conflict' end "
local WRITE <const> = SWAP .. "local v = redis.call('INCR', 'versions') redis.call('HSET', KEYS[1], 'version', v, 'text', ARGV[2]) return 'v' .. v"
local REMOVE <const> = SWAP .. "return redis.call('DEL', KEYS[1]) == 1 and 'ok' or 'absent'"

return {
	options = { host = "text" },

	open = function(place)
		return place.options.host
	end,

	read = function(host, key, op)
		local found, err = redis.connect("redis://" .. host, { timeout = op.timeout }):call("HMGET", "k" .. key, "version", "text")
		if err then
			return "failed", err
		elseif found[1] == lunarch.json.null then
			return "absent"
		end
		return "ok", hash.unbase64(found[2]), found[1]
	end,

	write = function(host, key, text, op)
		local store = redis.connect("redis://" .. host, { timeout = op.timeout })
		local answer, err = store:call("EVAL", WRITE, 1, "k" .. key, op.expected, hash.base64(text))
		if not answer then
			return "unknown", err
		elseif answer == "conflict" then
			return "conflict"
		end
		return "ok", answer:sub(2)
	end,

	remove = function(host, key, op)
		local answer, err = redis.connect("redis://" .. host, { timeout = op.timeout }):call("EVAL", REMOVE, 1, "k" .. key, op.expected)
		return answer or "unknown", err
	end,
}
