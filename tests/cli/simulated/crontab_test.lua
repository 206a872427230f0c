-- `lunarch cron` on simulated machines and clocks: what runs, how often, and what is left out. A simulation begins at 2024-01-01T00:00:00Z.
local DIRECTORY <const> = os.getenv "TMPDIR" or "/tmp"
local MINUTE <const>, HOUR <const>, DAY <const> = 60, 3600, 86400
local NODES <const> = { "a", "b", "c" }
local files = 0

local function crontab(text)
  files = files + 1
  local path = ("%s/crontab-%d"):format(DIRECTORY, files)
  local file <close> = assert(io.open(path, "w"))
  file:write(text)
  return path
end

-- seconds: of the wall clocks, after the begin of 2024, in UTC.
local function begin(text, seconds, options)
  local sim = simulate { script = "crontab.lua", nodes = NODES, args = { crontab(text), "/nonexistent", options and options.on_failure } }
  for _, node in ipairs(NODES) do
    sim:clock(node, seconds or 0)
  end
  return sim
end

-- Until so many seconds after the next full minute, or with a number below 0 before it.
local function to_minute(sim, seconds)
  sim:run((MINUTE - sim:now() - 1 + seconds) % MINUTE + 1)
end

local function times(calls)
  local list = {}
  for i, call in ipairs(calls) do
    list[i] = call.env.LUNARCH_CRON_TIME
  end
  return list
end

local function count(list)
  local seen = {}
  for _, time in ipairs(list) do
    seen[time] = (seen[time] or 0) + 1
  end
  return seen
end

