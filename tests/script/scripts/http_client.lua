-- http against a real server (tests/script/test_http.py). Arguments: its URL, its TLS URL, its socket, its proxy's URL, a directory with
-- certificates, and the ways to run.
local tap = require "tap"
local ok, equal, raises, fails = tap.ok, tap.equal, tap.raises, tap.fails
local base, secure, socket, proxy, directory = arg[2], arg[3], arg[4], arg[5], arg[6]

local function requests()
	local r = http.get(base .. "/hello")
	ok(r.ok and r.status == 200 and r.body == "hello\n" and r.headers["content-type"] == "text/plain", "get")
	equal(r.headers["x-twice"], "one, two", "headers of the same name come together")
	equal(r.headers["set-cookie"], "a=1, b\nc=2", "cookies on lines of their own")
	r = http.post(base .. "/echo", { json = { n = 9007199254740993, list = json.array {} }, headers = { ["X-Mine"] = "yes" } })
	local echo = r:json()
	equal(echo.method, "POST", "post")
	equal(echo.headers["content-type"], "application/json", "json is sent as such")
	equal(json.decode(echo.body).n, 9007199254740993, "with its integers")
	equal(echo.headers["x-mine"], "yes", "and with headers")
	echo = http.post(base .. "/echo", { form = { a = "x y&z", b = { 1, 2 } }, query = { q = "ä/?", p = 1 } }):json()
	equal(echo.body, "a=x%20y%26z&b=1&b=2", "a form")
	equal(echo.path, "/echo?p=1&q=%C3%A4%2F%3F", "a query")
	equal(http.get(base .. "/echo?x=1#frag", { query = { y = 2 } }):json().path, "/echo?x=1&y=2", "added to one that is there")
	for _, method in ipairs { "put", "patch", "delete" } do
		equal(http[method](base .. "/echo", { body = "text" }):json().body, "text", method)
	end
	equal(http.head(base .. "/hello").body, "", "head")
	equal(http.request({ url = base .. "/echo", method = "report", body = "x\0y" }):json().method, "REPORT", "request, any method")
	equal(http.post(base .. "/echo"):json().headers["content-length"], "0", "a post of nothing")
	r = http.get(base .. "/status/404")
	ok(not r.ok and r.status == 404 and r.body == "404", "a status other than 2xx is a response")
	fails("invalid", "", "json that is none", http.get(base .. "/hello"):json())
	equal(http.get(base .. "/echo", { user = "u", password = "p:w" }):json().headers.authorization, "Basic dTpwOnc=", "user and password")
	equal(http.get(base .. "/echo", { bearer = "secret" }):json().headers.authorization, "Bearer secret", "a bearer token")
	equal(http.get(base .. "/echo", { headers = { ["User-Agent"] = false } }):json().headers["user-agent"], nil, "false takes a header away")
	equal(http.get(base .. "/gzip").body, ("compressed "):rep(1000), "compressed answers")
	r = http.get(base .. "/redirect/3")
	ok(r.body == "hello\n" and r.url == base .. "/hello", "redirects are followed, and the last URL is told")
	equal(http.get(base .. "/redirect/3", { redirects = 0 }).status, 302, "or not")
	fails("invalid", "", "too many of them", http.get(base .. "/redirect/30"))
	equal(http.get(("unix:%s:/hello"):format(socket)).body, "hello\n", "a unix: URL")
	equal(http.get("http://any.host/hello", { unix = socket }).body, "hello\n", "the option unix")
	r = http.get("http://no-such-host.invalid/hello", { proxy = proxy })
	ok(r and r.body == "through the proxy: http://no-such-host.invalid/hello", "a proxy")
end

local function tokens(term)
	equal(http.post(base .. "/echo", { token = true }):json().headers["fencing-token"], tostring(term.token), "the term's token as a header")
	equal(http.post(base .. "/echo", { token = "X-Lease" }):json().headers["x-lease"], tostring(term.token), "of any name")
end

local function tls()
	local ca = directory .. "/ca.crt"
	fails("denied", "", "a certificate that nobody knows", http.get(secure .. "/hello"))
	equal(http.get(secure .. "/hello", { tls = { ca = ca } }).body, "hello\n", "verified by a CA file")
	local f <close> = io.open(ca)
	equal(http.get(secure .. "/hello", { tls = { ca = f:read "a" } }).body, "hello\n", "or by the text of one")
	equal(http.get(secure .. "/hello", { tls = { insecure = true } }).body, "hello\n", "insecure verifies nothing")
	local mine = { ca = ca, cert = directory .. "/client.crt", key = directory .. "/client.key" }
	equal(http.get(secure .. "/whoami", { tls = mine }).body, "client", "a client certificate")
	fails("missing", "/nowhere", "a CA that is not there", http.get(secure .. "/hello", { tls = { ca = "/nowhere/ca.pem" } }))
end

