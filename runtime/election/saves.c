#include "election/saves.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

void saves_fini(struct saves *s)
{
	free(s->pending);
	free(s->leftover);
	free(s->newest);
}

void saves_add(struct saves *s, uint64_t number, const char *json)
{
	mem_replace(&s->pending, json);
	s->number = number;
}

void saves_answer(struct saves *s, uint64_t number, bool good)
{
	if (number < s->number)
		return;
	mem_replace(&s->leftover, good ? NULL : s->pending);
	mem_replace(&s->pending, NULL);
}

void saves_seen(struct saves *s, const struct record *r)
{
	if (r->writes <= s->newest_count)
		return;
	s->newest_count = r->writes;
	if (!s->newest || !r->checkpoint || strcmp(s->newest, r->checkpoint) != 0)
		mem_replace(&s->newest, r->checkpoint);
}

enum saves_restored saves_restore(struct saves *s, struct record *r, const char *incarnation)
{
	bool older =
		s->newest && r->writes > 0 && r->writes < s->newest_count && strcmp(r->incarnation, incarnation) == 0;
	bool again = s->restored_over == r->writes;

	if (!older || (r->checkpoint && strcmp(r->checkpoint, s->newest) == 0))
		return SAVES_KEPT;
	s->restored_over = r->writes;
	mem_replace(&r->checkpoint, s->newest);
	return again ? SAVES_AGAIN : SAVES_RESTORED;
}

void saves_put(struct saves *s, struct record *r, enum lease_write what)
{
	const char *put = what == LEASE_RENEW ? s->pending : s->leftover;

	if (what == LEASE_ACQUIRE)
		mem_replace(&s->leftover, NULL);
	else if (put)
		mem_replace(&r->checkpoint, put);
}
