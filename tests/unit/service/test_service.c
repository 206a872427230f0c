/* --service as the user writes it, and one candidate's part of keeping a Service's address: what is asked of the store,
 * in which order, and what follows from its answers. The store is a table of this test, which answers when it is
 * told. */
#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "locks/lock.h"
#include "service_store.h"

#include <ev.h>
#include <stdlib.h>

/* ---- the log, and the loop ---- */

static char events[1000];
static struct ev_loop *loop;
static int withdrawn;

static void on_log(void *arg, enum log_level level, const struct log_about *about, const char *event, const char *text)
{
	(void)arg, (void)level, (void)about, (void)text;
	snprintf(events + strlen(events), sizeof events - strlen(events), "%s ", event);
}

static void logged(const char *what, const char *sentence)
{
	is_str(events, what, sentence);
	events[0] = '\0';
}

static void on_withdrawn(void *arg)
{
	(void)arg;
	withdrawn++;
}

/* Until the store has been asked so often: however long the pauses are. */
static void until_asked(int times)
{
	while (store.asked < times)
		ev_run(loop, EVRUN_ONCE);
}

static struct service *start(struct lock_env *env)
{
	struct err err;

	setenv("POD_IP", "10.0.0.7", 1);
	events[0] = '\0';
	withdrawn = 0;
	return service_open(
		&(struct service_config){
			.env = env, .target = "shop/web:80", .lock = "file:x", .name = "", .address = "", .ops = &ops },
		&err);
}

static void turn(void)
{
	ev_run(loop, EVRUN_NOWAIT);
	ev_run(loop, EVRUN_NOWAIT);
}

static void look(struct service *s)
{
	service_look(s);
	turn();
}

static bool withdraw(struct service *s, nsec within)
{
	bool waits = service_withdraw(s, within, on_withdrawn, NULL);

	turn();
	return waits;
}

static void publish(struct service *s, int64_t token, const char *address)
{
	service_publish(s, &(struct service_term){
				   .term = 1, .token = token, .address = address, .lock = "file:x", .identity = "a" });
	turn();
}

/* ---- the command line ---- */

static void parses(const char *text, const char *ns, const char *name, int port)
{
	struct service_target t;
	struct err err;

	ok(service_target_parse(&t, text, &err) == 0 && strcmp(t.ns, ns) == 0 && strcmp(t.name, name) == 0 &&
	           t.port == port,
	   "%s is a Service", text);
}

static void the_target(void)
{
	static const char *const wrong[] = {
		"",      "/web",      "shop/",      "a/b/c", "Web",  "web:", "web:0",
		"web:x", "web:65536", "web:080000", "-web",  "web-", "we.b", "shop/web?x"
	};
	struct service_target t;
	struct err err;

	parses("web", "", "web", 0);
	parses("shop/web", "shop", "web", 0);
	parses("web:8080", "", "web", 8080);
	parses("shop/web-2:65535", "shop", "web-2", 65535);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		ok(service_target_parse(&t, wrong[i], &err) < 0 && err.code == ERR_USAGE, "\"%s\" is refused",
		   wrong[i]);
}

static void host(const char *address, const char *expected)
{
	char found[SERVICE_HOST_SIZE] = "none";
	struct err err;

	int result = service_host(address, found, &err);
	is_str(result < 0 ? "none" : found, expected, address);
}

static void the_address(void)
{
	unsetenv("POD_IP");
	host("10.0.0.1", "10.0.0.1");
	host("10.0.0.1:80", "10.0.0.1");
	host("[fd00::1]:80", "fd00::1");
	host("fd00:0:0::1", "fd00::1");
	host("[fd00::1]", "fd00::1");
	host("web.example.org:80", "none");
	host("10.0.0.256", "none");
	host(":80", "none");
	host("", "none");
	host("0000000000000000000000000000000000000000000000000000000000000001", "none");
	setenv("POD_IP", "10.0.0.7", 1);
	host("", "10.0.0.7");
	host("10.0.0.1", "10.0.0.1");
}

/* ---- a candidate's part ---- */

static void a_term(struct lock_env *env)
{
	struct service *s = start(env);
	struct service_status st;

	look(s);
	ok(store.wish.aim == SERVICE_LOOK, "a standby looks whether it could be published");
	answer(SERVICE_DONE, false, NULL);
	publish(s, 5, "");
	ok(store.wish.aim == SERVICE_PUBLISH && store.wish.token == 5 && strcmp(store.wish.host, "10.0.0.7") == 0,
	   "a leader publishes POD_IP, with its token");
	answer(SERVICE_DONE, true, NULL);
	service_status(s, &st);
	ok(st.published && strcmp(st.host, "10.0.0.7") == 0 && !*st.trouble, "and shows it");
	logged("service_published ", "and says so");
	ok(withdraw(s, NSEC_PER_SEC), "at the end there is something to wait for");
	ok(store.wish.aim == SERVICE_WITHDRAW && withdrawn == 0, "until the store has answered");
	answer(SERVICE_DONE, true, NULL);
	is_int(withdrawn, 1, "then it is withdrawn");
	ok(!withdraw(s, NSEC_PER_SEC), "once: there is nothing to withdraw any more");
	logged("service_withdrawn ", "and says so");
	service_free(s);
	is_int(store.closed, 1, "the store is closed");
}

