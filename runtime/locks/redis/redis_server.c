#include "locks/redis/redis_server.h"

#include "base/buf.h"
#include "base/mem.h"
#include "locks/redis/redis_link.h"
#include "locks/redis/redis_scripts.h"

#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define FORGOTTEN (3 * NSEC_PER_SEC) /* a Sentinel that has not answered for so long is asked anew */
#define PATIENCE (3 * NSEC_PER_SEC)  /* for answers, at most */
#define SWITCHED "+switch-master"    /* Sentinel's documentation, "Pub/Sub Messages" */
#define OTHERS_MOST 1000             /* Sentinels: what says more is none */
#define ALIVE "alive"                /* no lock's channel, which end with ":changed" or ":next:changed" */

/* ---- which of the hosts is the primary ---- */

struct redis_host {
	struct redis_server *server;
	struct redis_host *next; /* of those that the URL does not name, whose name is its own */
	struct lock_url url;     /* with this host alone; all else in it is borrowed */
	struct lock_link *link;
	struct lock_call call;
	int holders; /* of redis_server_hold; what nobody holds goes when another address is named */

	struct instant asked_at; /* when the question was asked that is under way */
	bool asked;              /* it is: `call` is at the link */
	unsigned round;          /* of the inquiry in which it was sent: an answer to an earlier one is too old */
	bool open;               /* its answer in this inquiry is still to come */

	/* What it has said in this inquiry: */
	uint64_t said; /* the number of the connection on which it said that it is a primary, plus one; 0: it did not */
	bool cluster;  /* it is one of many primaries of a cluster */
	char run_id[48];

	/* Of a Sentinel: */
	struct lock_link *switches; /* on which it tells of failovers */
	char *named;                /* the primary, in this inquiry; NULL: none */
	int named_port;
	int64_t epoch;             /* of this choice: it grows with each */
	int64_t others;            /* Sentinels that it knows of */
	enum lock_outcome outcome; /* LOCK_REFUSED: we have no right to ask it */
	struct err why;            /* why it has named none */
};

static const struct redis_host *sentinels_choose(const struct redis_server *s);
static void server_inquire(struct redis_server *s);

bool redis_server_is_checked(const struct redis_server *s)
{
	return s->place.url.hosts == 1 || s->checked == s->link->number + 1;
}

static struct redis_host *host_of(struct lock_call *c)
{
	return (struct redis_host *)(void *)((char *)c - offsetof(struct redis_host, call));
}

static void host_ask(struct redis_host *h)
{
	h->asked = true;
	h->asked_at = clock_now();
	lock_link_want(h->link, &h->call);
}

/* The others need not be waited for when a majority of Sentinels has named one primary. */
static void host_close(struct redis_host *h)
{
	struct redis_server *s = h->server;

	if (!h->open)
		return;
	h->open = false;
	if (--s->open == 0 || (s->place.master && sentinels_choose(s)))
		lock_op_finish(&s->inquiry, &(struct lock_result){ .outcome = LOCK_OK });
}

/* All of INFO: servers before 7 give either one section or all. */
static void host_on_ready(struct lock_call *c)
{
	struct redis_host *h = host_of(c);
	const char *master = h->server->place.master;

	h->round = h->server->round;
	if (master)
		redis_link_send(h->link, c, (const char *[]){ "SENTINEL", "MASTER", master, NULL });
	else
		redis_link_send(h->link, c, (const char *[]){ "INFO", NULL });
}

/* ---- Sentinels ---- */

/* The Sentinels of the URL, or, if there are more, so many as one of those knows that agree with h; NULL: with any. */
static int64_t sentinels_count(const struct redis_server *s, const struct redis_host *h, int *agree)
{
	int64_t all = s->place.url.hosts;

	*agree = 0;
	for (const struct redis_host *o = s->host; o < s->host + s->place.url.hosts; o++) {
		if (!o->named ||
		    (h && (o->epoch != h->epoch || o->named_port != h->named_port || strcmp(o->named, h->named) != 0)))
			continue;
		++*agree;
		all = o->others + 1 > all ? o->others + 1 : all;
	}
	return all;
}

/* The first of more than half of them that name the same server by the same choice; NULL: there is no such majority.
 * Two majorities have one Sentinel in common. That one may name an earlier primary again, but by a later choice: so
 * whoever was told of a later choice was told so after everybody who was told of the earlier one. */
