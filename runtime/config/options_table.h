/* The options: a row for each, which is all that there is to write for a new one. Not code: options.h and options.c
 * include it and say what becomes of a row; a script's keys, the message between worker and elector, --help, the man
 * pages and the completion follow from it. Used by options.h and options.c alone.
 *
 * ROW(NAME, TYPE, name, alias, letter, value, preset, commands, key, help), as struct option_info has them. ROW is
 * O: it has no variable of the environment; V: LUNARCH_NAME is its variable, which is removed for what a term
 * starts; KEPT: LUNARCH_NAME is its variable, and stays, since what a term starts finds its elector by it. */
V(LOCK, TEXT, "lock", NULL, 0, "URL", NULL, LEADS | LEADER | STATUS | HISTORY | RELEASE | FENCE | DOCTOR | CTL, true,
  "a store's URL, /PATH, or NAME (for this machine alone); {name} = the election's name")
V(SLOTS, NUMBER, "slots", NULL, 0, "N", NULL, EXEC | STATUS | DOCTOR, true,
  "so many lead at once, each in a lock of its own, --lock's with -1 to -N behind its name")
V(IDENTITY, TEXT, "identity", NULL, 0, "ID", NULL, LEADS, true,
  "name of this candidate (preset: hostname and a random UUID)")
V(ADDRESS, TEXT, "address", NULL, 0, "HOST:PORT", NULL, LEADS, true,
  "what `lunarch leader` prints while this candidate leads")
V(SERVICE, TEXT, "service", NULL, 0, "[NAMESPACE/]NAME[:PORT]", NULL, RUN | EXEC | CHECK | DOCTOR, false,
  "Kubernetes: keep this Service without a selector at the leader's address")
V(LEASE_DURATION, PERIOD, "lease-duration", "leader-elect-lease-duration", 0, "L", "15s", LEADS, true,
  "others may take a lease that was not renewed for so long")
V(RENEW_DEADLINE, PERIOD, "renew-deadline", "leader-elect-renew-deadline", 0, "R", "10s", LEADS, true,
  "a leader that could not renew for so long stops")
V(RETRY_PERIOD, PERIOD, "retry-period", "leader-elect-retry-period", 0, "P", "2s", LEADS, true,
  "time between renewals, and between a standby's reads")
V(STOP_GRACE, PERIOD, "stop-grace", NULL, 0, "G", "3s", LEADS, true,
  "what was started may take so long to stop, then it is killed")
V(KILL_ALLOWANCE, PERIOD, "kill-allowance", NULL, 0, "K", "1s", LEADS, false, "time set aside for the kernel to kill")
V(DRIFT_ALLOWANCE, PERIOD, "drift-allowance", NULL, 0, "D", "1s", LEADS, false,
  "time set aside for clocks that run at different rates")
V(SHUTDOWN_GRACE, DURATION, "shutdown-grace", NULL, 0, "DUR", "30s", LEADS, true,
  "on SIGTERM: time to stop before the kill; the lease is renewed")
V(MAY_LEAD_TIMEOUT, PERIOD, "may-lead-timeout", NULL, 0, "DUR", "5s", RUN | CHECK, true,
  "may_lead may take so long; then it is asked again")
V(START_TIMEOUT, PATIENCE, "start-timeout", NULL, 0, "DUR", "30s", RUN | CRON, false,
  "loading, starting and answering may take so long; then the worker is killed")
V(PRIORITY, NUMBER, "priority", NULL, 0, "N", "0", LEADS, true,
  "of the standbys that could lead, the one with the largest comes next")
V(PREEMPT, FLAG, "preempt", NULL, 0, NULL, NULL, LEADS, true,
  "while leading: hand over to a next whose priority is larger than one's own")
V(PREEMPT_AFTER, PERIOD, "preempt-after", NULL, 0, "DUR", "30s", LEADS, true,
  "when its priority has been larger for so long; needs --preempt")
V(MAX_TERM, PERIOD, "max-term", NULL, 0, "DUR", NULL, LEADS, true,
  "hand over after leading for so long, as soon as somebody comes next")
V(POKE, TEXT, "poke", NULL, 0, "auto|IP[:PORT]", NULL, RUN | EXEC | CRON, false,
  "where a store tells of no changes (S3, MariaDB): hear by UDP when to look")
V(FENCE, TEXT, "fence", NULL, 0, "LINE", NULL, RUN | EXEC | CRON, false,
  "before a term: /bin/sh makes sure that an earlier leader does nothing any more")
