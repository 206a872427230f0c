#include "process/sweeps.h"

#include <stdlib.h>

bool sweeps_ask(struct sweeps *s, uint32_t slot, uint64_t term, uint32_t next)
{
	if (slot >= PAGE_SLOTS)
		return false;
	struct sweep *one = &s->slot[slot];
	if (!one->pending) {
		*one = (struct sweep){ .pending = true };
		s->pending++;
	}
	if (term)
		one->term = term;
	if (next)
		one->next = next;
	return true;
}

/* "slot.number", in full, else NULL. */
static struct sweep *sweeps_read(struct sweeps *s, const char *mark, uint64_t *number)
{
	char *end;
	unsigned long slot = strtoul(mark, &end, 10);

	if (end == mark || *end != '.' || slot >= PAGE_SLOTS || !s->slot[slot].pending)
		return NULL;
	const char *digits = end + 1;
	*number = strtoull(digits, &end, 10);
	return end == digits || *end != '\0' || !*number ? NULL : &s->slot[slot];
}

struct sweep *sweeps_find(struct sweeps *s, const char *term_mark, const char *next_mark)
{
	uint64_t number;
	struct sweep *one = sweeps_read(s, term_mark, &number);

	if (one && number == one->term)
		return one;
	one = next_mark ? sweeps_read(s, next_mark, &number) : NULL;
	return one && number == one->next ? one : NULL;
}

void sweeps_answered(struct sweeps *s, struct sweep *one)
{
	one->pending = false;
	s->pending--;
}
