/* The elector's side of a lock in Lua, against drivers that behave as the option `m` of the URL says: this program
 * plays them, too. What a real driver cannot be made to do at will. */
#include "base/mem.h"
#include "doctor/driver_faults.h"
#include "lease/record.h"
#include "client/lock_client.h"
#include "locks/lua/driver_server.h"
#include "locks/lock_user.h"
#include "locks/lua/driver_wire.h"
#include "locks/lock.h"
#include "locks/lock_listing.h"
#include "tap.h"

#include <ev.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef PATIENCE_S
#define PATIENCE_S 30. /* for what takes a second at most. Mutants get less */
#endif

#define DIARY "LUNARCH_TEST_DIARY" /* a file in which the drivers write a line for each thing that they see */

/* ---- a driver ---- */

static struct {
	int fd, starts;
	char manner[40];
	int version; /* of the only record; 0: there is none */
	char *text;
	char *watched;
} d;

__attribute__((format(printf, 1, 2))) static void note(const char *fmt, ...)
{
	char line[600];
	va_list ap;
	int fd = open(getenv(DIARY), O_WRONLY | O_APPEND | O_CLOEXEC);

	va_start(ap, fmt);
	int n = vsnprintf(line, sizeof line - 1, fmt, ap);
	va_end(ap);
	line[n] = '\n';
	if (write(fd, line, (size_t)n + 1) < 0)
		_exit(9);
	close(fd);
}

static bool is(const char *manner)
{
	return strcmp(d.manner, manner) == 0;
}

static void tell(struct buf *m)
{
	if (send(d.fd, m->data, m->len, MSG_NOSIGNAL) < 0)
		_exit(8);
	buf_fini(m);
}

static void answer(uint64_t id, enum lock_outcome outcome, const char *version, const char *doubt, const char *bytes)
{
	struct buf m = { 0 };
	const unsigned char *at = (const unsigned char *)bytes;

	driver_answer_put(&m, &(struct driver_answer){ .id = id,
	                                               .outcome = (uint8_t)outcome,
	                                               .version = version,
	                                               .doubt = doubt,
	                                               .bytes = { .at = at, .end = at + strlen(bytes) } });
	tell(&m);
}

static void say_changed(void)
{
	struct buf m = { 0 };

	if (!d.watched)
		return;
	driver_changed_put(&m, &(struct driver_changed){ .key = d.watched });
	tell(&m);
}

/* What every question may meet. true: it is not answered. */
static bool misbehaves(uint64_t id)
{
	char bytes[DRIVER_MAX + 1] = { DRIVER_ANSWER };
	struct buf m = { 0 };

	if (is("hangs") || (is("hangs-once") && d.starts == 1))
		for (;;)
			pause();
	if (is("dies") || (is("dies-once") && d.starts == 1))
		_exit(3);
	if (is("stray"))
		answer(id + 100, LOCK_OK, "1", "", "");
	if (is("lost-unasked")) {
		driver_lost_put(&m, &(struct driver_lost){ .id = id });
		tell(&m);
	}
	if (is("malformed") && send(d.fd, bytes, 9, 0) < 0)
		_exit(7);
	if (is("unknown-type") && send(d.fd, "what is this?", 13, 0) < 0)
		_exit(7);
	if (is("huge") && send(d.fd, bytes, sizeof bytes, 0) < 0)
		_exit(7);
	return is("lost") || is("stray") || is("malformed") || is("unknown-type") || is("huge") || is("lost-unasked");
}

static void on_read(const struct driver_ask *m)
{
	char version[20];

	snprintf(version, sizeof version, "%d", d.version);
	if (misbehaves(m->id))
		return;
	if (is("odd"))
		answer(m->id, LOCK_CONFLICT, "1", "", "");
	else if (is("no-version"))
		answer(m->id, LOCK_OK, "", "", "{}");
	else if (is("foreign"))
		answer(m->id, LOCK_OK, "1", "", "hello");
	else if (d.version)
		answer(m->id, LOCK_OK, version, is("doubt") ? "d1" : "", d.text);
	else
		answer(m->id, LOCK_ABSENT, "", is("doubt") ? "d1" : "", "");
	if (is("twice"))
		answer(m->id, LOCK_ABSENT, "", "", "");
}