static const struct redis_host *sentinels_choose(const struct redis_server *s)
{
	for (const struct redis_host *h = s->host; h < s->host + s->place.url.hosts; h++) {
		int agree = 0;
		int64_t all = h->named ? sentinels_count(s, h, &agree) : 0;
		if (2 * agree > all)
			return h;
	}
	return NULL;
}

/* That has answered under another of its names. */
static const struct redis_host *sentinel_twin(const struct redis_host *h)
{
	const struct redis_server *s = h->server;

	for (const struct redis_host *o = s->host; o < s->host + s->place.url.hosts; o++)
		if (o != h && o->named && strcmp(o->run_id, h->run_id) == 0)
			return o;
	return NULL;
}

static bool is_loopback(const char *name)
{
	return strncmp(name, "127.", 4) == 0 || strcmp(name, "::1") == 0 || strcmp(name, "localhost") == 0;
}

/* The connection leaves this machine, or may. */
static bool leads_away(int fd)
{
	struct sockaddr_storage at = { 0 };
	socklen_t len = sizeof at;
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)&at;
	const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)&at)->sin6_addr;

	if (getpeername(fd, (struct sockaddr *)&at, &len) < 0)
		return false;
	if (at.ss_family == AF_INET)
		return ntohl(v4->sin_addr.s_addr) >> 24 != 127;
	return at.ss_family == AF_INET6 && !IN6_IS_ADDR_LOOPBACK(v6) &&
	       !(IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
}

/* Where the value of that name is in an answer of names and values. */
static size_t field_at(const redisReply *r, const char *name)
{
	size_t i = 0;

	while (i + 1 < r->elements && strcmp(redis_word_at(r, i), name) != 0)
		i += 2;
	return i + 1;
}

static void sentinel_on_answer(struct redis_host *h, const redisReply *r)
{
	const char *name = redis_word_at(r, field_at(r, "ip")), *peer = h->link->peer;
	int64_t port = redis_number_at(r, field_at(r, "port"));

	snprintf(h->run_id, sizeof h->run_id, "%s", redis_link_run_id(h->link));
	const struct redis_host *twin = sentinel_twin(h);
	h->epoch = redis_number_at(r, field_at(r, "config-epoch"));
	h->others = redis_number_at(r, field_at(r, "num-other-sentinels"));
	if (r->type == REDIS_REPLY_NIL || (r->type == REDIS_REPLY_ERROR && strstr(r->str, "No such master")))
		err_set(&h->why, ERR_MISSING, "%s watches no primary of that name", peer);
	else if (r->type == REDIS_REPLY_ERROR)
		err_set(&h->why, ERR_DENIED, "%s answered: %s", peer, r->str);
	else if (!*name || port < 1 || port > 65535 || h->epoch < 0 || h->others < 0 || h->others > OTHERS_MOST)
		err_set(&h->why, ERR_INVALID, "%s gave an answer that makes no sense", peer);
	else if (!*h->run_id)
		err_set(&h->why, ERR_DENIED, "%s does not say which Sentinel it is (INFO has no run_id)", peer);
	else if (twin)
		err_set(&h->why, ERR_USAGE, "%s is the same Sentinel as %s, and counts once", peer, twin->link->peer);
	else if (is_loopback(name) && leads_away(h->link->fd))
		err_set(&h->why, ERR_INVALID,
		        "%s names %s:%d, which is another server on each machine: it must monitor the primary by an address "
		        "that others can use, and replicas announce one (replica-announce-ip)",
		        peer, name, (int)port);
	else {
		mem_replace(&h->named, name);
		h->named_port = (int)port;
	}
}

/* Why there is none. */
static void sentinels_explain(struct redis_server *s)
{
	int hosts = s->place.url.hosts, refused = 0, named;
	int64_t all = sentinels_count(s, NULL, &named);
	struct buf b = { 0 };

	if (all > hosts)
		buf_printf(&b, " (the lock's URL names %d)", hosts);
	for (const struct redis_host *h = s->host; h < s->host + hosts; h++) {
		refused += h->outcome == LOCK_REFUSED;
		if (h->named)
			buf_printf(&b, "; %s names %s:%d, epoch %" PRId64, h->link->peer, h->named, h->named_port,
			           h->epoch);
		else
			buf_printf(&b, "; %s", h->why.text);
	}
	s->outcome = 2 * refused > hosts ? LOCK_REFUSED : LOCK_FAILED;
	err_set(&s->why, ERR_UNREACHABLE,
	        "nobody is elected unless %" PRId64 " of the %" PRId64
	        " Sentinels name one server as the primary of \"%s\", in one epoch%s",
	        all / 2 + 1, all, s->place.master, b.data);
	buf_fini(&b);
}

