#include "program/order_table.h"

#include <string.h>

const struct order order_table[ORDERS + 1] = {
	[ORDER_STATUS] = { "status", false, "status",
	                   "its elections: phase, term, token, time left, what keeps them from leading, who comes next" },
	[ORDER_IS_LEADING] = { "is-leading", false, "is-leading", "exit status 0 if it leads, 1 if not" },
	[ORDER_DEADLINE] = { "deadline", false, "deadline",
	                     "for how many seconds it leads unless the lease is renewed, for work that a receiver ends in\n"
	                     "time; status 1 if it does not lead" },
	[ORDER_WHY] = { "why", false, "why",
	                "why it does not lead now, who comes next, then its last decisions with their times" },
	[ORDER_RESIGN] = { "resign", true, "resign [DUR]",
	                   "end the term, hand over, campaign again after DUR (preset: one lease); status 1 if it\n"
	                   "does not lead: then it only sits out, if DUR is given" },
	[ORDER_HANDOVER] = { "handover", true, "handover",
	                     "of the elector that leads: end the term and hand over to the candidate that comes next, or\n"
	                     "to the one that --to names; prints who leads now, and for how long nobody did. Status 75 if\n"
	                     "nobody comes next within --timeout, or not the one that --to names: the term goes on" },
	[ORDER_PAUSE] = { "pause", true, "pause", "stop campaigning; a running term goes on" },
	[ORDER_RESUME] = { "resume", true, "resume", "campaign again" },
	[ORDER_RELOAD] = { "reload", true, "reload",
	                   "load the script again, as SIGHUP does; status 1 and the error if it cannot be loaded" },
	[ORDER_RUN] = { "run", true, NULL, NULL },
};

const struct order *order_find(const char *name)
{
	for (const struct order *x = order_table; x->name; x++)
		if (strcmp(x->name, name) == 0)
			return x;
	return NULL;
}