static void on_write(const struct driver_ask *m)
{
	char version[20] = "";

	note("write %s flags %u floor %lld waited %s", m->key, m->flags, (long long)m->floor, m->waited_out);
	if (misbehaves(m->id))
		return;
	if (d.version)
		snprintf(version, sizeof version, "%d", d.version);
	if (strcmp(version, m->expected) != 0) {
		answer(m->id, LOCK_CONFLICT, "", "", "");
		return;
	}
	if (is("doubt") && m->flags & DRIVER_WRITE_BEGINS && !(m->flags & DRIVER_WRITE_OWN) &&
	    strcmp(m->waited_out, "d1") != 0) {
		answer(m->id, LOCK_FAILED, "", "d1", "");
		return;
	}
	snprintf(version, sizeof version, "%d", ++d.version);
	free(d.text);
	d.text = mem_dup(m->text);
	if (is("odd"))
		answer(m->id, LOCK_ABSENT, "1", "", "");
	else if (is("no-version"))
		answer(m->id, LOCK_OK, "", "", "");
	else if (is("long-version"))
		answer(m->id, LOCK_OK, "1234567890123456789012345678901234567890123456789012345678901234", "", "");
	else
		answer(m->id, LOCK_OK, version, "", "");
	say_changed();
	if (is("dies-after"))
		_exit(0);
}

static void on_ask(const struct driver_ask *m)
{
	if (m->kind == DRIVER_READ)
		on_read(m);
	else if (m->kind == DRIVER_WRITE)
		on_write(m);
	else if (m->kind == DRIVER_LIST)
		answer(m->id, LOCK_OK, "", "",
		       is("bad-json") ? "[1" : "{\"names\":[\"ka\",\"kb c\",\"other\"],\"more\":true}");
	else if (m->kind == DRIVER_ABOUT)
		answer(m->id, LOCK_OK, "", "", "{\"server\":\"Shoe box 1\",\"unfit\":true,\"pause\":1.5}");
}

static void on_watch(const struct driver_watch *m)
{
	struct buf out = { 0 };

	note("watch %s %d", m->key, m->on);
	if (is("silent"))
		return;
	if (is("unwatchable")) {
		driver_watching_put(&out, &(struct driver_watching){ .key = m->key, .why = "no" });
	} else {
		d.watched = mem_dup(m->key);
		driver_watching_put(&out, &(struct driver_watching){ .key = m->key, .yes = 1 });
	}
	tell(&out);
}

static void open_store(const char *place)
{
	const char *m = strstr(place, "\"m\":\"");
	struct buf out = { 0 };

	snprintf(d.manner, sizeof d.manner, "%.*s", m ? (int)strcspn(m + 5, "\"") : 0, m ? m + 5 : "");
	note("open %s password %s", getenv("LUNARCH_LOCK_PASSWORD") ? "BY ENVIRONMENT" : "quietly",
	     strstr(place, "\"password\":\"geheim\"") ? "by place" : "none");
	if (is("dies-open"))
		_exit(4);
	if (is("refuses"))
		driver_opened_put(&out, &(struct driver_opened){ .code = ERR_USAGE, .text = "no such option" });
	else if (is("unopened"))
		driver_opened_put(&out, &(struct driver_opened){ .code = ERR_UNREACHABLE, .text = "not there" });
	else
		driver_opened_put(&out, &(struct driver_opened){ .ok = 1, .can = is("plain") ? 0 : 15 });
	tell(&out);
}

static void on_message(struct wire *w, enum driver_type type)
{
	struct buf out = { 0 };
	union {
		struct driver_open open;
		struct driver_ask ask;
		struct driver_watch watch;
		struct driver_ping ping;
		struct driver_cancel cancel;
		struct driver_lose lose;
	} m;

	if (type == DRIVER_OPEN && driver_open_get(w, &m.open)) {
		open_store(m.open.place);
	} else if (type == DRIVER_ASK && driver_ask_get(w, &m.ask)) {
		on_ask(&m.ask);
	} else if (type == DRIVER_WATCH && driver_watch_get(w, &m.watch)) {
		on_watch(&m.watch);
	} else if (type == DRIVER_CANCEL && driver_cancel_get(w, &m.cancel)) {
		note("cancel");
	} else if (type == DRIVER_LOSE && driver_lose_get(w, &m.lose)) {
		note("lose %u%s", m.lose.nth, m.lose.again ? " again" : "");
		driver_lost_put(&out, &(struct driver_lost){ .id = m.lose.id });
		if (m.lose.nth < 3) /* it has no more requests */
			tell(&out);
		buf_fini(&out);
	} else if (type == DRIVER_PING && driver_ping_get(w, &m.ping)) {
		driver_pong_put(&out, &(struct driver_pong){ .number = m.ping.number });
		tell(&out);
	} else {
		note("nonsense");
	}
}

