#include "locks/redis/redis_roles.h"

#include "base/mem.h"
#include "locks/lock_op.h"
#include "locks/redis/redis_link.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct asked { /* one host */
	struct redis_roles *roles;
	struct lock_url url; /* with that host alone; all in it is borrowed */
	struct lock_link *link;
	struct lock_call call;
	bool primary;
	char peer[300], run_id[48];
};

struct redis_roles {
	struct lock lock;  /* of which the question is asked: for messages */
	struct lock_op op; /* ends the question in time */
	int hosts, open;
	struct asked asked[LOCK_URL_HOSTS];
	struct redis_found found;
	redis_roles_fn *done;
	void *arg;
};

static void count(struct redis_found *f, const struct asked *a)
{
	if (!a->primary || (f->primaries && *a->run_id && strcmp(f->run_id, a->run_id) == 0))
		return;
	if (f->primaries < 2)
		snprintf(f->peer[f->primaries], sizeof f->peer[0], "%s", a->peer);
	if (f->primaries++ == 0)
		snprintf(f->run_id, sizeof f->run_id, "%s", a->run_id);
}

/* The deadline has passed, all have answered, or nobody wants to know any more. */
static void roles_on_over(void *arg, const struct lock_result *result)
{
	struct redis_roles *r = arg;
	struct redis_found found = r->found;
	redis_roles_fn *done = r->done;
	void *asker = r->arg;

	(void)result;
	for (int i = 0; i < r->hosts; i++) {
		count(&found, &r->asked[i]);
		lock_link_forget(r->asked[i].link, &r->asked[i].call, false);
		lock_link_free(r->asked[i].link);
	}
	free(r);
	if (done)
		done(asker, &found);
}

void redis_roles_cancel(struct redis_roles *r)
{
	if (!r)
		return;
	r->done = NULL;
	lock_op_cancel(&r->op);
}

static void count_off(struct asked *a)
{
	struct redis_roles *r = a->roles;

	if (--r->open == 0)
		lock_op_finish(&r->op, &(struct lock_result){ .outcome = LOCK_OK });
}

static struct asked *of(struct lock_call *c)
{
	return (struct asked *)(void *)((char *)c - offsetof(struct asked, call));
}

static void on_ready(struct lock_call *c)
{
	redis_link_send(of(c)->link, c, 2, (const char *[]){ "INFO", "server" }, NULL);
}

/* Only a primary is asked: the link takes no replica. */
static void on_answered(struct lock_call *c, const void *answer)
{
	const redisReply *reply = answer;
	struct asked *a = of(c);
	struct redis_found *f = &a->roles->found;
	const char *info = reply->type == REDIS_REPLY_STRING ? reply->str : "", *at = strstr(info, "run_id:");

	f->cluster |= strstr(info, "redis_mode:cluster") != NULL;
	a->primary = !strstr(info, "redis_mode:cluster");
	snprintf(a->peer, sizeof a->peer, "%s", a->link->peer);
	if (at)
		snprintf(a->run_id, sizeof a->run_id, "%.*s", (int)strspn(at + 7, "0123456789abcdef"), at + 7);
	else
		err_set(&f->why, ERR_DENIED, "%s does not say which server it is: %s", a->peer,
		        reply->type == REDIS_REPLY_ERROR ? reply->str : "INFO has no run_id");
	count_off(a);
}

static void on_lost(struct lock_call *c, bool sent, enum lock_outcome outcome, const struct err *why)
{
	struct asked *a = of(c);
	struct redis_found *f = &a->roles->found;

	(void)sent;
	if (redis_link_is_replica(a->link))
		f->replicas |= 1U << (a - a->roles->asked);
	if (f->outcome != LOCK_REFUSED) {
		f->outcome = outcome;
		f->why = *why;
	}
	count_off(a);
}

struct redis_roles *redis_roles_ask(struct lock_env *env, const struct lock_url *url, nsec patience,
                                    redis_roles_fn *done, void *arg)
{
	static const struct lock_link_events no_events = { .up = NULL };
	struct redis_roles *r = mem_zero(sizeof *r);

	*r = (struct redis_roles){
		.lock = { .url = url->host[0].name }, .hosts = url->hosts, .open = url->hosts, .done = done, .arg = arg
	};
	r->found.outcome = LOCK_FAILED;
	err_set(&r->found.why, ERR_TIMEOUT, "none of the servers has said in time that it is a primary");
	lock_op_begin(&r->op, env, &r->lock, NULL, false, instant_add(clock_now(), patience), roles_on_over, r);
	for (int i = 0; i < r->hosts; i++) {
		struct asked *a = &r->asked[i];
		*a = (struct asked){ .roles = r,
			             .url = *url,
			             .call = { .ready = on_ready, .answered = on_answered, .lost = on_lost } };
		a->url.hosts = 1;
		a->url.host[0] = url->host[i];
		a->link = redis_link_new(env, &a->url, 0, NULL, &no_events, NULL, a);
		lock_link_want(a->link, &a->call);
	}
	return r;
}
