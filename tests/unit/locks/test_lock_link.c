/* The layer below the locks in Redis, PostgreSQL and ZooKeeper, with a protocol of one line: the server greets with
 * "hello", and answers each line with "answer". What real servers cannot be made to show at will. */
#include "locks/lock_link.h"

#include "base/mem.h"
#include "locks/lock_op.h"
#include "locks/lock_user.h"
#include "tap.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef PATIENCE_S
#define PATIENCE_S 30. /* for what takes a second at most. Mutants get less */
#endif

/* ---- a server ---- */

enum manner { GOOD, REFUSES, SILENT }; /* silent: takes connections and says nothing */

struct peer {
	struct ev_loop *loop;
	ev_io listens, reads;
	int port, fd, accepted, lines;
	enum manner manner;
	bool mute; /* greets, and answers no more */
};

static void peer_say(const struct peer *p, const char *text)
{
	if (write(p->fd, text, strlen(text)) < 0)
		perror("write");
}

static void peer_hang_up(struct peer *p)
{
	ev_io_stop(p->loop, &p->reads);
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
}

static void peer_on_readable(struct ev_loop *loop, ev_io *w, int revents)
{
	struct peer *p = w->data;
	char piece[100];
	ssize_t n = read(p->fd, piece, sizeof piece);

	(void)loop;
	(void)revents;
	if (n <= 0) {
		peer_hang_up(p);
		return;
	}
	for (ssize_t i = 0; i < n; i++) {
		if (piece[i] != '\n')
			continue;
		p->lines++;
		if (!p->mute)
			peer_say(p, "answer\n");
	}
}

static void peer_on_accept(struct ev_loop *loop, ev_io *w, int revents)
{
	struct peer *p = w->data;

	(void)revents;
	peer_hang_up(p);
	p->fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	p->accepted++;
	if (p->manner != SILENT)
		peer_say(p, p->manner == GOOD ? "hello\n" : "go away\n");
	ev_io_set(&p->reads, p->fd, EV_READ);
	ev_io_start(loop, &p->reads);
}

static void peer_init(struct peer *p, struct ev_loop *loop, enum manner manner)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	*p = (struct peer){ .loop = loop, .fd = -1, .manner = manner };
	if (bind(fd, (struct sockaddr *)&at, sizeof at) < 0 || listen(fd, 10) < 0)
		abort();
	getsockname(fd, (struct sockaddr *)&at, &(socklen_t){ sizeof at });
	p->port = ntohs(at.sin_port);
	ev_init(&p->reads, peer_on_readable);
	ev_io_init(&p->listens, peer_on_accept, fd, EV_READ);
	p->reads.data = p->listens.data = p;
	ev_io_start(loop, &p->listens);
}

static void peer_fini(struct peer *p)
{
	peer_hang_up(p);
	if (ev_is_active(&p->listens))
		close(p->listens.fd);
	ev_io_stop(p->loop, &p->listens);
}

/* ---- a backend ---- */

struct line_link {
	struct lock_link link;
	char text[100];
	size_t len;
	int closes;
};

static void line_greet(struct lock_link *k)
{
	lock_link_wait(k, k->fd, EV_READ);
}

static void line_take(struct lock_link *k, const char *line)
{
	struct lock_call *c;

	if (k->state == LOCK_LINK_UP) {
		c = lock_pipeline_pop(&k->queue);
		if (c)
			c->answered(c, line);
	} else if (strcmp(line, "hello") == 0) {
		lock_link_up(k);
	} else {
		lock_link_lose(k, LOCK_REFUSED, ERR_DENIED, "it said: %s", line);
	}
}

static void line_parse(struct lock_link *k)
{
	struct line_link *l = (struct line_link *)k;
	uint64_t number = k->number;
	ssize_t n = read(k->fd, l->text + l->len, sizeof l->text - l->len - 1);
	char *end;

	if (n <= 0) {
		lock_link_lose(k, LOCK_FAILED, ERR_UNREACHABLE, "the server closed it");
		return;
	}
	l->len += (size_t)n;
	l->text[l->len] = '\0';
	while (!lock_link_ended(k, number) && (end = strchr(l->text, '\n'))) {
		char line[100];
		snprintf(line, sizeof line, "%.*s", (int)(end - l->text), l->text);
		l->len -= (size_t)(end + 1 - l->text);
		memmove(l->text, end + 1, l->len + 1);
		line_take(k, line);
	}
}

