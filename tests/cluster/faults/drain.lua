-- As witness.lua without the checkpoint; and a term that ends by somebody's will first waits for a file.
local program, file, name = arg[1], arg[2], arg[3]

local function drained()
  local f = io.open(file .. ".drained")
  return f and f:close()
end

return {
  on_leading = function() exec { program, file, name } end,
  on_stopping = function()
    print "drains"
    while not drained() do sleep(0.05) end
  end,
}
