/* The order of --service between a real elector, whose lock is a file, and its user: a term that begins is published;
 * one that ends by somebody's will is withdrawn before its user hears of it; and one that is lost waits for nothing. */
#include "term/service_order.h"

#include "base/log.h"
#include "loop/offload.h"
#include "loop/timeline.h"
#include "nobody.h"
#include "service_store.h"

#include <ev.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- the elector's user ---- */

static struct user {
	struct lock_env env;
	struct timeline timeline;
	struct proof_self self;
	struct elector *elector;
	struct service_order *order;
	int leads, stops, finished, told;
	bool held, declines;
	int64_t token;
} u;
static char dir[] = "/tmp/lunarch-test-XXXXXX", url[100];

static void on_lead(void *arg, const struct elector_term *t)
{
	ok(!store.busy || store.wish.aim != SERVICE_PUBLISH, "the user hears of a term before it is published");
	(void)arg;
	u.leads++;
	u.token = t->token;
	if (u.declines)
		elector_end(u.elector, LEASE_WORKER, NSEC_NEVER, 0);
}

static void on_stop(void *arg, enum lease_reason reason, bool held, struct instant stop_by)
{
	(void)arg, (void)reason, (void)stop_by;
	u.stops++;
	u.held = held;
}

static void on_ask(void *arg)
{
	(void)arg;
	elector_answer(u.elector, true, NULL, NULL);
}

static void on_finished(void *arg, bool left)
{
	(void)arg, (void)left;
	u.finished++;
}

static void on_told(void *arg)
{
	(void)arg;
	u.told++;
}

static const struct elector_callbacks callbacks = {
	.lead = on_lead,
	.deadline = no_deadline,
	.stop = on_stop,
	.leader = no_leader,
	.no_leader = nobody_leads,
	.ask = on_ask,
	.finished = on_finished,
};

static void until(const int *count, int wanted)
{
	while (*count < wanted)
		ev_run(u.env.loop, EVRUN_ONCE);
}

static void turn(void)
{
	for (int i = 0; i < 20; i++)
		ev_run(u.env.loop, EVRUN_NOWAIT);
}

static bool make(const char *target, const char *lock, const char *address, struct err *err)
{
	struct elector_config c = { .env = &u.env,
		                    .timeline = &u.timeline,
		                    .self = &u.self,
		                    .lock = lock,
		                    .identity = "a",
		                    .address = address,
		                    .times = { .lease = 60 * NSEC_PER_SEC, .retry = NSEC_PER_SEC / 10 } };
	struct service_config s = {
		.env = &u.env, .target = target, .lock = lock, .name = "", .address = address, .ops = &ops
	};

	lease_times_default(&c.times);
	u.elector = service_order_elector(&u.order, &s, &c, &callbacks, NULL, err);
	return u.elector;
}

/* A term that leads, and is published if the store answers. */
static void begin(bool published)
{
	struct err err;

	u.leads = u.stops = u.finished = u.told = 0;
	if (!make("web", url, "10.0.0.1:80", &err)) {
		printf("Bail out! %s\n", err.text);
		exit(1);
	}
	turn();
	ok(store.busy && store.wish.aim == SERVICE_LOOK, "a candidate looks whether the Service is there");
	answer(SERVICE_DONE, true, NULL);
	elector_bar(u.elector, NULL);
	until(&u.leads, 1);
	turn();
	ok(store.busy && store.wish.aim == SERVICE_PUBLISH && store.wish.token == u.token &&
	           strcmp(store.wish.host, "10.0.0.1") == 0,
	   "a term that begins is published, with its token");
	if (published)
		answer(SERVICE_DONE, true, NULL);
}

static void end(void)
{
	elector_free(u.elector);
	service_order_free(u.order);
	unlink(url);
}

/* ---- what must hold ---- */

static void by_will(void)
{
	begin(true);
	elector_end(u.elector, LEASE_SHUTDOWN, NSEC_NEVER, 600 * NSEC_PER_SEC);
	turn();
	ok(store.busy && store.wish.aim == SERVICE_WITHDRAW && u.stops == 0,
	   "a term that ends by somebody's will is withdrawn, and its user works on");
	elector_end(u.elector, LEASE_SHUTDOWN, NSEC_NEVER, 600 * NSEC_PER_SEC);
	answer(SERVICE_DONE, true, NULL);
	ok(u.stops == 1 && u.held, "then its user is to stop, while the lease is held");
	elector_stopped(u.elector, true);
	until(&u.finished, 1);
	is_int(u.stops, 1, "once");
	end();
}

