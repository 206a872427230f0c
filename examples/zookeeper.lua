-- Ships the lines of a file that grows, in order, wherever the leader runs: each line goes to a command's standard input.
--   lunarch run --lock zookeeper://HOST:PORT,HOST:PORT/ship examples/zookeeper.lua -- FILE COMMAND [SECONDS]
-- How far it has come is in the lock's own record (term:save): the next leader goes on from there, and a leader that was paused and
-- has lost the lock cannot move it back. A line is shipped again only if a leader dies between the command and the save; the command
-- finds its number and the term's token in its environment (LINE, LUNARCH_TOKEN) if it has to tell.
local file, command, seconds = ...
seconds = tonumber(seconds) or 1
assert(file and command, "usage: lunarch run --lock zookeeper://HOST:PORT/PATH zookeeper.lua -- FILE COMMAND [SECONDS]")

-- Whole lines only: what is still being written waits for its end.
local function next_line(position)
  local f, why = io.open(file, "rb")
  if not f then
    log.warn("unreadable", { file = file, why = why })
    return nil
  end
  f:seek("set", position)
  local line = f:read("L")
  f:close()
  return line and line:sub(-1) == "\n" and line or nil
end

return {
  on_leading = function(term)
    local done = term:load() or { lines = 0, position = 0 }
    log.info("goes on", { behind = done.lines, token = term.token })
    term:every(seconds, function()
      for line in function() return next_line(done.position) end do
        local r = assert(exec(command, { stdin = line, env = { LINE = tostring(done.lines + 1) }, timeout = 30 }))
        if not r.ok then error(("line %d was not taken: %s"):format(done.lines + 1, r.stderr)) end
        done = { lines = done.lines + 1, position = done.position + #line }
        assert(term:save(done))
      end
    end, { now = true })
  end,
}
