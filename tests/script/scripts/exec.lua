-- exec: arguments, results, output, time limits, and what it refuses.
local tap = require "tap"
local ok, equal, raises, fails = tap.ok, tap.equal, tap.raises, tap.fails

local function results()
	local r = exec { "printf", "%s|", "a b", "$HOME", 5 }
	equal(r.stdout, "a b|$HOME|5|", "a list is passed as it is, without a shell")
	ok(r.ok and r.code == 0 and r.signal == nil and r.stderr == "", "and its end is told")
	r = exec("echo out; echo err >&2; exit 3")
	equal(r.stdout .. r.stderr, "out\nerr\n", "a text is a shell line; both outputs are collected")
	ok(not r.ok and r.code == 3, "a status other than 0 is a result, not an error")
	r = exec("kill -9 $$")
	ok(not r.ok and r.signal == 9 and r.code == nil, "so is a death by a signal")
	fails("missing", "/nowhere/program", "a program that is not there", exec { "/nowhere/program" })
	fails("denied", "/etc/passwd", "a program that cannot be run", exec { "/etc/passwd" })
	fails("missing", "/nowhere", "a directory that is not there", exec { "true", cwd = "/nowhere" })
end

local function options()
	equal(exec { "pwd", cwd = "/" }.stdout, "/\n", "cwd")
	equal(exec { "cat", stdin = "text\0with zero" }.stdout, "text\0with zero", "stdin is given whole")
	equal(exec { "cat" }.stdout, "", "without it, it is empty")
	equal(#exec { "cat", stdin = ("x"):rep(300000) }.stdout, 300000, "more than a pipe holds, both ways")
	equal(exec { "sh", "-c", "echo $A:$B:${PATH:+path}", env = { A = "1", B = 2 } }.stdout, "1:2:path\n", "env adds")
	equal(exec { "sh", "-c", "echo ${HOME-none}", env = { HOME = false } }.stdout, "none\n", "env takes away")
	local whole = exec("{ sleep 0.2; echo late; } & echo early", { until_closed = true })
	ok(whole.ok and whole.stdout == "early\nlate\n", "until_closed: what goes on in the background is waited for")
	local none, stopped = exec("setsid sleep 1000 &", { until_closed = true, timeout = 0.3 })
	ok(not none and stopped.code == "timeout", "and stopped by the timeout, in a session of its own, too")
	local r = exec("yes | head -c 3000000", { max_output = 1000 })
	ok(r.ok and #r.stdout == 1000 and r.truncated, "output beyond max_output is dropped, and told")
	r = exec("echo first; yes | head -c 3000000; echo last", { max_output = 1000, both_ends = true })
	ok(r.truncated and r.stdout:find "^first\ny\n" and r.stdout:find "\ny\nlast\n$", "both_ends: beginning and end are kept")
	equal(r.stdout:match "\n%[(%d+) bytes are left out here%]\n", "2999011", "and between them a line says how much is left out")
	equal(exec("printf 12345678", { max_output = 8, both_ends = true }).stdout, "12345678", "what fits is whole")
	r = exec("yes | head -c 3000000")
	ok(#r.stdout == 1024 * 1024 and r.truncated, "1 MB by default")
	equal(exec("echo gone", { stdout = "null" }).stdout, "", "stdout = null")
	r = exec("echo x; sleep 100 & echo y")
	equal(r.stdout, "x\ny\n", "a background process that holds the pipe does not hold us")
end

-- What a command that prints "begun" comes to at its time limit. On a busy machine it may not have begun by then: once more, with
-- twice the time.
local function limited(command, within, options)
	local r, err
	repeat
		options.timeout = within
		r, err = exec(command, options)
		within = within * 2
	until r or err.result.stdout == "begun\n" or within > 40
	return r, err
end

local function limits()
	local start = time.monotonic()
	local r, err = limited("echo begun; sleep 100; echo done", 0.1, {})
	fails("timeout", "in time", "a time limit", r, err)
	equal(err.result.stdout, "begun\n", "what was written until then is in the error")
	equal(err.result.signal, 15, "it got SIGTERM")
	r, err = limited("trap '' TERM; echo begun; while :; do sleep 0.01; done", 0.2, { kill_after = 0.1 })
	fails("timeout", "", "one that ignores SIGTERM", r, err)
	equal(err.result.signal, 9, "is killed")
	ok(time.monotonic() - start < 60, "and all that took no hundred seconds")
	local task = spawn(exec, { "sleep", "100" })
	sleep(0.01)
	task:cancel()
	fails("cancelled", "", "a task that waits for a child can be cancelled", task:wait())
	local children = {}
	for i = 1, tap.many(100) do
		children[i] = spawn(exec, { "sh", "-c", "echo " .. i })
	end
	local right = 0
	for i, each in ipairs(children) do
		right = right + (each:wait().stdout == i .. "\n" and 1 or 0)
	end
	equal(right, #children, "many at a time, each with its own output")
	equal(coroutine.wrap(function() return exec("echo in").stdout end)(), "in\n", "inside a coroutine")
end

local function surroundings(term)
	local mark = exec("echo $LUNARCH_TERM $LUNARCH_TOKEN $LUNARCH_TERM_LOCK $LUNARCH_TERM_IDENTITY $LUNARCH_TERM_ADDRESS")
	equal(mark.stdout, "0.1 100 file:lock0 me_0 host:1\n", "children know the term and the token")
	equal(os.getenv "LUNARCH_TOKEN", "100", "so does os.getenv")
	equal(math.tointeger(os.getenv "LUNARCH_TOKEN"), term.token, "and it is the term's")
	local popen = io.popen "echo $LUNARCH_TOKEN"
	equal(popen:read "l", "100", "and what io.popen starts")
	popen:close()
	local _, how, code = os.execute "test $LUNARCH_TOKEN = 100; exit 7"
	equal(how .. code, "exit7", "and os.execute, whose status comes through")
	local handle = io.popen "exit 5"
	equal(select(3, handle:close()), 5, "and io.popen's too: nobody reaps its child")
	ok(exec("cut -d' ' -f5 /proc/$$/stat; echo $$").stdout:match "^(%d+)\n%1\n", "a child has a process group of its own")
	equal(exec("ls /proc/self/fd | wc -l").stdout, "4\n", "and no descriptor of ours (the fourth is the directory)")
end

local function misuse()
	raises("did you mean 'timeout'", "unknown options", exec, { "true", timout = 1 })
	raises("expected a number of seconds", "wrong types", exec, { "true", timeout = "5" })
	raises('expected one of "capture", "inherit", "null"', "wrong words", exec, { "true", stdout = "nul" })
	raises("expected a list", "no program", exec, {})
	raises("expected a list", "an empty name", exec, { "" })
	raises("expected a list", "a hole", exec, { "a", nil, "c" })
	raises("exec{", "arguments outside a list", exec, "ls", "-l")
	raises("exec{", "nothing", exec)
	raises("argument 2", "an argument that is no text", exec, { "echo", {} })
	raises("zero byte", "a zero byte in an argument", exec, { "echo", "a\0b" })
	raises("no name", "a bad name in env", exec, { "true", env = { ["A=B"] = "1" } })
	raises("exec.lua:", "and it names the script's line", function() exec { "true", cwd = 5 } end)
	raises("cannot wait here", "where Lua cannot yield", function()
		table.sort({ 3, 2, 1 }, function() exec { "true" } end)
	end)
end

return tap.election { results, options, limits, surroundings, misuse }
