#include "locks/lock_failover.h"

#include <stdio.h>
#include <string.h>

void lock_failover_lease(struct lock_failover *d, nsec lease)
{
	if (lease > d->longest)
		d->longest = lease;
}

void lock_failover_found(struct lock_failover *d, const struct version *version)
{
	if (strcmp(version->text, d->own.text) != 0)
		d->own.text[0] = '\0'; /* whether it is ours, without an answer, or another's is not known */
}

void lock_failover_see(struct lock_failover *d, const char *mark, struct instant now)
{
	if (strncmp(d->mark, mark, sizeof d->mark - 1) == 0)
		return;
	snprintf(d->mark, sizeof d->mark, "%s", mark);
	d->seen = now;
}

nsec lock_failover_left(const struct lock_failover *d, nsec lease, struct instant now)
{
	nsec passed = elapsed_standby(d->seen, now), wait = lease > d->longest ? lease : d->longest;

	return !*d->mark || passed >= wait ? 0 : wait - passed;
}

const char *lock_failover_over(const struct lock_failover *d, nsec lease, struct instant now)
{
	return lock_failover_left(d, lease, now) ? "" : d->mark;
}

void lock_failover_sends(struct lock_failover *d, bool leads, nsec lease, struct instant now)
{
	if (!leads)
		d->own.text[0] = '\0';
	d->own_until = instant_min(d->own_until, instant_add(now, lease));
}

void lock_failover_wrote(struct lock_failover *d, const struct version *version, bool leads, nsec lease,
                         struct instant sent_at)
{
	d->own = leads ? *version : (struct version){ .text = "" };
	d->own_until = instant_add(sent_at, lease);
}

bool lock_failover_own(const struct lock_failover *d, const struct version *version, struct instant now)
{
	return *version->text && strcmp(version->text, d->own.text) == 0 && !instant_passed(d->own_until, now);
}
