/* The election simulated: the real lease machine in three to five electors, one store, a bad network, bad clocks.
 * Not a model of the rules: every decision is made by runtime/lease. What is modelled is the world around it.
 * Used by tests/sim/main.c and by the mutants, which link a broken lease machine in its place. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum fault {
	FAULT_DELAY,
	FAULT_LOST_REQUEST,
	FAULT_LOST_REPLY,
	FAULT_LATE_WRITE,
	FAULT_DUPLICATE,
	FAULT_PAUSE,
	FAULT_SUSPEND,
	FAULT_CRASH,
	FAULT_RESIGN,
	FAULT_RELOAD,
	FAULT_CONFIGURE,
	FAULT_SHUTDOWN,
	FAULT_SLOW_SCRIPT,
	FAULT_UNREAPED,
	FAULT_DELETED,
	FAULT_LANDED_AGAIN,
	FAULT_EMPTIED,
	FAULT_EDITED,
	FAULT_PARTITION,
	FAULT_CLONED,
	FAULT_FELL_BACK,
	FAULT_NOISE,
	FAULT_ASKED,
	FAULT_UNWILLING,
	FAULT_PRIORITY,
	FAULT_POKE_LOST,
	FAULT_POKE_AGAIN,
	FAULT_POKE_FORGED,
	FAULT_FENCE_FAILED,
	FAULTS
};
extern const char *const fault_names[FAULTS];

struct sim_result {
	const char *violated; /* NULL: every check held */
	int64_t violated_at_ms;
	unsigned terms, handovers;
	unsigned given, taken; /* releases for somebody; acquired by that one */
	unsigned left, fenced; /* processes that left work outside; terms that fenced somebody before they began */
	unsigned faults[FAULTS];
	int64_t virtual_ms;
	int64_t node_ms; /* the same, of all candidates together, without clones */
	bool counts;     /* 60 virtual seconds, 3 terms, a handover, 4 kinds of fault */
};

/* One election from one seed; deterministic. trace: say every event on stdout. */
struct sim_result sim_run(uint64_t seed, bool trace);
