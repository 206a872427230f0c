-- exec's other half: pipelines, files, children in the background and their lines, signals, users.
local tap = require "tap"
local ok, equal, raises, fails = tap.ok, tap.equal, tap.raises, tap.fails

local function slurp(path)
	local f <close> = assert(io.open(path))
	return f:read "a"
end

local function files()
	local path = os.tmpname()
	exec("echo one; echo bad >&2", { stdout = { file = path }, stderr = "stdout" })
	equal(slurp(path), "one\nbad\n", "stdout to a file, and stderr where stdout goes")
	exec { "echo", "two", stdout = { file = path, append = true } }
	equal(slurp(path), "one\nbad\ntwo\n", "append")
	equal(exec { "cat", stdin = { file = path } }.stdout, "one\nbad\ntwo\n", "stdin from a file")
	exec { "echo", "three", stdout = { file = path } }
	equal(slurp(path), "three\n", "without append it begins anew")
	equal(exec("echo out; echo err >&2; echo out", { stderr = "stdout" }).stdout, "out\nerr\nout\n", "both in one, in order")
	fails("missing", "/nowhere/file", "an input that is not there", exec { "cat", stdin = { file = "/nowhere/file" } })
	fails("missing", "/nowhere/file", "an output that cannot be", exec { "cat", stdout = { file = "/nowhere/file" } })
	fails("system", "Is a directory", "or is a directory", exec { "cat", stdout = { file = "/tmp" } })
	os.remove(path)
end

local function times()
	local r = exec("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.05")
	ok(r.times.elapsed >= 0.05 and r.times.user + r.times.system > 0 and r.times.user + r.times.system < r.times.elapsed + 1,
		"times: how long it took, and of which processor")
end