static void line_overdue(struct lock_link *k)
{
	lock_link_lose(k, LOCK_FAILED, ERR_TIMEOUT, "it says nothing");
}

static void line_close(struct lock_link *k)
{
	struct line_link *l = (struct line_link *)k;

	l->len = 0;
	l->closes++;
}

static int freed;

static void line_free(struct lock_link *k)
{
	freed++;
	free(k);
}

static int sends;

static void line_send(struct lock_link *k)
{
	(void)k;
	sends++;
}

static const struct lock_link_ops line_ops = {
	.attempt = NSEC_PER_SEC / 5,
	.rest = 3600 * NSEC_PER_SEC,
	.greet = line_greet,
	.send = line_send,
	.parse = line_parse,
	.overdue = line_overdue,
	.close = line_close,
	.free = line_free,
};

static void line_ask(struct lock_link *k, struct lock_call *c)
{
	if (write(k->fd, "ask\n", 4) != 4)
		abort();
	lock_pipeline_push(&k->queue, c);
}

/* ---- who asks ---- */

struct told {
	int ups, downs;
	enum lock_outcome outcome;
	struct lock_link *free_it; /* from inside `down` */
	int freed, freed_inside;
};

static void on_up(void *arg)
{
	((struct told *)arg)->ups++;
}

static void on_down(void *arg, enum lock_outcome outcome, const struct err *why)
{
	struct told *t = arg;

	(void)why;
	t->downs++;
	t->outcome = outcome;
	lock_link_free(t->free_it);
	t->freed_inside = t->freed;
}

static void on_freed(void *arg)
{
	((struct told *)arg)->freed++;
}

static const struct lock_link_events events = { .up = on_up, .down = on_down, .freed = on_freed };

struct asker {
	struct lock_call call;
	struct lock_link *link;
	int readies, answers, losses, ended; /* ended: answered, or lost for good */
	bool sent, repeats, frees;           /* when it is lost: asks again; frees the link */
	enum lock_outcome outcome;
	struct err why;
	struct version version;
};

static void asker_on_ready(struct lock_call *c)
{
	struct asker *a = (struct asker *)c;

	a->readies++;
	line_ask(a->link, c);
}

static void asker_on_answered(struct lock_call *c, const void *answer)
{
	struct asker *a = (struct asker *)c;

	(void)answer;
	a->answers++;
	a->ended++;
}

static void asker_on_lost(struct lock_call *c, bool sent, enum lock_outcome outcome, const struct err *why)
{
	struct asker *a = (struct asker *)c;

	a->losses++;
	a->sent = sent;
	a->outcome = outcome;
	a->why = *why;
	if (a->repeats && a->losses == 1)
		lock_link_want(a->link, c);
	else
		a->ended++;
	if (a->frees)
		lock_link_free(a->link);
}

static struct asker asker_on(struct lock_link *k)
{
	return (struct asker){
		.link = k, .call = { .ready = asker_on_ready, .answered = asker_on_answered, .lost = asker_on_lost }
	};
}

static void on_patience(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop;
	(void)w;
	(void)revents;
	ok(false, "what is waited for happens");
	exit(tap_done());
}

static void run_until(struct ev_loop *loop, const int *count, int least)
{
	ev_timer patience;

	ev_timer_init(&patience, on_patience, PATIENCE_S, 0.);
	ev_timer_start(loop, &patience);
	while (*count < least)
		ev_run(loop, EVRUN_ONCE);
	ev_timer_stop(loop, &patience);
}

static struct lock_link *link_to(struct lock_env *env, struct lock_url *url, struct told *t)
{
	struct line_link *l = mem_zero(sizeof *l);

	*t = (struct told){ 0 };
	lock_link_init(&l->link, env, url, &line_ops, &events, t);
	return &l->link;
}