static int count_lines(const char *begin);

static int driver(int fd)
{
	static char bytes[DRIVER_MAX];
	struct wire w;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	d.fd = fd;
	note("start %d", (int)getpid());
	d.starts = count_lines("start");
	for (ssize_t n; (n = recv(fd, bytes, sizeof bytes, 0)) > 0;)
		on_message(&w, driver_message_open(&w, bytes, (size_t)n));
	return 0;
}

/* ---- the test ---- */

static struct {
	struct lock_env env;
	char diary[40];
	struct lock *lock;
	struct lock_result result;
	struct record record;
	int done, changed, polls;
} t;

static const char *diary(void)
{
	static char bytes[1 << 16];
	int fd = open(getenv(DIARY), O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, bytes, sizeof bytes - 1);

	close(fd);
	bytes[n < 0 ? 0 : n] = '\0';
	return bytes;
}

/* So many lines of the diary begin so. */
static int count_lines(const char *begin)
{
	int n = 0;

	for (const char *line = diary(); *line; line += strcspn(line, "\n") + (line[strcspn(line, "\n")] != '\0'))
		n += strncmp(line, begin, strlen(begin)) == 0;
	return n;
}

static void on_done(void *arg, const struct lock_result *r)
{
	(void)arg;
	t.result = *r;
	t.result.record = NULL;
	record_clear(&t.record);
	if (r->record)
		record_copy(&t.record, r->record);
	t.done++;
}

static void on_changed(void *arg)
{
	(void)arg;
	t.changed++;
	t.polls += t.lock && !t.lock->ops->watch(t.lock, on_changed, NULL);
}

static void stop(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)w;
	(void)revents;
	ev_break(loop, EVBREAK_ALL);
}

static bool passed(struct instant since)
{
	return elapsed_holder(since, clock_now()) > (nsec)(PATIENCE_S * (double)NSEC_PER_SEC);
}

static void turn(void)
{
	ev_timer timer;

	ev_timer_init(&timer, stop, 0.02, 0.);
	ev_timer_start(t.env.loop, &timer);
	ev_run(t.env.loop, EVRUN_ONCE);
	ev_timer_stop(t.env.loop, &timer);
}

/* Until *number is at least that. */
static bool wait_for(const int *number, int least)
{
	struct instant since = clock_now();

	while (*number < least && !passed(since))
		turn();
	return *number >= least;
}

static bool wait_for_line(const char *begin, int least)
{
	struct instant since = clock_now();

	while (count_lines(begin) < least && !passed(since))
		turn();
	return count_lines(begin) >= least;
}

/* The one that was started last. */
static bool signal_driver(int signal)
{
	const char *line = diary(), *next;

	for (const char *at = line; (next = strstr(at, "start ")); at = next + 1)
		line = next;
	return kill(atoi(line + 6), signal) == 0;
}

static struct instant in_ms(int ms)
{
	return instant_add(clock_now(), ms * NSEC_PER_MS);
}

static enum lock_outcome wait_done(int before)
{
	return wait_for(&t.done, before + 1) ? t.result.outcome : (enum lock_outcome)99;
}

#define LONG_MS 60000

static enum lock_outcome do_read(struct lock *l, int ms)
{
	int before = t.done;

	l->ops->read(l, in_ms(ms), on_done, NULL);
	return wait_done(before);
}

static struct record leader(int64_t token, int64_t lease_ms)
{
	struct record r;

	record_init(&r);
	mem_replace(&r.holder, "ann");
	r.state = RECORD_LEADING;
	r.lease_ms = lease_ms;
	r.term = 1;
	r.token = token;
	return r;
}

static struct version version_of(const char *text)
{
	struct version v;

	snprintf(v.text, sizeof v.text, "%s", text);
	return v;
}

static enum lock_outcome do_write_of(struct lock *l, int64_t token, int64_t lease_ms, const char *expected, int ms)
{
	struct record r = leader(token, lease_ms);
	struct version v = version_of(expected);
	int before = t.done;

