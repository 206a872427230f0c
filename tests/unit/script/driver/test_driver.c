#include "script/driver/driver_state.h"

#include "script/api/api.h"
#include "base/mem.h"
#include "script/driver/driver_calls.h"
#include "script/driver/driver_file.h"
#include "script/driver/driver_watches.h"
#include "tap.h"

#include <ev.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* The driver without its process: the test is the socket and the clock. */

#define SENT_MAX 256

static struct clock_virtual machine = { .now = 1000 * NSEC_PER_SEC, .wall_us = INT64_C(1700000000000000) };
static double seconds = 1000;

struct rig {
	struct timeline timeline;
	struct driver driver;
	char path[64];
	struct buf sent[SENT_MAX];
	int count;
};

static void rig_send(void *arg, const struct buf *m)
{
	struct rig *r = arg;

	if (r->count < SENT_MAX)
		buf_add(&r->sent[r->count++], m->data, m->len);
}

static void drop(void *arg, const struct buf *m)
{
	(void)arg;
	(void)m;
}

static void turn(struct rig *r)
{
	while (sched_run(r->driver.script->sched))
		;
}

/* So much time passes; every timer is due at its own moment. */
static void pass(struct rig *r, double s)
{
	double until = seconds + s;

	while (timeline_first(&r->timeline) <= until) {
		seconds = fmax(seconds, timeline_first(&r->timeline));
		machine.now = (nsec)(seconds * NSEC_PER_SEC);
		timeline_fire(&r->timeline);
		turn(r);
	}
	seconds = until;
	machine.now = (nsec)(seconds * NSEC_PER_SEC);
}

static bool give(struct rig *r, struct buf *m)
{
	bool good = driver_message(&r->driver, m->data, m->len);

	buf_fini(m);
	turn(r);
	return good;
}

static bool rig_open(struct rig *r)
{
	struct buf m = { 0 };
	char *place = mem_printf("{\"file\":\"%s\",\"scheme\":\"lua\",\"url\":\"lua:x\",\"hosts\":[],\"options\":{}}",
	                         r->path);

	driver_open_put(&m, &(struct driver_open){ .place = place });
	free(place);
	return give(r, &m);
}

static void rig_init(struct rig *r, const char *functions)
{
	static struct script_spec spec;

	*r = (struct rig){ .path = "/tmp/lunarch-test-XXXXXX" };
	int fd = mkstemp(r->path);
	FILE *f = fdopen(fd, "w");
	fprintf(f, "return { open = function() sleep(1) return {} end, read = function() return 'absent' end, %s }",
	        functions);
	fclose(f);
	timeline_init_virtual(&r->timeline, &seconds);
	spec = (struct script_spec){
		.loop = ev_default_loop(0), .timeline = &r->timeline, .natives = api_open, .send = drop
	};
	r->driver =
		(struct driver){ .timeline = &r->timeline, .script = script_new(&spec), .send = rig_send, .arg = r };
	driver_init(&r->driver);
}

static void rig_fini(struct rig *r)
{
	struct script *s = r->driver.script;

	driver_calls_fini(&r->driver);
	driver_watches_fini(&r->driver);
	script_free(s);
	free(r->driver.secret);
	timeline_fini(&r->timeline);
	for (int i = 0; i < r->count; i++)
		buf_fini(&r->sent[i]);
	unlink(r->path);
}

static struct instant in(double s)
{
	struct instant now = clock_now();
	nsec d = (nsec)(s * NSEC_PER_SEC);

	return (struct instant){ .raw = now.raw + d, .boot = now.boot + d };
}

static void ask_write(struct rig *r, uint64_t id, const char *key, double within)
{
	struct buf m = { 0 };
	struct instant by = in(within);

	driver_ask_put(&m, &(struct driver_ask){ .kind = DRIVER_WRITE,
	                                         .id = id,
	                                         .by_raw = by.raw,
	                                         .by_boot = by.boot,
	                                         .key = key,
	                                         .text = "{}" });
	give(r, &m);
}

static void cancel(struct rig *r, uint64_t id)
{
	struct buf m = { 0 };

	driver_cancel_put(&m, &(struct driver_cancel){ .id = id });
	give(r, &m);
}

static void watch(struct rig *r, const char *key, bool on)
{
	struct buf m = { 0 };

	driver_watch_put(&m, &(struct driver_watch){ .key = key, .on = on });
	give(r, &m);
}

