---@meta lunarch.notify
-- luacheck: ignore

---Tells people something. Each function returns true, or `nil, err`. A message is sent again only if the first one surely did not arrive.
---@class lunarch.notify
local notify = {}

---@class lunarch.WebhookOptions
---@field timeout? number seconds for all of it (30)
---@field retries? integer (3) unless idempotent, only a request that surely was not done is sent again
---@field backoff? number seconds (0.2)
---@field idempotent? boolean it may arrive twice
---@field token? true|string the term's token as a header
---@field headers? table<string, string|number|false>
---@field bearer? string
---@field user? string
---@field password? string
---@field tls? lunarch.HttpTls
---@field proxy? string
---@field unix? string a socket's path

---@class lunarch.SlackOptions: lunarch.WebhookOptions
---@field channel? string
---@field username? string
---@field icon_emoji? string
---@field icon_url? string
---@field blocks? table[]
---@field attachments? table[]

---@class lunarch.Mail
---@field to string|string[] as `box@host` or `Name <box@host>`
---@field cc? string|string[]
---@field from? string default: the user
---@field subject? string
---@field body? string UTF-8
---@field headers? table<string, string>
---@field sendmail? string|string[] the program, with arguments ("/usr/sbin/sendmail")
---@field timeout? number seconds (60)

---@class lunarch.SyslogOptions
---@field priority? "emerg"|"alert"|"crit"|"err"|"warning"|"notice"|"info"|"debug" ("notice")
---@field facility? string as "daemon" (the default), "user", "local0"
---@field tag? string the program's name in the entry ("lunarch")
---@field socket? string instead of /dev/log
---@field timeout? number seconds (5)

---Posts a value as JSON. Errors have only the host of the URL: the rest is a secret.
---@param url string
---@param payload any
---@param options? lunarch.WebhookOptions
---@return true? done the server took it (status 200 to 299)
---@return lunarch.Error? err with the answer's `status`, if there was one
function notify.webhook(url, payload, options) end

---Says something in a chat that has Slack's incoming webhooks (Slack, Mattermost, Rocket.Chat).
---@param url string
---@param text string
---@param options? lunarch.SlackOptions
---@return true? done
---@return lunarch.Error? err
function notify.slack(url, text, options) end

---Sends a mail through the system's sendmail, or what stands in for it (postfix, exim, msmtp).
---@param mail lunarch.Mail
---@return true? done sendmail took it
---@return lunarch.Error? err
function notify.mail(mail) end

---Writes to the system log, through logger(1). Each line is an entry.
---@param text string
---@param options? lunarch.SyslogOptions
---@return true? done
---@return lunarch.Error? err
function notify.syslog(text, options) end

return notify
