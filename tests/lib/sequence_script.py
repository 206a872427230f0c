"""The scripts of random sequences (tests/cluster/sequences): each is a few words, from which its Lua is made.

Not what is done with them: sequence_play.py does that. Used by the files whose names begin with sequence_.

The first word has a letter for each election, in their order ("ba"); the others change something of it ("isolate",
"syntax", "stopping"). Each hook of a term writes a line to the witness, a file that all electors share."""

from dataclasses import dataclass

LEASE_S = 2.0  # not shorter: a machine that is shared stands still for some tenths of a second now and then
TIMES = "lease_duration = 2, renew_deadline = 1, retry_period = 0.2, stop_grace = 0.3, shutdown_grace = 2,"
OTHER_TIMES = "lease_duration = 3, renew_deadline = 1.9, retry_period = 0.3, stop_grace = 0.3, shutdown_grace = 2,"
OPTIONS = ["--kill-allowance", "400ms", "--drift-allowance", "200ms"]
SHUTDOWN_GRACE_S = 2.0
# Of what can be loaded: which elections there are, and in which order.
ELECTIONS = ["ab", "ba", "a", "b", "abc", "cab", "ac"]
KEYS = ["lockb", "renamed", "isolate", "isob", "times", "address"]
HOOKS = ["stopping", "stophangs", "stoppedslow", "stoppedhangs", "nostopped", "busy", "maylate", "next", "saves"]
TASKS = ["loops", "raises", "child"]
SLOW = ["slow", "slowone"]
# With one of these it cannot be loaded.
BROKEN = ["syntax", "endless", "fails", "badlock", "half"]

PRELUDE = """
local VERSION, ELECTOR, WITNESS = %(version)d, "%(elector)s", "%(witness)s"
local stat <close> = assert(io.open("/proc/self/stat"))
local PID = stat:read("n")
local function say(hook, name, want, term)
  local up <close> = assert(io.open("/proc/uptime"))
  local f <close> = assert(io.open(WITNESS, "a"))
  f:setvbuf "no" -- a task may be ended between write and close: its line must not come later
  local line = "%%s %%s %%d %%s %%s %%s %%d %%d %%.2f\\n"
  f:write(line:format(hook, term.identity, VERSION, name, want, term.lock, term.token, PID, up:read("n")))
end
local BEGAN = time.monotonic()
local function once(what)
  local f = io.open(WITNESS .. "." .. ELECTOR .. "." .. what)
  if f then f:close() return false end
  io.open(WITNESS .. "." .. ELECTOR .. "." .. what, "w"):close()
  return true
end
"""


@dataclass
class Script:
    """words: as above. version: the number of this text, which no other has."""

    words: str
    version: int
    elector: str
    witness: str
    locks: str  # a URL, to which the lock's letter is added

    def has(self, word: str) -> bool:
        return word in self.words.split("+")[1:]

    @property
    def letters(self) -> str:
        return self.words.split("+")[0]

    def name(self, letter: str) -> str:
        return "x" if letter == "a" and self.has("renamed") else letter

    def lock(self, letter: str) -> str:
        return self.locks + (letter + "2" if letter == "b" and self.has("lockb") else letter)

    def elections(self) -> set[tuple[str, str]]:
        """Their names and locks."""
        return {(self.name(x), self.lock(x)) for x in self.letters}

    def workers(self) -> int:
        """How many processes run it."""
        count = len(self.letters)
        if count == 1:
            return 1
        if self.has("isolate"):
            return count
        return 2 if self.has("isob") and "b" in self.letters else 1

    def loads(self) -> bool:
        return not any(self.has(w) for w in BROKEN)

    def address(self) -> str:
        return f"v{self.version}:1" if self.has("address") else "host:1"

    def text(self) -> str:
        lua = PRELUDE % {"version": self.version, "elector": self.elector, "witness": self.witness}
        if self.has("syntax"):
            lua += "return { on_leading = = }\n"
        if self.has("endless"):
            lua += "while true do end\n"
        if self.has("slow"):
            lua += 'os.execute("sleep 0.4")\n'
        if self.has("slowone"):
            lua += 'if once("slow" .. VERSION) then os.execute("sleep 0.4") end\n'
        if self.has("fails"):
            lua += 'error("it does not load")\n'
        lua += "return {\n" + "".join(self.election(x) for x in self.letters) + "}\n"
        return lua[: len(lua) * 2 // 3] if self.has("half") else lua

    def election(self, letter: str) -> str:
        lock = "nosuch://x" if letter == self.letters[-1] and self.has("badlock") else self.lock(letter)
        isolated = self.has("isolate") or (letter == "b" and self.has("isob"))
        keys = [
            f'name = "{self.name(letter)}", lock = "{lock}", address = "{self.address()}",',
            OTHER_TIMES if self.has("times") else TIMES,
            "isolate = true," if isolated else "",
        ]
        return "  {\n    " + "\n    ".join([k for k in keys if k] + self.hooks(letter)) + "\n  },\n"

    def hooks(self, letter: str) -> list[str]:
        who = f'"{self.name(letter)}", "{self.lock(letter)}"'
        leading = [f'say("leading", {who}, term)']
        if self.has("raises"):
            leading.append(f'if once("raised{letter}") then error("once") end')
        if self.has("child"):
            leading.append('spawn(function() exec { "sleep", "1000" } end)')
        if self.has("saves"):
            leading.append(f'term:every(0.1, function() if term:save {{ 1 }} then say("acts", {who}, term) end end)')
        leading.append(f'term:every(0.05, function() say("acts", {who}, term) end)')
        found = [f"on_leading = function(term) {' '.join(leading)} end,"]
        if self.has("stopping") or self.has("stophangs"):
            time = "0.3" if self.has("stopping") else "1000"
            found.append(f'on_stopping = function(term) say("stopping", {who}, term) sleep({time}) end,')
        if not self.has("nostopped"):
            end = "sleep(0.15)" if self.has("stoppedslow") else "while true do end" if self.has("stoppedhangs") else ""
            found.append(
                f'on_stopped = function(term) say("stopped", {who}, term) {end} say("ended", {who}, term) end,'
            )
        if self.has("busy"):
            found.append('on_new_leader = function() os.execute("sleep 0.4") end,')
        elif self.has("loops"):
            found.append("on_new_leader = function(l) if not l.is_self then while true do end end end,")
        if self.has("maylate"):
            found.append('may_lead = function() sleep(0.1) return time.monotonic() > BEGAN + 0.5, "not yet" end,')
        if self.has("next"):
            found.append("on_next = function(s) s:every(0.05, function() end) end, on_next_over = function() end,")
        return found
