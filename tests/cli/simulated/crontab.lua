-- A crontab, as a script: what `lunarch cron` does, for crontab_test.lua.
return require "lunarch.crontab".election { files = { arg[1] }, user = "joe", home = "/", sendmail = arg[2] or "/nonexistent", on_failure = arg[3],
  directory = arg[4] }
