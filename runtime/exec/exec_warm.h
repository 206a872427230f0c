/* The conversation with a command that runs before this candidate leads (exec --warm): the command says that it is
 * ready, and is told that it leads. Not the command's processes, which the room exec starts and stops, and no
 * decision. Used by the room exec.
 *
 * They share a socket, of which the command has one end, LUNARCH_WARM_FD. It writes the line "ready" when it has what
 * it needs, and reads the line "lead TOKEN" when it leads. Both end with a newline. */
#pragma once

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>

struct exec_warm {
	bool asked;      /* --warm */
	unsigned number; /* of commands that were started so */
	int descriptor;  /* the number that the command has; kept free here */

	/* The rest is private to exec_warm.c. */
	struct ev_loop *loop;
	ev_io said; /* our end */
	char line[16];
	size_t length;
	bool open, ready, deaf, reset, led, puzzled;
	struct instant started;
	nsec slow; /* a command that needs longer is called cold */
};

/* Takes the lowest descriptor that is free, from 3 on, for the command, since some shells know those below 10 only. A
 * command that needs longer than slow is called cold. */
int exec_warm_init(struct exec_warm *w, nsec slow, struct err *err);
void exec_warm_fini(struct exec_warm *w);

/* A command is about to be started. Its end of the socket, which the caller closes when it has been; -1 with *err. */
int exec_warm_open(struct exec_warm *w, struct ev_loop *loop, struct err *err);
void exec_warm_close(struct exec_warm *w); /* it is gone; or was not started. Nothing is open: does nothing */

/* Tells it to lead. false: it has not said that it is ready, or no longer listens, so it was not told. */
bool exec_warm_lead(struct exec_warm *w, int64_t token);

/* The command and all it started are gone. true: it was told to lead, and none of them has read that. */
bool exec_warm_unheard(struct exec_warm *w);

/* For `ctl status`, of the candidate that comes next: "ready"; "starting", for as long as a start may take; else
 * "cold": it will be started when the candidate leads. */
const char *exec_warm_standing(const struct exec_warm *w);
