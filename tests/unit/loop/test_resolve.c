/* Host names off the loop: answered, refused and given up in time, and each asker told exactly once. */
#include "loop/resolve.h"

#include "few_threads.h"
#include "loop/offload.h"
#include "tap.h"

#include <ev.h>
#include <netinet/in.h>
#include <semaphore.h>
#include <stdlib.h>

struct asked {
	int calls;
	struct resolved got;
};

static void answered(void *arg, const struct resolved *result)
{
	struct asked *a = arg;

	a->calls++;
	a->got = *result;
}

static void run_until(struct ev_loop *loop, const int *calls)
{
	ev_ref(loop);
	while (!*calls)
		ev_run(loop, EVRUN_ONCE);
	ev_unref(loop);
}

static void ask(struct ev_loop *loop, struct offload *o, const char *host, nsec within, struct asked *a)
{
	*a = (struct asked){ 0 };
	resolve_start(loop, o, host, 80, instant_add(clock_now(), within), answered, a);
	ok(a->calls == 0, "%.40s: never told from inside the call", host);
	run_until(loop, &a->calls);
}

static void test_addresses(struct ev_loop *loop)
{
	struct asked a;
	char text[RESOLVE_TEXT];

	/* No threads at all: an address needs none. */
	ask(loop, NULL, "127.0.0.1", NSEC_PER_SEC, &a);
	is_int(a.got.count, 1, "an IPv4 address is its own answer");
	resolve_print(&a.got.each[0].addr, a.got.each[0].len, text);
	is_str(text, "127.0.0.1", "printed as it was given");
	is_int(ntohs(((struct sockaddr_in *)&a.got.each[0].addr)->sin_port), 80, "with the port");
	ask(loop, NULL, "[::1]", NSEC_PER_SEC, &a);
	resolve_print(&a.got.each[0].addr, a.got.each[0].len, text);
	is_str(text, "::1", "an IPv6 address may have brackets");
	ask(loop, NULL, "", NSEC_PER_SEC, &a);
	ok(a.got.count == 0 && a.got.err.code == ERR_MISSING, "no name is no host");
	char endless[400];
	memset(endless, 'a', sizeof endless - 1);
	endless[sizeof endless - 1] = '\0';
	ask(loop, NULL, endless, NSEC_PER_SEC, &a);
	ok(a.got.count == 0 && a.got.err.code == ERR_MISSING, "a name that is too long for any host is none");
}

static void test_names(struct ev_loop *loop)
{
	struct offload *o = offload_new(loop, 1, NULL);
	struct asked a;

	ask(loop, o, "localhost", 30 * NSEC_PER_SEC, &a);
	ok(a.got.count > 0, "localhost has an address: %s", a.got.err.text);
	ask(loop, o, "no-such-host.invalid", 30 * NSEC_PER_SEC, &a);
	ok(a.got.count == 0 && strstr(a.got.err.text, "no-such-host.invalid"),
	   "a host that is not there is an error that names it: %s", a.got.err.text);
	offload_free(o);
}

struct hung {
	struct offload_job off;
	sem_t go;
	int done;
};

static void hang(struct offload_job *off)
{
	sem_wait(&((struct hung *)off)->go);
}

static void hung_done(struct offload_job *off)
{
	((struct hung *)off)->done++;
}

/* The only thread is busy for good: the deadline comes all the same, and a late answer is told nobody. */
static void test_late(struct ev_loop *loop)
{
	struct offload *o = offload_new(loop, 1, NULL);
	struct hung h = { .off = { .work = hang, .done = hung_done } };
	struct asked a, cancelled = { 0 }, after = { 0 };

	sem_init(&h.go, 0, 0);
	offload_run(o, &h.off);
	ask(loop, o, "localhost", 20 * NSEC_PER_MS, &a);
	ok(a.got.count == 0 && a.got.err.code == ERR_TIMEOUT && strstr(a.got.err.text, "no thread was free"),
	   "a look-up that no thread is free for is given up at the deadline: %s", a.got.err.text);
	resolve_cancel(
		resolve_start(loop, o, "localhost", 80, instant_add(clock_now(), NSEC_PER_SEC), answered, &cancelled));
	resolve_cancel(
		resolve_start(loop, o, "127.0.0.1", 80, instant_add(clock_now(), NSEC_PER_SEC), answered, &cancelled));
	sem_post(&h.go);
	run_until(loop, &h.done);
	resolve_start(loop, o, "localhost", 80, instant_add(clock_now(), 30 * NSEC_PER_SEC), answered, &after);
	run_until(loop, &after.calls);
	is_int(a.calls, 1, "the late answer is told to nobody");
	is_int(cancelled.calls, 0, "who cancels is told nothing");
	sem_destroy(&h.go);
	offload_free(o);
}

/* Look-ups that were given up must not pile up until a thread comes, and be done then. */
static void test_no_thread(struct ev_loop *loop)
{
	struct offload *o = offload_new(loop, 1, NULL);
	struct asked a, cancelled = { 0 };

	creations_fail = CREATIONS_ALL;
	ask(loop, o, "localhost", 20 * NSEC_PER_MS, &a);
	is_int(a.got.err.code, ERR_TIMEOUT, "without threads a look-up ends at its deadline");
	resolve_cancel(
		resolve_start(loop, o, "localhost", 80, instant_add(clock_now(), NSEC_PER_SEC), answered, &cancelled));
	ok(offload_wait(o, 0), "what was late, or cancelled, waits for no thread");
	creations_fail = 0;
	ask(loop, o, "localhost", 30 * NSEC_PER_SEC, &a);
	ok(a.got.count > 0, "when there is one the next look-up is done");
	is_int(cancelled.calls, 0, "and no earlier one");
	offload_free(o);
}

int main(void)
{
	struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);

	test_addresses(loop);
	test_names(loop);
	test_late(loop);
	test_no_thread(loop);
	ev_loop_destroy(loop);
	return tap_done();
}