/* Notices come from the primary: the one before may be cut off, and have nothing to tell. */
static void primary_follow(struct redis_server *s, const char *name, int port)
{
	struct lock_link *notices = s->base.notices;

	if (s->primary.host[0].port == port && strcmp(s->primary.host[0].name, name) == 0)
		return;
	mem_replace(&s->primary.host[0].name, name);
	s->primary.host[0].port = port;
	if (notices->state != LOCK_LINK_DOWN)
		lock_link_lose(notices, LOCK_FAILED, ERR_UNREACHABLE, "it is not the primary any more");
	s->seeks = false;
	if (s->base.board.channels)
		lock_link_raise(notices);
}

static void primary_choose(struct redis_server *s)
{
	const struct redis_host *h = sentinels_choose(s);

	redis_server_hold(s, &s->link, h ? redis_server_at(s, h->named, h->named_port) : NULL);
	if (!h) {
		sentinels_explain(s);
		return;
	}
	s->epoch = h->epoch;
	primary_follow(s, h->named, h->named_port);
}

static void switches_on_up(void *arg)
{
	redis_link_send(((struct redis_host *)arg)->switches, NULL, (const char *[]){ "SUBSCRIBE", SWITCHED, NULL });
}

static void switched_tell(void *arg, const struct lock_channel *c)
{
	lock_board_tell(arg, c->name, NULL);
}

/* "NAME OLDHOST OLDPORT NEWHOST NEWPORT": all look now, and notices are to come from there. */
static void switches_on_push(void *arg, const redisReply *r)
{
	const struct redis_host *h = arg;
	struct redis_server *s = h->server;
	const char *master = s->place.master;
	size_t len = strlen(master);

	if (!r) {
		redis_link_send(h->switches, NULL, (const char *[]){ "UNSUBSCRIBE", ALIVE, NULL });
		return;
	}
	const char *text = redis_word_at(r, 2);
	if (strcmp(redis_word_at(r, 0), "message") != 0 || strncmp(text, master, len) != 0 || text[len] != ' ')
		return;
	lock_board_each(&s->base.board, switched_tell, &s->base.board);
	s->seeks = true;
	server_inquire(s);
}

/* ---- answers ---- */

/* A host was a primary when its link came up, and may have become a replica since. */
static void host_on_answered(struct lock_call *c, const void *answer)
{
	const redisReply *r = answer;
	struct redis_host *h = host_of(c);
	const char *info = r->type == REDIS_REPLY_STRING ? r->str : "";
	char role[16] = "", mode[16] = "";

	h->asked = false;
	if (h->open && h->round != h->server->round) {
		host_ask(h);
		return;
	}
	if (h->server->place.master) {
		lock_server_hold(&h->server->base);
		if (h->open)
			sentinel_on_answer(h, r);
		host_close(h);
		lock_server_put(&h->server->base);
		return;
	}
	h->run_id[0] = '\0';
	redis_info(info, "run_id", h->run_id, sizeof h->run_id);
	redis_info(info, "redis_mode", mode, sizeof mode);
	redis_info(info, "role", role, sizeof role);
	if (!*h->run_id)
		err_set(&h->server->why, ERR_DENIED, "%s does not say which server it is: %s", h->link->peer,
		        r->type == REDIS_REPLY_ERROR ? r->str : "INFO has no run_id");
	h->cluster = strcmp(mode, "cluster") == 0;
	lock_server_hold(&h->server->base); /* who is told of either may close the last lock */
	if (strcmp(role, "slave") == 0 && !h->cluster)
		lock_link_lose(h->link, LOCK_FAILED, ERR_UNREACHABLE, "it has become a replica");
	else
		h->said = h->link->number + 1;
	host_close(h);
	lock_server_put(&h->server->base);
}

static void host_on_lost(struct lock_call *c, bool sent, enum lock_outcome outcome, const struct err *why)
{
	struct redis_host *h = host_of(c);
	struct redis_server *s = h->server;

	h->asked = false;
	if (h->open && sent && h->round != s->round) { /* an earlier inquiry's: nothing is known of this one */
		host_ask(h);
		return;
	}
	h->why = *why;
	h->outcome = outcome;
	if (s->outcome != LOCK_REFUSED) {
		s->outcome = outcome;
		s->why = *why;
	}
	host_close(h);
}

