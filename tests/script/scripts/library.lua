-- The library (lua/lunarch/) in a real worker: what needs no server.
local tap = require "tap"
local ok, equal, raises, fails = tap.ok, tap.equal, tap.raises, tap.fails
local files, retry, template = require "lunarch.files", require "lunarch.retry", require "lunarch.template"

local function requiring()
	ok(require "lunarch.retry" == retry, "a module is made once")
	raises("the library has no module 'lunarch.retyr' (did you mean 'lunarch.retry'?)", "a typo is told, with what was meant",
		function() return require "lunarch.retyr" end)
	raises("library.lua:", "with the script's line", function() return require "lunarch.retyr" end)
	raises("there are lunarch.", "what is like none of them is told with all of them", function() return require "lunarch.unheardof" end)
	raises("module 'unheard' not found", "other names are no business of the library's", function() return require "unheard" end)
end

local function retrying()
	local count = 0
	local function third_time(try)
		count = count + 1
		equal(try, count, "the function gets the number of the try")
		if count < 3 then
			return nil, "not yet"
		end
		return count, "and more"
	end
	local quick = { pause = 0.001 }
	local a, b = retry.call(third_time, quick)
	ok(a == 3 and b == "and more", "what it returns at last is returned")
	count = 0
	a, b = retry.call(third_time, { tries = 2, pause = 0.001 })
	ok(a == nil and b == "not yet" and count == 2, "so many tries, then its error")
	count = 0
	retry.call(function() count = count + 1 end, quick)
	equal(count, 1, "a function that returns nothing has succeeded")
	local function failing(code)
		return function()
			count = count + 1
			return nil, setmetatable({ code = code, message = code }, { __tostring = function() return code end })
		end
	end
	for _, case in ipairs { { "timeout", nil, 3 }, { "invalid", nil, 1 }, { "timeout", { "unreachable", "timeout" }, 3 }, { "denied", { "timeout" }, 1 },
		{ "denied", function(err) return err.code == "denied" end, 3 } } do
		count = 0
		retry.call(failing(case[1]), { tries = 3, pause = 0.001, errors = case[2] })
		equal(count, case[3], ("an error %s: %d tries"):format(case[1], case[3]))
	end
	count = 0
	raises("boom", "an error that is raised goes on to the caller", retry.call, function() count = count + 1 error "boom" end, quick)
	equal(count, 1, "at once")
	a, b = retry.call(function(try) if try < 3 then error "boom" end return try end, { raised = true, pause = 0.001 })
	equal(a, 3, "unless raised = true")
	a, b = retry.call(function() sleep(60) return true end, { timeout = 0.05 })
	fails("timeout", "with_timeout", "a call that takes too long is cancelled", a, b)
	local begin = time.monotonic()
	a = retry.call(function() return nil, "no" end, { timeout = 0.1, pause = 0.02 })
	ok(a == nil and time.monotonic() - begin < 30, "the timeout is for all of it")
	raises("unknown option 'triess' (did you mean 'tries'?)", "an unknown option", retry.call, print, { triess = 3 })
	raises("expected a whole number, 1 or more", "no tries at all", retry.call, print, { tries = 0 })
	raises("expected a function, found a nil", "no function", retry.call)
	raises("library.lua:", "the error is where it was called", function() retry.call(print, { jitter = 2 }) end)
end

