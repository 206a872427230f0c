/* One question to an HTTP server at a Unix socket of this machine, and its answer.
 * Not a client of HTTP for anything else: the server is one of ours (server.h). It blocks.
 * Used by ctl and by the completion. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

/* target: path and query, encoded. Waits at most so long for the whole answer, and appends its body, whatever its
 * status. -1 with *err; ERR_MISSING: nobody listens there (any more). */
int ask_unix(const char *path, const char *method, const char *target, int timeout_s, struct buf *body,
             struct err *err);

/* Appends text as it may stand in a query. */
void ask_encode(struct buf *out, const char *text);