/* Chooses the link by what the hosts have said. If there are several primaries, one was replaced and does not know it
 * yet, or has come back: who asks that one sees an older record. */
static void server_choose(struct redis_server *s)
{
	const struct redis_host *primary = NULL, *cluster = NULL, *found;

	s->several = false;
	for (const struct redis_host *h = s->host; h < s->host + s->place.url.hosts; h++) {
		if (h->said != h->link->number + 1)
			continue;
		if (h->cluster)
			cluster = cluster && h->link != s->link ? cluster : h;
		else if (!primary)
			primary = h;
		else if (!*h->run_id || strcmp(h->run_id, primary->run_id) != 0) {
			s->several = true;
			s->outcome = LOCK_FAILED;
			err_set(&s->why, ERR_UNREACHABLE,
			        "%s and %s both say that they are primaries: nobody is elected until one of them is the "
			        "other's replica, or down",
			        primary->link->peer, h->link->peer);
			break;
		}
	}
	found = primary ? primary : cluster;
	s->link = found ? found->link : s->link;
	s->checked = found && !s->several && (found->cluster || *found->run_id) ? found->said : 0;
}

/* Notices come from the host that is asked. The one that was asked before may hang with its connections open, or be
 * cut off with nothing to tell. true: they are sought there now. */
static bool server_follow(struct redis_server *s)
{
	struct lock_link *notices = s->base.notices;
	int host = 0;

	while (s->host[host].link != s->link)
		host++;
	if (!redis_server_is_checked(s) || notices->host == host || !lock_link_is_up(notices))
		return false;
	notices->host = host;
	lock_link_lose(notices, LOCK_FAILED, ERR_UNREACHABLE, "it is not the primary any more");
	lock_link_raise(notices);
	return true;
}

/* A connection of the server in use stays, though it is silent: what waits there has its own deadlines. Where a
 * majority of Sentinels has answered, the others may take their time, until they are asked anew. */
static void server_stop_asking(struct redis_server *s, bool early)
{
	for (struct redis_host *h = s->host; h < s->host + s->place.url.hosts; h++) {
		h->open = false;
		if (early)
			continue;
		h->asked = false;
		lock_link_forget(h->link, &h->call, h->link != s->link);
	}
}

/* The deadline has passed, all have answered, a majority of Sentinels has, or the server is being freed. */
static void inquiry_on_over(void *arg, const struct lock_result *result)
{
	struct redis_server *s = arg;

	if (result->err.code == ERR_CANCELLED)
		return;
	lock_server_hold(&s->base);
	s->ending = true; /* whose connection is given up here may ask at once, before all questions are taken back */
	server_stop_asking(s, s->place.master && sentinels_choose(s));
	if (s->place.master) {
		primary_choose(s);
	} else {
		server_choose(s);
		server_follow(s);
	}
	for (size_t n = s->askers.count; n; n--) {
		struct lock_call *c = lock_pipeline_pop(&s->askers);
		if (c)
			c->answered(c, NULL);
	}
	s->ending = false;
	server_inquire(s);
	lock_server_put(&s->base);
}

static void host_begin(struct redis_host *h)
{
	h->open = true;
	h->said = 0;
	h->outcome = LOCK_FAILED;
	mem_replace(&h->named, NULL);
	err_set(&h->why, ERR_TIMEOUT, "%s:%d has not answered in time", h->url.host[0].name, h->url.host[0].port);
	if (h->switches && h->server->base.board.channels)
		lock_link_raise(h->switches);
	if (h->asked && elapsed_standby(h->asked_at, clock_now()) > FORGOTTEN) {
		lock_link_forget(h->link, &h->call, true);
		h->asked = false;
	}
}

/* The locks of a process ask together, but each after its operation began: who asks during an inquiry waits for the
 * next. */