	l->ops->write(l, &r, &v, true, in_ms(ms), on_done, NULL);
	enum lock_outcome o = wait_done(before);
	record_fini(&r);
	return o;
}

static enum lock_outcome do_write(struct lock *l, const char *expected, int ms)
{
	return do_write_of(l, 1, 15000, expected, ms);
}

/* A first write that reaches the driver and has no answer when its deadline comes. A driver that has not begun by then,
 * on a busy machine, has not been sent it: then once more, with twice the time. */
static enum lock_outcome write_unanswered(int ms)
{
	struct instant since = clock_now();
	enum lock_outcome o;

	while ((o = do_write(t.lock, "", ms)) == LOCK_FAILED && !count_lines("write") && !passed(since))
		ms *= 2;
	return o;
}

static char *url_of(const char *manner, const char *key)
{
	return mem_printf("lua:/proc/self/exe?m=%s#%s", manner, key);
}

static struct lock *open_lock(const char *manner, const char *key)
{
	struct err err;
	char *url = url_of(manner, key);
	struct lock *l = lock_open(&t.env, url, &err);

	if (!l)
		ok(0, "a lock is opened: %s", err.text);
	free(url);
	return l;
}

static void begin(const char *manner)
{
	if (truncate(t.diary, 0) < 0)
		perror("truncate");
	t.lock = open_lock(manner, "k");
}

static void end(void)
{
	t.lock->ops->close(t.lock);
	t.lock = NULL;
}

static void test_good(void)
{
	begin("good");
	is_int(count_lines("start"), 0, "no driver is started before an operation needs it");
	is_int(do_read(t.lock, LONG_MS), LOCK_ABSENT, "a read finds nothing");
	is_int(do_write(t.lock, "", LONG_MS), LOCK_OK, "a write is done");
	is_str(t.result.version.text, "1", "with the version that the driver gives");
	is_int(do_read(t.lock, LONG_MS), LOCK_OK, "a read finds the record");
	is_str(t.record.holder, "ann", "as it was written");
	is_str(t.result.version.text, "1", "with its version");
	is_int(do_write(t.lock, "7", LONG_MS), LOCK_CONFLICT, "a write that expects another version is a conflict");
	struct lock *same = open_lock("good", "k2"), *other = open_lock("good&x=y", "k");
	is_int(do_read(same, LONG_MS), LOCK_OK, "another key at the same place");
	is_int(count_lines("start"), 1, "has the same driver");
	is_int(do_read(other, LONG_MS), LOCK_ABSENT, "a lock with other options");
	is_int(count_lines("start"), 2, "has another one");
	same->ops->close(same);
	other->ops->close(other);
	end();
}

static void test_unanswered(void)
{
	begin("lost");
	is_int(write_unanswered(300), LOCK_UNKNOWN, "a write whose answer is lost is unknown");
	ok(wait_for_line("cancel", 1), "and cancelled");
	is_int(do_read(t.lock, 2600), LOCK_FAILED, "a read whose answer is lost has failed");
	ok(wait_for_line("cancel", 2), "and is cancelled");
	is_int(count_lines("start"), 1, "a driver that answers a ping is not replaced");
	end();

	begin("hangs-once");
	is_int(write_unanswered(200), LOCK_UNKNOWN, "a write that a driver hangs in is unknown at its deadline");
	ok(do_read(t.lock, LONG_MS) == LOCK_FAILED && strstr(t.result.err.text, "hangs"),
	   "the driver is killed, and what it had then has failed");
	is_int(do_read(t.lock, LONG_MS), LOCK_ABSENT, "a new one answers");
	is_int(count_lines("start"), 2, "which took its place");
	end();
}

