#include "locks/lock_listing.h"

#include "base/buf.h"
#include "base/mem.h"
#include "locks/lock.h"
#include "locks/lock_url.h"

#include <stdlib.h>
#include <string.h>

/* Where the name is, or belongs. */
static size_t position_of(const struct lock_listing *l, const char *name, bool *there)
{
	size_t from = 0, to = l->count;

	*there = false;
	while (from < to && !*there) {
		size_t middle = from + (to - from) / 2;
		int order = strcmp(name, l->name[middle]);
		*there = order == 0;
		if (order > 0)
			from = middle + 1;
		else
			to = middle;
	}
	return to;
}

bool lock_listing_add(struct lock_listing *l, const char *name, const char *also)
{
	struct buf b = { 0 };
	bool there;

	buf_adds(&b, "");
	if (also)
		lock_url_encode(&b, name, also);
	else
		buf_adds(&b, name);
	size_t at = position_of(l, b.data, &there);
	l->more |= !there && l->count == LOCK_LISTING_MOST;
	if (there || l->more) {
		buf_fini(&b);
		return !l->more;
	}
	if (!l->name)
		l->name = mem_zero(LOCK_LISTING_MOST * sizeof *l->name);
	memmove(l->name + at + 1, l->name + at, (l->count++ - at) * sizeof *l->name);
	l->name[at] = b.data;
	return true;
}

size_t lock_listing_prefix(const char *key)
{
	return strlen(key) - strlen(LOCK_PREFIX_END);
}

void lock_listing_move(struct lock_listing *to, struct lock_listing *from)
{
	lock_listing_fini(to);
	*to = *from;
	*from = (struct lock_listing){ 0 };
}

void lock_listing_fini(struct lock_listing *l)
{
	for (size_t i = 0; i < l->count; i++)
		free(l->name[i]);
	free(l->name);
	*l = (struct lock_listing){ 0 };
}
