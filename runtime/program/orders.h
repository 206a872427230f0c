/* How a running elector answers what it is asked at its control socket (order_table.h). Not the socket (control.h),
 * and not what an order does: run and exec do that (struct orders_ops). Used by run and exec, through program.h. */
#pragma once

#include "program/control.h"
#include "program/standing.h"

/* What run and exec differ in. An op that is NULL: the order is refused as one that is not for `what`. */
struct orders_ops {
	const char *what;    /* "a script" */
	standing_list *list; /* its elections */
	bool (*ending)(const void *arg);
	/* Appends what runs: "script":PATH, or its like. */
	void (*head)(const void *arg, struct buf *out);
	/* Appends lines to those of the elections; NULL: there are none. */
	void (*tell)(const void *arg, struct buf *out);
	/* election: "" means all. sit_out: NSEC_NEVER means for a lease. */
	void (*resign)(void *arg, const char *election, nsec sit_out);
	void (*pause)(void *arg, const char *election, bool pause);
	/* These answer later, by q->ticket (control_answer), unless they fail. e leads. */
	int (*hand_over)(void *arg, const struct standing *e, const struct control_request *q, nsec timeout,
	                 struct err *err);
	int (*run)(void *arg, const struct standing *e, const struct control_request *q, struct err *err);
	void (*reload)(void *arg, uint64_t ticket); /* likewise */
};

struct orders {
	const struct orders_ops *ops;
	void *arg;
};

/* A control_handler's work. */
void orders_answer(const struct orders *o, const struct control_request *q, struct buf *reply);
