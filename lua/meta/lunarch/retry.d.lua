---@meta lunarch.retry
-- luacheck: ignore

---Calls a function again when it fails, with growing pauses. It ends with the term, as every wait does.
---@class lunarch.retry
local retry = {}

---@class lunarch.RetryOptions
---@field tries? integer calls at most (5; with a timeout as many as fit into it)
---@field timeout? number seconds for all of it; a call that is under way then is cancelled
---@field pause? number seconds after the first failure (0.2), twice as long after each further one
---@field pause_max? number seconds, the longest (30)
---@field jitter? number the part of each pause that is left to chance, 0 to 1 (0.5)
---@field errors? string[]|fun(err: any): boolean only these errors are worth another call: their codes, or a function that is asked. Default: all but "invalid" and "ended"
---@field raised? boolean errors that the function raises count as failures, too; else they go on to the caller
---@field on_failure? fun(err: any, try: integer, pause: number) called before each pause

---Calls f, and again while it fails: while its first result is nil or false. A function that returns nothing at all has succeeded.
---@param f fun(try: integer): ... gets the number of the call
---@param options? lunarch.RetryOptions
---@return any ... what the last call returned; `nil, err` if none has succeeded
function retry.call(f, options) end

return retry
