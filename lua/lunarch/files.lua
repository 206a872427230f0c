-- lunarch.files: files that are replaced as a whole or not at all, and never by a former leader.
-- A shell writes them, not this process: fsync may take seconds, and a shell of the term is killed with the term.

local use = ...
local given = use "given"
local lunarch = require "lunarch"

local TIMEOUT <const> = 30

-- Arguments: the file, the token or nothing, the mode or nothing, the number of bytes on stdin, seconds to wait for the guard file.
-- The guard file, .NAME.token, is locked during a write, and holds the largest token that has written. It is changed before the file.
local WRITE <const> = [=[
set -eu
path=$(readlink -f -- "$1") || { echo "$1: No such file or directory" >&2; exit 66; }
token=$2 mode=$3 size=$4 patience=$5
name=${path##*/} directory=${path%/*}/
guard=$directory.$name.token new=$directory.$name.new
[ ! -d "$path" ] || { echo "$path: Is a directory" >&2; exit 73; }
if [ -n "$token" ]; then
  exec 9<>"$guard"
  flock --wait "$patience" 9 || exit 75
  seen=$(cat <&9)
  case ${seen:=0} in *[!0-9]*) exit 65 ;; esac
  [ "$seen" -le "$token" ] || { echo "$seen"; exit 77; }
elif [ -e "$guard" ]; then
  cat "$guard"
  exit 77
else
  new=$new.$$
fi
trap 'rm -f -- "$new"' EXIT
trap 'exit 143' TERM
rm -f -- "$new"
if [ -e "$path" ]; then
  cp --attributes-only --preserve=mode -- "$path" "$new"
  chown --reference="$path" -- "$new" 2>&- || true
fi
cat >"$new"
[ "$(wc -c <"$new")" -eq "$size" ] || exit 74
[ -z "$mode" ] || chmod "$mode" -- "$new"
sync -- "$new"
if [ -n "$token" ] && [ "$seen" -lt "$token" ]; then
  printf '%020d\n' "$token" 1<>"$guard"
  sync -- "$guard"
fi
mv -fT -- "$new" "$path"
sync -- "$directory"
]=]

local UNREADABLE <const>, TIMED_OUT <const>, FENCED <const> = 65, 75, 77

local said = {
	{ "No such file", "missing" }, { "Not a directory", "missing" }, { "Permission denied", "denied" }, { "Operation not permitted", "denied" },
	{ "Read%-only file system", "denied" }, { "No space", "full" }, { "quota", "full" },
}

local function code_of(text)
	for _, pair in ipairs(said) do
		if text:find(pair[1]) then
			return pair[2]
		end
	end
	return "failed"
end

local known = {
	token = function(v) return v ~= true and (math.type(v) ~= "integer" or v < 1) and "true or a token, as term.token" or nil end,
	mode = function(v) return (type(v) ~= "string" or not v:find "^[0-7][0-7][0-7][0-7]?$") and 'a text as "0644"' or nil end,
	timeout = "seconds",
}

local function check_path(what, path)
	if type(path) ~= "string" or path == "" or path:find("\0", 1, true) then
		error(("%s: expected a path, found %s"):format(what, type(path) == "string" and "'" .. path .. "'" or "a " .. type(path)), 3)
	end
end

local function token_of(token)
	if token ~= true then
		return token
	end
	local own = math.tointeger(tonumber(os.getenv "LUNARCH_TOKEN" or ""))
	if not own then
		error("files.write: option 'token': only a term has a token, and this is called outside of one", 3)
	end
	return own
end

local function guard_of(path)
	local directory, name = path:match "^(.*/)([^/]*)$"
	return (directory or "") .. "." .. (name or path) .. ".token"
end

return function(natives)
	local files = {}

	local function fenced(path, token, seen)
		local text = token and ("files.write: %s was written with the token %d, which is larger than %d: this leader has been replaced"):format(path, seen, token)
			or ("files.write: %s is written with tokens (the largest so far: %d): give one, as token = term.token"):format(path, seen)
		local nothing, err = natives.fail("fenced", text)
		err.token = seen
		return nothing, err
	end

	local function unreadable(path)
		return natives.fail("invalid", ("files.write: %s should hold a token, and does not: nothing is written until you correct or remove it"):format(guard_of(path)))
	end

	-- Under `lunarch test` no program runs. This keeps the same rules, without the lock and without fsync.
	local function write_simulated(path, text, token)
		local guard <close> = io.open(guard_of(path), token and "a+" or "r")
		local held = guard and guard:read "a" or ""
		local seen = held == "" and 0 or math.tointeger(tonumber(held))
		if not seen then
			return unreadable(path)
		elseif guard and seen > (token or 0) then
			return fenced(path, token, seen)
		end
		local f, why = io.open(path .. ".new", "w")
		if not f then
			return natives.fail(code_of(why), "files.write: " .. why)
		end
		f:write(text)
		f:close()
		if token then
			io.open(guard_of(path), "w"):write(("%020d\n"):format(token)):close()
		end
		assert(os.rename(path .. ".new", path))
		return true
	end

	local function write_real(path, text, token, options)
		local timeout = options.timeout or TIMEOUT
		local r, err = lunarch.exec { "/bin/sh", "-c", WRITE, "files.write", path, token or "", options.mode or "", #text, math.max(1, math.floor(timeout)),
			stdin = text, timeout = timeout, env = { LC_ALL = "C" } }
		if not r then
			return natives.fail(err.code, ("files.write: %s: %s"):format(path, err.code == "timeout" and "not written in time" or err.message))
		elseif r.ok then
			return true
		elseif r.code == FENCED then
			return fenced(path, token, math.tointeger(tonumber(r.stdout)) or 0)
		elseif r.code == UNREADABLE then
			return unreadable(path)
		elseif r.code == TIMED_OUT then
			return natives.fail("timeout", ("files.write: %s: another process is writing it, and has not ended in time"):format(path))
		end
		local why = r.stderr:match "^[^\n]*"
		return natives.fail(code_of(why), ("files.write: %s: %s"):format(path, why ~= "" and why or "it could not be written"))
	end

	function files.write(path, text, options)
		check_path("files.write", path)
		if type(text) ~= "string" then
			error(("files.write: expected the text to write, found a %s"):format(type(text)), 2)
		end
		options = given.options("files.write", options, known)
		local token = token_of(options.token)
		if natives.stub then
			return write_simulated(path, text, token)
		end
		return write_real(path, text, token, options)
	end

	local function read(path)
		local f <close>, why = io.open(path, "rb")
		local text
		if f then
			text, why = f:read "a"
		end
		if text then
			return text
		end
		return natives.fail(code_of(why), ("files.read: %s"):format(why:find(path, 1, true) and why or path .. ": " .. why))
	end

	function files.read(path)
		check_path("files.read", path)
		return read(path)
	end

	function files.token(path)
		check_path("files.token", path)
		local text, err = read(guard_of(path))
		if not text then
			return nil, err.code ~= "missing" and err or nil
		end
		return math.tointeger(tonumber(text))
	end

	return files
end
