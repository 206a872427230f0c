#include "locks/postgres/pg_rehearsal.h"

#include "base/mem.h"
#include "locks/postgres/pg_sql.h"

#include <stdlib.h>

#define SETTLED_S 0.1 /* then nobody is in a hurry any more */

static void rehearse(struct pg_rehearsal *r, bool acquiring, struct lock_link *link)
{
	static const char *const values[PG_SWAP_VALUES] = {
		[PG_NAME] = "",   [PG_RECORD] = "",     [PG_EXPECTED] = "none", [PG_CHANNEL] = "",
		[PG_MEMBER] = "", [PG_WAITED_OUT] = "", [PG_OWN] = "f",         [PG_FLOOR] = "0",
	};

	if (r->table && lock_link_is_up(link))
		pg_sql_swap(&(struct pg_question){ .link = link, .table = r->table, .stamp = "" }, acquiring, values);
}

void pg_rehearsal_tick(struct pg_rehearsal *r)
{
	if (r->leads && !r->renewals_done) {
		r->renewals_done = true;
		rehearse(r, false, r->renewals);
	} else if (*r->users == 1) {
		rehearse(r, true, r->renewals);
	}
}

void pg_rehearsal_init(struct pg_rehearsal *r, struct lock_link *renewals, struct lock_link *terms, const int *users)
{
	*r = (struct pg_rehearsal){ .renewals = renewals, .terms = terms, .users = users };
}

void pg_rehearsal_fini(struct pg_rehearsal *r)
{
	free(r->table);
}

void pg_rehearsal_use(struct pg_rehearsal *r, const char *table)
{
	if (!r->table)
		r->table = mem_dup(table);
}

void pg_rehearsal_led(struct pg_rehearsal *r)
{
	r->leads = true;
	if (!r->renewals_done)
		lock_link_tick(r->renewals, SETTLED_S);
}

void pg_rehearsal_renewals_up(struct pg_rehearsal *r)
{
	lock_link_tick(r->renewals, SETTLED_S);
}

void pg_rehearsal_terms_up(struct pg_rehearsal *r)
{
	rehearse(r, true, r->terms);
}

void pg_rehearsal_renewals_down(struct pg_rehearsal *r)
{
	r->leads = r->renewals_done = false;
}
