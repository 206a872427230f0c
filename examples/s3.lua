-- Keeps an object of a bucket up to date with a file, from one machine of many. An old leader cannot overwrite a new one's object.
--   lunarch run --lock 's3://BUCKET/locks/publish?region=R' --lease-duration 60s examples/s3.lua -- https://BUCKET.s3.R.amazonaws.com/KEY R FILE [SECONDS]
-- The object's metadata hold the token of the term that wrote it last. A term writes on the ETag that it has read, and only where no larger
-- token stands; so a write of an old term that comes late meets another ETag, and does nothing.
local aws = require "lunarch.aws"

local url, region, file, seconds = ...
assert(file, "usage: lunarch run --lock s3://BUCKET/KEY s3.lua -- URL REGION FILE [SECONDS]")
local credentials = aws.credentials()

local function ask(method, options)
  options.aws_sigv4 = assert(credentials:sign("s3", region))
  local r = assert(http[method](url, options))
  if r.status == 403 then credentials:renew() end -- they may have expired, or been replaced
  return r
end

local function publish(term, text)
  local r = ask("get", { timeout = 10 })
  assert(r.ok or r.status == 404, r.body)
  if r.ok and r.body == text then return end
  assert((tonumber(r.headers["x-amz-meta-token"]) or 0) <= term.token, "a newer leader has written this object")
  local condition = r.ok and { ["If-Match"] = r.headers.etag } or { ["If-None-Match"] = "*" }
  condition["x-amz-meta-token"] = term.token
  r = ask("put", { body = text, headers = condition, timeout = 10 })
  assert(r.ok, r.body)
  log.info("published", { bytes = #text, token = term.token })
end

return {
  on_leading = function(term)
    term:every(tonumber(seconds) or 60, function() -- an error ends the term: what cannot be done here may work elsewhere
      local f = assert(io.open(file, "rb"))
      local text = f:read "a"
      f:close()
      publish(term, text)
    end, { now = true })
  end,
}
