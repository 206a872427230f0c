-- lunarch.notify: tells people something: by webhook, Slack-compatible chats, mail through sendmail, the system log.
-- URLs of webhooks are secrets: errors and logs have only the host.

local use = ...
local given = use "given"
local lunarch = require "lunarch"

local SENDMAIL <const> = "/usr/sbin/sendmail"
local LINE_MAX <const> = 998 -- RFC 5322, 2.1.1

local function text_or_list(v)
	return type(v) ~= "string" and type(v) ~= "table" and "a text or a list of texts" or nil
end

local function token(v)
	return v ~= true and type(v) ~= "string" and "true or the name of a header" or nil
end

local of_http = {
	timeout = "seconds", retries = "count", backoff = "seconds", idempotent = "boolean", headers = "table", token = token, tls = "table",
	bearer = "text", user = "text", password = "text", proxy = "text", unix = "text",
}
local of_slack = { channel = "text", username = "text", icon_emoji = "text", icon_url = "text", blocks = "table", attachments = "table" }
local of_mail = {
	to = text_or_list, cc = text_or_list, from = "text", subject = "text", body = "text", headers = "table", sendmail = text_or_list, timeout = "seconds",
}
local of_syslog = {
	priority = { emerg = true, alert = true, crit = true, err = true, warning = true, notice = true, info = true, debug = true },
	facility = { auth = true, authpriv = true, cron = true, daemon = true, ftp = true, lpr = true, mail = true, news = true, syslog = true,
		user = true, uucp = true, local0 = true, local1 = true, local2 = true, local3 = true, local4 = true, local5 = true, local6 = true, local7 = true },
	tag = "text", socket = "text", timeout = "seconds",
}

-- ---- webhooks ----

local function without_path(text)
	return (text:gsub("(%a+://)([^%s/?#]*)(%S*)", function(scheme, host, path)
		return scheme .. host:match "[^@]*$" .. (path ~= "" and "/..." or "") .. (path:find ":$" and ":" or "")
	end))
end

local function post(fail, what, url, payload, options)
	local request = { json = payload }
	for name in pairs(of_http) do
		request[name] = options[name]
	end
	request.retries = request.retries or 3
	local r, err = lunarch.http.post(url, request)
	if not r then
		return fail(err.code, what .. ": " .. without_path(err.message))
	elseif not r.ok then
		local nothing, failure = fail("failed", ("%s: %s answers %d: %s"):format(what, without_path(url), r.status, r.body:sub(1, 200)))
		failure.status = r.status
		return nothing, failure
	end
	return true
end

local function check_url(what, url)
	if type(url) ~= "string" or not (url:find "^https?://." or url:find "^unix:.") then
		error(("%s: expected a URL that begins with http:// or https://, found %s"):format(what,
			type(url) == "string" and '"' .. without_path(url):sub(1, 20) .. '"' or "a " .. type(url)), 3)
	end
end

-- ---- mail ----

local alphabet <const> = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