static void without_answer(void)
{
	begin(true);
	elector_end(u.elector, LEASE_SHUTDOWN, NSEC_NEVER, NSEC_PER_SEC / 5);
	until(&u.stops, 1);
	ok(u.held && store.busy, "where the store does not answer, the user is to stop all the same");
	elector_stopped(u.elector, true);
	until(&u.finished, 1);
	end();
}

static void lost(void)
{
	begin(true);
	unlink(url);
	until(&u.stops, 1);
	turn();
	ok(!u.held && store.busy && store.wish.aim == SERVICE_WITHDRAW,
	   "a term that is lost stops at once, and is withdrawn beside that");
	elector_stopped(u.elector, true);
	end();
	begin(true);
	elector_end(u.elector, LEASE_RESIGNED, 0, 600 * NSEC_PER_SEC);
	turn();
	is_int(u.stops, 0, "a stop that is held back");
	unlink(url);
	until(&u.stops, 1);
	ok(!u.held, "goes on when the lease is lost");
	answer(SERVICE_DONE, true, NULL);
	is_int(u.stops, 1, "and does not come again when the store answers");
	elector_stopped(u.elector, true);
	end();
}

/* As where a worker has died, and its replacement has run on_stopped. */
static void over_before(void)
{
	begin(true);
	elector_end(u.elector, LEASE_WORKER, NSEC_NEVER, 600 * NSEC_PER_SEC);
	turn();
	elector_stopped(u.elector, true);
	until(&u.finished, 1);
	answer(SERVICE_DONE, true, NULL);
	is_int(u.stops, 0, "a user that has reported the end meanwhile is not told of it");
	end();
}

static void before_the_elector(void)
{
	begin(true);
	ok(service_order_withdraw(u.order, 600 * NSEC_PER_SEC, on_told, NULL) && u.told == 0,
	   "before a signal to a command it is withdrawn, too");
	turn();
	answer(SERVICE_DONE, true, NULL);
	is_int(u.told, 1, "then is the time for it");
	elector_end(u.elector, LEASE_SHUTDOWN, NSEC_NEVER, 0);
	turn();
	ok(u.stops == 1 && !store.busy, "and the stop that follows waits for nothing");
	elector_stopped(u.elector, true);
	until(&u.finished, 1);
	end();
	ok(!service_order_withdraw(NULL, NSEC_PER_SEC, on_told, NULL),
	   "without --service there is nothing to wait for");
}

/* As where no worker is there to lead. */
static void never_begun(void)
{
	struct err err;

	u.leads = u.stops = u.finished = 0;
	u.declines = true;
	ok(make("web", url, "10.0.0.1:80", &err), "a candidate whose user cannot lead");
	turn();
	answer(SERVICE_DONE, true, NULL);
	elector_bar(u.elector, NULL);
	until(&u.stops, 1);
	elector_stopped(u.elector, true);
	until(&u.finished, 1);
	ok(!store.busy && store.wish.aim == SERVICE_LOOK, "a term that its user ends at once is never published");
	u.declines = false;
	end();
}

static void refusals(void)
{
	struct err err;

	ok(make("", url, "", &err) && !u.order, "without --service there is an elector alone");
	end();
	ok(!make("web", "none:", "10.0.0.1", &err) && strstr(err.text, "every replica leads"),
	   "without an election it is refused");
	ok(!make("Web", url, "10.0.0.1", &err) && err.code == ERR_USAGE, "what is no name of a Service is refused");
	ok(!make("web", url, "host:80", &err) && strstr(err.text, "--service web"), "and an address that is none");
	ok(!make("web", "nostore://x", "10.0.0.1", &err) && strstr(err.text, "nostore"), "and a lock of no kind");
}

int main(void)
{
	if (!mkdtemp(dir))
		return 1;
	snprintf(url, sizeof url, "%s/lock", dir);
	unsetenv("POD_IP");
	log_init(LOG_TEXT, LOG_ERROR);
	u.env.loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
	u.env.offload = offload_new(u.env.loop, 1, NULL);
	u.env.state_dir = dir;
	timeline_init(&u.timeline, u.env.loop);
	proof_self_init(&u.self, NULL);
	by_will();
	without_answer();
	lost();
	over_before();
	before_the_elector();
	never_begun();
	refusals();
	lock_env_fini(&u.env);
	offload_free(u.env.offload);
	proof_self_fini(&u.self);
	timeline_fini(&u.timeline);
	ev_loop_destroy(u.env.loop);
	return tap_done();
}
