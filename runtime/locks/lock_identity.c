#include "locks/lock_identity.h"

#include <stdio.h>
#include <string.h>

static void take(char *to, const char *name)
{
	snprintf(to, LOCK_IDENTITY_SIZE, "%s", name);
}

bool lock_identity_is(struct lock_identity *i, const char *name, const char *kind, const char *what, struct err *err)
{
	if (!*name)
		return true;
	if (!*i->known)
		take(i->known, name);
	if (strcmp(i->known, name) == 0) {
		*i->other = '\0';
		return true;
	}
	take(i->other, name);
	err_set(err, ERR_INVALID,
	        "%s belongs to %s %s, expected %s %s, which this process has used so far: it is another store, and nothing "
	        "is written to it. If it has taken the place of the other one, as after a restore, a restart or "
	        "`lunarch ctl reload` accepts it; else take its address out of the lock's URL",
	        kind, what, name, what, i->known);
	return false;
}

static struct lock_identity *identity_of(struct lock *l)
{
	return l->ops->identity ? l->ops->identity(l) : NULL;
}

const char *lock_identity_of(struct lock *l)
{
	const struct lock_identity *i = identity_of(l);

	return i ? i->known : "";
}

void lock_identity_sign(struct lock *l, struct record *r)
{
	take(r->store, lock_identity_of(l));
}

bool lock_identity_moved(struct lock *l, const struct record *r)
{
	const char *here = lock_identity_of(l);

	return *here && *r->store && strcmp(here, r->store) != 0;
}

bool lock_identity_accept(struct lock *l)
{
	struct lock_identity *i = identity_of(l);

	if (!i || !*i->other)
		return false;
	take(i->known, i->other);
	*i->other = '\0';
	return true;
}
