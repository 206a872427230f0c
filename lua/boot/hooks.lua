-- The names of the hooks, in one place: `names` is the list, `set` has them as keys.
-- An election is reported with the line of its first hook in this order.

local names = { "on_leading", "on_new_leader", "on_no_leader", "on_start", "on_stopped", "may_lead" }

local set = {}
for _, name in ipairs(names) do
	set[name] = true
end

return { names = names, set = set }
