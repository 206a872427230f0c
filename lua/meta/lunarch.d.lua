---@meta
-- What a script run by lunarch sees, for editors (LuaLS: add this directory to workspace.library). Never loaded.
-- luacheck: ignore

---An expected failure: functions return it after nil. tostring gives its message.
---@class lunarch.Error
---@field code "missing"|"denied"|"full"|"timeout"|"cancelled"|"failed"|"invalid"|"unreachable"|"ended"|"closed"|"fenced"|"conflict"|"foreign"|"system"
---@field message string
---@field unsent? boolean of http: no byte of the request was sent
---@field traceback? string of a task that failed
---@field result? lunarch.ExecResult of exec, if the time was up: the output until then

---@alias lunarch.Reason
---| "resigned" # term:resign()
---| "declined" # on_leading returned false
---| "shutdown" # the program was told to stop, or os.exit was called
---| "expired" # the lease could not be renewed in time
---| "lost" # another holds the lock
---| "deleted" # the record is gone
---| "error" # on_leading, or a task of the term, raised
---| "killed" # a hook had to be killed
---| "worker" # the worker died, or was killed for another election's sake
---| "reload" # SIGHUP: the new script goes on

---One term as the leader.
---@class lunarch.Term
---@field token integer larger than every earlier term's on this lock: give it to whatever can check it
---@field identity string
---@field lock string
---@field address string
---@field slot? integer which of the election's slots, from 1 on; nil: it has none
---@field warm? table what on_next prepared: its s.data; nil: this candidate did not come next before, or on_next failed
local Term = {}

---Whether the term still leads, by the clock. It makes no system call, so it can be called before every step.
---@return boolean
function Term:is_leading() end

---Seconds until is_leading() turns false unless the lease is renewed meanwhile.
---@return number
function Term:remaining() end

---The time at which is_leading() turns false unless the lease is renewed meanwhile, as this machine's wall clock is now. It is for one piece
---of work that is shorter than a lease, and that its receiver ends by then. Ask anew for each: every renewal makes it later.
---@return number? time seconds since 1970; nil: the term does not lead
function Term:deadline() end

---Whether the term is about to end, or over: begin nothing new. True from on_stopping on.
---@return boolean
function Term:stopping() end

---Gives up the lead, and does not campaign for so many seconds (default: one lease). It returns; waits raise once the term ends.
---@param seconds? number
---@return boolean asked false: the term is ending already
function Term:resign(seconds) end

---Calls f every so many seconds until the term ends, one call at a time; missed calls are skipped.
---@param seconds number
---@param f fun()
---@param options? lunarch.EveryOptions
---@return lunarch.Task
function Term:every(seconds, f, options) end

---What on_next gets. Nothing here needs the lead: this candidate comes next, and has no token.
---@class lunarch.Next
---@field data table for what is prepared: the same table is term.warm
---@field identity string
---@field lock string
local Next = {}

---Waits until this candidate leads. It raises if it comes next no more.
---@param timeout? number seconds
---@return lunarch.Term? term the term that has begun; nil: it did not begin in time
function Next:wait(timeout) end

---Runs f as a task, which ends when this candidate comes next no more; when it leads, the task belongs to the term.
---@param f fun(...)
---@return lunarch.Task
function Next:spawn(f, ...) end

---Calls f every so many seconds, one call at a time, for as long as a task of spawn runs.
---@param seconds number
---@param f fun()
---@param options? lunarch.EveryOptions
---@return lunarch.Task
function Next:every(seconds, f, options) end

---@class lunarch.EveryOptions
---@field now? boolean the first call is at once, not after the first interval
---@field jitter? number each call is later by a random number of seconds, up to this
---@field overlap? boolean a call does not wait for the one before it

---@class lunarch.CronOptions
---@field zone? string as "Europe/Berlin"; default: the machine's
---@field catch_up? "last"|"all"|"skip"|number what was missed runs once (default), once for each, or not; a number: once, if it is less than so many seconds late
---@field again? boolean a run that the term's end has interrupted runs again
---@field overlap? boolean|"skip" true: the job may run while its last run still does; "skip": that time is left out
---@field on_skip? fun(tick: lunarch.Tick, why: "late"|"overlap") called for the last time that catch_up = number, or overlap = "skip", has left out
---@field seed? string what H is made of; default: the lock and the name
---@field name? string default: the expression

---@class lunarch.Tick
---@field time integer the time of the expression, seconds since 1970
---@field late number seconds
---@field caught_up boolean

---Calls f at the times of a cron expression: minute hour day month weekday, @daily ...; H is a value that each job has of its own.
---The last time is kept in the checkpoint, so that no later leader runs it again.
---With `again` f may call its second argument when the work is done, before it returns: what follows is then not a reason to run again.
---@param expression string
---@param f fun(tick: lunarch.Tick, done: fun())
---@param options? lunarch.CronOptions
---@return lunarch.Task
function Term:cron(expression, f, options) end

