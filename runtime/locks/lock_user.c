#include "locks/lock_user.h"

#include <stdio.h>
#include <stdlib.h>

void lock_user_init(struct lock_user *u, const struct lock_ops *lock, const struct lock_user_ops *ops, char *url,
                    struct lock_server *server, char *channel)
{
	u->lock = (struct lock){ .ops = lock, .url = url };
	u->ops = ops;
	u->env = server->env;
	u->server = server;
	u->channel = channel;
	u->call = ops->call;
	lock_member_init(&u->member, &server->board);
}

static struct lock_user *user_begin(struct lock *l, bool writing, struct instant by, lock_done_fn *done, void *arg)
{
	struct lock_user *u = (struct lock_user *)l;

	lock_op_begin(&u->op, u->env, l, u->ops->detach, writing, by, done, arg);
	u->op.doubt = l->advice ? NULL : &u->doubt;
	u->acquiring = u->durable = false;
	u->about = NULL;
	u->listing = NULL;
	return u;
}

void lock_user_read(struct lock *l, struct instant by, lock_done_fn *done, void *arg)
{
	struct lock_user *u = user_begin(l, false, by, done, arg);

	u->ops->begin(u);
}

void lock_user_write(struct lock *l, const struct record *r, const struct version *expected, bool durable,
                     struct instant by, lock_done_fn *done, void *arg)
{
	struct lock_user *u = user_begin(l, true, by, done, arg);

	u->expected = *expected;
	u->token = r->token;
	u->durable = durable && !l->advice;
	u->acquiring = r->token == 0 && !l->advice;
	if (u->acquiring && u->server)
		lock_member_rename(&u->member);
	if (lock_op_print(&u->op, r))
		u->ops->begin(u);
}

void lock_user_remove(struct lock *l, const struct version *expected, struct instant by, lock_done_fn *done, void *arg)
{
	struct lock_user *u = user_begin(l, true, by, done, arg);

	u->op.removing = true;
	u->expected = *expected;
	u->ops->begin(u);
}

void lock_user_about(struct lock *l, struct lock_about *about, struct instant by, lock_done_fn *done, void *arg)
{
	struct lock_user *u = user_begin(l, false, by, done, arg);

	u->about = about;
	u->ops->begin(u);
}

void lock_user_list(struct lock *l, struct lock_listing *out, struct instant by, lock_done_fn *done, void *arg)
{
	struct lock_user *u = user_begin(l, false, by, done, arg);

	u->listing = out;
	u->ops->begin(u);
}

void lock_user_cancel(struct lock *l)
{
	lock_op_cancel(&((struct lock_user *)l)->op);
}

bool lock_user_watch(struct lock *l, lock_changed_fn *changed, void *arg)
{
	struct lock_user *u = (struct lock_user *)l;

	lock_server_watch(u->server, &u->member, u->channel, changed, arg);
	return !lock_member_is_deaf(&u->member);
}

void lock_user_close(struct lock *l)
{
	struct lock_user *u = (struct lock_user *)l;
	struct lock_server *server = u->server;

	lock_op_cancel(&u->op);
	if (server)
		lock_server_unwatch(server, &u->member);
	free(u->channel);
	free(u->lock.url);
	if (u->ops->free)
		u->ops->free(u);
	else
		free(u);
	if (server)
		lock_server_put(server);
}

struct lock_identity *lock_user_identity(struct lock *l)
{
	return &((struct lock_user *)l)->server->identity;
}

void lock_user_end(struct lock_user *u, enum lock_outcome outcome)
{
	lock_op_finish(&u->op, &(struct lock_result){ .outcome = outcome });
}

void lock_user_wrote(struct lock_user *u, const char *version, int64_t token)
{
	struct lock_result r = { .outcome = LOCK_OK, .token = token };

	snprintf(r.version.text, sizeof r.version.text, "%s", version);
	lock_op_finish(&u->op, &r);
}

void lock_user_doubts(struct lock_user *u, const char *mark, const char *why)
{
	struct instant now = clock_now();

	lock_failover_see(&u->doubt, mark, now);
	lock_op_fail(&u->op, LOCK_FAILED, ERR_UNREACHABLE, "%s: nobody is elected for another %.1f s", why,
	             (double)lock_failover_left(&u->doubt, u->op.lease, now) / NSEC_PER_SEC);
}