/* How often the operation was answered; the last answer is in *a, whose texts are borrowed. */
static int answers(struct rig *r, uint64_t id, struct driver_answer *a)
{
	int n = 0;

	*a = (struct driver_answer){ .outcome = 99, .text = "" };
	for (int i = 0; i < r->count; i++) {
		struct driver_answer one;
		struct wire w;
		if (driver_message_open(&w, r->sent[i].data, r->sent[i].len) != DRIVER_ANSWER ||
		    !driver_answer_get(&w, &one) || one.id != id)
			continue;
		*a = one;
		n++;
	}
	return n;
}

static void answered(struct rig *r, uint64_t id, enum lock_outcome want, const char *what)
{
	struct driver_answer a;
	int n = answers(r, id, &a);

	if (!ok(n == 1 && a.outcome == want, "%s", what))
		printf("# %d answers, the last one %s: %s\n", n, lock_outcome_name(a.outcome), a.text);
}

/* Messages of this type since *from, which goes on. */
static int count_of(struct rig *r, enum driver_type type, int *from)
{
	int n = 0;

	for (; *from < r->count; (*from)++) {
		struct wire w;
		n += driver_message_open(&w, r->sent[*from].data, r->sent[*from].len) == type;
	}
	return n;
}

static void operations(void)
{
	struct rig r;

	rig_init(&r,
	         "write = function(_, key)"
	         " if key == 'wait' then sleep(100) elseif key == 'calm' then pcall(sleep, 100) return 'failed', 'so'"
	         " elseif key == 'late' then pcall(sleep, 100) return 'ok', 'v'"
	         " elseif key == 'raise' then error('broken') elseif key == 'count' then N = (N or 0) + 1 end"
	         " return 'ok', 'v' end");
	ask_write(&r, 1, "x", 0.5);
	ok(rig_open(&r) && !rig_open(&r), "a driver is opened once");
	ask_write(&r, 2, "x", 10);
	pass(&r, 0.6);
	answered(&r, 1, LOCK_FAILED,
	         "a write whose deadline passes before the store is open has failed: it has not begun");
	pass(&r, 0.5);
	answered(&r, 2, LOCK_OK, "one whose deadline does not is begun then");
	ask_write(&r, 3, "wait", 5);
	ask_write(&r, 4, "calm", 5);
	ask_write(&r, 5, "late", 5);
	ask_write(&r, 6, "wait", 50);
	ask_write(&r, 7, "raise", 5);
	answered(&r, 7, LOCK_UNKNOWN, "a write that raises is unknown");
	struct driver_answer a;
	is_int(answers(&r, 3, &a), 0, "one that waits is not answered before its deadline");
	pass(&r, 5.1);
	answered(&r, 3, LOCK_UNKNOWN, "at its deadline a write is unknown");
	answers(&r, 3, &a);
	is_int(a.code, ERR_TIMEOUT, "since there was no time");
	answered(&r, 4, LOCK_UNKNOWN, "so it is if it says 'failed' after that");
	answered(&r, 5, LOCK_OK, "but 'ok' and a version are that");
	cancel(&r, 6);
	cancel(&r, 6);
	answered(&r, 6, LOCK_UNKNOWN, "a cancelled write is unknown, and answered once");
	answers(&r, 6, &a);
	is_int(a.code, ERR_CANCELLED, "since it was cancelled");
	ask_write(&r, 8, "x", -1);
	answered(&r, 8, LOCK_FAILED, "a write whose deadline has passed is not begun");
	rig_fini(&r);
}

static void pings(void)
{
	struct rig r;
	struct buf m = { 0 };
	int from = 0;

	rig_init(&r, "write = function() end");
	rig_open(&r);
	driver_ping_put(&m, &(struct driver_ping){ .number = 5 });
	give(&r, &m);
	is_int(count_of(&r, DRIVER_PONG, &from), 1, "a ping is answered while the store is opened");
	driver_ping_put(&m, &(struct driver_ping){ .number = 5 });
	buf_add(&m, "x", 1);
	ok(!give(&r, &m), "a message with something behind it makes no sense");
	driver_pong_put(&m, &(struct driver_pong){ .number = 5 });
	ok(!give(&r, &m), "nor does one that a driver sends");
	rig_fini(&r);
}

static int watching(struct rig *r, int *from, bool yes)
{
	int n = 0;

	for (; *from < r->count; (*from)++) {
		struct driver_watching one;
		struct wire w;
		if (driver_message_open(&w, r->sent[*from].data, r->sent[*from].len) == DRIVER_WATCHING &&
		    driver_watching_get(&w, &one))
			n += one.yes == yes;
	}
	return n;
}