static void name_peers(struct lock_url *url, int count, const struct peer *const *peers)
{
	static const char *const known[] = { NULL };
	char text[200] = "//";
	struct err err;

	for (int i = 0; i < count; i++)
		snprintf(text + strlen(text), sizeof text - strlen(text), "%s127.0.0.1:%d", i ? "," : "",
		         peers[i]->port);
	strcat(text, "/x");
	if (lock_url_parse(url, "line", text, 1, known, &err) < 0)
		abort();
}

/* ---- what must hold ---- */

static void test_hosts(struct lock_env *env)
{
	struct peer gone, silent, good;
	struct lock_url url;
	struct told t;

	peer_init(&gone, env->loop, GOOD);
	peer_fini(&gone);
	peer_init(&silent, env->loop, SILENT);
	peer_init(&good, env->loop, GOOD);
	name_peers(&url, 3, (const struct peer *const[]){ &gone, &silent, &good });
	struct lock_link *k = link_to(env, &url, &t);
	struct asker a = asker_on(k), b = asker_on(k);
	lock_link_want(k, &a.call);
	lock_link_want(k, &b.call);
	ok(a.readies == 0 && good.accepted + silent.accepted == 0, "nothing happens from inside the call");
	run_until(env->loop, &b.ended, 1);
	ok(a.answers == 1 && b.answers == 1,
	   "the host that serves is found behind one that is down and one that is silent");
	ok(t.ups == 1 && t.downs == 0, "of which nobody is told");
	ok(lock_link_is_up(k) && k->host == 2, "the link is with that host");
	ok(good.accepted == 1, "on one connection");
	lock_link_free(k);
	lock_url_fini(&url);
	peer_fini(&silent);
	peer_fini(&good);
}

static void test_refused(struct lock_env *env)
{
	struct peer p;
	struct lock_url url;
	struct told t;

	peer_init(&p, env->loop, REFUSES);
	name_peers(&url, 1, (const struct peer *const[]){ &p });
	struct lock_link *k = link_to(env, &url, &t);
	struct asker a = asker_on(k);
	lock_link_want(k, &a.call);
	run_until(env->loop, &a.ended, 1);
	ok(a.outcome == LOCK_REFUSED && !a.sent, "who waits is told of a refusal, and that nothing was sent");
	ok(strstr(a.why.text, "127.0.0.1") && strstr(a.why.text, "it said: go away"), "by whom and why");
	ok(t.downs == 1 && t.outcome == LOCK_REFUSED, "the owner is told, too");
	lock_link_want(k, &a.call);
	ok(a.losses == 1, "who asks again is not told from inside the call");
	run_until(env->loop, &a.ended, 2);
	ok(a.outcome == LOCK_REFUSED && p.accepted == 1, "but is told the same, and the server is left in peace");

	struct asker again = asker_on(k), frees = asker_on(k), behind = asker_on(k);
	int before = t.downs;
	again.repeats = true;
	lock_link_want(k, &again.call);
	run_until(env->loop, &again.ended, 1);
	ok(again.losses == 2 && t.downs == before + 2, "who asks again from inside that waits for the next attempt");
	frees.frees = true;
	lock_link_want(k, &frees.call);
	lock_link_want(k, &behind.call);
	run_until(env->loop, &t.freed, 1);
	ok(frees.losses == 1 && behind.losses == 0 && t.downs == before + 2,
	   "who is told may free the link: then nobody else is told");
	lock_url_fini(&url);
	peer_fini(&p);
}