static void test_death(void)
{
	begin("dies-once");
	is_int(do_write(t.lock, "", LONG_MS), LOCK_UNKNOWN, "a write in which the driver dies is unknown");
	ok(strstr(t.result.err.text, "exit status 3") != NULL, "which says how it died: %s", t.result.err.text);
	is_int(do_write(t.lock, "", LONG_MS), LOCK_OK, "and the next one is done by a new driver");
	ok(signal_driver(SIGSTOP), "a driver can be stopped");
	int before = t.done;
	t.lock->ops->read(t.lock, in_ms(LONG_MS), on_done, NULL);
	signal_driver(SIGKILL);
	is_int(wait_done(before), LOCK_FAILED, "a read in which the driver is killed has failed");
	ok(strstr(t.result.err.text, "signal 9") != NULL, "and says so: %s", t.result.err.text);
	end();

	begin("dies-after");
	is_int(do_write(t.lock, "", LONG_MS), LOCK_OK, "what a driver answered before it died counts");
	end();

	begin("dies-open");
	is_int(do_write(t.lock, "", LONG_MS), LOCK_FAILED, "a write that never left has failed");
	ok(strstr(t.result.err.text, "exit status 4") != NULL, "for the driver's reason");
	struct instant since = clock_now();
	while (!strstr(t.result.err.text, "a new driver is started in") && !passed(since))
		do_read(t.lock, LONG_MS);
	ok(strstr(t.result.err.text, "a new driver is started in") != NULL,
	   "a driver that dies each time is started ever more rarely");
	end();
}

static void test_nonsense(void)
{
	static const char *const manners[] = { "stray", "malformed", "unknown-type", "huge", "lost-unasked" };

	for (size_t i = 0; i < sizeof manners / sizeof *manners; i++) {
		begin(manners[i]);
		ok(do_write(t.lock, "", LONG_MS) == LOCK_UNKNOWN, "%s: a write is unknown", manners[i]);
		ok(strstr(t.result.err.text, "has sent") != NULL, "%s: %s", manners[i], t.result.err.text);
		ok(do_read(t.lock, LONG_MS) == LOCK_FAILED && count_lines("start") == 2, "%s: it was replaced",
		   manners[i]);
		end();
	}
	begin("twice");
	is_int(do_read(t.lock, LONG_MS), LOCK_ABSENT, "twice: the first answer counts");
	struct instant since = clock_now();
	while (do_read(t.lock, LONG_MS) != LOCK_ABSENT &&
	       !passed(since)) /* the second answer may end the next question */
		turn();
	is_int(count_lines("start"), 2, "twice: and the next question has another driver");
	end();
	begin("odd");
	is_int(do_read(t.lock, LONG_MS), LOCK_FAILED, "a read with the outcome of a write has failed");
	is_int(do_write(t.lock, "", LONG_MS), LOCK_UNKNOWN, "a write with the outcome of a read is unknown");
	end();
	begin("no-version");
	is_int(do_read(t.lock, LONG_MS), LOCK_FAILED, "a record without a version is no record");
	is_int(do_write(t.lock, "", LONG_MS), LOCK_UNKNOWN, "a write without a version is unknown");
	end();
	begin("long-version");
	is_int(do_write(t.lock, "", LONG_MS), LOCK_UNKNOWN, "a version of 64 bytes is none");
	end();
	begin("foreign");
	is_int(do_read(t.lock, LONG_MS), LOCK_FOREIGN, "what is no record is foreign");
	end();
}

static void test_refusals(void)
{
	begin("refuses");
	is_int(do_write(t.lock, "", LONG_MS), LOCK_REFUSED, "a URL that the lock file does not take is refused");
	is_int(t.result.err.code, ERR_USAGE, "as a mistake of the user's");
	ok(strstr(t.result.err.text, "no such option") != NULL, "in the lock file's words");
	end();
	begin("unopened");
	is_int(do_read(t.lock, LONG_MS), LOCK_FAILED, "a store that is not there now is a failure");
	is_int(t.result.err.code, ERR_UNREACHABLE, "of its kind");
	end();
}

static void test_cancel(void)
{
	begin("lost");
	struct record r = leader(1, 15000);
	struct version none = { "" };
	t.done = 0;
	t.lock->ops->write(t.lock, &r, &none, true, in_ms(LONG_MS), on_done, NULL);
	t.lock->ops->cancel(t.lock);
	ok(t.done == 1 && t.result.outcome == LOCK_FAILED, "a write that is cancelled before it left has failed");
	t.lock->ops->write(t.lock, &r, &none, true, in_ms(LONG_MS), on_done, NULL);
	ok(wait_for_line("write", 1), "another one has left");
	t.lock->ops->cancel(t.lock);
	ok(t.done == 2 && t.result.outcome == LOCK_UNKNOWN, "cancelled then, it is unknown");
	ok(wait_for_line("cancel", 1), "and the driver is told");
	record_fini(&r);
	end();
}

