-- The tests of mystore.lua: lunarch test mystore_test.lua
-- They call its functions, with a small store in place of `http`. What no test of its own can show, `lunarch doctor --full` does.
local values, revision, sent, answer = {}, 0, {}, nil

-- Answers as a store with ETags does. `answer`, if a test sets it, answers instead; what it returns nothing for goes on to the store.
local function serve(method, url, options)
  sent[#sent + 1] = { method = method, url = url, options = options }
  if answer then
    local r, err = answer(method, url, options)
    if r or err then return r, err end
  end
  local headers, now = options.headers or {}, values[url]
  if method == "GET" then
    return now and { status = 200, body = now.text, headers = { etag = now.etag } } or { status = 404, headers = {} }
  end
  if headers["If-None-Match"] == "*" and now or headers["If-Match"] and headers["If-Match"] ~= (now and now.etag) then
    return { status = 412, headers = {} }
  end
  revision = revision + 1
  values[url] = method == "PUT" and { text = options.body, etag = ('"%d"'):format(revision) } or nil
  return { status = 200, headers = { etag = values[url] and values[url].etag } }
end

local http = {}
for name, method in pairs { get = "GET", put = "PUT", delete = "DELETE" } do
  http[name] = function(url, options) return serve(method, url, options) end
end

-- The lock file sees that instead of the real ones. If it has `require "lunarch.NAME"`, give `seen` a field `require` too: a function
-- that returns a stand-in.
local function load_lock()
  local directory = debug.getinfo(1, "S").source:match "^@(.*/)" or ""
  local seen = { lunarch = { http = http }, time = { monotonic = function() return 0 end } }
  return assert(loadfile(directory .. "mystore.lua", "t", setmetatable(seen, { __index = _G })))()
end

local function begin()
  values, sent, answer = {}, {}, nil
  local lock = load_lock()
  return lock, lock.open { hosts = { { name = "store", port = 80 } }, options = {}, lock = "mystore://store:80/x" }
end

local function op(expected) return { timeout = 5, expected = expected, durable = true } end

test("a record is made where there is none, and nowhere else", function()
  local lock, store = begin()
  equal(lock.read(store, "x", op()), "absent")
  local outcome, version = lock.write(store, "x", "one", op "")
  equal(outcome, "ok")
  equal({ lock.read(store, "x", op()) }, { "ok", "one", version })
  equal(lock.write(store, "x", "two", op ""), "conflict")
  equal({ lock.read(store, "x", op()) }, { "ok", "one", version })
end)

test("a record is replaced by who knows its version, and by nobody else", function()
  local lock, store = begin()
  local _, first = lock.write(store, "x", "one", op "")
  local outcome, second = lock.write(store, "x", "two", op(first))
  equal(outcome, "ok")
  expect(first ~= second)
  equal(lock.write(store, "x", "three", op(first)), "conflict")
  equal({ lock.read(store, "x", op()) }, { "ok", "two", second })
end)

test("a write without an answer is never said to have failed", function()
  local lock, store = begin()
  answer = function(method) if method == "PUT" then return nil, { message = "timed out", code = "timeout" } end end
  local outcome = lock.write(store, "x", "one", op "")
  expect(outcome == nil or outcome == "unknown")
end)

test("a write that was sent twice, and conflicts with itself, is done", function()
  local lock, store = begin()
  answer = function(method, url, options)
    if method == "PUT" and answer then
      answer = nil
      serve(method, url, options) -- the first one, whose answer is lost
    end
  end
  equal(lock.write(store, "x", "one", op ""), "ok")
end)

test("every byte of a key is escaped", function()
  local lock, store = begin()
  lock.write(store, "a/b c?#", "one", op "")
  equal(sent[1].url, "http://store:80/a%2Fb%20c%3F%23")
end)