static void test_lost(struct lock_env *env)
{
	struct peer p;
	struct lock_url url;
	struct told t;

	peer_init(&p, env->loop, GOOD);
	p.mute = true;
	name_peers(&url, 1, (const struct peer *const[]){ &p });
	struct lock_link *k = link_to(env, &url, &t);
	struct asker once = asker_on(k), again = asker_on(k);
	again.repeats = true;
	lock_link_want(k, &once.call);
	lock_link_want(k, &again.call);
	run_until(env->loop, &p.lines, 2);
	p.mute = false;
	peer_hang_up(&p);
	run_until(env->loop, &again.ended, 1);
	ok(once.losses == 1 && once.sent && once.answers == 0, "a question whose connection is lost may have arrived");
	ok(again.losses == 1 && again.answers == 1, "who asks again at once is answered on the next connection");
	ok(t.ups == 2 && t.downs == 1 && k->number == 1, "which is another one");

	int closes = ((struct line_link *)k)->closes;
	t.free_it = k;
	freed = 0;
	peer_hang_up(&p);
	run_until(env->loop, &freed, 1);
	ok(closes == 1 && t.downs == 2, "the owner may free the link when he is told that it is down");
	ok(t.freed_inside == 0 && t.freed == 1, "and is told when nothing of it runs any more");
	lock_url_fini(&url);
	peer_fini(&p);
}

static void test_late(struct lock_env *env)
{
	struct peer p;
	struct lock_url url;
	struct told t;

	peer_init(&p, env->loop, GOOD);
	name_peers(&url, 1, (const struct peer *const[]){ &p });
	struct lock_link *k = link_to(env, &url, &t);
	struct asker first = asker_on(k), late = asker_on(k), other = asker_on(k);
	lock_link_want(k, &first.call);
	run_until(env->loop, &first.ended, 1);
	p.mute = true;
	lock_link_want(k, &late.call);
	lock_link_want(k, &other.call);
	run_until(env->loop, &p.lines, 3);
	peer_say(&p, "answer\n");
	run_until(env->loop, &late.ended, 1);
	ok(late.answers == 1 && other.answers == 0, "questions are answered in their order");
	lock_link_want(k, &late.call);
	run_until(env->loop, &p.lines, 4);
	lock_link_forget(k, &late.call, false);
	ok(lock_link_is_up(k), "who goes before the deadline leaves the link as it is");
	lock_link_forget(k, &other.call, true);
	ok(lock_link_is_up(k), "who is late, but after something was heard, too");
	lock_link_want(k, &other.call);
	lock_link_want(k, &late.call);
	lock_link_forget(k, &late.call, true);
	ok(!lock_link_is_up(k), "who is late, and nothing was heard since he asked, ends it");
	ok(other.losses == 1 && other.sent && late.losses == 0, "the others are told, and he is not");
	lock_link_free(k);
	lock_url_fini(&url);
	peer_fini(&p);
}

/* Two of them are due at the same time. */
struct due {
	ev_timer timer;
	struct lock_link *link;
	int sends; /* before this one */
};

static void due_on_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
	struct due *d = (struct due *)w;

	(void)loop;
	(void)revents;
	d->sends = sends;
	lock_link_send_soon(d->link);
}

static void test_send_soon(struct lock_env *env)
{
	struct peer p;
	struct lock_url url;
	struct told t;

	peer_init(&p, env->loop, GOOD);
	name_peers(&url, 1, (const struct peer *const[]){ &p });
	struct lock_link *k = link_to(env, &url, &t);
	struct due one = { .link = k }, two = { .link = k };
	lock_link_raise(k);
	run_until(env->loop, &t.ups, 1);
	sends = 0;
	ev_init(&one.timer, due_on_timer);
	ev_init(&two.timer, due_on_timer);
	ev_feed_event(env->loop, &one.timer, EV_TIMER);
	ev_feed_event(env->loop, &two.timer, EV_TIMER);
	ev_run(env->loop, EVRUN_NOWAIT);
	ok(one.sends == 0 && two.sends == 0, "what is asked soon leaves behind all that is due");
	lock_link_send_soon(k);
	is_int(sends, 1, "what is asked at the same time leaves together, and nothing from inside the call");
	ev_run(env->loop, EVRUN_NOWAIT);
	is_int(sends, 2, "but soon");
	lock_link_send_soon(k);
	lock_link_lose(k, LOCK_FAILED, ERR_UNREACHABLE, "%s", "gone");
	ev_run(env->loop, EVRUN_NOWAIT);
	is_int(sends, 2, "and nothing on another connection");
	lock_link_free(k);
	lock_url_fini(&url);
	peer_fini(&p);
}

