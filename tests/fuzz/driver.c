/* A hostile driver: datagrams of the input's bytes are what the elector's end of the socket (driver_link.c) hears. The
 * functions of driver_process.h and reaper.h stand here: there is no process, and nobody to kill. */
#include "fuzz.h"

#include "base/mem.h"
#include "locks/lua/driver_link.h"
#include "locks/lua/driver_process.h"
#include "loop/reaper.h"

#include <ev.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

static int driver = -1, started;
static struct reaper *no_reaper = (struct reaper *)&started;

/* Where it would go is a process that never was. */
int kill(pid_t pid, int signal)
{
	(void)pid, (void)signal;
	return 0;
}

pid_t driver_process_start(int *fd, struct err *err)
{
	int ends[2];

	if (started++ || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
		return err_set(err, ERR_SYSTEM, "no more");
	*fd = ends[0];
	driver = ends[1];
	return 1 << 30;
}

const char *driver_process_end(int status, char *out)
{
	snprintf(out, 80, "%d", status);
	return out;
}

struct reaper *reaper_new(struct ev_loop *loop)
{
	(void)loop;
	return no_reaper;
}

void reaper_free(struct reaper *r)
{
	(void)r;
}

struct reaper_child *reaper_add(struct reaper *r, pid_t pid, reaper_ended_fn *ended, void *arg, struct err *err)
{
	(void)pid, (void)ended, (void)arg, (void)err;
	return (struct reaper_child *)r;
}

void reaper_forget(struct reaper_child *c)
{
	(void)c;
}

/* ---- the messages, both ways ---- */

#define TRY(number, TYPE, name)                                                    \
	case number: {                                                             \
		struct driver_##name m = { 0 };                                    \
		struct buf out = { 0 };                                            \
		if (driver_##name##_get(&w, &m)) {                                 \
			driver_##name##_put(&out, &m);                             \
			must(out.len == len && memcmp(out.data, bytes, len) == 0); \
		}                                                                  \
		buf_fini(&out);                                                    \
		break;                                                             \
	}

static void both_ways(const void *bytes, size_t len)
{
	struct wire w;

	switch ((int)driver_message_open(&w, bytes, len)) {
		DRIVER_MESSAGES(TRY)
	}
}

/* ---- who asks ---- */

struct asker {
	struct lock_call call;
	struct lock_link *link;
	int asked, told;
};

static void on_ready(struct lock_call *c)
{
	struct asker *a = (struct asker *)c;
	struct buf m = { 0 };
	uint64_t id = driver_link_id(a->link);

	driver_ask_put(&m, &(struct driver_ask){ .id = id, .key = "k" });
	a->asked += driver_link_ask(a->link, c, id, &m);
	buf_fini(&m);
}

static void on_answered(struct lock_call *c, const void *answer)
{
	const struct driver_answer *a = answer;

	must(++((struct asker *)c)->told == 1 && a->text && a->version && a->doubt && a->bytes.at <= a->bytes.end);
}

static void on_lost(struct lock_call *c, bool sent, enum lock_outcome outcome, const struct err *why)
{
	(void)sent;
	must(++((struct asker *)c)->told == 1 && outcome != LOCK_OK && *why->text);
}

static void on_changed(void *arg, const char *key)
{
	(void)arg;
	must(strlen(key) < DRIVER_MAX);
}

static void on_watching(void *arg, const struct driver_watching *w)
{
	(void)arg;
	must(strlen(w->key) < DRIVER_MAX && strlen(w->why) < DRIVER_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct driver_link_events events = { .changed = on_changed, .watching = on_watching };
	static struct ev_loop *loop;
	struct input in = { data, size };
	struct lock_env env = { .reaper = no_reaper };
	struct asker a[2];
	uint8_t how = input_byte(&in);

	if (!loop) {
		loop = ev_loop_new(EVBACKEND_SELECT | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
		fuzz_silence();
	}
	env.loop = loop;
	started = 0;
	struct lock_link *k = driver_link_new(&env, "{}", "f.lua", &events, NULL);
	for (int i = 0; i < 2; i++) {
		a[i] = (struct asker){ .call = { .ready = on_ready, .answered = on_answered, .lost = on_lost },
			               .link = k };
		lock_link_want(k, &a[i].call);
	}
	for (int i = 0; i < 4 && driver < 0; i++)
		ev_run(env.loop, EVRUN_NOWAIT);
	while (in.left >= 2 && driver >= 0) {
		size_t len = input_byte(&in);
		len |= (size_t)input_byte(&in) << 8;
		if (len > in.left)
			len = in.left;
		void *bytes = input_copy(in.at, len);
		both_ways(bytes, len);
		if (send(driver, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			in.left = len;
		free(bytes);
		in.at += len;
		in.left -= len;
		ev_run(env.loop, EVRUN_NOWAIT);
		if (how & 1)
			driver_link_cancel(k, &a[0].call);
	}
	for (int i = 0; i < 2; i++)
		if (!a[i].told && a[i].asked)
			driver_link_cancel(k, &a[i].call);
		else if (!a[i].told)
			lock_link_forget(k, &a[i].call, false);
	lock_link_free(k);
	if (driver >= 0)
		close(driver);
	driver = -1;
	ev_run(env.loop, EVRUN_NOWAIT);
	lock_env_fini(&env);
	return 0;
}