static void server_inquire(struct redis_server *s)
{
	struct lock_call *c;
	nsec patience = PATIENCE;

	if (s->inquiry.active || s->ending || (!s->askers.first && !s->seeks))
		return;
	s->seeks = false;
	while ((c = lock_pipeline_next(&s->askers))) {
		nsec third = (nsec)lock_op_left_ms(&lock_user_of_call(c)->op) * NSEC_PER_MS / 3;
		patience = third < patience ? third : patience;
		lock_pipeline_push(&s->askers, c);
	}
	s->open = s->place.url.hosts;
	s->round++;
	s->outcome = LOCK_FAILED;
	err_set(&s->why, ERR_TIMEOUT, "none of the servers has said in time that it is a primary");
	lock_op_begin(&s->inquiry, s->base.env, &(struct lock){ .url = s->place.url.host[0].name }, NULL, false,
	              instant_add(clock_now(), patience), inquiry_on_over, s);
	for (struct redis_host *h = s->host; h < s->host + s->place.url.hosts; h++)
		host_begin(h);
	for (struct redis_host *h = s->host; h < s->host + s->place.url.hosts; h++)
		if (!h->asked)
			host_ask(h);
}

void redis_server_ask(struct redis_server *s, struct lock_user *u)
{
	lock_pipeline_wait(&s->askers, &u->call);
	server_inquire(s);
}

/* ---- notices ---- */

/* The server answers in the order in which it is asked, and a refusal does not name the channel. */
static void server_forget_asked(struct redis_server *s)
{
	while (s->asked_count)
		free(s->asked[--s->asked_count]);
}

/* Its answer has come. The caller frees the name; NULL: nothing was asked. */
static char *server_pop_asked(struct redis_server *s)
{
	if (!s->asked_count)
		return NULL;
	char *name = s->asked[0];
	memmove(s->asked, s->asked + 1, --s->asked_count * sizeof *s->asked);
	return name;
}

static void server_on_notices_up(void *arg)
{
	struct redis_server *s = arg;

	server_forget_asked(s);
	if (s->place.master || !server_follow(s))
		lock_server_on_up(s);
}

/* Nobody may ask for as long as notices are waited for: so the Sentinels are asked where these come from by now. */
static void server_on_notices_down(void *arg, enum lock_outcome outcome, const struct err *why)
{
	struct redis_server *s = arg;

	lock_server_on_down(arg, outcome, why);
	if (!s->place.master || !s->base.board.channels)
		return;
	s->seeks = true;
	server_inquire(s);
}

static void server_listen(struct lock_server *base, const char *channel, bool on)
{
	struct redis_server *s = (struct redis_server *)base;

	s->asked = mem_resize(s->asked, (s->asked_count + 1) * sizeof *s->asked);
	s->asked[s->asked_count++] = mem_dup(channel);
	redis_link_send(base->notices, NULL, (const char *[]){ on ? "SUBSCRIBE" : "UNSUBSCRIBE", channel, NULL });
}

/* A confirmation counts as a notice: what happened before it was not told. */
static void server_on_push(void *arg, const redisReply *r)
{
	struct redis_server *s = arg;
	struct lock_board *board = &s->base.board;

	if (!r) { /* not PING, which needs a right of its own */
		server_listen(&s->base, ALIVE, false);
		return;
	}
	const char *kind = redis_word_at(r, 0);
	if (strcmp(kind, "message") == 0) {
		lock_board_tell(board, redis_word_at(r, 1), redis_word_at(r, 2));
		return;
	}
	char *asked = server_pop_asked(s);
	if (r->type == REDIS_REPLY_ERROR && asked) /* no rights */
		lock_board_deafen_channel(board, asked);
	else if (r->type == REDIS_REPLY_ERROR)
		lock_board_deafen(board);
	else if (strcmp(kind, "subscribe") == 0)
		lock_board_tell(board, redis_word_at(r, 1), NULL);
	free(asked);
}

/* ---- servers ---- */

static bool server_serves(const struct lock_server *server, const void *place)
{
	return redis_place_same(&((const struct redis_server *)server)->place, place);
}

/* db: REDIS_SENTINEL: it is one. */
static void host_init(struct redis_host *h, struct redis_server *s, struct lock_env *env, char *name, int port, int db)
{
	static const struct lock_link_events switches = { .up = switches_on_up };

	*h = (struct redis_host){ .server = s, .url = s->place.url };
	h->url.hosts = 1;
	h->url.host[0].name = name;
	h->url.host[0].port = port;
	h->call.ready = host_on_ready;
	h->call.answered = host_on_answered;
	h->call.lost = host_on_lost;
	if (db != REDIS_SENTINEL) {
		h->link = redis_link_new(env, &s->place, &h->url, db, redis_scripts, NULL, NULL, NULL);
		return;
	}
	h->url.user = s->place.sentinel_user ? s->place.sentinel_user : "";
	h->url.password = s->place.sentinel_password;
	h->link = redis_link_new(env, &s->place, &h->url, db, NULL, NULL, NULL, NULL);
	h->switches = redis_link_new(env, &s->place, &h->url, db, NULL, &switches, switches_on_push, h);
}

