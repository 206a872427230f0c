/* Steps of one lease machine at simulated seconds: what it is told, and what it asks for then.
 * Not what must come of that: the tests say so.
 * Used by tests/unit/lease/test_lease.c, test_lease_turns.c and test_fencing.c. */
#pragma once

#include "lease/lease.h"

#define SEC NSEC_PER_SEC

static struct lease *l;
static struct lease_actions a;
static struct lease_times times;
static uint64_t writes; /* sent by all machines of this program: the name of the last */
static uint64_t op;     /* the number of the last operation that was asked for */

static struct instant at(double s)
{
	return (struct instant){ (nsec)((s + 1000) * (double)SEC), (nsec)((s + 1000) * (double)SEC) };
}

static void step(double s, struct lease_event e)
{
	a = lease_step(l, &e, at(s));
	if (a.set & (LEASE_DO_READ | LEASE_DO_WRITE))
		op = a.op;
	if (a.set & LEASE_DO_WRITE)
		lease_step(l, &(struct lease_event){ .kind = LEASE_EV_SENT, .write = ++writes, .sent_at = at(s) },
		           at(s));
}

static void tick(double s)
{
	step(s, (struct lease_event){ .kind = LEASE_EV_TICK });
}

static struct lease_sight held(uint64_t id, nsec duration)
{
	return (struct lease_sight){
		.kind = SIGHT_HELD, .id = id, .who = id / 10, .write = id, .duration = duration, .term = 5
	};
}

static struct lease_sight ours(uint64_t write)
{
	return (struct lease_sight){ .kind = SIGHT_HELD,
		                     .id = write,
		                     .who = 1,
		                     .write = write,
		                     .mine = true,
		                     .duration = times.lease,
		                     .term = 6 };
}

static const struct lease_sight absent = { .kind = SIGHT_ABSENT };

static void read_done(double s, struct lease_sight sight)
{
	step(s, (struct lease_event){ .kind = LEASE_EV_READ_DONE, .op = op, .outcome = OUTCOME_OK, .sight = sight });
}

static void write_done(double s, enum lease_outcome o, double sent)
{
	step(s,
	     (struct lease_event){
		     .kind = LEASE_EV_WRITE_DONE, .op = op, .outcome = o, .sent_at = at(sent), .sight = ours(writes) });
}

static void begin(bool asks)
{
	times = (struct lease_times){ 0 };
	lease_times_default(&times);
	lease_init(l, &times, false, asks, 7);
	lease_watching(l, true); /* so that polling is far apart */
	step(0, (struct lease_event){ .kind = LEASE_EV_CAMPAIGN });
}

__attribute__((unused)) static void lead(void)
{
	begin(false);
	read_done(0, absent);
	write_done(0, OUTCOME_OK, 0);
}

static struct lease_sight released(uint64_t id, bool for_other)
{
	return (struct lease_sight){
		.kind = SIGHT_RELEASED, .id = id, .write = id, .duration = 15 * SEC, .term = 5, .other_first = for_other
	};
}

static bool acquires(void)
{
	return (a.set & LEASE_DO_WRITE) && a.write == LEASE_ACQUIRE;
}

static void see(double s, struct lease_sight sight)
{
	step(s, (struct lease_event){ .kind = LEASE_EV_CHANGED });
	read_done(s, sight);
}