static void a_write_under_way(struct lock_env *env)
{
	struct service *s = start(env);

	publish(s, 5, "10.0.0.1:80");
	ok(withdraw(s, 60 * NSEC_PER_SEC) && store.asked == 1, "a withdrawal waits for the write that is under way");
	answer(SERVICE_FAILED, false, "no answer");
	ok(store.asked == 2 && store.wish.aim == SERVICE_WITHDRAW && withdrawn == 0,
	   "and follows it, since that may have been done");
	publish(s, 6, "10.0.0.1:80");
	is_int(withdrawn, 1, "a term that begins meanwhile ends the waiting");
	answer(SERVICE_DONE, true, NULL);
	ok(store.asked == 3 && store.wish.aim == SERVICE_PUBLISH && store.wish.token == 6, "and is published then");
	service_free(s);
}

static void over_at_once(struct lock_env *env)
{
	struct service *s = start(env);

	service_publish(s, &(struct service_term){
				   .term = 1, .token = 5, .address = "10.0.0.1", .lock = "file:x", .identity = "a" });
	is_int(store.asked, 0, "a term that begins sends nothing at once");
	ok(!withdraw(s, NSEC_PER_SEC) && store.asked == 0, "and one that is over by then has sent nothing");
	service_free(s);
}

static void no_answer(struct lock_env *env)
{
	struct service *s = start(env);

	publish(s, 5, "10.0.0.1:80");
	answer(SERVICE_DONE, true, NULL);
	events[0] = '\0';
	withdraw(s, NSEC_PER_SEC / 20);
	while (!withdrawn)
		ev_run(loop, EVRUN_ONCE);
	logged("service_late ", "where the store does not answer, the wait ends all the same, and that is said");
	answer(SERVICE_FAILED, false, "timed out");
	until_asked(3);
	ok(store.wish.aim == SERVICE_WITHDRAW, "and it is tried again");
	answer(SERVICE_DONE, true, NULL);
	is_int(withdrawn, 1, "who waited hears of it once");
	service_free(s);
}

/* The address of a term may be a name, which only shows when it begins: what was tried before must not go on then. */
static void refused_while_trying(struct lock_env *env)
{
	struct service *s = start(env);

	service_look(s);
	until_asked(1);
	answer(SERVICE_FAILED, false, "503");
	publish(s, 5, "web:80");
	for (struct instant end = instant_add(clock_now(), NSEC_PER_SEC / 2); instant_until(end, clock_now()) > 0;) {
		usleep(10000);
		ev_run(loop, EVRUN_NOWAIT);
	}
	is_int(store.asked, 1, "a refused address ends the attempts of before");
	service_look(s);
	until_asked(2);
	publish(s, 6, "web:80");
	answer(SERVICE_FAILED, false, "503");
	ok(store.asked == 2 && !store.busy, "and what comes of one that was under way does not count");
	service_free(s);
}

static void troubles(struct lock_env *env)
{
	struct service *s = start(env);
	struct service_status st;
	struct buf text = { 0 };

	publish(s, 5, "10.0.0.1:80");
	answer(SERVICE_REFUSED, false, "it has a selector");
	logged("service_refused ", "what must not be is said");
	until_asked(2);
	answer(SERVICE_REFUSED, false, "it has a selector");
	logged("", "once");
	until_asked(3);
	answer(SERVICE_FAILED, false, "503");
	logged("service_failed ", "another trouble is said, too");
	service_tell(s, &text);
	is_str(text.data, "the Service shop/web does not lead here: 503", "and shown");
	until_asked(4);
	answer(SERVICE_CONFLICT, false, NULL);
	until_asked(5);
	answer(SERVICE_DONE, true, NULL);
	service_status(s, &st);
	ok(st.published && !*st.trouble && st.failures == 3, "until it works: a conflict is no failure");
	events[0] = '\0';
	publish(s, 4, "10.0.0.1:80");
	answer(SERVICE_FENCED, false, "token 5 has written");
	service_status(s, &st);
	ok(!st.published, "what a larger token has written is not ours");
	logged("service_fenced ", "which is said");
	ok(withdraw(s, NSEC_PER_SEC), "a withdrawal looks, too");
	answer(SERVICE_FENCED, false, "token 5 has written");
	ok(withdrawn == 1 && !store.busy, "finds what is not ours, and that is all");
	logged("", "without a word");
	publish(s, 6, "web:80");
	logged("service_refused ", "the name of a host is refused");
	ok(!store.busy && !withdraw(s, NSEC_PER_SEC), "before the store is asked");
	buf_fini(&text);
	service_free(s);
}

int main(void)
{
	struct lock_env env = { 0 };

	loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOENV);
	env.loop = loop;
	log_divert(on_log, NULL);
	the_target();
	the_address();
	a_term(&env);
	a_write_under_way(&env);
	over_at_once(&env);
	no_answer(&env);
	troubles(&env);
	refused_while_trying(&env);
	log_divert(NULL, NULL);
	ev_loop_destroy(loop);
	return tap_done();
}
