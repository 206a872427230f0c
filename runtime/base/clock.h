/* Time for leases: two clocks read together, and the rule for which of them counts.
 * Not wall-clock time (that is for people: clock_wall_us), not a timer.
 * Used by every room. The lease machine is passed its instants, so that a simulator can choose them. */
#pragma once

#include <stdint.h>

typedef int64_t nsec; /* a duration in nanoseconds */

#define NSEC_PER_MS INT64_C(1000000)
#define NSEC_PER_SEC INT64_C(1000000000)
#define NSEC_NEVER INT64_MAX

/* CLOCK_BOOTTIME counts suspend but may be slewed; CLOCK_MONOTONIC_RAW is never slewed but stops in suspend
 * (clock_gettime(2)). Neither alone bounds a lease, so both are kept. */
struct instant {
	nsec boot, raw;
};

/* Two clock reads through the vDSO, no system call. Async-signal-safe. */
struct instant clock_now(void);

/* How long a holder must assume has passed: the larger of the two clocks' differences. */
nsec elapsed_holder(struct instant from, struct instant now);

/* How long a standby may assume has passed: the smaller of the two. */
nsec elapsed_standby(struct instant from, struct instant now);

/* from + d on both clocks. Saturates. */
struct instant instant_add(struct instant from, nsec d);

/* The earlier value of each clock: the deadline that both a and b respect. */
struct instant instant_min(struct instant a, struct instant b);

/* True once either clock has reached the deadline: the rule for a holder. */
int instant_passed(struct instant deadline, struct instant now);

/* Nanoseconds until instant_passed becomes true, 0 if it is. */
nsec instant_until(struct instant deadline, struct instant now);

/* Microseconds since 1970 by the wall clock. For people, and for the counter of a token; decides nothing else. */
int64_t clock_wall_us(void);

/* CLOCK_MONOTONIC, the clock of timers. It may be slewed and stops in suspend, so it decides nothing about leases. */
nsec clock_monotonic(void);

/* For `lunarch test`, which simulates time: all the clocks above read v from now on. NULL: they read the machine's
 * clocks again. v is borrowed; its owner changes `now`. */
struct clock_virtual {
	nsec now;        /* the time of all clocks but the wall clock */
	int64_t wall_us; /* the wall clock when now is 0 */
};
void clock_pretend(const struct clock_virtual *v);
