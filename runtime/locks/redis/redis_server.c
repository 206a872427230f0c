#include "locks/redis/redis_server.h"

#include "base/mem.h"
#include "locks/redis/redis_link.h"
#include "locks/redis/redis_scripts.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- which of the hosts is the primary ---- */

struct redis_host { /* that is being asked */
	struct redis_inquiry *inquiry;
	struct lock_url url; /* with that host alone; all in it is borrowed */
	struct lock_link *link;
	struct lock_call call;
};

struct redis_inquiry {
	struct redis_server *server;
	struct lock lock;  /* for op, which names a lock in its messages */
	struct lock_op op; /* ends the inquiry in time */
	int open;          /* hosts that have not answered */
	struct redis_host host[LOCK_URL_HOSTS];
	unsigned primaries, replicas; /* bit n: the URL's host n says that it is one */
	struct redis_found found;
};

static void host_close(struct redis_host *h)
{
	struct redis_inquiry *q = h->inquiry;

	if (--q->open == 0)
		lock_op_finish(&q->op, &(struct lock_result){ .outcome = LOCK_OK });
}

static struct redis_host *host_of(struct lock_call *c)
{
	return (struct redis_host *)(void *)((char *)c - offsetof(struct redis_host, call));
}

static void host_on_ready(struct lock_call *c)
{
	redis_link_send(host_of(c)->link, c, (const char *[]){ "INFO", "server", NULL });
}

/* Only a primary is asked: the link takes no replica. */
static void host_on_answered(struct lock_call *c, const void *answer)
{
	const redisReply *r = answer;
	struct redis_host *h = host_of(c);
	struct redis_inquiry *q = h->inquiry;
	struct redis_found *f = &q->found;
	const char *info = r->type == REDIS_REPLY_STRING ? r->str : "";
	char run_id[sizeof f->run_id] = "", mode[16] = "";

	redis_info(info, "run_id", run_id, sizeof run_id);
	redis_info(info, "redis_mode", mode, sizeof mode);
	if (!*run_id)
		err_set(&f->why, ERR_DENIED, "%s does not say which server it is: %s", h->link->peer,
		        r->type == REDIS_REPLY_ERROR ? r->str : "INFO has no run_id");
	if (strcmp(mode, "cluster") == 0) {
		f->cluster = true;
	} else if (!q->primaries || !*run_id || strcmp(f->run_id, run_id) != 0) {
		f->several = q->primaries;
		q->primaries |= 1U << (h - q->host);
		snprintf(f->run_id, sizeof f->run_id, "%s", run_id);
	}
	host_close(h);
}

static void host_on_lost(struct lock_call *c, bool sent, enum lock_outcome outcome, const struct err *why)
{
	struct redis_host *h = host_of(c);
	struct redis_inquiry *q = h->inquiry;
	struct redis_found *f = &q->found;

	(void)sent;
	if (redis_link_is_replica(h->link))
		q->replicas |= 1U << (h - q->host);
	if (f->outcome != LOCK_REFUSED) {
		f->outcome = outcome;
		f->why = *why;
	}
	host_close(h);
}

void redis_server_check(struct redis_server *s, bool is_primary)
{
	s->checked = is_primary ? s->link->number + 1 : 0;
}

bool redis_server_is_checked(const struct redis_server *s)
{
	return s->checked == s->link->number + 1;
}

/* If there are several primaries, one was replaced and does not know it yet, or has come back: who asks that one sees
 * an older record. */
static void inquiry_tell(struct redis_inquiry *q)
{
	struct redis_server *s = q->server;
	char first[300], second[300];

	if (q->found.several) {
		lock_url_print_host(&s->place.url, ffs((int)q->primaries) - 1, first);
		lock_url_print_host(&s->place.url, ffs((int)(q->primaries & (q->primaries - 1))) - 1, second);
		q->found.outcome = LOCK_FAILED;
		err_set(&q->found.why, ERR_UNREACHABLE,
		        "%s and %s both say that they are primaries: nobody is elected until one of them is the "
		        "other's replica, or down",
		        first, second);
	}
	if (lock_link_is_up(s->link) && q->replicas & 1U << s->link->host)
		redis_link_turn_away(s->link, "it has become a replica");
	redis_server_check(s, lock_link_is_up(s->link) && q->found.cluster && !q->found.several);
	for (size_t n = s->askers.count; n; n--) {
		struct lock_call *c = lock_pipeline_pop(&s->askers);
		if (c)
			c->answered(c, &q->found);
	}
}

static void server_inquire(struct redis_server *s);

