#include "locks/postgres/pg_rehearsal.h"

#include "base/mem.h"
#include "locks/postgres/pg_sql.h"

#include <stdlib.h>

static void rehearse(struct pg_rehearsal *r, bool acquiring, struct pg_link *link)
{
	static const char *const values[PG_SWAP_VALUES] = {
		[PG_NAME] = "",   [PG_RECORD] = "",     [PG_EXPECTED] = "none", [PG_CHANNEL] = "",
		[PG_MEMBER] = "", [PG_WAITED_OUT] = "", [PG_OWN] = "f",         [PG_FLOOR] = "0",
	};

	if (r->table && pg_link_is_up(link))
		pg_sql_swap(&(struct pg_question){ .link = link, .table = r->table, .stamp = "" }, acquiring, values);
}

static void rehearsal_on_settled(struct ev_loop *loop, ev_timer *w, int revents)
{
	struct pg_rehearsal *r = w->data;

	(void)loop;
	(void)revents;
	if (r->leads && !r->renewals_done) {
		r->renewals_done = true;
		rehearse(r, false, r->renewals);
	} else if (r->alone) {
		rehearse(r, true, r->renewals);
	}
}

static void rehearse_soon(struct pg_rehearsal *r)
{
	ev_timer_stop(r->loop, &r->settled);
	ev_timer_set(&r->settled, 0.1, 0.);
	ev_timer_start(r->loop, &r->settled);
}

void pg_rehearsal_init(struct pg_rehearsal *r, struct ev_loop *loop, struct pg_link *renewals, struct pg_link *terms)
{
	*r = (struct pg_rehearsal){ .loop = loop, .renewals = renewals, .terms = terms };
	ev_init(&r->settled, rehearsal_on_settled);
	r->settled.data = r;
}

void pg_rehearsal_fini(struct pg_rehearsal *r)
{
	ev_timer_stop(r->loop, &r->settled);
	free(r->table);
}

void pg_rehearsal_use(struct pg_rehearsal *r, const char *table)
{
	if (!r->table)
		r->table = mem_dup(table);
}

void pg_rehearsal_alone(struct pg_rehearsal *r, bool alone)
{
	r->alone = alone;
}

void pg_rehearsal_led(struct pg_rehearsal *r)
{
	r->leads = true;
	if (!r->renewals_done)
		rehearse_soon(r);
}

void pg_rehearsal_renewals_up(struct pg_rehearsal *r)
{
	rehearse_soon(r);
}

void pg_rehearsal_terms_up(struct pg_rehearsal *r)
{
	rehearse(r, true, r->terms);
}

void pg_rehearsal_down(struct pg_rehearsal *r)
{
	r->leads = r->renewals_done = false;
	ev_timer_stop(r->loop, &r->settled);
}
