#include "locks/etcd/etcd_server.h"

#include "base/mem.h"
#include "locks/etcd/etcd_watch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CROWD 32      /* calls under way that others than urgent ones wait behind: etcd answers them side by side */
#define NOT_ENABLED 9 /* FailedPrecondition: "authentication is not enabled" */

const char *const etcd_options[] = { "ca", "cert", "key", "server_name", NULL };

/* ---- the token ---- */

static void server_set_token(struct etcd_server *s, const char *token)
{
	if (s->token)
		explicit_bzero(s->token, strlen(s->token));
	mem_replace(&s->token, token);
	s->generation += token != NULL;
}

void etcd_server_drop_token(struct etcd_server *s, unsigned generation)
{
	if (generation == s->generation)
		server_set_token(s, NULL);
}

struct etcd_metadata etcd_server_metadata(const struct etcd_server *s)
{
	/* The first name is what etcd's clients send, the second what 3.4 to 3.6 read if that is missing. */
	return s->token && *s->token ? (struct etcd_metadata){ { "token", s->token } }
	                             : (struct etcd_metadata){ { NULL } };
}

static void login_on_message(struct grpc_call *c, const void *bytes, size_t len)
{
	struct etcd_server *s = (struct etcd_server *)(void *)((char *)c - offsetof(struct etcd_server, login));
	Etcd__AuthenticateResponse *answer = etcd_unpack(&etcd__authenticate_response__descriptor, bytes, len);
	size_t left = answer ? strlen(answer->token) : 0;

	/* It goes into a header. */
	while (left && answer->token[left - 1] > ' ' && answer->token[left - 1] < 127)
		left--;
	if (answer && *answer->token && !left)
		server_set_token(s, answer->token);
	if (answer)
		explicit_bzero(answer->token, strlen(answer->token));
	etcd_drop(answer);
}

/* Those who have waited longest, as many as there is room for; they may have to wait for something else now. */
static void server_call_crowd(struct etcd_server *s)
{
	while (s->busy < CROWD && s->crowd.first) {
		struct lock_call *c = lock_pipeline_next(&s->crowd);
		c->ready(c);
	}
}

/* Each goes on or is lost; who waits anew from its callback waits for the next token. again: see etcd_server_admits. */
static void server_tell_askers(struct etcd_server *s, const struct err *err, bool again)
{
	uint64_t round = s->askers.round++;

	lock_server_hold(&s->base); /* who is told may close the last lock */
	while (s->askers.first && s->askers.first->round <= round) {
		struct lock_call *c = lock_pipeline_next(&s->askers);
		if (err)
			c->lost(c, again, err->code == ERR_DENIED ? LOCK_REFUSED : LOCK_FAILED, err);
		else
			c->ready(c);
	}
	server_call_crowd(s);
	lock_server_put(&s->base);
}

static void login_on_ended(struct grpc_call *c, const struct grpc_end *end)
{
	struct etcd_server *s = (struct etcd_server *)(void *)((char *)c - offsetof(struct etcd_server, login));
	struct lock_link *link = s->base.notices;
	const struct err *lost = link->state == LOCK_LINK_DOWN ? &link->why : NULL;
	struct etcd_meaning m = etcd_understand(end, link->peer, "", lost);
	bool elsewhere = m.verdict == ETCD_ELSEWHERE;

	if (end->status == NOT_ENABLED && end->replied)
		server_set_token(s, "");
	if (s->token) {
		server_tell_askers(s, NULL, false);
		return;
	}
	if (m.verdict == ETCD_ANSWERED)
		err_set(&m.err, ERR_INVALID, "the answer has no token");
	else if (!elsewhere)
		m.err.code = ERR_DENIED;
	err_wrap(&m.err, "logging in as %s", s->place.url.user);
	if (elsewhere && s->place.url.hosts > 1)
		etcd_link_leave(link, s->login_number, &m.err);
	server_tell_askers(s, &m.err, elsewhere);
}

