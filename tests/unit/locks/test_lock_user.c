/* What a lock that shares a server asks its backend for: of a lock itself, and of the next record beside one, whose
 * writes are advice. Beside test_lock_link.c, where there is a server. */
#include "locks/lock_user.h"

#include "base/mem.h"
#include "lease/next_record.h"

#include "tap.h"

#include <ev.h>
#include <stdlib.h>
#include <string.h>

static struct {
	struct lock_env env;
	struct lock_user user;
	struct lock_server *server;
	int begun;
	bool hands_over;
	struct lock_result result;
	int64_t record_token;
} t;

/* ---- a backend that asks nobody ---- */

static void silent_dial(struct lock_link *k)
{
	(void)k;
}

static const struct lock_link_events notices = { .up = lock_server_on_up, .down = lock_server_on_down };
static const struct lock_link_ops link_ops = { .attempt = NSEC_PER_SEC, .dial = silent_dial };

static bool server_serves(const struct lock_server *s, const void *place)
{
	(void)s;
	(void)place;
	return true;
}

static struct lock_server *server_make(struct lock_env *env, void *place)
{
	struct lock_server *s = mem_zero(sizeof *s);

	(void)place;
	s->notices = mem_zero(sizeof *s->notices);
	lock_link_init(s->notices, env, NULL, &link_ops, &notices, s);
	return s;
}

static void server_spare(void *place)
{
	(void)place;
}

static void server_free(struct lock_server *s)
{
	lock_link_free(s->notices);
	free(s);
}

static const struct lock_server_ops server_ops = {
	.serves = server_serves,
	.make = server_make,
	.spare = server_spare,
	.free = server_free,
};

static void user_begin(struct lock_user *u)
{
	t.begun++;
	t.hands_over = lock_user_hands_over(u);
	lock_op_sent(&u->op);
}

static void user_free(struct lock_user *u)
{
	(void)u;
}

static const struct lock_user_ops user_ops = { .begin = user_begin, .free = user_free };
static const struct lock_ops lock_ops = { .scheme = "silent", LOCK_USER_OPS };

static void open_lock(bool advice)
{
	memset(&t.user, 0, sizeof t.user);
	t.server = lock_server_get(&t.env, &server_ops, NULL);
	lock_user_init(&t.user, &lock_ops, &user_ops, mem_dup("silent:x"), t.server, mem_dup("x"));
	t.user.lock.advice = advice;
}

static void close_lock(void)
{
	lock_user_close(&t.user.lock);
}

/* ---- operations ---- */

static void on_done(void *arg, const struct lock_result *r)
{
	(void)arg;
	t.result = *r;
	t.record_token = r->record ? r->record->token : -1;
}

static struct instant later(void)
{
	return instant_add(clock_now(), 60 * NSEC_PER_SEC);
}

static void fill_term(struct record *r, int64_t token)
{
	record_init(r);
	mem_replace(&r->holder, "ann");
	r->lease_ms = 15000;
	r->term = 3;
	r->token = token;
	r->state = RECORD_LEADING;
}

static void fill_next(struct record *r)
{
	record_init(r);
	next_record_fill(r, &(struct next_record){ .who = { .identity = "zoe", .incarnation = "1", .address = "" },
	                                           .lease_ms = 15000 });
}

static void start_write(struct record *r, bool durable)
{
	static const struct version none = { "" };

	t.begun = 0;
	lock_user_write(&t.user.lock, r, &none, durable, later(), on_done, NULL);
}

static void finish(void)
{
	struct lock_result r = { .outcome = LOCK_OK, .version = { "7" }, .token = 7 };

	lock_op_finish(&t.user.op, &r);
}

/* ---- what must hold ---- */