-- RFC 4648, 4.
local function base64(bytes)
	local out = {}
	for at = 1, #bytes, 3 do
		local a, b, c = bytes:byte(at, at + 2)
		local bits = a << 16 | (b or 0) << 8 | (c or 0)
		for i = 0, 3 do
			local known = i < 2 or i == 2 and b or i == 3 and c
			local six = bits >> (18 - 6 * i) & 63
			out[#out + 1] = known and alphabet:sub(six + 1, six + 1) or "="
		end
	end
	return table.concat(out)
end

local function is_plain(text)
	return not text:find "[\128-\255%c]"
end

-- A header's text, encoded (RFC 2047) in pieces of whole characters, each short enough for an encoded word.
local function words(text)
	if is_plain(text) then
		return text
	end
	local list, piece = {}, ""
	for character in text:gmatch "[^\128-\191][\128-\191]*" do
		if #piece + #character > 42 then
			list[#list + 1], piece = piece, ""
		end
		piece = piece .. character
	end
	list[#list + 1] = piece
	for i, each in ipairs(list) do
		list[i] = "=?UTF-8?B?" .. base64(each) .. "?="
	end
	return table.concat(list, "\r\n ")
end

local function one_line(what, text)
	if text:find "[\r\n%z]" then
		error(("notify.mail: %s: expected a text of one line"):format(what), 0)
	end
	return text
end

-- "Name <box@host>" or "box@host": returns the text for the header, and the address for the envelope.
local function address(what, text)
	if type(text) ~= "string" then
		error(("notify.mail: %s: expected an address, found a %s"):format(what, type(text)), 0)
	end
	one_line(what, text)
	local name, box = text:match "^(.-)%s*<([^<>]*)>%s*$"
	box = box or text
	if box == "" or box:find "[%s<>,\128-\255]" or box:find "^%-" then
		error(("notify.mail: %s: expected an address as box@host or Name <box@host>, found \"%s\""):format(what, text), 0)
	end
	return name and name ~= "" and ("%s <%s>"):format(words(name), box) or box, box
end

local function addresses(what, list, envelope)
	local shown = {}
	for i, each in ipairs(type(list) == "string" and { list } or list) do
		shown[i], envelope[#envelope + 1] = address(what, each)
	end
	return table.concat(shown, ",\r\n ")
end

local function body_of(text)
	local longest = 0
	for line in text:gmatch "[^\n]+" do
		longest = math.max(longest, #line)
	end
	text = text:gsub("\r?\n", "\r\n")
	if longest < LINE_MAX and not text:find "[\128-\255%z]" then
		return "7bit", text
	end
	return "base64", (base64(text):gsub(("."):rep(76), "%0\r\n"))
end

local function put_header(lines, name, text)
	if type(name) ~= "string" or not name:find "^[%w%-]+$" or (type(text) ~= "string" and type(text) ~= "number") then
		error(("notify.mail: headers: '%s' is no name of a header, or has no text"):format(tostring(name)), 0)
	end
	lines[#lines + 1] = name .. ": " .. words(one_line(name, tostring(text)))
end

-- The message and the arguments of sendmail.
local function message(mail)
	local envelope, lines = {}, {}
	if not mail.to or #mail.to == 0 then
		error("notify.mail: to whom? to = \"box@host\"", 0)
	end
	local from = os.getenv "USER" or os.getenv "LOGNAME" or "lunarch"
	local shown, sender = address("from", mail.from or from)
	lines[1] = "From: " .. shown
	lines[2] = "To: " .. addresses("to", mail.to, envelope)
	if mail.cc then
		lines[3] = "Cc: " .. addresses("cc", mail.cc, envelope)
	end
	put_header(lines, "Subject", mail.subject or "(no subject)")
	lines[#lines + 1] = "Date: " .. os.date "!%a, %d %b %Y %H:%M:%S +0000"
	lines[#lines + 1] = ("Message-ID: <%d.%016x@%s>"):format(math.floor(lunarch.time.now()), math.random(0), sender:match "@(.+)$" or "lunarch")
	lines[#lines + 1] = "Auto-Submitted: auto-generated" -- RFC 3834: asks for no automatic answers
	for name, text in pairs(mail.headers or {}) do
		put_header(lines, name, text)
	end
	local encoding, body = body_of(mail.body or "")
	lines[#lines + 1] = "MIME-Version: 1.0"
	lines[#lines + 1] = "Content-Type: text/plain; charset=utf-8"
	lines[#lines + 1] = "Content-Transfer-Encoding: " .. encoding
	-- sendmail(1) takes lines that end with \n, and sends \r\n.
	local text = table.concat(lines, "\r\n") .. "\r\n\r\n" .. body
	return text:gsub("\r\n", "\n"), sender, envelope
end

return function(natives)
	local notify, fail = {}, natives.fail

	function notify.webhook(url, payload, options)
		check_url("notify.webhook", url)
		options = given.options("notify.webhook", options, of_http)
		return post(fail, "notify.webhook", url, payload, options)
	end

	local slack_known = {}
	for _, set in ipairs { of_http, of_slack } do
		for name, kind in pairs(set) do
			slack_known[name] = kind
		end
	end

	function notify.slack(url, text, options)
		check_url("notify.slack", url)
		if type(text) ~= "string" then
			error(("notify.slack: expected a text, found a %s"):format(type(text)), 2)
		end
		options = given.options("notify.slack", options, slack_known)
		local payload = { text = text }
		for name in pairs(of_slack) do
			payload[name] = options[name]
		end
		return post(fail, "notify.slack", url, payload, options)
	end

	-- nil and an error with the program's output if it has failed; else true.
	local function ended(what, program, r, err)
		if not r then
			return fail(err.code, what .. ": " .. err.message)
		elseif not r.ok then
			local why = (r.stderr .. r.stdout):sub(1, 300):gsub("\n+$", ""):gsub("\n+", "; ")
			return fail("failed", ("%s: %s: %s %d: %s"):format(what, program, r.code and "status" or "signal", r.code or r.signal, why))
		end
		return true
	end

	function notify.mail(mail)
		mail = given.options("notify.mail", mail, of_mail)
		local good, text, sender, envelope = pcall(message, mail)
		if not good then
			error(text, 2)
		end
		local program = mail.sendmail or SENDMAIL
		local argv = type(program) == "table" and table.move(program, 1, #program, 1, {}) or { program }
		local name = argv[1]
		-- -i: a line with only a dot is not the end
		for _, argument in ipairs { "-i", "-f", sender, "--", table.unpack(envelope) } do
			argv[#argv + 1] = argument
		end
		argv.stdin, argv.timeout = text, mail.timeout or 60
		return ended("notify.mail", name, lunarch.exec(argv))
	end

	function notify.syslog(text, options)
		options = given.options("notify.syslog", options, of_syslog)
		if type(text) ~= "string" or text == "" then
			error(("notify.syslog: expected a text, found %s"):format(text == "" and "an empty one" or "a " .. type(text)), 2)
		end
		local argv = { "logger", "--socket-errors=on", "--skip-empty", "--size", "8192",
			"--priority", (options.facility or "daemon") .. "." .. (options.priority or "notice"), "--tag", options.tag or "lunarch" }
		if options.socket then
			table.move({ "--socket", options.socket }, 1, 2, #argv + 1, argv)
		end
		argv.stdin, argv.timeout = text .. "\n", options.timeout or 5
		return ended("notify.syslog", "logger", lunarch.exec(argv))
	end

	return notify
end