static void test_age(struct lock_env *env)
{
	struct peer p;
	struct lock_url url;
	struct told t;
	struct asker a;

	peer_init(&p, env->loop, GOOD);
	name_peers(&url, 1, (const struct peer *const[]){ &p });
	struct lock_link *k = link_to(env, &url, &t);
	lock_link_limit_age(k, 1);
	lock_link_raise(k);
	run_until(env->loop, &t.ups, 2);
	is_int(p.accepted, 2, "a connection that is too old is made anew, though nobody asks");
	p.mute = true;
	a = asker_on(k);
	lock_link_want(k, &a.call);
	run_until(env->loop, &k->aged, 1);
	peer_say(&p, "answer\n");
	run_until(env->loop, &t.ups, 3);
	ok(a.answers == 1 && a.losses == 0, "an answer is waited for");
	lock_link_want(k, &a.call);
	run_until(env->loop, &t.ups, 4);
	ok(a.losses == 1 && a.sent, "but not for ever: it is lost");
	lock_link_free(k);
	lock_url_fini(&url);
	peer_fini(&p);
}

/* ---- operations ---- */

static void on_done(void *arg, const struct lock_result *r)
{
	struct asker *a = arg;

	a->ended++;
	a->outcome = r->outcome;
	a->why = r->err;
	a->version = r->version;
}

static void test_operation(struct lock_env *env)
{
	struct lock lock = { .url = (char[]){ "line://x" } };
	struct lock_op op = { .active = false };
	struct peer p;
	struct lock_url url;
	struct told t;

	peer_init(&p, env->loop, GOOD);
	p.mute = true;
	name_peers(&url, 1, (const struct peer *const[]){ &p });
	struct lock_link *k = link_to(env, &url, &t);
	struct asker up = asker_on(k), a = asker_on(k);
	lock_link_want(k, &up.call);
	run_until(env->loop, &t.ups, 1);
	lock_op_begin(&op, env, &lock, NULL, true, instant_add(clock_now(), NSEC_PER_SEC / 10), on_done, &a);
	lock_op_ask(&op, k, &a.call);
	lock_op_sent(&op);
	ok(!lock_op_repeat(&op, true), "a write is not repeated");
	struct instant first = op.sent_at;
	while (clock_now().boot == first.boot)
		;
	lock_op_sent(&op);
	ok(op.sent_at.boot == first.boot, "it was sent when it was sent first");
	run_until(env->loop, &a.ended, 1);
	ok(a.outcome == LOCK_UNKNOWN && a.losses == 0,
	   "a write without an answer by its deadline may have been carried out");
	ok(t.downs == 1, "and the link, on which nothing was heard, is given up");
	lock_op_begin(&op, env, &lock, NULL, false, instant_add(clock_now(), 3600 * NSEC_PER_SEC), on_done, &a);
	ok(!lock_op_repeat(&op, false) && lock_op_repeat(&op, true) && !lock_op_repeat(&op, true),
	   "a look that was sent is repeated, and once");
	lock_op_fail(&op, LOCK_REFUSED, ERR_DENIED, "%s", "no");
	ok(a.outcome == LOCK_REFUSED && strcmp(a.why.text, "reading line://x: no") == 0,
	   "it fails with what was the matter");
	lock_op_fail(&op, LOCK_FAILED, ERR_DENIED, "%s", "no");
	lock_op_finish(&op, &(struct lock_result){ .outcome = LOCK_OK });
	is_int(a.ended, 2, "and ends once");
	lock_op_begin(&op, env, &lock, NULL, false, instant_add(clock_now(), 3600 * NSEC_PER_SEC), on_done, &a);
	lock_op_found(&op, "the line", "{}", 2, "7", 0);
	ok(a.outcome == LOCK_FOREIGN && !*a.version.text && strstr(a.why.text, "the line is no election record"),
	   "what is no record is foreign, and has no version that a write could expect");
	lock_link_free(k);
	lock_url_fini(&url);
	peer_fini(&p);
}

/* ---- servers ---- */

struct line_server {
	struct lock_server base;
	int number;
	struct lock_url *url;
};

