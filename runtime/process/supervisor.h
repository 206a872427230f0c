/* Room process: three processes: how the elector starts guard and worker, talks to them, and kills a process tree in
 * time.
 *
 * One guard and the worker (or the user's command) below it, supervised from the elector's process.
 * Not an elector: it knows terms only as slots of the shared page. Not the guard itself: that is guard.h.
 * Used by the commands run and exec. */
#pragma once

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "process/deadline_page.h"
#include "process/supervisor_spec.h"
#include "process/wire.h"
#include "process/worker_doing.h"

#include <stdbool.h>

struct reaper;
struct supervisor;

/* They are called from the loop, never from inside a supervisor_ function. All but gone may be NULL. */
struct supervisor_callbacks {
	/* A message from the worker; w is valid until the callback returns. false: it is malformed, or makes no sense
	 * now. Then it is logged, the worker is killed, and no message follows. */
	bool (*message)(void *arg, enum wire_type type, struct wire *w);
	/* The worker or the command has ended with this wait status; what it left behind is being killed. At most
	 * once. */
	void (*ended)(void *arg, int wait_status);
	/* The guard is gone too. reaped: nothing of the tree lives. status: as for ended, or -1 if nobody saw it.
	 * Called exactly once, last; the supervisor may be freed in it. */
	void (*gone)(void *arg, bool reaped, int wait_status);
	/* Answer to a supervisor_sweep that was false: how many leftovers of that term and of that on_next were killed;
	 * clean = false if some process cannot be attributed. Sweeps of a slot that are asked for before an earlier one
	 * is answered have one answer, with the last term and the last next that were asked for. */
	void (*swept)(void *arg, uint32_t slot, uint64_t term, uint32_t next, int killed, bool clean);
	/* command: it was stopped (SIGTSTP) or went on */
	void (*stopped)(void *arg, bool stopped);
};

/* Spawns guard and worker (posix_spawn); spec is borrowed until it returns, the reaper, which must have adopted
 * (reaper_adopt), until gone. Everything is done on the reaper's loop. The worker has a page of PAGE_SLOTS slots.
 * A worker starts with its wire, page, kept and tree descriptors inheritable: all but the last are for it to mark
 * O_CLOEXEC. A command that cannot be run says so on stderr and ends with 127 (not found) or 126, as with env(1). NULL
 * with *err. */
struct supervisor *supervisor_spawn(struct reaper *reaper, const struct supervisor_spec *spec,
                                    const struct supervisor_callbacks *cb, void *arg, struct err *err);

/* A command that is held starts in this term, which is in slot 0 before the guard hears of it. env: as in the spec,
 * where each of these names has a place already. false, and nothing was started: the guard is gone or ends, the term
 * does not fit its order, or the command is not held. Once only: if the guard dies after that, its tree is dead, as
 * with any guard, and nobody knows whether the command ran. */
bool supervisor_begin(struct supervisor *c, const struct supervisor_term *t, char *const *env);

struct page *supervisor_page(struct supervisor *c);

/* What its worker does now, without the election's name. Reads /proc. */
void supervisor_worker_doing(const struct supervisor *c, struct worker_doing *out);

/* Whether what it runs blocks it (worker_doing.h), as it says itself: reads the page alone. */
bool supervisor_worker_blocks(const struct supervisor *c);

/* Queues a message of at most WIRE_MAX bytes (more is a bug, and ends this process); never blocks. A worker that leaves
 * 4,096 messages unread is killed. */
void supervisor_send(struct supervisor *c, const struct buf *message);

/* Sets the kill allowance K: past kill deadline + K/2 the elector kills the guard itself. K must be at most the
 * allowance of every term that runs here. */
void supervisor_allow(struct supervisor *c, nsec kill_allowance);

/* A slot's kill deadline has moved away: it may save this process the wake-up at the earlier one. */
void supervisor_extended(struct supervisor *c);

/* A slot's kill deadline came nearer or into force: the guard must look at the page. Send it before WIRE_LEAD. The
 * orders below do the same besides. */
void supervisor_poke(struct supervisor *c);

/* SIGRTMIN to the worker: look at the page now, even inside a Lua loop. It ends a worker that has no handler for it
 * yet. */
void supervisor_interrupt(struct supervisor *c);
/* Hears now what the guard has said: `ended` and `stopped` may come from inside. For a command. */
void supervisor_listen(struct supervisor *c);
void supervisor_signal(struct supervisor *c, int signal); /* to the command's process group (worker: to the worker) */
void supervisor_kill(struct supervisor *c);               /* everything, now; gone follows */

/* Kills what that term (0: none) and what the on_next of that number (0: none) left behind. The worker starts nothing
 * more for either. true: nothing of any term or on_next is there, and `swept` does not follow. */
bool supervisor_sweep(struct supervisor *c, uint32_t slot, uint64_t term, uint32_t next);

/* Call it after gone. While the tree may live it is a mistake, which ends this process. */
void supervisor_free(struct supervisor *c);
