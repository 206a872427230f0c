/* Room loop: what stands beside the event loop: blocking calls on threads, timers (real or simulated), name look-ups,
 * TCP connections, child processes.
 *
 * Timers, by an event loop's clock or by a simulated clock.
 * Not the clock of leases (clock.h). It does no I/O.
 * Used by the elector and the scheduler. In `lunarch test` they use a simulated timeline for each node. */
#pragma once

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In the caller's memory, on one timeline. Stop it before that memory is freed. */
struct timer {
	void (*due)(struct timer *); /* called once; it may start the timer again */
	union {
		ev_timer loop;
		struct {
			double at;
			uint64_t order; /* among timers that are due at the same moment */
			size_t place;   /* in the heap, from 1; 0 = it does not run */
		} virtual;
	};
};

struct timeline;
struct timeline_ops {
	double (*now)(struct timeline *);
	void (*init)(struct timer *);
	void (*start)(struct timeline *, struct timer *, double after_s); /* a timer that does not run */
	void (*stop)(struct timeline *, struct timer *);                  /* a timer that runs or not */
};

struct timeline {
	const struct timeline_ops *ops;
	struct ev_loop *loop; /* of a real timeline */
	struct timer **heap;  /* of a simulated one: the first is due first */
	size_t running, room;
	uint64_t order;
	const double *now; /* of a simulated one: its time in seconds. Borrowed; its owner changes it */
};

void timeline_init(struct timeline *l, struct ev_loop *loop);
void timeline_init_virtual(struct timeline *l, const double *now);
void timeline_fini(struct timeline *l);

/* The timeline's time in seconds. It is read anew, unlike ev_now(), and nobody sets it back. */
double timeline_now(struct timeline *l);

void timer_init(struct timeline *l, struct timer *t, void (*due)(struct timer *));
void timer_start(struct timeline *l, struct timer *t, double after_s); /* if it runs, it is started again */
void timer_stop(struct timeline *l, struct timer *t);                  /* it need not run */

/* Of a simulated timeline: when its first timer is due (HUGE_VAL: none runs); stops that timer and calls its `due`. */
double timeline_first(const struct timeline *l);
void timeline_fire(struct timeline *l);