V(FENCE_TIMEOUT, PERIOD, "fence-timeout", NULL, 0, "DUR", "60s", RUN | EXEC | CRON, false,
  "--fence may take so long for all of them; then the term does not begin")
V(RECLAIM, FLAG, "reclaim", NULL, 0, NULL, NULL, LEADS, true,
  "this identity lives only once: take its own old record at once")
V(NO_RELEASE, FLAG, "no-release", NULL, 0, NULL, NULL, RUN | EXEC, false,
  "at the end let the lease expire instead of releasing it")
V(ONCE, FLAG, "once", NULL, 0, NULL, NULL, RUN, false, "one term, then exit")
V(SCRIPT, TEXT, "eval", NULL, 'e', "CODE", NULL, RUN | CHECK, false,
  "Lua text instead of a script; without hooks it is on_leading's body")
O(SHELL, TEXT, "command", NULL, 'c', "LINE", NULL, EXEC, false, "run this line with /bin/sh instead of a command")
V(NO_WAIT, FLAG, "no-wait", "nonblock", 'n', NULL, NULL, EXEC, false, "give up at once when another holds the lock")
V(WAIT, WAITING, "wait", "timeout", 'w', "DUR", NULL, EXEC | LEADER, false,
  "wait at most so long for the lock (leader: for an address); 10 is 10s")
O(RUN_WAIT, FLAG, "wait", NULL, 0, NULL, NULL, CRON, false,
  "run: wait until the job has ended, and exit with its status")
V(AT_LEAST, DURATION, "at-least", NULL, 0, "DUR", NULL, EXEC, false,
  "keep the lock so long even if the command ends sooner")
V(RESTART, CHOICE, "restart", NULL, 0, "never|on-loss|always", "never", EXEC, false,
  "campaign again after losing the lock, or whenever the command ends")
V(RESTART_PAUSE, PERIOD, "restart-pause", NULL, 0, "DUR", "60s", EXEC, false,
  "--restart always: the pause before the command starts again grows up to this")
V(WARM, FLAG, "warm", NULL, 0, NULL, NULL, EXEC, false,
  "start the command while this candidate comes next; it leads when it is told to")
V(CONFLICT_EXIT_CODE, STATUS, "conflict-exit-code", NULL, 'E', "N", "75", EXEC, false,
  "exit status when the lock was not acquired")
O(LEADER_ELECT, FLAG, "leader-elect", NULL, 0, NULL, "yes", LEADS, false, "no: without election, every replica works")
O(RESOURCE_LOCK, CHOICE, "leader-elect-resource-lock", NULL, 0, RESOURCES, "leases", LEADS, false,
  "kind of the Kubernetes object")
O(RESOURCE_NAME, TEXT, "leader-elect-resource-name", NULL, 0, "NAME", NULL, LEADS, false,
  "its name: instead of --lock kube://NAMESPACE/NAME")
O(RESOURCE_NAMESPACE, TEXT, "leader-elect-resource-namespace", NULL, 0, "NAMESPACE", NULL, LEADS, false,
  "its namespace (preset: the pod's, or the context's)")
V(LISTEN, TEXT, "listen", NULL, 0, "ADDRESS", NULL, RUN | EXEC | CRON, false,
  "serve a page, who leads, health and metrics over HTTP there (HOST:PORT, unix:PATH)")
V(STATE_FILE, TEXT, "state-file", NULL, 0, "FILE", NULL, RUN | EXEC | CRON, false,
  "keep a file of JSON there that says who leads, as /status does")
O(STATE_DIR, TEXT, "state-dir", NULL, 0, "DIR", NULL,
  LEADS | LEADER | STATUS | HISTORY | LIST | RELEASE | FENCE | DOCTOR | CTL, false,
  "where plain-name locks lie (preset: /var/lib/lunarch; not root: ~/.local/state/lunarch)")
O(USER, TEXT, "user", NULL, 0, "NAME[:GROUP]", NULL, RUN | EXEC | CRON, false,
  "as root: become that user before anything is opened or started")
V(NO_NEW_PRIVS, FLAG, "no-new-privs", NULL, 0, NULL, NULL, RUN | EXEC | CRON, false,
  "script or command gains no privileges and has no capabilities; so no sudo")
