---@meta lunarch.metrics
-- luacheck: ignore

---Gauges and counters of a script's own, on `/metrics` (`--listen`) beside Lunarch's, with the label `name` of the election whose hook or task sets
---them. At most 1,000 of an election; a wrong name, label or number raises.
---@class lunarch.metrics
local metrics = {}

---Sets a gauge. It ends with the term in which it was set; one that was set outside any term ends with the worker.
---@param name string letters, digits and '_', as "queue_length"; not ending in "_total"
---@param value number
---@param labels? table<string, string|number|boolean> at most 10
function metrics.gauge(name, value, labels) end

---Adds to a counter. It goes on from term to term and from worker to worker, as long as the elector runs.
---@param name string ends in "_total", as "jobs_done_total"
---@param by? number 0 or more (1)
---@param labels? table<string, string|number|boolean> at most 10
function metrics.counter(name, by, labels) end

return metrics
