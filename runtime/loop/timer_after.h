/* Starting a timer of libev that goes off once.
 * Not a timer of the timeline, which simulated machines have (timeline.h). Used where a loop is real. */
#pragma once

#include "base/clock.h"

#include <ev.h>

/* Starts the timer: it goes off `after` from now, and no longer when it was to go off before. */
static inline void timer_after(struct ev_loop *loop, ev_timer *t, nsec after)
{
	ev_now_update(loop);
	ev_timer_stop(loop, t);
	ev_timer_set(t, (double)after / NSEC_PER_SEC, 0.);
	ev_timer_start(loop, t);
}
