/* A Redis server's bytes: the whole lock on a connection whose other end is the fuzzer. dial.h's two functions stand
 * here and give a socketpair; random names are all zeros, so that a corpus can hold right stamps. The first byte says
 * what is asked, and whether it is a Sentinel that answers. Each operation ends once. */
#include "fuzz.h"

#include "base/module.h"
#include "base/nonce.h"
#include "locks/lock.h"
#include "locks/lock_listing.h"
#include "loop/dial.h"
#include "loop/offload.h"

#include <errno.h>
#include <ev.h>
#include <sys/socket.h>
#include <unistd.h>

extern const struct module lunarch_module; /* of lock_redis.c */

static struct lock_env env;

void nonce_bytes(void *out, size_t bytes)
{
	memset(out, 0, bytes);
}

void nonce_hex(char *out, size_t bytes)
{
	memset(out, '0', 2 * bytes);
	out[2 * bytes] = '\0';
}

void nonce_uuid(char *out)
{
	snprintf(out, 37, "00000000-0000-4000-8000-000000000000");
}

/* ---- the connection ---- */

static struct input in; /* what the server says; a second connection gets what is left, if anything */
static int server = -1, dials;

struct dial {
	ev_timer timer;
	dial_done_fn *done;
	void *arg;
};

static void dial_on_timer(struct ev_loop *loop, ev_timer *t, int events)
{
	struct dial *d = t->data;
	struct dial gone = *d;
	struct err err = { .code = ERR_UNREACHABLE, .text = "no more" };
	int ends[2], most = 1 << 20;

	(void)loop, (void)events;
	free(d);
	if (dials++ || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0) {
		gone.done(gone.arg, -1, &err);
		return;
	}
	setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &most, sizeof most);
	server = ends[0];
	if (in.left && write(server, in.at, in.left) < 0)
		must(errno == EAGAIN);
	shutdown(server, SHUT_WR);
	gone.done(gone.arg, ends[1], NULL);
}

struct dial *dial_start(struct ev_loop *loop, struct offload *offload, const char *host, int port, unsigned turn,
                        struct instant by, dial_done_fn *done, void *arg)
{
	struct dial *d = malloc(sizeof *d);

	(void)offload, (void)host, (void)port, (void)turn, (void)by;
	d->done = done;
	d->arg = arg;
	ev_timer_init(&d->timer, dial_on_timer, 0., 0.);
	d->timer.data = d;
	ev_timer_start(loop, &d->timer);
	return d;
}

void dial_cancel(struct dial *d)
{
	if (!d)
		return;
	ev_timer_stop(env.loop, &d->timer);
	free(d);
}

/* ---- the operation ---- */

static int ends;

static void on_done(void *arg, const struct lock_result *r)
{
	(void)arg;
	ends++;
	must(r->outcome != LOCK_OK || r->err.code == ERR_NONE);
	if (r->record)
		must(r->record->holder && *r->version.text);
}

static void on_change(void *arg)
{
	(void)arg;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct lock_about about = { 0 };
	struct lock_listing listing = { 0 };
	struct version expected = { "" };
	struct record r;
	struct err err;

	in = (struct input){ data, size };
	uint8_t what = input_byte(&in);
	fuzz_silence();
	env = (struct lock_env){ .loop = ev_loop_new(EVBACKEND_SELECT | EVFLAG_NOSIGMASK | EVFLAG_NOENV) };
	dials = ends = 0;
	record_init(&r);
	const struct lock_ops *ops = lunarch_module.locks[what & 32 ? 2 : 0];
	struct lock *l = ops->open(&env,
	                           what & 32  ? "//h/m#k" LOCK_PREFIX_END
	                           : what & 8 ? "//u:p@h/3/k" LOCK_PREFIX_END
	                                      : "//h/k" LOCK_PREFIX_END,
	                           &err);
	must(l);
	struct instant by = instant_add(clock_now(), 3600 * NSEC_PER_SEC);
	if (what & 16)
		ops->watch(l, on_change, NULL);
	if (what % 5 == 0)
		ops->read(l, by, on_done, NULL);
	else if (what % 5 == 1)
		ops->write(l, &r, &expected, true, by, on_done, NULL);
	else if (what % 5 == 2)
		ops->list(l, &listing, by, on_done, NULL);
	else if (what % 5 == 3)
		ops->about(l, &about, by, on_done, NULL);
	else
		ops->remove(l, &expected, by, on_done, NULL);
	must(ends == 0);
	for (int i = 0; i < 30 && !ends; i++)
		ev_run(env.loop, EVRUN_NOWAIT);
	ops->cancel(l);
	must(ends == 1);
	ops->close(l);
	must(ends == 1);
	lock_listing_fini(&listing);
	lock_env_fini(&env);
	if (server >= 0)
		close(server);
	server = -1;
	record_fini(&r);
	ev_loop_destroy(env.loop);
	return 0;
}