---Runs f as a task of this term.
---@param f fun(...)
---@return lunarch.Task
function Term:spawn(f, ...) end

---Puts a small table (16 KB of JSON) into the lock's record, where the next leader's load finds it. It can only succeed while
---this term leads. A store that answers before its copies have it may lose it, if the leader
---dies together with the primary (its page in docs/stores).
---@param data table
---@param options? { timeout?: number } seconds to wait for certainty
---@return true? saved the record holds it
---@return lunarch.Error? err "full": too long; "ended": the term was over first; "timeout": not known yet
function Term:save(data, options) end

---The table that was saved last, by this leader or a former one; nil: there is none.
---@return table?
---@return lunarch.Error? err
function Term:load() end

---@class lunarch.Leader
---@field identity string
---@field address string
---@field token integer
---@field is_self boolean
---@field previous? string the leader before, if known
---@field slot? integer the slot in which it leads; nil: the election has none

---@class lunarch.Election
---@field on_start? fun() once, before the first campaign
---@field on_leading? fun(term: lunarch.Term): boolean?, string? without it the election only observes
---@field on_stopping? fun(term: lunarch.Term, reason: "resigned"|"shutdown"|"reload") the term is about to end: what is to be finished can be waited for
---@field on_stopped? fun(term: lunarch.Term, reason: lunarch.Reason)
---@field on_new_leader? fun(leader: lunarch.Leader)
---@field on_no_leader? fun(previous: string?, slot: integer?)
---@field may_lead? fun(): boolean?, string?
---@field on_next? fun(s: lunarch.Next) this candidate comes next: prepare what takes time. Its tasks go over into the term
---@field on_next_over? fun(s: lunarch.Next) this candidate comes next no more, and does not lead
---@field name? string
---@field lock? string a URL, a path or a name
---@field identity? string
---@field address? string|fun(): string
---@field lease_duration? number seconds
---@field renew_deadline? number
---@field retry_period? number
---@field stop_grace? number
---@field shutdown_grace? number
---@field may_lead_timeout? number
---@field isolate? boolean a worker of its own
---@field slots? integer so many candidates lead at once, from 1 to 64, each in a lock of its own; a process leads in one at most
---@field reclaim? boolean this identity can live only once
---@field priority? integer|fun(): integer the ready standby with the largest comes next; default 0
---@field preempt? boolean hand over to a next that has had a larger priority for preempt_after
---@field preempt_after? number
---@field max_term? number hand over after so many seconds, if somebody comes next

---A task that spawn or every started.
---@class lunarch.Task
local Task = {}

---Waits for its end: its results; or nil and an error ("failed", "cancelled", "timeout").
---@param timeout? number seconds
---@return any ...
function Task:wait(timeout) end

---Every wait in it raises from now on.
function Task:cancel() end

---Whether it has ended.
---@return boolean
function Task:done() end

---The election whose hook runs, or the only one of the script.
---@class lunarch.Here
election = {}

---The last leader that was seen.
---@return lunarch.Leader? nil: nobody leads, as far as is known
function election:leader() end

---Whether this process leads, by the clock.
---@return boolean
function election:is_leading() end

---The lock's URL, without secrets.
---@return string
function election:lock() end

---Waits. Other tasks run meanwhile.
---@param seconds number
function sleep(seconds) end

---Runs f as a task of the scope in which spawn is called: the term, or the script outside of terms.
---@param f fun(...)
---@return lunarch.Task
function spawn(f, ...) end

---As term:every, but until the end of the scope in which every is called.
---@param seconds number
---@param f fun()
---@param options? lunarch.EveryOptions
---@return lunarch.Task
function every(seconds, f, options) end

tasks = {}

---Runs the functions as tasks, and waits for these and for the tasks in the list. If one raises, the others are cancelled, and the error is
---raised.
---@param list table<any, function|lunarch.Task>
---@param options? { timeout?: number }
---@return table<any, any>? results the first result of each, under its key
---@return lunarch.Error? err "timeout"
function tasks.wait_all(list, options) end

---Runs the functions as tasks, and waits for the first to end; the others are cancelled.
---@param list table<any, function|lunarch.Task>
---@param options? { timeout?: number }
---@return any key
---@return any ... its results; or nil and an error ("timeout")
function tasks.first(list, options) end

---Calls f, and cancels it if it takes longer.
---@param seconds number
---@param f function
---@return any ... what f returns; or nil and an error ("timeout")
---@param ... any its arguments
function tasks.with_timeout(seconds, f, ...) end

---@class lunarch.Scope
local Scope = {}

