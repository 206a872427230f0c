#include "election/reasons.h"

const char *reason_text(enum lease_reason r)
{
	static const char *const text[LEASE_REASONS] = {
		[LEASE_RESIGNED] = "the script or an operator resigned",
		[LEASE_DECLINED] = "on_leading declined, or it leads in another slot",
		[LEASE_SHUTDOWN] = "asked to shut down",
		[LEASE_EXPIRED] = "no renewal succeeded before the renew deadline",
		[LEASE_STOLEN] = "the record names another holder",
		[LEASE_DELETED] = "the record was deleted, emptied or replaced by something else",
		[LEASE_ERROR] = "the script failed",
		[LEASE_KILLED] = "the script did not stop in time",
		[LEASE_WORKER] = "the process that ran the script died",
		[LEASE_RELOAD] = "reloading",
		[LEASE_DONE] = "the work is done",
		[LEASE_FENCE_FAILED] = "earlier holders could not be fenced",
	};

	return (unsigned)r < LEASE_REASONS ? text[r] : "";
}

const char *reason_of_hand_over(enum next_why why)
{
	switch (why) {
	case NEXT_REQUEST:
		return "an operator asked to hand over";
	case NEXT_PRIORITY:
		return "the one that comes next has a larger priority";
	case NEXT_ROTATION:
		return "the term has lasted for --max-term";
	}
	return "";
}
