-- For luacheck: the globals that scripts run by Lunarch see, and their tests. Made by scripts/api.lua.
std = "lua54"
max_line_length = false
unused_args = false
globals = { "may_lead", "on_leading", "on_new_leader", "on_next", "on_next_over", "on_no_leader", "on_start", "on_stopped", "on_stopping" }
read_globals = { "election", "every", "exec", "http", "json", "log", "lunarch", "sleep", "spawn", "tasks", "time" }
files["**/*_test.lua"] = { read_globals = { "equal", "expect", "matches", "raises", "simulate", "test" } }