local function proxies()
	local ca, wrong = { ca = directory .. "/ca.crt" }, (proxy:gsub("//", "//me:wrong@"))
	local before = tonumber(http.get(base .. "/tunnels").body)
	equal(http.get(secure .. "/hello", { proxy = proxy, tls = ca }).body, "hello\n", "TLS through a proxy")
	equal(tonumber(http.get(base .. "/tunnels").body), before + 1, "in a tunnel of its own")
	equal(http.get(secure .. "/hello", { proxy = (proxy:gsub("//", "//me:right@")), tls = ca }).body, "hello\n", "a proxy's password in its URL")
	fails("denied", "", "a wrong one", http.get(secure .. "/hello", { proxy = wrong, tls = ca }))
	ok(not tostring(select(2, http.get(secure .. "/hello", { proxy = wrong, tls = ca }))):find "wrong", "which no error shows")
	equal(http.get("http://no-such-host.invalid/", { proxy = wrong }).status, 407, "of plain HTTP that is a response")
	fails("unreachable", "", "a proxy that is not there", http.get(base .. "/hello", { proxy = "http://127.0.0.1:1" }))
	equal(http.get(base .. "/hello", { proxy = "http://127.0.0.1:1", no_proxy = "other,127.0.0.1" }).body, "hello\n", "no_proxy goes around it")
	equal(http.get(base .. "/hello", { proxy = "" }).body, "hello\n", "an empty proxy is none")
end

local function failures()
	fails("unreachable", "", "nobody listens", http.get "http://127.0.0.1:1/")
	fails("unreachable", "", "no such host", http.get "http://no-such-host.invalid/")
	local _, err = http.get "http://127.0.0.1:1/"
	equal(err.unsent, true, "surely not sent")
	fails("timeout", "", "an answer that does not come", http.get(base .. "/hang", { timeout = 0.1 }))
	local within = 0.1
	repeat -- a machine that is busy may not have sent it by then
		_, err = http.post(base .. "/hang", { timeout = within })
		within = within * 2
	until not err.unsent or within > 60
	equal(err.unsent, false, "perhaps acted upon")
	fails("invalid", "", "no HTTP", http.get(base .. "/garbage"))
	ok(not http.get(base .. "/short"), "a body that is shorter than said")
	ok(not http.get(base .. "/headers"), "headers without end")
	fails("full", "", "more than max_body", http.get(base .. "/big/100000", { max_body = 1000 }))
	fails("timeout", "", "one byte at a time", http.get(base .. "/drip", { timeout = 0.2 }))
	fails("timeout", "", "silence", http.get(base .. "/stall", { silence = 0.2 }))
	fails("unreachable", "", "closed at once", http.get(base .. "/close", { retries = 0 }))
	local secret = select(2, http.get "http://user:geheim@127.0.0.1:1/?key=verborgen")
	ok(not tostring(secret):find "geheim" and not tostring(secret):find "verborgen", "no password in an error", secret)
end

local function repeated()
	local r = http.get(base .. "/count/0")
	equal(r.repeated, false, "sent once")
	r = http.post(base .. "/drop")
	ok(r.body == "answered" and r.repeated == true, "a connection that was kept is found closed: sent again, and that is said", r.repeated)
end

local function retries()
	http.get(base .. "/count/reset")
	local r = http.get(base .. "/count/3", { retries = 5, backoff = 0.01 })
	ok(r.ok and r.body == "3", "retries until it works")
	http.get(base .. "/count/reset")
	equal(http.get(base .. "/count/9", { retries = 2, backoff = 0.01 }).status, 503, "but not for ever")
	http.get(base .. "/count/reset")
	http.post(base .. "/count/3", { retries = 5, backoff = 0.01 })
	equal(http.get(base .. "/counted").body, "1", "a post that may have been acted upon is not repeated")
	http.get(base .. "/count/reset")
	equal(http.post(base .. "/count/3", { retries = 5, backoff = 0.01, idempotent = true }).body, "3", "unless it is said to be idempotent")
	local before = time.monotonic()
	fails("unreachable", "", "nobody there, several times", http.post("http://127.0.0.1:1/", { retries = 2, backoff = 0.05 }))
	ok(time.monotonic() - before >= 0.05, "with pauses")
	before = time.monotonic()
	ok(not http.get("http://127.0.0.1:1/", { retries = 1000, backoff = 0.01, timeout = 0.3 }), "timeout is for all of it")
	ok(time.monotonic() - before < 20, "however many retries")
	http.get(base .. "/count/reset")
	before = time.monotonic()
	equal(http.get(base .. "/later", { retries = 3, backoff = 0.001 }).body, "later", "Retry-After")
	ok(time.monotonic() - before >= 1, "is heeded")
end