static void test_doubt(void)
{
	begin("doubt");
	is_int(do_read(t.lock, LONG_MS), LOCK_ABSENT, "a store in doubt has no record");
	struct instant since = clock_now();
	is_int(do_write_of(t.lock, 1, 400, "", LONG_MS), LOCK_FAILED, "so no term begins there at once");
	ok(strstr(t.result.err.text, "nobody is elected") != NULL, "which says why");
	enum lock_outcome o = LOCK_FAILED;
	while (o == LOCK_FAILED && !passed(since)) {
		turn(); /* the diary is to stay short */
		o = do_write_of(t.lock, 1, 400, "", LONG_MS);
	}
	is_int(o, LOCK_OK, "but later one does");
	ok(count_lines("write k flags 3 floor 0 waited d1") == 1, "when the doubt was waited out");
	end();

	begin("doubt");
	do_read(t.lock, LONG_MS);
	for (since = clock_now(); elapsed_standby(since, clock_now()) < 500 * NSEC_PER_MS;)
		turn();
	is_int(do_write_of(t.lock, 1, 400, "", LONG_MS), LOCK_OK,
	       "the wait is counted from the first sight of the doubt");
	end();

	begin("doubt");
	do_write_of(t.lock, 5, 15000, "", LONG_MS);
	t.lock->token_floor = 5;
	is_int(do_write_of(t.lock, 5, 15000, "", LONG_MS), LOCK_OK, "a write that begins no term waits for no doubt");
	ok(count_lines("write k flags 1 floor 5 waited") == 1, "since the token is not new");
	is_int(do_write_of(t.lock, 6, 15000, "1", LONG_MS), LOCK_OK, "nor does a term after our own");
	ok(count_lines("write k flags 11 floor 5 waited") == 1, "which is told");
	end();
}

static void test_next(void)
{
	struct err err;
	char *url = url_of("good", "k");

	begin("good");
	struct lock *next = lock_open_next(&t.env, t.lock, url, &err);
	is_int(do_write(next, "", LONG_MS), LOCK_OK, "a next record is written");
	is_int(count_lines("write k.next flags 4 "), 1, "beside the lock's, as advice that begins nothing");
	is_int(count_lines("start"), 1, "by the same driver");
	next->ops->close(next);
	free(url);
	end();
}

static void test_notices(void)
{
	begin("good");
	t.changed = 0;
	ok(!t.lock->ops->watch(t.lock, on_changed, NULL), "a lock is polled before the driver runs");
	ok(wait_for(&t.changed, 1) && t.lock->ops->watch(t.lock, on_changed, NULL),
	   "when the driver has said that there are notices, that is one, and the lock is polled no more");
	int before = t.changed;
	do_write(t.lock, "", LONG_MS);
	ok(wait_for(&t.changed, before + 1), "and so is each change");
	signal_driver(SIGKILL);
	before = t.changed;
	t.polls = 0;
	ok(wait_for(&t.changed, before + 1) && t.polls == 1, "the driver's death is one, and the lock is polled then");
	ok(wait_for_line("watch k 1", 2), "and a new driver is asked to watch");
	end();

	begin("unwatchable");
	t.changed = 0;
	t.lock->ops->watch(t.lock, on_changed, NULL);
	ok(wait_for_line("watch k 1", 1) && do_read(t.lock, LONG_MS) == LOCK_ABSENT &&
	           !t.lock->ops->watch(t.lock, on_changed, NULL) && t.changed == 0,
	   "a lock whose driver says that there are none is polled");
	end();

	begin("silent");
	t.lock->ops->watch(t.lock, on_changed, NULL);
	ok(wait_for_line("watch k 1", 1) && do_read(t.lock, LONG_MS) == LOCK_ABSENT &&
	           !t.lock->ops->watch(t.lock, on_changed, NULL),
	   "and so is one whose driver says neither");
	end();

	begin("plain");
	do_read(t.lock, LONG_MS);
	ok(!t.lock->ops->watch(t.lock, on_changed, NULL) && count_lines("watch") == 0,
	   "a lock file without `watch` is not asked to");
	end();
}

/* As `status --watch`, and whoever else waits for another record. */
static void test_client(void)
{
	struct lock_client c = { 0 };
	struct err err;
	char *url = url_of("good", "k");

	begin("good");
	ok(lock_client_open(&c, NULL, url, &err) == 0 && !lock_client_watch(&c), "a command polls at first, too");
	ok(lock_client_wait_change(&c, LONG_MS * NSEC_PER_MS, LONG_MS * NSEC_PER_MS) &&
	           lock_client_read(&c) == LOCK_ABSENT && c.watched,
	   "and no more once the driver has said that there are notices");
	lock_client_close(&c);
	end();
	free(url);
}

