-- For tests/cli/doctor_full.py: a lock in Box (BOX_LUA) without `remove`, which is optional.
local box = dofile(os.getenv "BOX_LUA")
box.remove = nil
return box
