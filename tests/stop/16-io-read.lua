-- reads from a pipe that nobody writes to
return {
  on_start = function() print("started") end,
  on_leading = function(term)
    print("leading")
    os.execute("mkfifo " .. os.getenv("DIR") .. "/fifo")
    local f = io.open(os.getenv("DIR") .. "/fifo", "r+")
    f:read(1)
  end,
  on_stopped = function(term, reason) print("stopped", reason) end,
}