static void test_rest(void)
{
	struct lock_about about = { .unfit = false };
	struct lock_listing found = { 0 };
	struct version none = { "" };
	struct err err;
	char *prefix, *url = url_of("good", "k"), *bad = url_of("bad-json", "k");
	int before;

	begin("good");
	before = t.done;
	t.lock->ops->about(t.lock, &about, in_ms(LONG_MS), on_done, NULL);
	is_int(wait_done(before), LOCK_OK, "the driver says what the store is");
	is_str(about.server, "Shoe box 1", "its name");
	ok(about.unfit && about.pause_ms == 1500, "and what is wrong with it");
	struct lock *l = lock_open_prefix(&t.env, url, &prefix, &err);
	before = t.done;
	l->ops->list(l, &found, in_ms(LONG_MS), on_done, NULL);
	is_int(wait_done(before), LOCK_OK, "and lists keys");
	ok(found.count == 2 && strcmp(found.name[0], "a") == 0 && strcmp(found.name[1], "b%20c") == 0 && found.more,
	   "those that begin as it was asked, as a URL has them");
	lock_listing_fini(&found);
	l->ops->close(l);
	free(prefix);
	l = lock_open_prefix(&t.env, bad, &prefix, &err);
	before = t.done;
	l->ops->list(l, &found, in_ms(LONG_MS), on_done, NULL);
	is_int(wait_done(before), LOCK_FAILED, "a listing that is no JSON has failed");
	l->ops->close(l);
	free(prefix);
	end();

	begin("plain");
	before = t.done;
	t.lock->ops->about(t.lock, &about, in_ms(LONG_MS), on_done, NULL);
	is_int(wait_done(before), LOCK_OK, "a lock file need not say what the store is");
	before = t.done;
	t.lock->ops->list(t.lock, &found, in_ms(LONG_MS), on_done, NULL);
	is_int(wait_done(before), LOCK_FAILED, "nor list");
	before = t.done;
	t.lock->ops->remove(t.lock, &none, in_ms(LONG_MS), on_done, NULL);
	is_int(wait_done(before), LOCK_REFUSED, "nor remove");
	end();
	free(url);
	free(bad);
}

static void test_faults(void)
{
	struct driver_faults *faults = driver_faults_new(t.env.loop, &t.env);

	begin("good");
	ok(!driver_fault_next(faults, DRIVER_FAULT_NONE, 0), "faults are for locks that have a driver");
	do_read(t.lock, LONG_MS);
	ok(driver_fault_next(faults, DRIVER_FAULT_ANSWER_LOST, 0), "which is so when one was started");
	is_int(do_write(t.lock, "", 300), LOCK_UNKNOWN, "an answer can be lost");
	is_int(do_read(t.lock, LONG_MS), LOCK_OK, "of a write that was done");
	driver_fault_next(faults, DRIVER_FAULT_MESSAGE_LOST, 0);
	is_int(do_write(t.lock, "1", 300), LOCK_UNKNOWN, "a message can be lost");
	do_read(t.lock, LONG_MS);
	is_str(t.result.version.text, "1", "of a write that is not done then");
	driver_fault_next(faults, DRIVER_FAULT_ANSWER_LATE, 600);
	is_int(do_write(t.lock, "1", 200), LOCK_UNKNOWN, "an answer can be late");
	driver_fault_next(faults, DRIVER_FAULT_NONE, 0);
	struct instant since = clock_now();
	while (elapsed_standby(since, clock_now()) < NSEC_PER_SEC)
		turn();
	is_int(do_read(t.lock, LONG_MS), LOCK_OK, "and is nobody's then");
	is_int(count_lines("start"), 1, "and no nonsense");
	driver_fault_next(faults, DRIVER_FAULT_ANSWER_TWICE, 0);
	is_int(do_read(t.lock, LONG_MS), LOCK_OK, "an answer can come twice");
	is_int(do_read(t.lock, LONG_MS), LOCK_ABSENT, "which is nonsense: this is another driver");
	driver_fault_raw(faults, "no record", 9);
	is_int(do_write(t.lock, "", LONG_MS), LOCK_OK, "any text can be written");
	is_int(count_lines("write k flags 4 "), 1, "about which nobody is in doubt");
	is_int(do_read(t.lock, LONG_MS), LOCK_FOREIGN, "and is found to be no record");
	driver_fault_next(faults, DRIVER_FAULT_STORE_AGAIN, 2);
	is_int(do_read(t.lock, LONG_MS), LOCK_FOREIGN, "what happens between driver and store is the driver's");
	ok(count_lines("lose 2 again") == 1 && driver_fault_met(faults),
	   "which is told of it, and says that it has come");
	do_read(t.lock, LONG_MS);
	ok(count_lines("lose") == 1 && driver_fault_met(faults), "once");
	driver_fault_next(faults, DRIVER_FAULT_STORE_LOST, 3);
	do_read(t.lock, LONG_MS);
	ok(count_lines("lose 3") == 1 && !driver_fault_met(faults), "or it has not come");
	is_int(count_lines("start"), 2, "none of that is nonsense");
	driver_fault_signal(faults, SIGSTOP);
	is_int(do_read(t.lock, 300), LOCK_FAILED, "a driver can be stopped");
	driver_fault_signal(faults, SIGCONT);
	is_int(do_read(t.lock, LONG_MS), LOCK_FOREIGN, "and go on");
	ok(driver_fault_signal(faults, SIGKILL), "and be killed");
	while (do_read(t.lock, LONG_MS) == LOCK_FAILED && !passed(since))
		turn();
	is_int(t.result.outcome, LOCK_ABSENT, "after which there is another one");
	end();
	lock_env_fini(&t.env);
	driver_faults_free(faults);
	t.env.tap = NULL;
}