local function pipelines()
	local r = exec { { "printf", "b\na\nc\n" }, { "sort" }, { "head", "-n", "2" } }
	equal(r.stdout, "a\nb\n", "a list of lists is a pipeline")
	ok(r.ok and #r.stages == 3 and r.stages[2].code == 0, "which tells how each has ended")
	equal(exec({ "cat", "tr a-z A-Z", stdin = "text" }).ok, false, "a list of texts is still one program and its arguments")
	equal(exec({ { "cat" }, "tr a-z A-Z", stdin = "text" }).stdout, "TEXT", "stdin goes into the first; a stage may be a shell line")
	raises("argument 2: expected a text", "a text in the first place is a program's name", exec, { "yes", { "cat" } })
	r = exec { { "yes" }, { "head", "-n", "1" } }
	ok(r.ok and r.stages[1].signal == 13, "who writes to one that has read enough is not to blame")
	r = exec { { "sh", "-c", "echo oops >&2; exit 3" }, { "cat" } }
	ok(not r.ok and r.code == 0 and r.stages[1].code == 3 and r.stderr == "oops\n", "but any other failure is, and its stderr is there")
	r = exec { { "echo", "x" }, { "sh", "-c", "cat >&2; exit 4" } }
	ok(r.code == 4 and r.stderr == "x\n", "code is the last one's")
	fails("missing", "/nowhere/x", "a stage that is not there", exec { { "yes" }, { "/nowhere/x" }, { "cat" } })
	local before = time.monotonic()
	local nothing, err
	local within = 0.1
	repeat -- on a busy machine it may not have begun by then
		nothing, err = exec { { "sh", "-c", "trap '' PIPE TERM; echo begun; sleep 100" }, { "cat" }, timeout = within, kill_after = 0.1 }
		within = within * 2
	until nothing or err.result.stdout == "begun\n" or within > 20
	fails("timeout", "sh | cat", "a time limit is for all of it", nothing, err)
	ok(err.result.stdout == "begun\n" and time.monotonic() - before < 60, "with what there was")
	equal(exec { { "sh", "-c", "echo $A$B", env = { A = 1 } }, { "sed", "s/$/$B/" }, env = { B = 2 } }.stdout, "1$B\n",
		"options of a stage, or of all")
	local path = os.tmpname()
	exec { { "echo", "to the file" }, { "cat" }, stdout = { file = path } }
	equal(slurp(path), "to the file\n", "stdout is the last one's")
	os.remove(path)
	raises("unknown option 'stdout'", "a stage has no stdout of its own", exec, { { "a", stdout = "null" }, { "b" } })
	raises("program 2 of the pipeline", "a stage is a list or a text", exec, { { "a" }, 5 })
	raises("expected a list", "an empty stage", exec, { { "a" }, {} })
	raises("children.lua:", "named with the script's line", function() exec { { "a" }, {} } end)
end

local function background()
	local child = exec { "sh", "-c", "read x; echo $x; exit 5", stdin = "hello\n", background = true }
	ok(child.pid > 0 and tostring(child):find "job", "background = true returns a child at once")
	local r = child:wait()
	ok(r.code == 5 and r.stdout == "hello\n" and not child:running() and child.pid == nil, "wait gives its result")
	equal(child:wait(), r, "and again")
	equal(child:kill(), false, "kill says that it was gone")
	child = exec { "sleep", "100", background = true }
	ok(child:running(), "running")
	fails("timeout", "goes on", "wait with a time limit does not end it", child:wait(0.01))
	equal(child:kill(), true, "kill does")
	equal(child:wait().signal, 15, "by SIGTERM")
	child = exec("trap '' TERM; echo ready; while :; do sleep 0.01; done", { background = true, kill_after = 0.05 })
	equal(child:lines()(), "ready", "a child that ignores SIGTERM")
	child:kill()
	equal(child:wait().signal, 9, "gets SIGKILL after kill_after")
	child = exec("trap 'echo hup; exit 0' HUP; echo ready; while :; do sleep 0.01; done", { background = true })
	local next_line = child:lines()
	next_line()
	child:kill "HUP"
	equal(next_line(), "hup", "kill sends any signal, by its name")
	child:kill(9)
	child:wait()
	fails("missing", "/nowhere/x", "one that cannot start", exec { "/nowhere/x", background = true })
	fails("timeout", "was stopped", "its own time limit", exec({ "sleep", "100", background = true, timeout = 0.05 }):wait())
	do
		local closed <close> = exec { "sleep", "100", background = true }
		child = closed
	end
	equal(child:wait().signal, 15, "<close> stops it")
	local waiters, woken = {}, 0
	child = exec { "sleep", "0.05", background = true }
	for i = 1, 5 do
		waiters[i] = spawn(function()
			local result = child:wait()
			woken = woken + (result.ok and 1 or 0)
		end)
	end
	for _, each in ipairs(waiters) do
		each:wait()
	end
	equal(woken, 5, "several tasks may wait for it")
	child = exec { "echo", "x", background = true }
	child = nil -- luacheck: ignore
	collectgarbage()
	sleep(0.05)
	ok(true, "nobody has to wait")
	raises("no signal FOO", "a signal that there is not", function() exec({ "sleep", "1", background = true }):kill "FOO" end)
	raises("no 'kil'", "a method that there is not", function() exec({ "true", background = true }):kil() end)
end

local function lines()
	local n, sum = 0, 0
	for line in exec({ "seq", tap.many(20000), background = true }):lines() do
		n, sum = n + 1, sum + tonumber(line)
	end
	equal(n, tap.many(20000), "every line, one at a time")
	equal(sum, n * (n + 1) // 2, "and right")
	local child = exec("printf 'a\\n\\nb\\0c\\nlast'", { background = true })
	local got = {}
	for line in child:lines() do
		got[#got + 1] = ("%q"):format(line)
	end
	equal(table.concat(got, ","), '"a","","b\\0c","last"', "empty lines, zeros, a last one without its end")
	ok(child:wait().ok and child:wait().stdout == "", "what lines took is not in the result")
	child = exec("echo e1 >&2; echo o1; echo e2 >&2", { background = true })
	got = {}
	for line in child:lines "stderr" do
		got[#got + 1] = line
	end
	equal(table.concat(got, ",") .. child:wait().stdout, "e1,e2o1\n", "stderr by line, stdout captured")
	child = exec("yes 0123456789", { background = true, max_output = 5000 })
	n = 0
	local many = tap.many(50000)
	for line in child:lines() do
		n = n + 1
		if n % 1000 == 0 then
			sleep(0.001)
		end
		if line ~= "0123456789" or n == many then
			break
		end
	end
	equal(n, many, "a child that writes without end waits for its reader, and nothing is lost")
	child:kill()
	equal(child:wait().signal, 15, "after break it can be stopped")
	child = exec("yes | head -c 300000; echo done >&2", { background = true, max_output = 1000 })
	sleep(0.02)
	ok(child:running(), "unread output holds it up")
	local r = child:wait(60)
	ok(r.ok and #r.stdout == 1000 and r.truncated, "until somebody waits for its end: then it is dropped")
	child = exec("head -c 10000 /dev/zero", { background = true, max_output = 4096 })
	n, sum = 0, 0
	for piece in child:lines() do
		n, sum = n + 1, sum + #piece
	end
	ok(sum == 10000 and n > 1, "a line longer than max_output comes in pieces")
	n = 0
	for _ in exec({ { "seq", "100" }, { "grep", "1" }, background = true }):lines() do
		n = n + 1
	end
	equal(n, 20, "lines of a pipeline")
	raises("not captured", "lines of what goes elsewhere", function() exec({ "true", stdout = "null", background = true }):lines() end)
	raises('"stdout" or "stderr"', "lines of what is no output", function() exec({ "true", background = true }):lines "stdin" end)
	local task = spawn(function() for _ in exec({ "sleep", "100", background = true }):lines() do end end) -- luacheck: ignore
	sleep(0.01)
	task:cancel()
	fails("cancelled", "", "a task that waits for a line can be cancelled", task:wait())
end

local function users()
	local id = exec({ "id", "-u" }).stdout:match "%d+"
	fails("missing", "no user nobody-of-that-name", "a user that there is not", exec { "true", user = "nobody-of-that-name" })
	if id ~= "0" then
		fails("denied", "as the user root", "another user, without the right to", exec { "true", user = "root" })
		equal(exec { "id", "-u", user = tonumber(id) }.stdout, id .. "\n", "oneself is possible")
		return
	end
	local r = exec("id -un; id -gn; id -Gn; echo $HOME $USER $LOGNAME; umask", { user = "nobody", cwd = "/" })
	equal(r.stdout:match "(.-)\n%d+\n$", "nobody\nnogroup\nnogroup\n/nonexistent nobody nobody", "user: its groups, HOME, USER and LOGNAME")
	equal(exec { "id", "-un", user = 65534 }.stdout, "nobody\n", "by number")
	equal(exec({ "sh", "-c", "echo $USER", user = "nobody", env = { USER = "me" } }).stdout, "me\n", "env has the last word")
	fails("missing", "/nowhere/x", "a program that is not there", exec { "/nowhere/x", user = "nobody" })
	fails("denied", "cannot start ls in /root", "a directory that user may not enter", exec { "ls", cwd = "/root", user = "nobody" })
	equal(exec({ { "echo", "x" }, { "sh", "-c", "cat; id -un", user = "nobody" } }).stdout, "x\nnobody\n", "one stage of a pipeline")
	local nothing, err = exec { "sleep", "100", user = "nobody", timeout = 0.1 }
	fails("timeout", "", "and it is stopped like any other", nothing, err)
	equal(err.result.signal, 15, "by its signal")
	ok(exec({ "sh", "-c", "kill -PIPE $$", user = "nobody" }).signal == 13, "signals have their defaults")
end

local function misuse()
	raises('or { file = "path" }', "an output that is no word", exec, { "true", stdout = "nul" })
	raises('a text, or { file = "path" }', "an input that is nothing", exec, { "true", stdin = 5 })
	raises("unknown option 'fil'", "a file by another name", exec, { "true", stdout = { file = "x", fil = 1 } })
	raises("user's name or number", "an empty user", exec, { "true", user = "" })
	raises("expected a number of seconds", "child:wait of a text", function() exec({ "true", background = true }):wait "x" end)
end

return tap.election { files, times, pipelines, background, lines, users, misuse }
