/* Sixty-four writers at once: eight envs, which for a lock in Lua are eight processes, with eight locks each. */
#include "doctor/store_full_internal.h"

#include "base/mem.h"
#include "doctor/store_race.h"

#include <stdlib.h>

#define ROUNDS 100
#define MOST (15 * NSEC_PER_SEC)
#define WITHIN (10 * NSEC_PER_SEC)

/* false: what was told of this round is wrong, or nobody can say. */
static bool race_round(struct full *f, struct store_race *r)
{
	struct err why;

	store_race_run(r, f->x->loop, 0, r->count, WITHIN);
	enum store_verdict v = store_race_judge(r, f->a, &why);
	if (v != STORE_GOOD)
		full_tell(f, v, "%s", why.text);
	return v == STORE_GOOD;
}

void full_race(struct full *f)
{
	struct store_race *r = mem_zero(sizeof *r);
	char *url = full_url(f, "-racers");
	struct err err;
	bool good = store_trial_race(f->x, r, STORE_RACERS, url, &err) == 0;

	if (!good)
		full_tell(f, STORE_UNSURE, "%d writers cannot be opened: %s", STORE_RACERS, err.text);
	good = good && full_reads(f, f->a, "a read", LOCK_ABSENT);
	r->at = f->at;
	struct instant since = clock_now();
	while (good && r->rounds < ROUNDS && (r->rounds < 3 || full_goes_on(f, since, MOST)) && !f->x->report->signal)
		good = race_round(f, r);
	if (good && r->won == 0)
		full_tell(f, STORE_UNSURE, "in %d rounds none of %d writers was told that it had won: %s", r->rounds,
		          STORE_RACERS, store_race_why(r));
	for (int i = 0; i < r->count; i++)
		store_race_leave(&r->racer[i]);
	full_tell(f, STORE_GOOD, "%d rounds of %d writers in %d processes' worth of connections: one winner in each%s",
	          r->rounds, STORE_RACERS, STORE_WRITERS, r->unsure ? "; but some had no certain answer in time" : "");
	free(url);
	free(r);
}