static void server_log_in(struct etcd_server *s)
{
	const struct lock_url *u = &s->place.url;
	Etcd__AuthenticateRequest ask = ETCD__AUTHENTICATE_REQUEST__INIT;
	struct buf b = { 0 };

	if (grpc_under_way(&s->login))
		return;
	ask.name = u->user;
	ask.password = u->password ? u->password : "";
	etcd_pack(&b, &ask.base);
	s->login_number = s->base.notices->number;
	etcd_link_start(s->base.notices, &s->login, "/etcdserverpb.Auth/Authenticate", NULL, &b, false);
	explicit_bzero(b.data, b.len);
	buf_fini(&b);
}

/* ---- the cluster ---- */

bool etcd_server_heard(struct etcd_server *s, uint64_t number, const Etcd__ResponseHeader *header, struct err *err)
{
	struct lock_link *link = s->base.notices;
	char name[LOCK_IDENTITY_SIZE] = "", peer[sizeof link->peer + 8];

	if (header && header->cluster_id)
		snprintf(name, sizeof name, "%" PRIx64, header->cluster_id);
	snprintf(peer, sizeof peer, "etcd at %s", link->peer);
	if (lock_identity_is(&s->base.identity, name, peer, "the cluster", err)) {
		s->proved = number + 1;
		return true;
	}
	if (!s->agreed)
		snprintf(s->stray, sizeof s->stray, "%s", name);
	etcd_link_leave(link, number, err);
	return false;
}

bool etcd_server_disputed(const struct etcd_server *s, struct err *err)
{
	const char *known = s->base.identity.known;

	if (!*s->stray || strcmp(s->stray, known) == 0)
		return false;
	err_set(err, ERR_INVALID,
	        "the endpoints are of two clusters, %s and %s: a member was started anew by itself, and nothing tells which of "
	        "them counts. Nobody begins to use a lock there before the URL names one of them: `lunarch doctor` shows which "
	        "endpoint is of which",
	        known, s->stray);
	return true;
}

bool etcd_server_asks_all(struct etcd_server *s, struct lock_call *c)
{
	struct lock_link *link = s->base.notices;
	struct err why;

	if (s->agreed || s->proved != link->number + 1 || !etcd_link_is_up(link))
		return false;
	if (s->walks >= s->place.url.hosts - 1) {
		s->agreed = !*s->stray;
		return false;
	}
	s->walks++;
	err_set(&why, ERR_CANCELLED, "each endpoint is asked which cluster it is of");
	etcd_link_leave(link, link->number, &why);
	lock_link_want(link, c);
	return true;
}

static struct etcd_server *server_of_status(struct grpc_call *c)
{
	return (struct etcd_server *)(void *)((char *)c - offsetof(struct etcd_server, status));
}

static void status_on_message(struct grpc_call *c, const void *bytes, size_t len)
{
	struct etcd_server *s = server_of_status(c);
	Etcd__StatusResponse *answer = etcd_unpack(&etcd__status_response__descriptor, bytes, len);
	struct err why;

	if (answer && !etcd_server_heard(s, s->base.notices->number, answer->header, &why))
		s->strange = why;
	etcd_drop(answer);
}

/* Who refuses to say it may take writes all the same: their answers are compared. */
static void status_on_ended(struct grpc_call *c, const struct grpc_end *end)
{
	struct etcd_server *s = server_of_status(c);
	struct lock_link *link = s->base.notices;
	const struct err *lost = link->state == LOCK_LINK_DOWN ? &link->why : NULL;
	struct etcd_meaning m = etcd_understand(end, link->peer, "", lost);
	bool strange = s->strange.code != ERR_NONE;

	if (strange)
		m.err = s->strange;
	else if (m.verdict != ETCD_ELSEWHERE)
		s->proved = link->number + 1;
	else if (s->place.url.hosts > 1)
		etcd_link_leave(link, link->number, &m.err);
	s->strange.code = ERR_NONE;
	server_tell_askers(s, strange || m.verdict == ETCD_ELSEWHERE ? &m.err : NULL, true);
}

