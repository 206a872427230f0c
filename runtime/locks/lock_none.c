/* No store at all: every process has a record of its own, and so always leads. For --leader-elect=false, where every
 * replica shall work, and for development. */
#include "locks/lock_op.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct none {
	struct lock lock;
	struct lock_env *env;
	struct lock_op op;
	struct record record;
	uint64_t version;               /* 0: there is no record */
	const struct record *wanted;    /* to be written; NULL: it is a read */
	const struct version *expected; /* by the write */
};

/* In the turn of the loop after the one in which it was asked for: what is cancelled before was not done. */
static void none_act(struct lock_op *op)
{
	struct none *n = (struct none *)(void *)((char *)op - offsetof(struct none, op));
	struct lock_result r = { .outcome = n->version ? LOCK_OK : LOCK_ABSENT,
		                 .record = n->version ? &n->record : NULL };
	char now[24] = "";

	if (n->version)
		snprintf(now, sizeof now, "%" PRIu64, n->version);
	if (n->wanted && strcmp(now, n->expected->text) != 0) {
		r.outcome = LOCK_CONFLICT;
	} else if (n->wanted) {
		record_copy(&n->record, n->wanted);
		n->version++;
		r.outcome = LOCK_OK;
	}
	if (n->version)
		snprintf(r.version.text, sizeof r.version.text, "%" PRIu64, n->version);
	lock_op_finish(op, &r);
}

static void none_write(struct lock *l, const struct record *r, const struct version *expected, bool, struct instant by,
                       lock_done_fn *done, void *arg)
{
	struct none *n = (struct none *)l;

	n->wanted = r;
	n->expected = expected;
	lock_op_begin(&n->op, n->env, l, NULL, r != NULL, by, done, arg);
	lock_op_soon(&n->op, none_act);
}

static void none_read(struct lock *l, struct instant by, lock_done_fn *done, void *arg)
{
	none_write(l, NULL, NULL, false, by, done, arg);
}

static void none_cancel(struct lock *l)
{
	lock_op_cancel(&((struct none *)l)->op);
}

static void none_close(struct lock *l)
{
	none_cancel(l);
	record_fini(&((struct none *)l)->record);
	free(l->url);
	free(l);
}

static struct lock *none_open(struct lock_env *env, const char *url, struct err *)
{
	struct none *n = mem_zero(sizeof *n);

	n->lock = (struct lock){ .ops = &lock_none, .url = mem_printf("none:%s", url) };
	n->env = env;
	record_init(&n->record);
	return &n->lock;
}

const struct lock_ops lock_none = {
	.scheme = "none",
	.token_in_record = true,
	.open = none_open,
	.read = none_read,
	.write = none_write,
	.cancel = none_cancel,
	.close = none_close,
};
