#include "election/history.h"

#include "base/buf.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define BYTES_MAX 65536

struct history_line {
	struct history_line *next;
	const void *who;
	size_t size;
	char text[];
};

struct history {
	struct history_line *first, **last;
	size_t bytes;
};

static void *history_make(struct lock_env *, struct err *)
{
	struct history *h = mem_zero(sizeof *h);

	h->last = &h->first;
	return h;
}

static void drop_line(struct history *h, struct history_line **at)
{
	struct history_line *l = *at;

	*at = l->next;
	if (!l->next)
		h->last = at;
	h->bytes -= l->size;
	free(l);
}

static void history_drop(void *object)
{
	struct history *h = object;

	while (h->first)
		drop_line(h, &h->first);
	free(h);
}

struct history *history_of(struct lock_env *env)
{
	static const char key;

	return lock_env_share(env, &key, history_make, history_drop, NULL);
}

void history_add(struct history *h, const void *who, const char *event, const char *text)
{
	struct buf b = { 0 };
	char when[32];

	record_time_print(clock_wall_us(), when, sizeof when);
	buf_printf(&b, "%s %s: %s\n", when, event, text);
	struct history_line *l = mem_zero(sizeof *l + b.len + 1);
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

void history_tell(const struct history *h, const void *who, struct buf *out)
{
	for (const struct history_line *l = h->first; l; l = l->next)
		if (l->who == who)
			buf_adds(out, l->text);
}

void history_forget(struct history *h, const void *who)
{
	for (struct history_line **at = &h->first; *at;)
		if ((*at)->who == who)
			drop_line(h, at);
		else
			at = &(*at)->next;
}
