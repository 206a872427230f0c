/* The guard: the small process between elector and worker that makes sure the tree dies in time.
 * No heap, no threads, no Lua, no lock code, nothing that can fail once it runs; a session of its own (but for a
 * command on a terminal), the tree's subreaper. Used by main.c for the role `-x guard ...`, whose arguments only
 * supervisor.c makes. What they say to each other is guard_wire.h. */
#pragma once

/* The process' exit status. Signals are blocked. Only what is ours, and needs little memory, may run before
 * guard_await_go(go) has returned: nothing of the script. */
typedef int guard_worker(int argc, char **argv, int go);

/* argv: CONTROLFD WIREFD PAGEFD MARKSFD KEPTFD TREEFD ELECTORFD worker|command|foreground|held|held-foreground, then
 * what to run: the arguments of the role worker after KEPTFD, or the command, which starts at once, or with the order
 * GUARD_BEGIN (held). worker: what a worker runs, in a fork of the guard, with the arguments of that role. -1 stands
 * for a descriptor that is not there. The process that starts it has blocked all signals, so that none can end it.
 * The environment is the worker's. Exit status: 0 = nothing of the tree lives any more. */
int guard_main(int argc, char **argv, guard_worker *worker);

/* For a worker, which has got `go`: returns once the guard has all that it needs to kill it, or ends the process if the
 * guard has ended. Takes the descriptor. */
void guard_await_go(int go);