static void server_ask_status(struct etcd_server *s)
{
	struct etcd_metadata with = etcd_server_metadata(s);
	Etcd__StatusRequest ask = ETCD__STATUS_REQUEST__INIT;
	struct buf b = { 0 };

	if (grpc_under_way(&s->status))
		return;
	etcd_pack(&b, &ask.base);
	etcd_link_start(s->base.notices, &s->status, "/etcdserverpb.Maintenance/Status", with.pair, &b, false);
	buf_fini(&b);
}

/* ---- whose turn it is ---- */

bool etcd_server_admits(struct etcd_server *s, struct lock_call *c, bool urgent, bool writes)
{
	if (!etcd_link_is_up(s->base.notices)) {
		lock_link_want(s->base.notices, c);
		return false;
	}
	if (!s->token && *s->place.url.user) {
		lock_pipeline_wait(&s->askers, c);
		server_log_in(s);
		return false;
	}
	if (writes && s->proved != s->base.notices->number + 1) {
		lock_pipeline_wait(&s->askers, c);
		server_ask_status(s);
		return false;
	}
	if (!urgent && s->busy >= CROWD) {
		lock_pipeline_wait(&s->crowd, c);
		return false;
	}
	s->busy += !urgent;
	return true;
}

void etcd_server_done(struct etcd_server *s, bool urgent)
{
	s->busy -= !urgent;
	server_call_crowd(s);
}

static bool pipeline_has(const struct lock_pipeline *q, const struct lock_call *c)
{
	const struct lock_call *at = q->first;

	while (at && at != c)
		at = at->next;
	return at;
}

bool etcd_server_forget(struct etcd_server *s, struct lock_call *c)
{
	bool crowded = pipeline_has(&s->crowd, c);
	struct lock_pipeline *askers = pipeline_has(&s->askers, c) ? &s->askers : &s->base.notices->queue;

	lock_pipeline_forget(crowded ? &s->crowd : askers, c);
	return crowded;
}

/* ---- servers ---- */

static bool server_serves(const struct lock_server *server, const void *place)
{
	const struct etcd_place *ours = &((const struct etcd_server *)server)->place, *p = place;
	bool same = ours->tls == p->tls && lock_url_same_servers(&ours->url, &p->url);

	for (const char *const *o = etcd_options; same && *o; o++) {
		const char *a = lock_url_option(&ours->url, *o), *b = lock_url_option(&p->url, *o);
		same = a && b ? strcmp(a, b) == 0 : a == b;
	}
	return same;
}

static struct lock_server *server_make(struct lock_env *env, void *place)
{
	static const struct lock_link_events events = { .up = NULL };
	struct etcd_server *s = mem_zero(sizeof *s);

	s->base.env = env;
	s->place = *(struct etcd_place *)place;
	s->login.message = login_on_message;
	s->login.ended = login_on_ended;
	s->status.message = status_on_message;
	s->status.ended = status_on_ended;
	s->base.notices = etcd_link_new(env, &s->place.url, s->place.tls, &events, s);
	s->hub = etcd_hub_new(s);
	return &s->base;
}

static void server_spare(void *place)
{
	lock_url_fini(&((struct etcd_place *)place)->url);
}

/* The link's memory may stay a little, but it asks no url any more. */
static void server_free(struct lock_server *server)
{
	struct etcd_server *s = (struct etcd_server *)server;

	etcd_hub_free(s->hub);
	etcd_link_cancel(s->base.notices, &s->login);
	etcd_link_cancel(s->base.notices, &s->status);
	lock_link_free(s->base.notices);
	server_set_token(s, NULL);
	lock_url_fini(&s->place.url);
	free(s);
}

const struct lock_server_ops etcd_server_ops = {
	.serves = server_serves,
	.make = server_make,
	.spare = server_spare,
	.free = server_free,
};
