-- lunarch.metrics: gauges and counters of a script's own, on /metrics beside Lunarch's.

local use = ...
local labels_text = use "labels"

local LONGEST <const> = 100

local function wrong_name(name, counter)
	if type(name) ~= "string" or not name:find "^[%a_][%w_]*$" or name:find "^__" or #name > LONGEST then
		return ("'%s' is no name of a metric: 1 to %d letters, digits and '_', not '__' or a digit first"):format(tostring(name), LONGEST)
	elseif name:find "^lunarch_" or name:find "^leader_election_" then
		return ("'%s': names that begin with lunarch_ and leader_election_ are Lunarch's own"):format(name)
	elseif counter and not name:find "_total$" then
		return ("a counter's name ends in _total: '%s_total'"):format(name)
	elseif not counter and name:find "_total$" then
		return ("'%s': only a counter's name ends in _total"):format(name)
	end
end

local function finite(value)
	return type(value) == "number" and value == value and math.abs(value) ~= math.huge
end

return function(natives)
	local metrics = {}

	local function set(what, counter, name, value, labels)
		local wrong = wrong_name(name, counter)
		if not wrong and (not finite(value) or counter and value < 0) then
			wrong = ("expected a finite number%s, found %s"):format(counter and ", 0 or more" or "", tostring(value))
		end
		local text
		if not wrong then
			text, wrong = labels_text(labels)
		end
		if wrong then
			error(what .. ": " .. wrong, 3)
		end
		natives.metric(counter, name, text, value)
	end

	function metrics.gauge(name, value, labels)
		set("metrics.gauge", false, name, value, labels)
	end

	function metrics.counter(name, by, labels)
		set("metrics.counter", true, name, by == nil and 1 or by, labels)
	end

	return metrics
end
