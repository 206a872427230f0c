-- A leader of make compare that is a script of lunarch run. It acts as actor.c does, and ends when its file .finish is there.
-- Arguments: DIR NAME obedient|busy [COMMAND...]; with a command it starts that instead. The busy one neither waits in a way that could be interrupted nor lets an error end it.
local dir, name, kind = arg[1], arg[2], arg[3]

local function finished()
  local file = io.open(("%s/%s.finish"):format(dir, name))
  if file then file:close() end
  return file ~= nil
end

local function work(acts, pause)
  while not finished() do
    acts:write(string.pack("d", time.monotonic()))
    acts:flush()
    pause()
  end
end

return {
  on_leading = function(term)
    if arg[4] then
      exec { table.unpack(arg, 4) }
      lunarch.exit(0)
    end
    local acts = assert(io.open(("%s/%s.%d.acts"):format(dir, name, term.token), "ab"))
    if kind == "busy" then
      repeat until pcall(work, acts, function() os.execute "sleep 0.01" end)
    else
      work(acts, function() sleep(0.01) end)
    end
    lunarch.exit(0)
  end,
}
