-- Takes a second to tidy up.
return {
  on_leading = function() end,
  on_stopped = function(_, reason)
    print("tidying", reason)
    sleep(1)
    print("tidied", reason)
  end,
}
