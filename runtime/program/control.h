/* The control socket: a running elector answers questions and takes orders, over HTTP/1.1 at a Unix socket.
 * Not the admin endpoint for the network. What a command means is decided by the handler.
 * Used by run and exec; `ctl` asks it by net/serve/ask.h, and any other program by its own means.
 *
 * Request: GET /status, /is-leading, /deadline, /why, /events; POST /resign, /handover, /pause, /resume, /reload, /run;
 *          with the parameters election=NAME, seconds=N, to=IDENTITY, job=NAME, wait=1 in the URL, each where it is
 *          needed.
 * Answer:  one JSON object. 200: {"ok":true} and, for status, "pid":N, "script":PATH (run; "-e" for a text),
 *          "cron":[FILE, ...] (cron) or "command":PROGRAM (exec), "elections":[...] (standing_json makes the elements);
 * for is-leading, "leading":BOOL; for deadline, "remainingMs":N, "leadingUntil":TIME, "leadingUntilUptime":SECONDS and
 * "message":SECONDS; for why, "text":LINES; for handover, "leader":IDENTITY, "address":TEXT, "gapMs":N
 * (-1: unknown) and "message":TEXT; for run, "message":TEXT and, with wait, "exitStatus":N; for the others
 * "message":TEXT, or nothing. Else {"ok":false,"error":TEXT} (control_refuse): 409; 503 with "again":true if another
 * try may succeed; 400, 403, 404, 405 as HTTP has them. /events: events.h. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct control;
struct ev_loop;
struct events;

struct control_request { /* valid during the call only */
	const char *command;
	const char *election; /* "" = the request names none */
	const char *to;       /* the same */
	const char *job;      /* the same */
	bool wait;
	double seconds;  /* -1 = the request says nothing; else 0 to 1e9 */
	uid_t peer;      /* who asks; (uid_t)-1: the kernel does not say */
	uint64_t ticket; /* of this request alone: for control_answer */
};

/* Appends one JSON object to reply, without a newline; {"ok":true, ...} or control_refuse. Called from the loop. If it
 * appends nothing, the client waits for control_answer, which may also be called inside the handler. */
typedef void control_handler(void *arg, const struct control_request *r, struct buf *reply);
void control_agree(struct buf *reply); /* {"ok":true: the caller may append members, and closes it */
void control_refuse(struct buf *reply, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Listens at path with mode 0600 (listener_unix), and answers this user and root alone, whatever the mode becomes.
 * events: borrowed, outlives it; NULL: none. NULL with *err. */
struct control *control_new(struct ev_loop *loop, const char *path, control_handler *handler, void *arg,
                            struct events *events, struct err *err);
/* Answers the request that has this ticket with one JSON object, and sends it at once as far as the socket takes it.
 * Nothing happens if its client has gone. c NULL: does nothing. */
void control_answer(struct control *c, uint64_t ticket, const struct buf *reply);

/* "GET" or "POST": how this command is asked for. */
const char *control_method(const char *command);

const char *control_path(const struct control *c); /* absolute, for LUNARCH_CONTROL */
void control_free(struct control *c);              /* closes its connections, unlinks; NULL: does nothing */