static bool host_is(const struct redis_host *h, const char *name, int port)
{
	return h->url.host[0].port == port && strcmp(h->url.host[0].name, name) == 0;
}

static void other_free(struct redis_host *h)
{
	lock_link_free(h->link);
	free(h->url.host[0].name);
	free(h);
}

/* What answers name may be anything. */
static void others_sweep(struct redis_server *s)
{
	struct redis_host **at = &s->others;

	for (struct redis_host *h; (h = *at);) {
		if (h->holders) {
			at = &h->next;
			continue;
		}
		*at = h->next;
		other_free(h);
	}
}

struct lock_link *redis_server_at(struct redis_server *s, const char *name, int port)
{
	struct redis_host *h = s->host;

	for (; h < s->host + s->place.url.hosts && !s->place.master; h++)
		if (host_is(h, name, port))
			return h->link;
	for (h = s->others; h; h = h->next)
		if (host_is(h, name, port))
			return h->link;
	others_sweep(s);
	h = mem_zero(sizeof *h);
	host_init(h, s, s->base.env, mem_dup(name), port, s->place.db);
	h->next = s->others;
	s->others = h;
	return h->link;
}

static void other_count(struct redis_server *s, const struct lock_link *link, int more)
{
	for (struct redis_host *h = s->others; h; h = h->next)
		h->holders += h->link == link ? more : 0;
}

void redis_server_hold(struct redis_server *s, struct lock_link **held, struct lock_link *link)
{
	other_count(s, link, 1);
	other_count(s, *held, -1);
	*held = link;
}

void redis_server_pass(struct redis_server *s)
{
	int host = 0;

	if (s->place.master)
		return;
	while (s->host[host].link != s->link)
		host++;
	s->link = s->host[(host + 1) % s->place.url.hosts].link;
	s->checked = 0;
}

static struct lock_server *server_make(struct lock_env *env, void *place)
{
	static const struct lock_link_events notices = { .up = server_on_notices_up, .down = server_on_notices_down };
	struct redis_server *s = mem_zero(sizeof *s);
	const struct lock_url *told = &s->place.url;

	s->place = *(struct redis_place *)place;
	int db = s->place.master ? REDIS_SENTINEL : s->place.db;
	s->host = mem_zero((size_t)s->place.url.hosts * sizeof *s->host);
	for (int i = 0; i < s->place.url.hosts; i++)
		host_init(&s->host[i], s, env, s->place.url.host[i].name, s->place.url.host[i].port, db);
	if (s->place.master) { /* no name is an address: notices come when the primary is known */
		s->primary = s->place.url;
		s->primary.hosts = 1;
		s->primary.host[0].name = mem_dup("");
		told = &s->primary;
	} else {
		s->link = s->host->link;
	}
	s->base.notices = redis_link_new(env, &s->place, told, 0, NULL, &notices, server_on_push, s);
	return &s->base;
}

static void server_spare(void *place)
{
	redis_place_fini(place);
}

static void server_free(struct lock_server *server)
{
	struct redis_server *s = (struct redis_server *)server;

	lock_op_cancel(&s->inquiry);
	lock_pipeline_fini(&s->askers);
	for (int i = 0; i < s->place.url.hosts; i++) {
		lock_link_forget(s->host[i].link, &s->host[i].call, false);
		lock_link_free(s->host[i].link);
		lock_link_free(s->host[i].switches);
		free(s->host[i].named);
	}
	for (struct redis_host *h; (h = s->others);) {
		s->others = h->next;
		other_free(h);
	}
	lock_link_free(s->base.notices);
	if (s->place.master)
		free(s->primary.host[0].name);
	redis_place_fini(&s->place);
	server_forget_asked(s);
	free(s->asked);
	free(s->host);
	free(s);
}

const struct lock_server_ops redis_server_ops = {
	.serves = server_serves,
	.make = server_make,
	.spare = server_spare,
	.free = server_free,
	.listen = server_listen,
};
