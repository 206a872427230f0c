-- Sentences from inside a worker: each test script is an election whose on_leading runs them, printed as TAP on stdout.
-- Arguments: "gc" makes the collector run all the time.
local tap = { count = 0, failed = 0 }

function tap.ok(good, what, note)
	tap.count = tap.count + 1
	tap.failed = tap.failed + (good and 0 or 1)
	io.write(good and "" or "not ", "ok ", tap.count, " - ", what, "\n")
	if not good and note then
		io.write("# ", (tostring(note):gsub("\n", "\n# ")), "\n")
	end
	return good
end

function tap.equal(got, want, what)
	local same = got == want and math.type(got) == math.type(want)
	return tap.ok(same, what, ("got %s (%s), wanted %s (%s)"):format(got, math.type(got) or type(got), want,
		math.type(want) or type(want)))
end

-- f must raise an error whose text has `part` in it.
function tap.raises(part, what, f, ...)
	local good, message = pcall(f, ...)
	return tap.ok(not good and tostring(message):find(part, 1, true), what,
		good and "it did not raise" or ("raised: %s\nwanted: %s"):format(message, part))
end

-- (nil, err) with this code
function tap.fails(code, part, what, value, err)
	return tap.ok(value == nil and type(err) == "table" and err.code == code and err.message:find(part, 1, true), what,
		("got %s, %s (%s)"):format(value, err, type(err) == "table" and err.code))
end

-- How often to do something: less when every allocation costs a collection.
function tap.many(n)
	return arg[1] == "gc" and n // 100 or n
end

-- The election that runs these functions one after the other, then ends the program.
function tap.election(tests)
	for _, word in ipairs(arg) do
		if word == "gc" then
			collectgarbage("incremental", 1, 1000, 0)
		elseif word == "generational" then
			collectgarbage("generational", 1, 1)
		end
	end
	return {
		on_leading = function(term)
			for _, test in ipairs(tests) do
				local good, message = xpcall(test, debug.traceback, term)
				if not good then
					tap.ok(false, "the test runs to its end", message)
				end
			end
			io.write("1..", tap.count, "\n")
			lunarch.exit(tap.failed == 0 and 0 or 1)
		end,
	}
end

return tap