local function each_minute_once(sim, calls, minutes)
  local seen, list = count(times(calls)), {}
  for time, number in pairs(seen) do
    equal(number, 1, time)
    list[#list + 1] = time
  end
  equal(#list, minutes)
  equal(sim:errors(), {})
end

test("a command has the crontab's environment, its input, and the time that is meant", function()
  local sim = begin "MAILTO=''\nA = 'x y '\nSHELL=/bin/sh\n30 3 * * * work --fast%one%two\\%\nA=z\n31 3 * * * work\n"
  sim:stub("work", "")
  sim:elect()
  sim:run(4 * HOUR)
  local first, second = table.unpack(sim:calls "work")
  equal({ first.shell, first.stdin, first.cwd }, { "work --fast", "one\ntwo%\n", "/" })
  equal({ first.env.A, first.env.LOGNAME, first.env.HOME, first.env.PATH, first.env.MAILTO }, { "x y ", "joe", "/", "/usr/bin:/bin", "" })
  equal(first.env.LUNARCH_CRON_TIME, "2024-01-01T03:30:00Z")
  equal({ second.shell, second.stdin, second.env.A }, { "work", "", "z" })
end)

test("in the night of spring a job of the hour that is left out runs once, one of each hour goes on, each once", function()
  -- Berlin, 2024-03-31: 02:00 is 03:00
  local sim = begin("CRON_TZ=Europe/Berlin\n30 2 * * * nightly\n0 * * * * hourly\n", 89 * DAY)
  sim:stub("nightly", "")
  sim:stub("hourly", "")
  sim:elect()
  sim:run(2 * DAY + MINUTE)
  equal(times(sim:calls "nightly"), { "2024-03-30T01:30:00Z", "2024-03-31T01:00:00Z" })
  equal(#sim:calls "hourly", 48)
end)

test("in the night of autumn a job of the hour that comes twice runs once, one of each hour goes on, each once", function()
  -- Berlin, 2024-10-27: 03:00 is 02:00
  local sim = begin("CRON_TZ=Europe/Berlin\n30 2 * * * nightly\n0 * * * * hourly\n", 299 * DAY)
  sim:stub("nightly", "")
  sim:stub("hourly", "")
  sim:elect()
  sim:run(2 * DAY + MINUTE)
  equal(times(sim:calls "nightly"), { "2024-10-26T00:30:00Z", "2024-10-27T00:30:00Z" })
  equal(#sim:calls "hourly", 48)
end)

test("a clock that is set back or forward by minutes repeats no job, and one that is missed for less than catch_up runs late", function()
  local sim = begin "* * * * * work\n0 1 * * * hourly\n"
  sim:stub("work", "")
  sim:stub("hourly", "")
  local leader = sim:elect()
  sim:run(30 * MINUTE)
  sim:clock(leader, -5 * MINUTE)
  sim:run(20 * MINUTE)
  sim:clock(leader, 15 * MINUTE) -- over the full hour
  sim:run(30 * MINUTE)
  for time, number in pairs(count(times(sim:calls "work"))) do
    equal(number, 1, time)
  end
  equal(times(sim:calls "hourly"), { "2024-01-01T01:00:00Z" })
end)

test("over hand-overs no minute is lost, and none runs twice", function()
  local sim = begin "* * * * * work\n"
  sim:stub("work", { takes = 3 })
  sim:elect()
  sim:run(30)
  for _ = 1, 12 do
    sim:await_next()
    to_minute(sim, -0.5)
    assert(sim:handover())
    sim:run(2 * MINUTE)
  end
  to_minute(sim, 10)
  each_minute_once(sim, sim:calls "work", sim:now() // MINUTE)
end)

test("over crashes nothing runs twice, whatever the moment, and a minute that nobody had begun is caught up", function()
  local sim = begin "# lunarch: name=work\n* * * * * work\n"
  sim:stub("work", { takes = 5 })
  sim:elect()
  for i = 1, 20 do
    to_minute(sim, 0.01 * (i - 10))
    local dead = sim:kill_leader()
    sim:next_leader()
    sim:run(90)
    sim:start(dead)
  end
  for time, number in pairs(count(times(sim:calls "work"))) do
    equal(number, 1, time)
  end
  equal(sim:errors(), {})
end)

test("a run that its machine's death has cut is not begun again, but with on_crash=again", function()
  local sim = begin "30 0 * * * once\n# lunarch: on_crash=again\n30 0 * * * again\n"
  sim:stub("once", { takes = 600 })
  sim:stub("again", { takes = 600 })
  sim:elect()
  sim:run(31 * MINUTE)
  sim:kill_leader()
  sim:next_leader()
  sim:run(30 * MINUTE)
  equal(times(sim:calls "once"), { "2024-01-01T00:30:00Z" })
  equal(times(sim:calls "again"), { "2024-01-01T00:30:00Z", "2024-01-01T00:30:00Z" })
end)

test("what nobody led for is caught up once, for as long as catch_up says, and else left out, which is said", function()
  local sim = begin([[
# lunarch: name=hour catch_up=1h
*/10 * * * * hour
*/10 * * * * ten
# lunarch: name=no catch_up=no
5 * * * * no
# lunarch: name=always catch_up=always
5 0 * * * always
]])
  for _, name in ipairs { "hour", "ten", "no", "always" } do
    sim:stub(name, "")
  end
  sim:elect()
  sim:run(MINUTE)
  sim:crash "a" sim:crash "b" sim:crash "c"
  sim:run(37 * MINUTE)
  sim:start "b"
  sim:elect()
  sim:run(MINUTE)
  equal(times(sim:calls "hour"), { "2024-01-01T00:30:00Z" })
  equal(times(sim:calls "ten"), { "2024-01-01T00:30:00Z" })
  equal(times(sim:calls "always"), { "2024-01-01T00:05:00Z" })
  equal(#sim:calls "no", 0)
  sim:crash "b"
  sim:run(36 * MINUTE) -- 01:15
  sim:start "c"
  sim:elect()
  sim:run(MINUTE)
  equal(#sim:calls "no", 0)
  equal(#sim:calls "ten", 2)
  sim:crash "c"
  sim:run(42 * MINUTE)
  sim:start "a"
  sim:elect()
  sim:run(2)
  equal(#sim:events { event = "cron_skipped" }, 0)
end)

test("overlap: cron's way is to allow it; skip leaves a time out, wait runs the last one when it can", function()
  local sim = begin [[
* * * * * allow
# lunarch: name=skip overlap=skip
* * * * * skip
# lunarch: name=wait overlap=wait
* * * * * wait
]]
  for _, name in ipairs { "allow", "skip", "wait" } do
    sim:stub(name, { takes = 150 })
  end
  sim:elect()
  sim:run(10 * MINUTE + 30)
  equal(#sim:calls "allow", 10)
  equal(times(sim:calls "skip"), { "2024-01-01T00:01:00Z", "2024-01-01T00:04:00Z", "2024-01-01T00:07:00Z", "2024-01-01T00:10:00Z" })
  equal(times(sim:calls "wait"), { "2024-01-01T00:01:00Z", "2024-01-01T00:03:00Z", "2024-01-01T00:06:00Z", "2024-01-01T00:08:00Z" })
  matches(sim:events("cron_skipped")[1].message, 'the job "skip" .* is left out for 2024%-01%-01T00:02:00Z: its last run had not ended')
end)

test("overlap=wait: a time that came while the last run went on is not late", function()
  local sim = begin "# lunarch: name=wait overlap=wait\n*/20 * * * * wait\n"
  sim:stub("wait", { takes = 39 * MINUTE })
  sim:elect()
  sim:run(150 * MINUTE)
  equal(times(sim:calls "wait"), { "2024-01-01T00:20:00Z", "2024-01-01T00:40:00Z", "2024-01-01T01:20:00Z", "2024-01-01T02:00:00Z" })
  equal(#sim:events { event = "cron_skipped" }, 0)
end)

test("on_crash=again: what was done is not done again because telling about it took long", function()
  local sim = begin("# lunarch: name=again on_crash=again\n5 0 * * * bad\n", 0, { on_failure = "tell" })
  sim:stub("bad", { code = 1 })
  sim:stub("tell", { takes = 55 })
  sim:elect()
  sim:run(5 * MINUTE + 10)
  equal(#sim:calls "tell", 1)
  sim:kill_leader()
  sim:next_leader()
  sim:run(5 * MINUTE)
  equal(#sim:calls "bad", 1)
end)

test("a failure that is known is tried again, with pauses, and then told; what was lost with its machine is not", function()
  local sim = begin("# lunarch: name=bad retries=2\n5 0 * * * bad\n# lunarch: name=slow timeout=1m retries=2\n5 0 * * * slow\n"
    .. "# lunarch: name=lost retries=2\n20 0 * * * lost\n", 0, { on_failure = "tell" })
  sim:stub("bad", { code = 7, stdout = "no disk" })
  sim:stub("slow", { takes = 600 })
  sim:stub("lost", { takes = 600, code = 1 })
  sim:stub("tell", "")
  sim:elect()
  sim:run(10 * MINUTE)
  equal({ #sim:calls "bad", #sim:calls "slow" }, { 3, 1 })
  local told = {}
  for _, call in ipairs(sim:calls "tell") do
    told[call.env.LUNARCH_CRON_JOB] = call.env.LUNARCH_CRON_STATUS .. ", " .. call.env.LUNARCH_CRON_WHY .. ", " .. call.stdin
  end
  equal(told, { bad = "failed, exit status 7, no disk", slow = "timeout, it was stopped after its timeout of 60 s, " })
  equal(sim:metric("lunarch_cron_runs_total", { cron_job = "bad", status = "failed" }), 1)
  sim:run(11 * MINUTE)
  sim:kill_leader()
  sim:next_leader()
  sim:run(30 * MINUTE)
  equal(#sim:calls "lost", 1)
end)

test("a job that has begun is waited for when the leader stops, and what is due meanwhile is the next leader's", function()
  local sim = begin "# lunarch: name=work\n* * * * * work\n"
  sim:stub("work", { takes = 20 })
  local leader = sim:elect()
  to_minute(sim, 5)
  sim:stop(leader)
  sim:run(10 * MINUTE)
  each_minute_once(sim, sim:calls "work", sim:now() // MINUTE)
  equal(#sim:events { event = "cron_failed" }, 0)
end)

test("hundreds of jobs of one minute run, each once, and their marks fit into the record", function()
  local lines = {}
  for i = 1, 300 do
    lines[i] = ("*/5 * * * * work %d\n"):format(i)
  end
  local sim = begin(table.concat(lines))
  sim:stub("work", "")
  sim:elect()
  sim:run(2)
  sim:await_next()
  sim:run(5 * MINUTE - sim:now() % (5 * MINUTE) + 0.05)
  sim:kill_leader()
  sim:next_leader()
  sim:run(4 * MINUTE)
  local seen = {}
  for _, call in ipairs(sim:calls "work") do
    seen[call.shell] = (seen[call.shell] or 0) + 1
  end
  for i = 1, 300 do
    equal(seen["work " .. i], 1, i)
  end
end)

test("a clock that is set back while a job runs, and a schedule or a reason of many words, cost no term", function()
  local sim = begin(("0-59,"):rep(150) .. "0-59 * * * * long\n")
  sim:stub("long", { code = 1, stderr = ("why "):rep(500), takes = 50 })
  sim:elect()
  sim:run(MINUTE + 5)
  local leader = sim:leader()
  sim:clock(leader, -HOUR)
  sim:run(2 * MINUTE)
  equal(sim:leader(), leader)
  equal(sim:errors(), {})
  equal(#sim:events "worker_malformed", 0)
  equal(#sim:events "cron_failed", 1)
end)