---A task that ends with the scope; its error is raised by tasks.scope.
---@param f fun(...)
---@return lunarch.Task
---@param ... any its arguments
function Scope:spawn(f, ...) end

---Calls f, and returns what f returns when all tasks that were spawned in the scope have ended, too.
---@param f fun(scope: lunarch.Scope, ...): any
---@return any ...
function tasks.scope(f, ...) end

---@class lunarch.Queue
local Queue = {}

---A queue between tasks; with a capacity, put waits while it is full.
---@param capacity? integer
---@return lunarch.Queue
function tasks.queue(capacity) end

---Waits while it is full.
---@param value any not nil
---@param timeout? number
---@return true? done
---@return lunarch.Error? err "timeout" or "closed"
function Queue:put(value, timeout) end

---Waits while it is empty.
---@param timeout? number
---@return any value
---@return lunarch.Error? err "timeout" or "closed"
function Queue:take(timeout) end

---The values, until it is closed and empty.
---@return fun(): any
function Queue:each() end

---No more values can be put; those in the queue can still be taken.
function Queue:close() end

---How many values are in it.
---@return integer
function Queue:size() end

---@class lunarch.Semaphore
local Semaphore = {}

---@class lunarch.Permit
local Permit = {}

---Gives the permit back. A second call does nothing.
function Permit:release() end

---A semaphore with so many permits.
---@param permits integer
---@return lunarch.Semaphore
function tasks.semaphore(permits) end

---Waits for a permit.
---@param timeout? number
---@return lunarch.Permit? permit released by permit:release(), or as a <close> variable
---@return lunarch.Error? err "timeout"
function Semaphore:acquire(timeout) end

---@class lunarch.ExecFile
---@field file string its path
---@field append? boolean

---@class lunarch.ExecOptions
---@field timeout? number seconds; then SIGTERM to the whole group
---@field kill_after? number seconds from SIGTERM to SIGKILL (2)
---@field cwd? string
---@field user? string|integer run as this user; root alone may
---@field env? table<string, string|number|false> added to the environment; false removes
---@field stdin? string|lunarch.ExecFile
---@field stdout? "capture"|"inherit"|"null"|lunarch.ExecFile
---@field stderr? "capture"|"inherit"|"null"|"stdout"|lunarch.ExecFile
---@field max_output? integer bytes kept of each output (1048576)
---@field both_ends? boolean of longer output keep the beginning and the end, with a line between that says how much is left out
---@field until_closed? boolean it has ended when nobody holds its output open any more, too: what it left in the background is a part of it
---@field background? boolean return a lunarch.Child at once

---@class lunarch.ExecResult
---@field ok boolean it exited with status 0; of a pipeline: all did
---@field code? integer its exit status
---@field signal? integer the signal that killed it
---@field stdout string
---@field stderr string
---@field truncated? true it wrote more than max_output
---@field times { elapsed: number, user: number, system: number } seconds
---@field stages? lunarch.ExecResult[] of a pipeline

---A program in the background. It ends with the term; as a <close> variable, with its block.
---@class lunarch.Child
---@field pid integer? nil after wait has returned its result
local Child = {}

---Waits for its end.
---@param timeout? number seconds; the program goes on after it
---@return lunarch.ExecResult? result
---@return lunarch.Error? err
function Child:wait(timeout) end

---Sends SIGTERM, and SIGKILL after kill_after; or only the given signal.
---@param signal? string|integer as "HUP"
---@return boolean running false: it had ended already
function Child:kill(signal) end

---Whether it still runs.
---@return boolean
function Child:running() end

---The lines of its output, as they are written.
---@param which? "stdout"|"stderr"
---@return fun(): string?
function Child:lines(which) end

---Runs a program and waits for its end: exec{"program", "argument", timeout = 5}, or exec("shell line", {timeout = 5}), or
---exec{ {"one"}, {"two"} } for a pipeline.
---@param command string|table
---@param options? lunarch.ExecOptions
---@return lunarch.ExecResult|lunarch.Child|nil result
---@return lunarch.Error? err
function exec(command, options) end

http = {}

---@class lunarch.HttpTls
---@field ca? string a file or PEM text, as the next two
---@field cert? string
---@field key? string
---@field key_password? string
---@field insecure? boolean verify nothing
---@field server_name? string
---@field http1? boolean

---How a request is signed (AWS Signature Version 4). Its body is a text, and it follows no redirect.
---@class lunarch.HttpSignature
---@field region string as "eu-central-1"
---@field service string as "s3"
---@field key string the access key's name
---@field secret string
---@field token? string the session token of temporary keys

