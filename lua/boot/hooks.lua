-- The names of the hooks, in one place: `names` is the list, `set` has them as keys.
-- `lunarch check` shows them in this order. An election is reported with the line of its first hook.

local names = {
	"on_leading", "on_start", "on_stopping", "on_stopped", "may_lead", "on_next", "on_next_over", "on_new_leader", "on_no_leader",
}

local set = {}
for _, name in ipairs(names) do
	set[name] = true
end

return { names = names, set = set }
