#include "election/decisions.h"

#include "base/buf.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define BYTES_MAX 65536

struct decision {
	struct decision *next;
	const void *who;
	size_t size;
	char text[];
};

struct decisions {
	struct decision *first, **last;
	size_t bytes;
};

static void *decisions_make(struct lock_env *, struct err *)
{
	struct decisions *h = mem_zero(sizeof *h);

	h->last = &h->first;
	return h;
}

static void drop_line(struct decisions *h, struct decision **at)
{
	struct decision *l = *at;

	*at = l->next;
	if (!l->next)
		h->last = at;
	h->bytes -= l->size;
	free(l);
}

static void decisions_drop(void *object)
{
	struct decisions *h = object;

	while (h->first)
		drop_line(h, &h->first);
	free(h);
}

struct decisions *decisions_of(struct lock_env *env)
{
	static const char key;

	return lock_env_share(env, &key, decisions_make, decisions_drop, NULL);
}

void decisions_add(struct decisions *h, const void *who, const char *event, const char *text)
{
	struct buf b = { 0 };
	char when[32];

	record_time_print(clock_wall_us(), when, sizeof when);
	buf_printf(&b, "%s %s: %s\n", when, event, text);
	struct decision *l = mem_zero(sizeof *l + b.len + 1);
	l->who = who;
	l->size = sizeof *l + b.len + 1;
	memcpy(l->text, b.data, b.len);
	buf_fini(&b);
	*h->last = l;
	h->last = &l->next;
	h->bytes += l->size;
	while (h->first && h->bytes > BYTES_MAX)
		drop_line(h, &h->first);
}

void decisions_tell(const struct decisions *h, const void *who, struct buf *out)
{
	for (const struct decision *l = h->first; l; l = l->next)
		if (l->who == who)
			buf_adds(out, l->text);
}

void decisions_forget(struct decisions *h, const void *who)
{
	for (struct decision **at = &h->first; *at;)
		if ((*at)->who == who)
			drop_line(h, at);
		else
			at = &(*at)->next;
}