static void test_lock(void)
{
	struct record r;

	open_lock(false);
	fill_term(&r, 0);
	start_write(&r, true);
	ok(t.begun == 1 && t.user.acquiring && t.user.durable && t.hands_over,
	   "a write without a token begins a term, durably, and others wait for it");
	ok(t.user.op.doubt == &t.user.doubt, "and is told to what knows of failovers");
	finish();
	is_int(t.result.token, 7, "it gets the token that the store has made");
	is_str(t.user.doubt.own.text, "7", "and is known as our own");
	record_fini(&r);
	close_lock();
}

static void test_advice(void)
{
	struct record r;
	char name[sizeof t.user.member.name];

	open_lock(true);
	memcpy(name, t.user.member.name, sizeof name);
	fill_next(&r);
	start_write(&r, true);
	ok(t.begun == 1 && !t.user.acquiring, "the write of a next record begins no term, though it has no token");
	ok(!t.user.durable, "it need not be durable, whoever asks for that");
	ok(!t.hands_over, "it is in nobody's way");
	ok(!t.user.op.doubt, "nothing of a failover concerns it");
	finish();
	is_int(t.result.token, 0, "whatever the store says, it gets no token");
	ok(t.result.outcome == LOCK_OK && strcmp(t.result.version.text, "7") == 0, "and its version");
	is_str(t.user.doubt.own.text, "", "no term is known as our own by it");
	is_str(t.user.member.name, name, "its writes keep one name");
	record_fini(&r);
	close_lock();
}

/* What a stranger has put into its place is no term there. */
static void test_advice_read(void)
{
	struct record r;

	open_lock(true);
	fill_term(&r, 0);
	lock_user_read(&t.user.lock, later(), on_done, NULL);
	lock_op_found_record(&t.user.op, &r, "9", 9);
	ok(t.result.outcome == LOCK_OK && t.result.token == 0 && t.record_token == 0,
	   "what is read where a next record should be gets no token");
	is_int(t.user.doubt.longest, 0, "and no lease of it is waited for");
	record_fini(&r);
	close_lock();
	open_lock(false);
	fill_term(&r, 0);
	lock_user_read(&t.user.lock, later(), on_done, NULL);
	lock_op_found_record(&t.user.op, &r, "9", 9);
	ok(t.result.token == 9 && t.record_token == 9,
	   "where a lock's record is, a term's first write has its version's");
	record_fini(&r);
	close_lock();
}

/* ---- notices of one channel ---- */

static void on_changed(void *arg)
{
	(void)arg;
}

static void test_deaf_channel(void)
{
	struct lock_member m = { 0 }, n = { 0 }, again = { 0 };
	struct lock_board *b;

	open_lock(false);
	b = &t.server->board;
	lock_member_init(&m, b);
	lock_member_init(&n, b);
	lock_member_init(&again, b);
	lock_server_watch(t.server, &m, "lock", on_changed, NULL);
	lock_server_watch(t.server, &n, "next", on_changed, NULL);
	lock_board_deafen_channel(b, "other");
	ok(!lock_member_is_deaf(&m) && !lock_member_is_deaf(&n), "a channel that nobody waits for concerns nobody");
	lock_board_deafen_channel(b, "next");
	ok(lock_member_is_deaf(&n) && !lock_member_is_deaf(&m), "who has no right to one channel hears the others");
	lock_server_watch(t.server, &again, "next", on_changed, NULL);
	ok(lock_member_is_deaf(&again) && ev_is_active(&again.timer), "who comes to it later looks now and then");
	lock_board_deafen(b);
	ok(lock_member_is_deaf(&m), "where there are no notices at all, nobody hears any");
	lock_server_unwatch(t.server, &again);
	lock_server_unwatch(t.server, &n);
	lock_server_unwatch(t.server, &m);
	close_lock();
}

int main(void)
{
	t.env.loop = ev_default_loop(EVFLAG_NOENV);
	test_lock();
	test_advice();
	test_advice_read();
	test_deaf_channel();
	lock_env_fini(&t.env);
	return tap_done();
}