/* The deadline has passed, all have answered, or the server is being freed. */
static void inquiry_on_over(void *arg, const struct lock_result *result)
{
	struct redis_inquiry *q = arg;
	struct redis_server *s = q->server;

	for (int i = 0; i < s->place.url.hosts; i++) {
		lock_link_forget(q->host[i].link, &q->host[i].call, false);
		lock_link_free(q->host[i].link);
	}
	if (result->err.code == ERR_CANCELLED) {
		free(q);
		return;
	}
	lock_server_hold(&s->base); /* what is told may close the last lock */
	inquiry_tell(q);
	free(q);
	s->inquiry = NULL;
	server_inquire(s);
	lock_server_put(&s->base);
}

/* The locks of a process ask together, but each after its operation began: who asks during an inquiry waits for the
 * next. */
static void server_inquire(struct redis_server *s)
{
	struct redis_inquiry *q;
	struct lock_call *c;
	nsec patience = 0;

	if (s->inquiry || !s->askers.first)
		return;
	while ((c = lock_pipeline_next(&s->askers))) {
		nsec third = (nsec)lock_op_left_ms(((struct redis_asker *)c)->op) * NSEC_PER_MS / 3;
		patience = third > patience ? third : patience;
		lock_pipeline_push(&s->askers, c);
	}
	s->inquiry = q = mem_zero(sizeof *q);
	q->server = s;
	q->lock.url = s->place.url.host[0].name;
	q->open = s->place.url.hosts;
	q->found.outcome = LOCK_FAILED;
	err_set(&q->found.why, ERR_TIMEOUT, "none of the servers has said in time that it is a primary");
	lock_op_begin(&q->op, s->base.env, &q->lock, NULL, false, instant_add(clock_now(), patience), inquiry_on_over,
	              q);
	for (int i = 0; i < s->place.url.hosts; i++) {
		struct redis_host *h = &q->host[i];
		*h = (struct redis_host){ .inquiry = q, .url = s->place.url };
		h->call.ready = host_on_ready;
		h->call.answered = host_on_answered;
		h->call.lost = host_on_lost;
		h->url.hosts = 1;
		h->url.host[0] = s->place.url.host[i];
		h->link = redis_link_new(s->base.env, &h->url, 0, NULL, NULL, NULL, NULL);
		lock_link_want(h->link, &h->call);
	}
}

void redis_server_ask(struct redis_server *s, struct redis_asker *a)
{
	lock_pipeline_wait(&s->askers, &a->call);
	server_inquire(s);
}

/* ---- notices ---- */

static void server_listen(struct lock_server *s, const char *channel)
{
	redis_link_send(s->notices, NULL, (const char *[]){ "SUBSCRIBE", channel, NULL });
}

static void server_unlisten(struct lock_server *s, const char *channel)
{
	redis_link_send(s->notices, NULL, (const char *[]){ "UNSUBSCRIBE", channel, NULL });
}

/* A confirmation counts as a notice: what happened before it was not told. */
static void server_on_push(void *arg, const redisReply *r)
{
	struct lock_server *s = arg;
	const char *kind = redis_word_at(r, 0);

	if (r->type == REDIS_REPLY_ERROR) /* no rights */
		lock_board_deafen(&s->board);
	else if (strcmp(kind, "message") == 0)
		lock_board_tell(&s->board, redis_word_at(r, 1), redis_word_at(r, 2));
	else if (strcmp(kind, "subscribe") == 0)
		lock_board_tell(&s->board, redis_word_at(r, 1), NULL);
}

/* ---- servers ---- */

static bool server_serves(const struct lock_server *server, const void *place)
{
	const struct redis_server *s = (const struct redis_server *)server;
	const struct redis_place *p = place;

	return s->place.db == p->db && s->place.replicas == p->replicas &&
	       lock_url_same_servers(&s->place.url, &p->url);
}

static struct lock_server *server_make(struct lock_env *env, void *place)
{
	struct redis_server *s = mem_zero(sizeof *s);

	s->place = *(struct redis_place *)place;
	s->link = redis_link_new(env, &s->place.url, s->place.db, redis_scripts, NULL, NULL, NULL);
	s->base.notices = redis_link_new(env, &s->place.url, 0, NULL, &lock_server_notices, server_on_push, s);
	return &s->base;
}

static void server_spare(void *place)
{
	lock_url_fini(&((struct redis_place *)place)->url);
}

static void server_free(struct lock_server *server)
{
	struct redis_server *s = (struct redis_server *)server;

	if (s->inquiry)
		lock_op_cancel(&s->inquiry->op);
	lock_pipeline_fini(&s->askers);
	lock_link_free(s->link);
	lock_link_free(s->base.notices);
	lock_url_fini(&s->place.url);
	free(s);
}

const struct lock_server_ops redis_server_ops = {
	.serves = server_serves,
	.make = server_make,
	.spare = server_spare,
	.free = server_free,
	.listen = server_listen,
	.unlisten = server_unlisten,
};
