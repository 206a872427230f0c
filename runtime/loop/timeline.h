/* Timers, by an event loop's clock or by a simulated clock.
 * Not the clock of leases (clock.h), and no I/O.
 * Used by the elector and the scheduler, which run unchanged in `lunarch test`: it makes a simulated timeline for each
 * node. */
#ifndef LUNARCH_TIMELINE_H
#define LUNARCH_TIMELINE_H

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Caller's memory, and on one timeline only; must be stopped before it goes. */
struct timer {
	void (*due)(struct timer *); /* once; it may start the timer again */
	union {
		ev_timer loop;
		struct {
			double at;
			uint64_t order; /* among those of the same moment */
			size_t place;   /* in the heap, from 1; 0 = it does not run */
		} virtual;
	};
};

struct timeline;
struct timeline_ops {
	double (*now)(struct timeline *);
	void (*init)(struct timer *);
	void (*start)(struct timeline *, struct timer *, double after_s); /* it does not run */
	void (*stop)(struct timeline *, struct timer *);                  /* it may run or not */
};

struct timeline {
	const struct timeline_ops *ops;
	struct ev_loop *loop; /* of the real one */
	struct timer **heap;  /* of a virtual one: the first is due first */
	size_t running, room;
	uint64_t order;
	const double *now; /*     borrowed: its time in seconds, which its maker sets */
};

void timeline_init(struct timeline *l, struct ev_loop *loop);
void timeline_init_virtual(struct timeline *l, const double *now);
void timeline_fini(struct timeline *l);

/* Seconds by a clock that nobody sets, as of now: however long the script has computed. */
double timeline_now(struct timeline *l);

void timer_init(struct timeline *l, struct timer *t, void (*due)(struct timer *));
void timer_start(struct timeline *l, struct timer *t, double after_s); /* anew if it runs; counted from now */
void timer_stop(struct timeline *l, struct timer *t);                  /* nothing if it does not run */

/* Of a virtual one: when its first timer is due (HUGE_VAL: none runs); calls that timer, having stopped it. */
double timeline_first(const struct timeline *l);
void timeline_fire(struct timeline *l);

#endif
