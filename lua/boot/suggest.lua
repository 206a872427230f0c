-- suggest(word, candidates): " (did you mean 'NEAR'?)" and NEAR, or "" if no candidate is near. candidates: a set, its keys are
-- the words.

-- How many edits lead from a to b: a character is added, removed or replaced, or two neighbours are swapped. Exact up to `most`.
local function distance(a, b, most)
	if math.abs(#a - #b) > most then
		return most + 1
	end
	local before, row = {}, {}
	for j = 0, #b do
		row[j] = j
	end
	for i = 1, #a do
		local older = before
		before, row = row, { [0] = i }
		for j = 1, #b do
			local same = a:byte(i) == b:byte(j)
			row[j] = math.min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (same and 0 or 1))
			if i > 1 and j > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j) then
				row[j] = math.min(row[j], older[j - 2] + 1)
			end
		end
	end
	return row[#b]
end

local function nearest(word, candidates)
	local most = math.min(3, #word // 3)
	local best, best_distance
	for candidate in pairs(candidates) do
		if type(candidate) == "string" and candidate ~= word then
			local d = distance(word:lower(), candidate:lower(), most)
			local nearer = d <= most and (not best or d < best_distance)
			if nearer or (best and d == best_distance and candidate < best) then
				best, best_distance = candidate, d
			end
		end
	end
	return best
end

return function(word, candidates)
	local near = nearest(word, candidates)
	return near and (" (did you mean '%s'?)"):format(near) or "", near
end