struct line_place {
	int number;
	struct lock_url *url;
};

static int spared, servers_freed, listens, unlistens;

static bool server_serves(const struct lock_server *s, const void *place)
{
	return ((const struct line_server *)s)->number == ((const struct line_place *)place)->number;
}

static struct lock_server *server_make(struct lock_env *env, void *place)
{
	static const struct lock_link_events notices = { .up = lock_server_on_up, .down = lock_server_on_down };
	struct line_server *s = mem_zero(sizeof *s);
	struct line_link *l = mem_zero(sizeof *l);
	const struct line_place *p = place;

	s->number = p->number;
	lock_link_init(&l->link, env, p->url, &line_ops, &notices, s);
	s->base.notices = &l->link;
	return &s->base;
}

static void server_spare(void *place)
{
	(void)place;
	spared++;
}

static void server_free(struct lock_server *s)
{
	servers_freed++;
	lock_link_free(s->notices);
	free(s);
}

static void server_listen(struct lock_server *s, const char *channel, bool on)
{
	(void)s;
	*(on ? &listens : &unlistens) += strcmp(channel, "channel") == 0;
}

static const struct lock_server_ops server_ops = {
	.serves = server_serves,
	.make = server_make,
	.spare = server_spare,
	.free = server_free,
	.listen = server_listen,
};

static void on_changed(void *arg)
{
	++*(int *)arg;
}

/* What is written decides whose record the lock's doubt takes for its own (lock_failover.h). */
static void test_doubt(struct lock_env *env)
{
	struct lock lock = { .url = (char[]){ "line://x" } };
	struct lock_result written = { .outcome = LOCK_OK, .version = { .text = "7" } };
	struct lock_failover doubt = { .mark = "" };
	struct lock_op op = { .active = false };
	struct asker a = { .ended = 0 };
	struct record r;

	record_init(&r);
	free(r.holder);
	r.holder = mem_dup("a");
	r.state = RECORD_LEADING;
	r.lease_ms = INT64_C(3600) * 1000;
	for (int i = 0; i < 3; i++) {
		lock_op_begin(&op, env, &lock, NULL, true, instant_add(clock_now(), 3600 * NSEC_PER_SEC), on_done, &a);
		op.doubt = &doubt;
		lock_op_print(&op, &r);
		lock_op_sent(&op);
		bool own = lock_failover_own(&doubt, &written.version, clock_now());
		if (i == 1)
			ok(own, "the record of a term that was written is known as its own");
		if (i == 2)
			ok(!own, "from the moment at which a release is sent it is not");
		lock_op_finish(&op, &written);
		r.state = i == 1 ? RECORD_RELEASED : r.state;
	}
	ok(!lock_failover_own(&doubt, &written.version, clock_now()), "nor is what a release has written");
	r.state = RECORD_LEADING;
	lock_op_begin(&op, env, &lock, NULL, true, instant_add(clock_now(), 3600 * NSEC_PER_SEC), on_done, &a);
	op.doubt = &doubt;
	lock_op_print(&op, &r);
	lock_op_sent(&op);
	written.outcome = LOCK_CONFLICT;
	lock_op_finish(&op, &written);
	ok(!lock_failover_own(&doubt, &written.version, clock_now()), "nor what was not written");
	lock_op_begin(&op, env, &lock, NULL, false, instant_add(clock_now(), 3600 * NSEC_PER_SEC), on_done, &a);
	lock_op_sent(&op);
	lock_op_fail(&op, LOCK_UNKNOWN, ERR_UNREACHABLE, "%s", "no answer");
	is_int(a.outcome, LOCK_FAILED, "a look is never unknown: it has failed");
	record_fini(&r);
}

