-- A daily report by mail: what yesterday's errors were. Each day has one, also the days on which no machine was up to make it.
--   lunarch run --lock URL examples/report.lua -- LOG_FILE MAIL_ADDRESS [SENDMAIL]
-- The log has lines like "2026-11-21T10:00:00Z ERROR disk full". The last day that was reported is in the lock's record: after a night
-- without a leader the next one makes up for it (catch_up), and one that was interrupted is made again (again): rather twice than never.
local notify, template = require "lunarch.notify", require "lunarch.template"
local source, to, sendmail = ...
assert(to, "usage: lunarch run report.lua -- LOG_FILE MAIL_ADDRESS [SENDMAIL]")

local page = template.compile([[
{% if errors %}
The errors of {{day}}, the most frequent first:

{% for error in errors %}
{{error}}
{% end %}
{% else %}
There were no errors on {{day}}.
{% end %}
{% if late %}

This was due at {{due}}, when nobody was there.
{% end %}
]], { name = "report" })

local function errors_of(day)
  local r, err = exec { { "grep", "-E", ("^%sT[^ ]* ERROR "):format(day), source }, { "cut", "-d", " ", "-f", "3-" }, { "sort" }, { "uniq", "-c" },
    { "sort", "-k1,1nr" }, { "head", "-n", "20" }, timeout = 600 }
  if not r then error(err.message) end
  if r.stages[1].code == 2 then error(r.stderr) end -- 1: nothing was found
  local list = {}
  for line in r.stdout:gmatch "[^\n]+" do list[#list + 1] = line end
  return #list > 0 and list
end

local function report(tick)
  local day = os.date("!%Y-%m-%d", tick.time - 86400)
  local text = page { day = day, errors = errors_of(day), late = tick.caught_up, due = time.iso(tick.time) }
  local sent, err = notify.mail { to = to, subject = "Errors of " .. day, body = text, sendmail = sendmail, headers = { ["X-Report"] = day } }
  if not sent then error(err.message) end
  log.info("report_sent", { day = day, to = to })
end

return {
  on_leading = function(term)
    term:cron("0 6 * * *", report, { zone = "UTC", catch_up = "all", again = true, name = "report" })
  end,
}
