---@meta lunarch.crontab
-- luacheck: ignore

---Crontabs as they are, run by the leader alone: what `lunarch cron` does (docs/cron.md).
---@class lunarch.crontab
local crontab = {}

---@class lunarch.CrontabOptions
---@field files string[] crontabs, or directories of them
---@field system? boolean a user stands before each command; default: in /etc/crontab and /etc/cron.d
---@field user? string that runs the jobs; default: this process's
---@field home? string the same
---@field directory? string for outputs and the history; it must exist. Default: nothing is kept
---@field on_failure? string a shell line for a run that has failed; its input is the output
---@field sendmail? string default: /usr/sbin/sendmail
---@field env? string[] NAME=VALUE, or NAME for the value that this process has: as lines above the first one of each crontab
---@field env_files? string[] files with such lines, as docker's --env-file
---@field need_shells? boolean a shell that is not on this machine is an error, as with `lunarch cron`
---@field catch_up? number seconds, for jobs that do not say it (600)

---@class lunarch.CrontabJob
---@field name string
---@field path string
---@field line integer
---@field time string as it stands in the crontab
---@field zone string
---@field command string
---@field stdin? string what follows the first %
---@field env table<string, string>

---The election that runs the jobs: what a script returns. Raises what is wrong with the files, with their lines.
---@param options lunarch.CrontabOptions
---@return lunarch.Election
function crontab.election(options) end

---The jobs of crontabs. Each file is read once, until the script is reloaded; as by crontab.election.
---@param options lunarch.CrontabOptions
---@return lunarch.CrontabJob[]?
---@return lunarch.Error? err "invalid": a line for each thing that is wrong
---@return string[]? warnings what is taken, and most likely not meant: a line each
function crontab.read(options) end

---When a job runs next, after that time; seconds since 1970.
---@param job lunarch.CrontabJob
---@param after number
---@param count? integer how many times (3)
---@return integer[]
function crontab.next(job, after, count) end

---The jobs and their next times, for people.
---@param options lunarch.CrontabOptions
---@param json? boolean each line is a job as a JSON object
---@return string?
---@return lunarch.Error? err
function crontab.list(options, json) end

---The runs that a directory knows of, oldest first: job, status, time, began, took, machine, why...
---@param directory string
---@return table[]?
---@return lunarch.Error? err
function crontab.history(directory) end

---The same as a text: a line for each run.
---@param directory string
---@param json? boolean each line is a JSON object
---@return string?
---@return lunarch.Error? err
function crontab.tell(directory, json) end

return crontab
