---@meta
-- What a test file run by `lunarch test` sees besides Lua's own libraries. For editors; scripts/api.lua makes docs/api.md of it.
-- luacheck: ignore

---Adds a test: a sentence that must hold, and a function that checks it. An error of the function, or of a hook, is a failure.
---@param name string
---@param f fun()
function test(name, f) end

---Fails the test here if the value is false or nil.
---@param value any
---@param message? string
---@return any value
function expect(value, message) end

---Fails the test here if the two differ; tables are compared by content.
---@param got any
---@param want any
---@param message? string
function equal(got, want, message) end

---Fails the test here if the text does not match the Lua pattern.
---@param text string
---@param pattern string
---@param message? string
function matches(text, pattern, message) end

---Fails the test here if f raises no error, or one that does not match the pattern.
---@param f fun()
---@param pattern? string
function raises(f, pattern) end

---@class lunarch.SimNode
---@field name string
---@field args? any[] the script's arguments on this node; default: those of all
---@field env? table<string, string|number|false> environment variables besides those of all; false: it has none of that name
---@field options? string[] those of `lunarch run`, after those of all
---@field priority? integer as `--priority`: the ready standby with the largest comes next (0)

---@class lunarch.SimOptions
---@field script string path, relative to the test file's directory
---@field nodes? (string|lunarch.SimNode)[]|integer names, nodes with something of their own, or how many (3)
---@field args? any[] the script's arguments
---@field env? table<string, string|number|false> environment variables of the script, besides the test's own
---@field options? string[] those of `lunarch run`, as `"--lease-duration=60s"`
---@field seed? integer the same seed (1) gives the same run
---@field latency? number seconds that a message takes, give or take a half (0.005)

---Starts nodes that run a script, each with the real elector, on a simulated store, network and clock. Only one simulation can be open.
---@param options lunarch.SimOptions
---@return lunarch.Sim
function simulate(options) end

---A program that a script wanted to run, or a request that it wanted to send.
---@class lunarch.Call
---@field kind "exec"|"http"
---@field method? string http
---@field url? string
---@field headers? table<string, string> names in lower case
---@field body? string
---@field statement? string lunarch.mysql
---@field values? table its values
---@field argv? string[] exec
---@field program? string its name without a directory; of a shell line the first word
---@field shell? string the shell line
---@field stdin? string
---@field cwd? string
---@field env? table<string, string|false>
---@field timeout? number
---@field node string
---@field time number seconds since the beginning
---@field leading boolean whether the term that asked led at that moment
---@field token? integer
---@field lock? string

---A stub's answer for a program. A text stands for its `stdout`.
---@class lunarch.Reply
---@field code? integer exit status (0)
---@field signal? integer what killed it
---@field stdout? string
---@field stderr? string
---@field takes? number seconds until it ends
---@field missing? boolean there is no such program

---A stub's answer for an HTTP server. A text stands for its `body`.
---@class lunarch.HttpReply
---@field status? integer 200
---@field headers? table<string, string> names in lower case
---@field body? string
---@field json? any the body, as JSON
---@field takes? number seconds until it answers
---@field unreachable? boolean there is no such server

---A stub's answer for a MariaDB or MySQL server, for each statement, those of transactions too.
---@class lunarch.MysqlReply
---@field rows? table[] each a table by column
---@field count? integer how many rows were changed (1, or the number of rows)
---@field insert_id? integer
---@field errno? integer the server refuses
---@field sqlstate? string
---@field message? string its words
---@field takes? number seconds until it answers
---@field unreachable? boolean there is no such server

---A line of a node's log.
---@class lunarch.Event
---@field time number seconds since the beginning
---@field node string
---@field level "debug"|"info"|"warn"|"error"
---@field event string as in docs/operations.md; "print" for what scripts print
---@field message string
---@field lock? string
---@field term? integer
---@field token? integer

---What `simulate` returns.
---@class lunarch.Sim
local Sim = {}

---Lets so much simulated time pass.
---@param seconds number
function Sim:run(seconds) end

---Lets time pass until f returns a true value; raises if that takes longer than the limit.
---@param f fun(): any
---@param limit? number seconds (3600)
---@return any value what f returned
---@return number seconds what it took
function Sim:run_until(f, limit) end

---Lets time pass until a node leads.
---@param election? string its name, or its lock as the script has it; default: the first. An unknown one is an error
---@return string node
function Sim:elect(election) end

---Lets time pass until another node leads than the present one, or than the one that kill_leader has stopped.
---@param election? string
---@return string node
---@return number seconds what it took
function Sim:next_leader(election) end

---Lets time pass until somebody comes next.
---@param election? string
---@return string node
---@return number seconds what it took
function Sim:await_next(election) end