static void refused(const char *url, const char *why)
{
	struct err err = { .text = "" };
	struct lock *l = lock_open(&t.env, url, &err);

	ok(!l && strstr(err.text, why), "%.60s: %.200s", url, err.text);
	if (l)
		l->ops->close(l);
}

static void shown(const char *url, const char *as)
{
	struct err err = { .text = "" };
	struct lock *l = lock_open(&t.env, url, &err);

	is_str(l ? l->url : err.text, as, as);
	if (l)
		l->ops->close(l);
}

static void test_urls(void)
{
	char *long_url = mem_printf("s3://b/%01001d", 0);

	refused("lua:/nowhere/x.lua#k", "/nowhere/x.lua cannot be opened");
	refused("lua:/proc/self/exe", "a key is missing");
	refused("lua:/proc/self/exe#", "a key is missing");
	refused("lua:/proc/self/exe#%ff", "UTF-8");
	refused("lua:/proc/self/exe#%0", "escape");
	refused("s3://bucket/", "a key is missing");
	refused("s3:bucket/x", "expected //HOST");
	refused(long_url, "at most 1000");
	refused("attic://h/k", "/etc/lunarch/locks/attic.lua would add it");
	shown("s3://bucket/a%2fb?region=x", "s3://bucket/a/b?region=x");
	shown("consul://h:8500/k%20?token=abc&dc=y", "consul://h:8500/k%20?token=***&dc=y");
	shown("mysql://ann:geheim@h/db?password_file=/dev/null#n%23", "mysql://ann@h/db#n%23");
	free(long_url);
	setenv("LUNARCH_LOCK_PASSWORD", "geheim", 1);
	begin("good");
	do_read(t.lock, LONG_MS);
	is_int(count_lines("open quietly password by place"), 1,
	       "the password comes with the place, and not by the driver's environment");
	unsetenv("LUNARCH_LOCK_PASSWORD");
	end();
}

int main(int argc, char **argv)
{
	if (argc > 3 && strcmp(argv[1], "-x") == 0)
		return driver(atoi(argv[3]));
	snprintf(t.diary, sizeof t.diary, "/tmp/lunarch-diary-XXXXXX");
	close(mkstemp(t.diary));
	setenv(DIARY, t.diary, 1);
	unsetenv("LUNARCH_LOCKS_DIR");
	record_init(&t.record);
	t.env.loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOENV);
	test_good();
	test_unanswered();
	test_death();
	test_nonsense();
	test_refusals();
	test_cancel();
	test_doubt();
	test_next();
	test_notices();
	test_client();
	test_rest();
	test_faults();
	test_urls();
	lock_env_fini(&t.env);
	ev_loop_destroy(t.env.loop);
	record_fini(&t.record);
	unlink(t.diary);
	return tap_done();
}