local function filling()
	local function fill(text, values, escape)
		return template.render(text, values, { name = "page", escape = escape })
	end
	equal(fill("{{a}} {{ b.c }} {{list.2}}{{n}}", { a = "x", b = { c = true }, list = { 1, "two" }, n = 1.5 }), "x true two1.5", "values")
	equal(fill("a {{x}}} {% if no %}b{% else %}c{% end %}", { x = "{{y}}" }), "a {{y}}} c", "what a value says is not read again")
	equal(fill("{% for h in hosts %}\n  server {{h.name}}:{{h.port}};\n  {% end %}\nend\n", { hosts = { { name = "a", port = 1 }, { name = "b", port = 2 } } }),
		"  server a:1;\n  server b:2;\nend\n", "loops; a tag alone takes its line with it")
	equal(fill("{% for k, v in map %}{{k}}={{v}},{% end %}{% for i, v in list %}{{i}}{{v}}{% end %}", { map = { b = 2, a = 1, c = 3 }, list = { "x", "y" } }),
		"a=1,b=2,c=3,1x2y", "keys in order")
	equal(fill("{% for x in a %}{% for y in x.b %}{{x.n}}{{y}} {% end %}{% end %}{{x}}", { x = "out", a = { { n = 1, b = { 2, 3 } }, { n = 4, b = {} } } }),
		"12 13 out", "loops in loops; a loop's name ends with it")
	equal(fill("{% if not list %}none{% end %}{% if json_null %}yes{% end %}", { json_null = json.null }), "none", "if, if not; JSON's null is nothing")
	equal(fill("{{v}}|{{v | raw}}|{{v|shell}}|{{v|url}}|{{v|json}}", { v = [[<a href='x'>"&]] }, "html"),
		[[&lt;a href=&#39;x&#39;&gt;&quot;&amp;|<a href='x'>"&|'<a href='\''x'\''>"&'|%3Ca%20href%3D%27x%27%3E%22%26|"<a href='x'>\"&"]], "escapes")
	equal(fill("{{v}}", { v = { 1, { a = "x" } } }, "json"), '[1,{"a":"x"}]', "json takes tables")
	equal(fill("{{v}}", { v = "abc" }, string.upper), "ABC", "a function as the escape")
	local compiled = template.compile "{{x}}"
	equal(compiled { x = 1 } .. compiled { x = 2 }, "12", "compiled once, filled in twice")
	for _, case in ipairs {
		{ "a\nb {{c.d}}", "page:2: there is no value 'c.d'" }, { "\n{{t}}", "page:2: 't' is a table" }, { "\n\n{% for x in n %}{% end %}", "page:3: 'n' is a number" },
		{ "x\n{% for x in t %}\n", "page:2: {% for x in t %} has no {% end %}" }, { "\n{% end %}", "page:2: {% end %} closes nothing" },
		{ "{{x", "page:1: {{ is not closed" }, { "\n{{x | htm}}", "page:2: there is no escape 'htm' (did you mean 'html'?)" },
		{ "{% unless x %}", "page:1: expected for NAME in LIST" }, { "{{ 1 + 1 }}", "page:1: expected {{name}}" }, { "{% else %}", "belongs to no {% if %}" },
		{ "{% for x in t %}\n\n{{x.y}}{% end %}", "page:3: there is no value 'x.y'" },
	} do
		raises(case[2], ("an error names the template's line: %s"):format(case[2]), fill, case[1], { t = { 1 }, n = 5 })
	end
	raises("library.lua:", "and the script's", function() fill("{{x}}", {}) end)
	raises("expected one of", "an unknown escape", fill, "", {}, "xml")
	raises("did you mean 'escape'", "an unknown option", template.compile, "", { escpae = "html" })
end

local function writing()
	local room = os.tmpname()
	os.remove(room)
	assert(exec { "mkdir", room }.ok)
	local path = room .. "/a b'\"$x"
	local function names()
		return (exec { "ls", "-A", room }.stdout:gsub("\n", " "))
	end
	equal(files.write(path, "one\0\n"), true, "a file is made")
	equal(files.read(path), "one\0\n", "and read, every byte of it")
	equal(names(), "a b'\"$x ", "nothing else is left")
	equal(files.token(path), nil, "no token has written it")
	exec { "chmod", "640", path }
	equal(files.write(path, ""), true, "it is replaced, by nothing")
	equal(files.read(path), "", "all of it")
	equal(exec { "stat", "-c", "%a", path }.stdout, "640\n", "and keeps its mode")
	files.write(path, "x", { mode = "0600" })
	equal(exec { "stat", "-c", "%a", path }.stdout, "600\n", "or gets the one that is asked for")
	equal(files.write(path, "seven", { token = 7 }), true, "with a token")
	equal(files.token(path), 7, "which is remembered")
	local good, err = files.write(path, "six", { token = 6 })
	fails("fenced", "token 7, which is larger than 6", "a smaller one is refused", good, err)
	equal(err.token, 7, "and told which was larger")
	fails("fenced", "give one", "so is none", files.write(path, "none"))
	equal(files.read(path), "seven", "the file is as it was")
	equal(files.write(path, "again", { token = 7 }), true, "the same token may write again")
	equal(files.write(path, "own", { token = true }), true, "true is the term's own")
	equal(files.token(path), 100, "which is larger")
	local large = math.maxinteger - 1
	equal(files.write(path, "large", { token = large }), true, "tokens have 63 bits")
	fails("fenced", tostring(large), "all of which count", files.write(path, "x", { token = large - 1 }))
	assert(exec { "sh", "-c", 'echo rubbish > "$1"', "sh", room .. "/.a b'\"$x.token" }.ok)
	fails("invalid", "should hold a token", "a guard that cannot be read", files.write(path, "x", { token = math.maxinteger }))
	equal(files.read(path), "large", "changes nothing")
	assert(exec { "ln", "-s", path, room .. "/link" }.ok)
	fails("invalid", "", "through a link it is the same file", files.write(room .. "/link", "x", { token = 1 }))
	fails("missing", "/none/x", "in no directory", files.write(room .. "/none/x", "x"))
	fails("missing", "/none/x", "with a token, too", files.write(room .. "/none/x", "x", { token = 1 }))
	fails("failed", "Is a directory", "over a directory", files.write(room, "x"))
	fails("missing", room .. "/none", "what is not there cannot be read", files.read(room .. "/none"))
	ok(not files.read(room), "nor a directory")
	raises("expected the text to write, found a nil", "no text", files.write, path)
	raises("did you mean 'token'", "an unknown option", files.write, path, "", { tokn = 1 })
	raises("true or a token", "a token that is none", files.write, path, "", { token = 0 })
	raises('a text as "0644"', "a mode that is none", files.write, path, "", { mode = 644 })
	raises("library.lua:", "told where it was called", function() files.write("") end)

	-- Many at once, with tokens in no order: a reader sees whole texts, and never an older token after a newer one.
	local shared, jobs = room .. "/shared", {}
	for i = 1, 12 do
		jobs[i] = function()
			local token = i * 7 % 13
			local done, why = files.write(shared, ("%d "):format(token):rep(20000), { token = token })
			return done or why.code
		end
	end
	local seen, torn = 0, false
	local reader = spawn(function()
		while true do
			local text = files.read(shared)
			if text then
				local token = math.tointeger(tonumber(text:match "^%d+"))
				torn = torn or token < seen or text ~= ("%d "):format(token):rep(20000)
				seen = token
			end
			sleep(0.001)
		end
	end)
	local fine = true
	for i, result in pairs(tasks.wait_all(jobs)) do
		fine = fine and (result == true or result == "fenced" and i * 7 % 13 ~= 12)
	end
	reader:cancel()
	ok(fine and not torn and files.read(shared):sub(1, 3) == "12 ", "twelve writers at once: whole texts, tokens that only grow, the largest stays")
	exec { "rm", "-r", room }
end

return tap.election { requiring, retrying, filling, writing }