V(CONTROL_SOCKET, TEXT, "control", NULL, 0, "PATH", NULL, RUN | EXEC | CRON, false,
  "socket for `lunarch ctl` (preset: PID.sock in the default directory)")
KEPT(CONTROL, TEXT, "control", NULL, 0, "PATH", NULL, CTL, false,
     "socket of the elector (preset: the only one in the default directory)")
V(ELECTION, TEXT, "election", NULL, 0, "NAME", NULL, CTL | STATUS | HISTORY | LEADER | RELEASE | FENCE, false,
  "which election, where the script has several")
O(TO, TEXT, "to", NULL, 0, "ID", NULL, CTL, false,
  "handover: to the candidate of this identity (preset: whoever comes next)")
O(HANDOVER_TIMEOUT, PERIOD, "timeout", NULL, 0, "DUR", "30s", CTL, false,
  "handover: the candidate that --to names may take so long to become next")
O(LIST, FLAG, "list", NULL, 0, NULL, NULL, CTL, false, "show the electors that run here")
O(WATCH, FLAG, "watch", NULL, 0, NULL, NULL, STATUS, false,
  "go on, and print every change; --lock may be there several times")
O(PREFIX, TEXT, "prefix", NULL, 0, "URL-PREFIX", NULL, STATUS, false,
  "with --watch: all elections whose lock URL begins so, as `lunarch list` has them")
O(VERIFY, FLAG, "verify", NULL, 0, NULL, NULL, STATUS, false, "watch for at most one lease whether the leader renews")
O(JSON, FLAG, "json", NULL, 0, NULL, NULL, CRON | STATUS | HISTORY | LIST | DOCTOR | CTL, false, "print JSON")
O(SYSTEM, FLAG, "system", NULL, 0, NULL, NULL, CRON, false,
  "the crontabs have a user before each command, as /etc/crontab and /etc/cron.d have")
O(ENV, TEXT, "env", NULL, 0, "NAME[=VALUE]", NULL, CRON, false,
  "jobs get this variable, or that of `lunarch cron`; may be there several times")
O(ENV_FILE, TEXT, "env-file", NULL, 0, "FILE", NULL, CRON, false,
  "the same for each line of this file, NAME or NAME=VALUE as in docker's")
V(ON_FAILURE, TEXT, "on-failure", NULL, 0, "LINE", NULL, CRON, false,
  "run this line with /bin/sh when a job has failed; its input is the job's output")
V(OUTPUT_DIR, TEXT, "output-dir", NULL, 0, "DIR", NULL, CRON, false,
  "for outputs and the history (preset: below the default directory, by the lock)")
O(SENDMAIL, TEXT, "sendmail", NULL, 0, "PATH", "/usr/sbin/sendmail", CRON, false,
  "sends what MAILTO asks for, if this file is there")
O(FULL, FLAG, "full", NULL, 0, NULL, NULL, DOCTOR, false,
  "examine everything that a lock must do: for who writes one (docs/write-a-lock.md)")
O(NEW_LOCK, FLAG, "lock", NULL, 0, NULL, NULL, NEW, false, "a lock file for a store of yours, and its test")
O(FORCE, FLAG, "force", NULL, 0, NULL, NULL, RELEASE, false, "the holder is dead for sure, and cannot release it")
O(DONE, TEXT, "done", NULL, 0, "ID", NULL, FENCE, false, "the holder of this identity does nothing any more, for sure")
O(TOKEN, TEXT, "token", NULL, 0, "N", NULL, RELEASE | FENCE, false,
  "its newest token, so that no newer term is meant by mistake")
O(REASON, TEXT, "reason", NULL, 0, "TEXT", NULL, RELEASE | FENCE, false,
  "why; kept in the record, and logged by the candidates")
V(LOG_FORMAT, CHOICE, "log-format", NULL, 0, "text|json", "text", RUN | EXEC | CRON | CHECK, false,
  "lines for people or for programs")
V(LOG_LEVEL, CHOICE, "log-level", NULL, 0, "debug|info|warn|error", "info", RUN | EXEC | CRON | CHECK, false,
  "the lowest level that is logged")
O(VERBOSE, FLAG, "verbose", NULL, 'v', NULL, NULL, EXEC, false, "log what goes as it should, too: --log-level debug")
O(HELP, FLAG, "help", NULL, 'h', NULL, NULL, ALL, false, "this text")
O(VERSION, FLAG, "version", NULL, 0, NULL, NULL, ALL, false, "versions of Lunarch and its libraries")