---@class lunarch.HttpOptions
---@field headers? table<string, string|number|false>
---@field query? table<string, any>
---@field form? table<string, any>
---@field json? any
---@field body? string|fun(): string?
---@field timeout? number seconds, for all tries together (30); of a stream: until its answer begins
---@field connect_timeout? number
---@field silence? number
---@field retries? integer
---@field backoff? number seconds (0.2)
---@field idempotent? boolean the request may be sent twice
---@field token? true|string the term's token as a header
---@field stream? boolean the response is read by response:read() or response:lines(), as it comes
---@field max_body? integer
---@field redirects? integer
---@field user? string
---@field password? string
---@field bearer? string
---@field aws_sigv4? lunarch.HttpSignature the request is signed for Amazon's services, and what speaks their protocol
---@field tls? lunarch.HttpTls
---@field unix? string
---@field proxy? string
---@field no_proxy? string
---@field compressed? boolean

---@class lunarch.HttpRequest: lunarch.HttpOptions
---@field url string
---@field method? string

---@class lunarch.Response
---@field status integer
---@field ok boolean 200 to 299
---@field headers table<string, string> by lower-case name
---@field body string? nil for a stream
---@field url string
---@field repeated boolean? it was sent more than once (an idle connection was found closed, or `retries`), so the server may have acted upon it before; nil for a stream
local Response = {}

---The value of the body, which is JSON.
---@return any value
---@return lunarch.Error? err
function Response:json() end

---The next part of a stream; nil at the end; nil and an error if the connection breaks before that.
---@return string? part
---@return lunarch.Error? err
function Response:read() end

---The lines of a stream. Raises if the connection breaks before the end.
---@return fun(): string?
function Response:lines() end

---Closes a stream before its end.
function Response:close() end

---Sends a request and waits for the response, whatever its status. `nil, err` when there is none.
---@param request lunarch.HttpRequest
---@return lunarch.Response? response
---@return lunarch.Error? err
function http.request(request) end

---As http.request, with the method GET.
---@param url string
---@param options? lunarch.HttpOptions
---@return lunarch.Response? response
---@return lunarch.Error? err
function http.get(url, options) end

---As http.get, with HEAD.
---@param url string
---@param options? lunarch.HttpOptions
---@return lunarch.Response? response
---@return lunarch.Error? err
function http.head(url, options) end

---As http.get, with POST.
---@param url string
---@param options? lunarch.HttpOptions
---@return lunarch.Response? response
---@return lunarch.Error? err
function http.post(url, options) end

---As http.get, with PUT.
---@param url string
---@param options? lunarch.HttpOptions
---@return lunarch.Response? response
---@return lunarch.Error? err
function http.put(url, options) end

---As http.get, with PATCH.
---@param url string
---@param options? lunarch.HttpOptions
---@return lunarch.Response? response
---@return lunarch.Error? err
function http.patch(url, options) end

---As http.get, with DELETE.
---@param url string
---@param options? lunarch.HttpOptions
---@return lunarch.Response? response
---@return lunarch.Error? err
function http.delete(url, options) end

json = {}

---@type lightuserdata JSON's null
json.null = nil

---The JSON text of a value. Raises if JSON has no text for it.
---@return string
---@param value any
function json.encode(value) end

---The value of a JSON text; integers stay integers, null is json.null.
---@param text string
---@return any value
---@return lunarch.Error? err
function json.decode(text) end

---Marks t (default: a new table) as an array, so that json.encode writes [] if it is empty.
---@param t? table
---@return table
function json.array(t) end

log = {}

---A line of the log, if the log's level is "debug".
---@param event any a text, or with fields a snake_case word
---@param fields? table a JSON log has them as an object
function log.debug(event, fields) end

---A line of the log.
---@param event any a text, or with fields a snake_case word
---@param fields? table a JSON log has them as an object
function log.info(event, fields) end

---A warning in the log.
---@param event any a text, or with fields a snake_case word
---@param fields? table a JSON log has them as an object
function log.warn(event, fields) end

---An error in the log. The script goes on.
---@param event any a text, or with fields a snake_case word
---@param fields? table a JSON log has them as an object
function log.error(event, fields) end

time = {}

---The wall clock. It may be set.
---@return number seconds since 1970 by the wall clock
function time.now() end

---The clock of sleep.
---@return number seconds of a clock that nobody sets
function time.monotonic() end

---A time as 2024-01-31T12:00:00Z; without one, now.
---@param seconds? number
---@return string
function time.iso(seconds) end

---The seconds of a text such as 2024-01-31T12:00:00Z.
---@param text string
---@return number? seconds
---@return lunarch.Error? err
function time.parse(text) end

lunarch = {
	version = "",
	sleep = sleep, spawn = spawn, every = every, exec = exec, json = json, log = log, time = time, tasks = tasks, http = http,
}

---Stops the whole program cleanly, with this exit status. os.exit is the same.
---@param code? integer|boolean
function lunarch.exit(code) end
