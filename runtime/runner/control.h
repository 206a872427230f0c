/* The control socket: a running elector answers questions and takes orders, one JSON object per line each way.
 * Not the admin endpoint for the network. What a command means is decided by the handler.
 * Used by run and exec (server) and by ctl (client).
 *
 * Request: {"command":"status"|"is-leading"|"why"|"resign"|"handover"|"pause"|"resume"|"reload", "election":NAME?,
 *          "seconds":N?, "to":IDENTITY?}
 * Answer:  {"ok":true} and, for status, "pid":N, "script":PATH (run; "-e" for a text) or "command":PROGRAM (exec),
 *          "elections":[...] (standing_json makes the elements); for
 *          is-leading, "leading":BOOL; for why, "text":LINES; for handover, "leader":IDENTITY, "address":TEXT,
 * "gapMs":N
 *          (-1: unknown) and "message":TEXT; for the others "message":TEXT, or nothing.
 *          {"ok":false,"error":TEXT} (control_refuse) otherwise; with "again":true if another try may succeed. */
#ifndef LUNARCH_CONTROL_H
#define LUNARCH_CONTROL_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct control;
struct ev_loop;

struct control_request { /* valid during the call only */
	const char *command;
	const char *election; /* "" = the request names none */
	const char *to;       /* the same */
	double seconds;       /* -1 = the request says nothing; else 0 to 1e9 */
	uint64_t ticket;      /* of this request alone: for control_answer */
};

/* Appends one JSON object to reply, without a newline; {"ok":true, ...} or control_refuse. Called from the loop. If it
 * appends nothing, the client waits for control_finish or control_answer, which may also be called inside the handler.
 */
typedef void control_handler(void *arg, const struct control_request *r, struct buf *reply);
void control_refuse(struct buf *reply, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Listens at path with mode 0600, and answers this user and root alone, whatever the mode becomes. A socket there that
 * nobody listens at is replaced; one that answers is an error. The file is there only once it accepts connections;
 * before that it is PID.new in the same directory. NULL with *err. */
struct control *control_new(struct ev_loop *loop, const char *path, control_handler *handler, void *arg,
                            struct err *err);
/* Answers all clients that wait for an answer to this command: error NULL: {"ok":true}. c NULL: does nothing. */
void control_finish(struct control *c, const char *command, const char *error);
/* Answers the request that has this ticket with one JSON object, and sends it at once as far as the socket takes it.
 * Nothing happens if its client has gone. c NULL: does nothing. */
void control_answer(struct control *c, uint64_t ticket, const struct buf *reply);

const char *control_path(const struct control *c); /* absolute, for LUNARCH_CONTROL */
void control_free(struct control *c);              /* closes its connections, unlinks; NULL: does nothing */

/* Removes the socket at path if nobody listens there. -1: somebody does, or it is no socket. */
int control_remove_stale(const char *path);

/* Client: sends one line, waits at most so long for the answer (without its newline). Blocks. ERR_MISSING: nobody
 * listens there (any more). */
int control_ask(const char *path, const char *request, int timeout_s, struct buf *reply, struct err *err);

#endif
