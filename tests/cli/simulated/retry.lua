-- Asks a server that is down at first.
local retry = require "lunarch.retry"

return {
  on_leading = function(term)
    local r, err = retry.call(function(try)
      local r, err = http.get("https://api.example.org/", { timeout = 5 })
      if not r then return nil, err end
      if r.ok then return r.body end
      return nil, "status " .. r.status .. " at try " .. try
    end, { tries = 4, pause = 10, jitter = 0, pause_max = 25, on_failure = function(why, try, pause) print(try, why, pause) end })
    print("result", r, err)
  end,
}