local function streams()
	local r = http.get(base .. "/lines/" .. tap.many(20000), { stream = true })
	local n, sum = 0, 0
	for line in r:lines() do
		n, sum = n + 1, sum + tonumber(line)
	end
	equal(n, tap.many(20000), "a stream by line")
	equal(sum, n * (n - 1) // 2, "every line, in order")
	r = http.get(base .. "/big/3000000", { stream = true })
	equal(r.headers["content-length"], "3000000", "a stream's headers are there before its body")
	sleep(0.1)
	local size = 0
	for part in r.read, r do
		size = size + #part
	end
	equal(size, 3000000, "read slowly, nothing is lost")
	equal(r:read(), nil, "and then nothing")
	do
		local endless <close> = http.get(base .. "/endless", { stream = true })
		ok(#endless:read() > 0, "an endless stream")
		r = endless
	end
	fails("cancelled", "", "is ended by <close>", (function()
		while true do
			local part, err = r:read()
			if not part then
				return part, err
			end
		end
	end)())
	r = http.get(base .. "/short", { stream = true })
	equal(r:read(), "only this", "a stream that breaks off gives what there was")
	ok(select(2, r:read()), "and then an error")
	raises("", "which lines raise", function() for _ in http.get(base .. "/short", { stream = true }):lines() do end end) -- luacheck: ignore
	fails("timeout", "", "no answer", http.get(base .. "/hang", { stream = true, timeout = 0.1 }))
	local within, drip = 0.5, nil
	repeat -- on a busy machine it may begin late
		drip = http.get(base .. "/drip", { stream = true, timeout = within })
		within = within * 2
	until drip or within > 60
	ok(drip and drip:read(), "timeout is for the answer to begin")
	local i = 0
	local echo = http.post(base .. "/echo", { body = function()
		i = i + 1
		sleep(0)
		return i <= 50 and ("part %d;"):format(i) or nil
	end }):json()
	ok(echo.body:find "^part 1;part 2;" and echo.body:find "part 50;$", "a body from a function, in chunks")
	local big, sent = ("x"):rep(100000), 0
	r = http.post(base .. "/size", { body = function() sent = sent + 1 return sent <= 30 and big or nil end })
	equal(r.body, "3000000", "more than fits into a socket")
	raises("expected a text or nil, found a number", "a body that gives no texts", http.post, base .. "/echo", { body = function() return 5 end })
end

local function many()
	local n, right = tap.many(300), 0
	local jobs = {}
	for i = 1, n do
		jobs[i] = function() return http.get(base .. "/echo?" .. i):json().path end
	end
	for i, path in ipairs(tasks.wait_all(jobs)) do
		right = right + (path == "/echo?" .. i and 1 or 0)
	end
	equal(right, n, "many at once, each with its own answer")
	local task = spawn(http.get, base .. "/hang")
	sleep(0.05)
	task:cancel()
	fails("cancelled", "", "a request can be cancelled", task:wait())
	fails("timeout", "with_timeout", "or limited", tasks.with_timeout(0.05, http.get, base .. "/hang"))
	equal(coroutine.wrap(function() return http.get(base .. "/hello").body end)(), "hello\n", "inside a coroutine")
	local r = http.get(base .. "/endless", { stream = true }) -- luacheck: ignore
	r = nil
	collectgarbage()
	collectgarbage()
	ok(true, "a stream that is forgotten is collected")
end

local function misuse()
	raises("did you mean 'timeout'", "an unknown option", http.get, base, { timout = 1 })
	raises("expected a URL", "no URL", http.get)
	raises("begins with http://", "another scheme", http.get, "ftp://x/")
	raises('http.get: expected http.get("url"', "get{...}", http.get, base, "x")
	raises("expected a table", "request(url)", http.request, base)
	raises("not options here", "method in get", http.get, base, { method = "PUT" })
	raises("only one of", "body and json", http.post, base, { body = "x", json = {} })
	raises("json.encode", "json of a function", http.post, base, { json = { print } })
	raises("one line", "a header of two lines", http.get, base, { headers = { A = "x\r\nB: y" } })
	raises("the URL: expected a text of at most 1 MB, found one of 2 MB", "a URL of 2 MB", http.get, base .. "/" .. ("x"):rep(2 << 20))
	raises("headers: A: expected a text of at most 1 MB", "a header of 2 MB", http.get, base, { headers = { A = ("x"):rep(2 << 20) } })
	raises("no name of a header", "a header without a name", http.get, base, { headers = { "x" } })
	raises("did you mean 'insecure'", "an unknown option of tls", http.get, base, { tls = { insecur = true } })
	raises("number of seconds", "a timeout that is a text", http.get, base, { timeout = "5s" })
	raises("stream = true", "lines without stream", function() http.get(base .. "/hello"):lines() end)
	raises("is a stream", "json of a stream", function() http.get(base .. "/hello", { stream = true }):json() end)
	raises("http_client.lua:", "named with the script's line", function() http.get(5) end)
	raises("cannot wait here", "where Lua cannot yield", function() table.sort({ 1, 2 }, function() http.get(base) end) end)
end

return tap.election { requests, tokens, tls, proxies, failures, repeated, retries, streams, many, misuse }