static void notices(void)
{
	struct rig r;
	int from = 0;

	rig_init(&r, "write = function() end, watch = function(_, key, changed)"
	             " local old = rawget(_G, 'OLD')"
	             " if key == 'stale' and old then old() sleep(1000) end"
	             " if key == 'stale' then rawset(_G, 'OLD', changed) return end"
	             " if key == 'ends' then return nil, 'enough' end"
	             " if key == 'lasts' then changed() sleep(100) return end"
	             " sleep(1) changed() while true do sleep(10) changed() end end");
	watch(&r, "k", true);
	rig_open(&r);
	pass(&r, 1.5);
	is_int(watching(&r, &from, true), 0, "a key is not watched before the file says so");
	pass(&r, 1);
	is_int(watching(&r, &from, true), 1, "its first notice says that no change is missed from now on");
	pass(&r, 30);
	is_int(count_of(&r, DRIVER_CHANGED, &from), 3, "then each is a notice");
	watch(&r, "k", true);
	is_int(watching(&r, &from, true), 1, "who asks again is told again");
	driver_watches_want(&r.driver, "k", false); /* its task has not ended yet when it is wanted again */
	watch(&r, "k", true);
	pass(&r, 0.5);
	is_int(watching(&r, &from, true), 0, "watched anew it is not before the new task says so");
	watch(&r, "k", false);
	pass(&r, 100);
	is_int(r.count, from, "unwatched it is silent");

	watch(&r, "ends", true);
	int tries = 0;
	for (int after = 1; after <= 64; after *= 2) {
		pass(&r, (after > 60 ? 60 : after) - 0.1);
		is_int(watching(&r, &from, false), after == 1, "one that ended is not begun before its pause is over");
		pass(&r, 0.2);
		tries += watching(&r, &from, false);
		pass(&r, -0.1);
	}
	is_int(tries, 7, "but then: after 1, 2, 4, 8, 16, 32, 60 seconds");
	watch(&r, "ends", false);
	watch(&r, "lasts", true);
	from = r.count;
	pass(&r, 305);
	is_int(watching(&r, &from, true), 3, "one that has lasted is begun again after a second");
	watch(&r, "lasts", false);
	from = r.count;
	watch(&r, "stale", true);
	pass(&r, 10);
	is_int(watching(&r, &from, true), 0, "the notice of a task that has ended says nothing");
	rig_fini(&r);
}

static void log_lines(void)
{
	struct driver_log l = { 0 };
	char name[16];

	ok(driver_log_due(&l, "a", 1) && driver_log_due(&l, "b", 1), "each text is logged");
	ok(!driver_log_due(&l, "a", 59 * NSEC_PER_SEC), "but not again within a minute");
	ok(driver_log_due(&l, "a", 62 * NSEC_PER_SEC), "then again");
	for (int i = 0; i < DRIVER_LOG_TEXTS; i++) {
		snprintf(name, sizeof name, "%d", i);
		driver_log_due(&l, name, (63 + i) * NSEC_PER_SEC);
	}
	ok(driver_log_due(&l, "b", 100 * NSEC_PER_SEC), "of many texts the oldest is forgotten");
	ok(!driver_log_due(&l, "31", 100 * NSEC_PER_SEC), "and no other");
	char *text = driver_log_hide("hush and hushhush!", "hush");
	is_str(text, "*** and ******!", "the secret is in no text");
	free(text);
	text = driver_log_hide("an ant", "an");
	is_str(text, "an ant", "one of three letters is part of many a word");
	free(text);
}

static int reading(const char *path, struct err *err)
{
	struct buf text = { 0 };
	int failed = driver_file_read(path, &text, err);

	buf_fini(&text);
	return failed;
}

static void files(void)
{
	char path[] = "/tmp/lunarch-test-XXXXXX";
	struct err err;
	int fd = mkstemp(path);

	fchmod(fd, 0644);
	is_int(reading(path, &err), 0, "a file of one's own is read");
	fchmod(fd, 0664);
	ok(reading(path, &err) < 0 && err.code == ERR_USAGE && strstr(err.text, "its group"),
	   "not if its group may write it");
	fchmod(fd, 0646);
	ok(reading(path, &err) < 0 && strstr(err.text, "everybody"), "nor if everybody may");
	fchmod(fd, 0644);
	if (geteuid() == 0 && fchown(fd, 12345, 0) == 0)
		ok(reading(path, &err) < 0 && strstr(err.text, "12345"), "nor another user's");
	close(fd);
	unlink(path);
	ok(reading("/tmp", &err) < 0 && strstr(err.text, "no regular file"), "nor what is no file");
	ok(reading("/nonexistent/x.lua", &err) < 0 && err.code == ERR_MISSING, "what is not there is missing");
}

int main(void)
{
	clock_pretend(&machine);
	operations();
	pings();
	notices();
	log_lines();
	files();
	return tap_done();
}
