/* The admin endpoint (--listen): a page for people; /leader, /standby, /readyz, /healthz, /status, /why, /history,
 * /jobs, /events and /metrics for load balancers, probes, monitoring, and programs that follow who leads. Not the
 * control socket: it takes no orders, and nothing about the election depends on it. Used by program.c, which asks run
 * and exec for their elections. */
#pragma once

#include "base/err.h"
#include "program/standing.h"

struct admin;
struct ev_loop;
struct events;

/* What the endpoint says at a path to a program: an HTTP status, with body (appended) and, if it is not plain text,
 * *type. */
struct buf;
int admin_answer(const struct standing_source *source, const char *path, struct buf *body, const char **type);

/* address: HOST:PORT, [IPV6]:PORT or :PORT (every address of the machine), port 0 = a free one, which the log says; or
 * unix:PATH, unix:PATH?mode=OCTAL (0600 unless told otherwise; listener_unix). Resolves the host, which may block: call
 * it before the loop runs. events: borrowed, outlives it. NULL with *err. */
struct admin *admin_new(struct ev_loop *loop, const char *address, const struct standing_source *source,
                        struct events *events, struct err *err);
void admin_free(struct admin *a); /* removes a Unix socket; NULL: does nothing */