---Hands over as `lunarch ctl handover` does, and lets time pass until somebody leads, or until it is said that the leader leads on.
---@param to? string node; default: whoever comes next
---@param timeout? number seconds in which that node is to come next (30)
---@param election? string
---@return string? node who leads then; nil: the term goes on
---@return number|string took seconds for which nobody led; or why the term goes on
function Sim:handover(to, timeout, election) end

---The simulated time since the beginning.
---@return number seconds
function Sim:now() end

---Ends the simulation; the end of a test does so, too.
function Sim:close() end

---Sets what a program or a server answers to the script; no real one is asked. `"*"` stands for all that have no stub of their own. Without a
---stub, the script's call is an error.
---@param name string a program (of a shell line the first word), or the beginning of a URL, also of one by `unix:`
---@param reply? lunarch.Reply|lunarch.HttpReply|lunarch.MysqlReply|string|fun(call: lunarch.Call): lunarch.Reply|lunarch.HttpReply|lunarch.MysqlReply|string|nil
function Sim:stub(name, reply) end

---The programs that scripts have run, and the requests that they have sent, in order. A name that no stub answers is an error.
---@param name? string as `sim:stub` has it: a program, or the beginning of a URL
---@return lunarch.Call[]
function Sim:calls(name) end

---The node that leads, by its own clock.
---@param election? string
---@return string? node
function Sim:leader(election) end

---The node that comes next, as the leader knows it: the one for which it releases the lock when it stops.
---@param election? string
---@return string? node
function Sim:next(election) end

---Whether the node leads in any election.
---@param node string
---@return boolean
function Sim:is_leading(node) end

---The names of the nodes.
---@return string[]
function Sim:nodes() end

---A metric that the scripts have set with lunarch.metrics: its sum over all nodes, or its value on one. What a script sets is there 50 ms later.
---@param name string
---@param labels? table<string, string|number|boolean> exactly these
---@param node? string
---@return number? value nil: no script that runs has set it
function Sim:metric(name, labels, node) end

---The record in the store, with `holderIdentity`, `token`, `state` and so on. `checkpoint` is what the script saved; `cron` is what
---`term:cron` keeps beside it.
---@param election? string
---@return table? record nil: there is none
function Sim:record(election) end

---The lines that scripts have printed.
---@param pattern? string
---@param node? string
---@return string[]
function Sim:printed(pattern, node) end

---The lines that nodes have logged.
---@param filter? string|table an event's name, or fields that must be equal (`message` is a pattern); no other field, and no node that there is not
---@return lunarch.Event[]
function Sim:events(filter) end

---The errors of hooks since the last call. An error that the test does not ask for makes it fail.
---@return string[]
function Sim:errors() end

---Cuts nodes off from the store: messages are lost without an error.
---@param node string
---@param ... string
function Sim:partition(node, ...) end

---Connects nodes with the store again; without names: all nodes.
---@param ... string
function Sim:heal(...) end

---Stops the node's whole machine for so long.
---@param node string
---@param seconds number
function Sim:pause(node, seconds) end

---Ends that.
---@param node string
---@param ... string
function Sim:wake(node, ...) end

---Sets a node's wall clock: it is so many seconds ahead of the others' (behind, if less than 0). No lease depends on it.
---@param node string
---@param seconds number
function Sim:clock(node, seconds) end

---Stops nodes as a power cut does: nothing is released.
---@param node string
---@param ... string
function Sim:crash(node, ...) end

---Starts a node that has crashed or was stopped.
---@param node string
---@param ... string
function Sim:start(node, ...) end

---Stops nodes as SIGTERM does.
---@param node string
---@param ... string
function Sim:stop(node, ...) end

---Kills the process that runs the script. The process that replaces it runs on_stopped.
---@param node string
---@param ... string
function Sim:kill_worker(node, ...) end

---Stops the leader as a power cut does.
---@param election? string
---@return string node the one that led
function Sim:kill_leader(election) end

---Makes the node resign, as `lunarch ctl resign` does.
---@param node string
---@param seconds? number for which it does not campaign (one lease)
function Sim:resign(node, seconds) end

---Deletes the record, as a person might.
---@param election? string
function Sim:delete_record(election) end

---Deletes the record of who comes next, as a person might. Somebody comes next again soon.
---@param election? string
function Sim:delete_next(election) end

---Takes from all nodes the right to read and write the record of who comes next, as a store may where nobody has granted it.
---@param election? string
function Sim:deny_next(election) end

---Grants it again.
---@param election? string
function Sim:allow_next(election) end

---Puts this checkpoint into the record, as a person might. The holder stays the same.
---@param value any what JSON can hold
---@param election? string
function Sim:edit_checkpoint(value, election) end

---Makes the store refuse everything from now on.
function Sim:store_down() end

---Makes the store work again.
function Sim:store_up() end

---Sets how long a message takes from now on, give or take a half.
---@param seconds number
function Sim:latency(seconds) end

---Sets which part of the messages is lost from now on.
---@param part number 0 to 1
function Sim:loss(part) end