static void test_channel(struct lock_env *env)
{
	struct lock_board board = { .loop = env->loop };
	struct lock_member m = { .board = NULL }, other = { .board = NULL };
	int changes = 0, changes_of_other = 0;
	char *channel;

	lock_member_init(&m, &board);
	lock_member_init(&other, &board);
	lock_member_enter(&m, "channel", on_changed, &changes);
	lock_member_enter(&other, "channel", on_changed, &changes_of_other);
	ev_run(env->loop, EVRUN_NOWAIT);
	ok(changes == 0 && changes_of_other == 1,
	   "who comes to a channel that others wait on looks once: notices may have come before");
	lock_board_tell(&board, "channel", m.name);
	ok(changes_of_other == 1, "nobody is told from inside the call");
	ev_run(env->loop, EVRUN_NOWAIT);
	ok(changes == 0 && changes_of_other == 2, "a notice is told to all on its channel but who caused it");
	lock_board_tell(&board, "another", NULL);
	lock_board_tell(&board, "channel", NULL);
	lock_member_leave(&other, &channel);
	ev_run(env->loop, EVRUN_NOWAIT);
	ok(changes == 1 && changes_of_other == 2, "who has left is not told what came before");
	lock_member_leave(&m, &channel);
	free(channel);
}

static void test_server(struct lock_env *env)
{
	struct lock_member m = { .board = NULL }, other = { .board = NULL };
	struct lock_url url;
	struct peer p;
	int changes = 0;

	peer_init(&p, env->loop, GOOD);
	name_peers(&url, 1, (const struct peer *const[]){ &p });
	struct line_place one = { 1, &url }, two = { 2, &url };
	struct lock_server *a = lock_server_get(env, &server_ops, &one), *b = lock_server_get(env, &server_ops, &two);
	ok(a != b && lock_server_get(env, &server_ops, &one) == a,
	   "locks in one place share one server, others have theirs");
	is_int(spared, 1, "a place that has a server already is spared");
	lock_server_put(b);
	is_int(servers_freed, 1, "a server goes with its last user");
	lock_server_put(a);
	is_int(servers_freed, 1, "and not before");

	lock_member_init(&m, &a->board);
	lock_member_init(&other, &a->board);
	ok(lock_server_watch(a, &m, "channel", on_changed, &changes),
	   "who waits on a new channel is told that it is new");
	ok(!lock_server_watch(a, &other, "channel", on_changed, &changes), "the second is not");
	run_until(env->loop, &listens, 1);
	ok(lock_link_is_up(a->notices) && listens == 1, "the link is brought up for it, and the server is asked once");
	peer_hang_up(&p);
	run_until(env->loop, &listens, 2);
	is_int(p.accepted, 2, "when the link was lost it comes back, and the server is asked again");
	lock_server_hold(a);
	lock_server_unwatch(a, &other);
	is_int(unlistens, 0, "as long as one waits on a channel it is kept");
	lock_server_unwatch(a, &m);
	is_int(unlistens, 1, "with the last it goes");
	lock_server_put(a);
	lock_server_watch(a, &m, "channel", on_changed, &changes);
	lock_server_unwatch(a, &m);
	is_int(unlistens, 1, "and with the server's last user the connection does");
	lock_server_hold(a);
	lock_server_put(a);
	is_int(servers_freed, 1, "who holds a server keeps it");
	lock_server_put(a);
	is_int(servers_freed, 2, "until he puts it");
	lock_url_fini(&url);
	peer_fini(&p);
}

static void test_hands_over(void)
{
	struct lock_user u = { .op = { .writing = true, .leads = true }, .acquiring = true };

	ok(lock_user_hands_over(&u), "a write that begins a term hands over");
	u.acquiring = false;
	ok(!lock_user_hands_over(&u), "a renewal does not");
	u.op.leads = false;
	ok(lock_user_hands_over(&u), "a release does");
	u.op.removing = true;
	ok(!lock_user_hands_over(&u), "a removal does not");
	u.op.removing = u.op.writing = false;
	ok(!lock_user_hands_over(&u), "nor does a look");
}

int main(void)
{
	struct lock_env env = { .loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV) };

	test_hosts(&env);
	test_refused(&env);
	test_lost(&env);
	test_late(&env);
	test_send_soon(&env);
	test_age(&env);
	test_operation(&env);
	test_doubt(&env);
	test_channel(&env);
	test_server(&env);
	test_hands_over();
	lock_env_fini(&env);
	ev_loop_destroy(env.loop);
	return tap_done();
}
