-- reads from a pipe that nobody writes to
return {
  on_start = function() print("started") end,
  on_leading = function(term)
    os.execute("mkfifo " .. os.getenv("DIR") .. "/fifo")
    local f = io.open(os.getenv("DIR") .. "/fifo", "r+")
    print("leading") -- not before: a test may take away the right to write there then
    f:read(1)
  end,
  on_stopped = function(term, reason) print("stopped", reason) end,
}
