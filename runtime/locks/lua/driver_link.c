#include "locks/lua/driver_link.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "locks/lua/driver_process.h"
#include "loop/reaper.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ATTEMPT (15 * NSEC_PER_SEC)        /* to start it, and to open the store */
#define REST (5 * NSEC_PER_SEC)            /* after it has said that the URL or the lock file is wrong */
#define SILENCE_S 15.                      /* after which it is asked whether it is alive */
#define HANG_S 2.                          /* without an answer to that */
#define HANG_ROUNDS 5                      /* of it, at most, if other messages come */
#define STATUS_S 1.                        /* for the exit status, after its socket has ended */
#define AGAIN_FIRST (100 * NSEC_PER_MS)    /* before a new one, if it has answered nothing; doubled each time */
#define AGAIN_MOST (10 * NSEC_PER_SEC)     /* at most */
#define APART (200 * NSEC_PER_MS)          /* at least, between the starts of two */
#define AGAIN_WORTH_WAITING (NSEC_PER_SEC) /* for who asks */
#define MESSAGES 64                        /* in one turn of the loop */

struct asked {
	uint64_t id;
	struct lock_call *call; /* NULL: nobody wants the answer any more */
};

struct driver_unsent { /* a message for which the socket has no room yet */
	struct driver_unsent *next;
	size_t len;
	char bytes[];
};

struct driver_link {
	struct lock_link link; /* first */
	const struct driver_link_events *events;
	const char *place, *name;

	pid_t pid;
	struct reaper_child *child; /* NULL: no process */
	bool answered;              /* it has answered a question */
	uint8_t can;
	int failures;                       /* so many drivers in a row have answered nothing */
	struct instant started, not_before; /* not_before: when the next one may start */
	struct err cause;                   /* why the last one ended */

	struct asked *asked; /* without an answer, in the order of their ids */
	size_t count, room;
	uint64_t last_id;

	struct driver_unsent *first, **last;
	char *bytes;       /* DRIVER_MAX: of the message that is read */
	uint64_t messages; /* that have come */

	bool pinged;           /* without an answer: */
	uint64_t ping, before; /* its number; how many messages had come at the last look */
	int rounds;            /* of looks */
	struct instant looked;
};

static struct driver_link *link_of(struct lock_link *link)
{
	return (struct driver_link *)link;
}

/* ---- the end of a driver ---- */

static struct asked *link_find(const struct driver_link *k, uint64_t id)
{
	for (size_t i = 0; i < k->count; i++)
		if (k->asked[i].id == id)
			return &k->asked[i];
	return NULL;
}

static void link_drop_question(struct driver_link *k, struct asked *q)
{
	size_t at = (size_t)(q - k->asked);

	memmove(q, q + 1, (--k->count - at) * sizeof *q);
}

/* Those who ask again from inside `lost` wait for the next driver. */
static void link_lose_questions(struct driver_link *k)
{
	struct asked *asked = k->asked;
	size_t count = k->count;
	struct err why = k->link.why;

	k->asked = NULL;
	k->count = k->room = 0;
	for (size_t i = 0; i < count && !k->link.dead; i++) {
		struct lock_call *c = asked[i].call;
		if (c)
			c->lost(c, true, LOCK_FAILED, &why);
	}
	free(asked);
}

static void link_drop_unsent(struct driver_link *k)
{
	while (k->first) {
		struct driver_unsent *u = k->first;
		k->first = u->next;
		free(u);
	}
	k->last = &k->first;
}

/* How long after this driver the next one may start: almost at once, if it did something, or if it is the first that
 * did not. */
static void link_back_off(struct driver_link *k)
{
	nsec wait = 0;
	struct instant spaced = instant_add(k->started, APART);

	k->failures = k->answered ? 0 : k->failures + 1;
	for (int i = 1; i < k->failures && wait < AGAIN_MOST; i++)
		wait = wait ? wait * 2 : AGAIN_FIRST;
	k->not_before = instant_add(clock_now(), wait < AGAIN_MOST ? wait : AGAIN_MOST);
	if (!instant_passed(spaced, k->not_before))
		k->not_before = spaced;
	k->cause = k->link.why;
}

static void link_close(struct lock_link *link)
{
	struct driver_link *k = link_of(link);

	if (k->pid) {
		if (k->child) {
			kill(-k->pid, SIGKILL); /* its group: what its lock file has started by os.execute */
			kill(k->pid, SIGKILL);  /* it may not have made the group yet */
		}
		reaper_forget(k->child);
		link_back_off(k);
	}
	k->child = NULL;
	k->pid = 0;
	k->can = 0;
	k->answered = k->pinged = false;
	link_drop_unsent(k);
	link_lose_questions(k);
}

static void link_free(struct lock_link *link)
{
	struct driver_link *k = link_of(link);

	free(k->bytes);
	free(k);
}

__attribute__((format(printf, 2, 3))) static void link_kill(struct driver_link *k, const char *fmt, ...)
{
	struct err why;
	va_list ap;

	va_start(ap, fmt);
	err_vset(&why, ERR_UNREACHABLE, fmt, ap);
	va_end(ap);
	log_event(LOG_WARN, NULL, "lock_driver_killed",
	          "the driver of %s (process %d) %s: it is killed, and replaced when it is needed", k->name,
	          (int)k->pid, why.text);
	lock_link_lose(&k->link, LOCK_FAILED, ERR_UNREACHABLE, "the driver of %s %s", k->name, why.text);
}

static void link_receive(struct driver_link *k, int at_most);

/* What it sent before it died counts. */
static void link_on_ended(void *arg, int status)
{
	struct driver_link *k = arg;
	uint64_t number = k->link.number;
	char end[80];

	k->child = NULL;
	lock_link_enter(&k->link);
	if (k->link.env->tap)
		k->link.env->tap->ended(k->link.env->tap);
	if (!k->link.ending)
		link_receive(k, INT32_MAX);
	if (!lock_link_ended(&k->link, number)) {
		driver_process_end(status, end);
		log_event(LOG_WARN, NULL, "lock_driver_died", "the driver of %s (process %d) died: %s", k->name,
		          (int)k->pid, end);
		lock_link_lose(&k->link, LOCK_FAILED, ERR_UNREACHABLE, "the driver of %s died: %s", k->name, end);
	}
	lock_link_leave(&k->link);
}

/* ---- sending ---- */

/* 1: it is sent, or nobody reads any more; 0: the socket has no room now; -1: it never has. */
static int link_try_to_send(const struct driver_link *k, const void *bytes, size_t len)
{
	while (send(k->link.fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
		if (errno == EAGAIN || err_kernel_lacks(errno))
			return 0;
		if (errno == EMSGSIZE)
			return -1;
		if (errno != EINTR)
			return 1;
	}
	return 1;
}

static bool link_put(struct driver_link *k, const void *bytes, size_t len)
{
	int sent = len > DRIVER_MAX ? -1 : k->first ? 0 : link_try_to_send(k, bytes, len);

	if (sent != 0)
		return sent > 0;
	struct driver_unsent *u = mem_zero(sizeof *u + len);
	u->len = len;
	memcpy(u->bytes, bytes, len);
	*k->last = u;
	k->last = &u->next;
	lock_link_wait(&k->link, k->link.fd, EV_READ | EV_WRITE);
	return true;
}

static void link_send(struct lock_link *link)
{
	struct driver_link *k = link_of(link);

	while (k->first && link_try_to_send(k, k->first->bytes, k->first->len)) {
		struct driver_unsent *u = k->first;
		k->first = u->next;
		if (!k->first)
			k->last = &k->first;
		free(u);
	}
	if (!k->first)
		lock_link_wait(link, link->fd, EV_READ);
}

/* ---- is it alive? ---- */

static void link_look_again(struct driver_link *k)
{
	k->before = k->messages;
	k->looked = clock_now();
	lock_link_tick(&k->link, HANG_S);
}

static void link_ping(struct driver_link *k)
{
	struct buf m = { 0 };

	if (k->pinged)
		return;
	k->pinged = true;
	k->rounds = 0;
	driver_ping_put(&m, &(struct driver_ping){ .number = ++k->ping });
	link_put(k, m.data, m.len);
	buf_fini(&m);
	link_look_again(k);
}

/* This process may have been stopped meanwhile, and the driver with it. */
static bool link_look_was_late(const struct driver_link *k)
{
	return elapsed_holder(k->looked, clock_now()) > (nsec)(2 * HANG_S * (double)NSEC_PER_SEC);
}

static void link_judge(struct driver_link *k)
{
	uint64_t number = k->link.number;

	link_receive(k, MESSAGES);
	if (lock_link_ended(&k->link, number) || k->link.ending || !k->pinged)
		return;
	bool heard = k->messages != k->before || link_look_was_late(k);
	if (heard && ++k->rounds < HANG_ROUNDS)
		link_look_again(k);
	else
		link_kill(k, "hangs: it has not answered for %g s", HANG_S * (k->rounds > 1 ? k->rounds : 1));
}

static void link_start(struct driver_link *k);

static void link_tick(struct lock_link *link)
{
	struct driver_link *k = link_of(link);

	if (link->state == LOCK_LINK_DIALING)
		link_start(k);
	else if (link->ending)
		link_kill(k, "has closed its socket");
	else if (k->pinged)
		link_judge(k);
	else
		link_ping(k);
}

/* ---- answers ---- */

static void link_nonsense(struct driver_link *k, const char *what)
{
	link_kill(k, "has sent %s", what);
}

static void link_deliver(struct driver_link *k, const struct driver_answer *a)
{
	struct asked *q = link_find(k, a->id);

	if (!q) {
		link_nonsense(k, "an answer that nothing was asked for, perhaps twice");
		return;
	}
	struct lock_call *c = q->call;
	link_drop_question(k, q);
	k->answered = true;
	if (c)
		c->answered(c, a);
}

static void link_opened(struct driver_link *k, const struct driver_opened *o)
{
	enum err_code code = o->code > ERR_NONE && o->code <= ERR_SYSTEM ? (enum err_code)o->code : ERR_SYSTEM;

	if (!o->ok) {
		lock_link_lose(&k->link, code == ERR_USAGE || code == ERR_DENIED ? LOCK_REFUSED : LOCK_FAILED, code,
		               "%s", *o->text ? o->text : "the lock file does not say why");
		return;
	}
	k->can = o->can;
	lock_link_tick(&k->link, SILENCE_S);
	lock_link_up(&k->link);
}

static void link_on_pong(struct driver_link *k, uint64_t number)
{
	if (!k->pinged || number != k->ping) {
		link_nonsense(k, "an answer to a question about itself that was not asked");
		return;
	}
	k->pinged = false;
	lock_link_tick(&k->link, SILENCE_S);
}

/* What comes when the link is up. false: it makes no sense. */
static bool link_take(struct driver_link *k, enum driver_type type, struct wire *w)
{
	struct driver_answer answer;
	struct driver_changed changed;
	struct driver_watching watching;
	struct driver_pong pong;

	if (type == DRIVER_ANSWER && driver_answer_get(w, &answer)) {
		link_deliver(k, &answer);
	} else if (type == DRIVER_CHANGED && driver_changed_get(w, &changed)) {
		k->events->changed(k->link.arg, changed.key);
	} else if (type == DRIVER_WATCHING && driver_watching_get(w, &watching)) {
		k->events->watching(k->link.arg, &watching);
	} else if (type == DRIVER_PONG && driver_pong_get(w, &pong)) {
		link_on_pong(k, pong.number);
	} else {
		return false;
	}
	return true;
}

static void link_message(struct driver_link *k, size_t len)
{
	struct wire w;
	struct driver_opened opened;
	enum driver_type type = driver_message_open(&w, k->bytes, len);

	k->messages++;
	if (k->link.state == LOCK_LINK_GREETING && type == DRIVER_OPENED && driver_opened_get(&w, &opened))
		link_opened(k, &opened);
	else if (k->link.state != LOCK_LINK_UP || !link_take(k, type, &w))
		link_nonsense(k, "a message that makes no sense");
}

/* The reaper tells how it ended, which takes a moment longer. */
static void link_end_of_socket(struct driver_link *k)
{
	k->link.ending = true;
	lock_link_wait(&k->link, k->link.fd, 0);
	lock_link_tick(&k->link, STATUS_S);
}

static void link_receive(struct driver_link *k, int at_most)
{
	uint64_t number = k->link.number;

	for (int i = 0; i < at_most && !lock_link_ended(&k->link, number) && !k->link.ending; i++) {
		ssize_t n = recv(k->link.fd, k->bytes, DRIVER_MAX, MSG_DONTWAIT | MSG_TRUNC);
		if (n < 0 && errno == ECONNRESET) /* it died with messages of ours unread; what it sent follows */
			n = recv(k->link.fd, k->bytes, DRIVER_MAX, MSG_DONTWAIT | MSG_TRUNC);
		if (n < 0 && (errno == EAGAIN || errno == EINTR || err_kernel_lacks(errno)))
			return;
		if (n > DRIVER_MAX)
			link_nonsense(k, "a message that is too large");
		else if (n > 0)
			link_message(k, (size_t)n);
		else
			link_end_of_socket(k);
	}
}

static void link_parse(struct lock_link *link)
{
	link_receive(link_of(link), MESSAGES);
}

/* ---- going up ---- */

static void link_start(struct driver_link *k)
{
	const struct lock_env *env = k->link.env;
	struct err err;

	k->started = clock_now();
	k->pid = driver_process_start(&k->link.fd, &err);
	if (k->pid > 0 && env->tap)
		k->link.fd = env->tap->started(env->tap, k->pid, k->link.fd);
	if (k->pid > 0)
		k->child = reaper_add(lock_reaper(k->link.env), k->pid, link_on_ended, k, &err);
	if (k->pid > 0 && k->child) {
		lock_link_dialed(&k->link);
		return;
	}
	if (k->pid > 0)
		kill(k->pid, SIGKILL);
	k->pid = 0;
	lock_link_lose(&k->link, LOCK_FAILED, err.code, "%s: %s", k->name, err.text);
}

static void link_dial(struct lock_link *link)
{
	struct driver_link *k = link_of(link);
	nsec left = k->not_before.raw ? instant_until(k->not_before, clock_now()) : 0;

	if (left > AGAIN_WORTH_WAITING)
		lock_link_lose(link, LOCK_FAILED, k->cause.code, "%s (a new driver is started in %.1f s)",
		               k->cause.text, (double)left / NSEC_PER_SEC);
	else if (left > 0)
		lock_link_tick(link, (double)left / NSEC_PER_SEC);
	else
		link_start(k);
}

static void link_greet(struct lock_link *link)
{
	struct driver_link *k = link_of(link);
	struct buf m = { 0 };

	driver_open_put(&m, &(struct driver_open){ .place = k->place });
	lock_link_wait(link, link->fd, EV_READ);
	link_put(k, m.data, m.len);
	explicit_bzero(m.data, m.len);
	buf_fini(&m);
}

static void link_overdue(struct lock_link *link)
{
	link_kill(link_of(link), "has not opened its store in %g s", (double)ATTEMPT / NSEC_PER_SEC);
}

struct lock_link *driver_link_new(struct lock_env *env, const char *place, const char *name,
                                  const struct driver_link_events *events, void *arg)
{
	static const struct lock_link_ops ops = {
		.attempt = ATTEMPT,
		.rest = REST,
		.dial = link_dial,
		.greet = link_greet,
		.send = link_send,
		.parse = link_parse,
		.tick = link_tick,
		.overdue = link_overdue,
		.close = link_close,
		.free = link_free,
	};
	struct driver_link *k = mem_zero(sizeof *k);

	lock_link_init(&k->link, env, NULL, &ops, &events->link, arg);
	k->events = events;
	k->place = place;
	k->name = name;
	k->last = &k->first;
	k->bytes = mem_zero(DRIVER_MAX);
	return &k->link;
}

/* ---- for who asks ---- */

uint8_t driver_link_can(const struct lock_link *link)
{
	return ((const struct driver_link *)link)->can;
}

uint64_t driver_link_id(struct lock_link *link)
{
	return ++link_of(link)->last_id;
}

bool driver_link_ask(struct lock_link *link, struct lock_call *c, uint64_t id, const struct buf *m)
{
	struct driver_link *k = link_of(link);

	if (!link_put(k, m->data, m->len))
		return false;
	if (k->count == k->room) {
		k->room = k->room ? 2 * k->room : 16;
		k->asked = mem_resize(k->asked, k->room * sizeof *k->asked);
	}
	k->asked[k->count++] = (struct asked){ .id = id, .call = c };
	return true;
}

void driver_link_send(struct lock_link *link, const struct buf *m)
{
	if (lock_link_is_up(link))
		link_put(link_of(link), m->data, m->len);
}

void driver_link_cancel(struct lock_link *link, const struct lock_call *c)
{
	struct driver_link *k = link_of(link);
	struct buf m = { 0 };

	for (size_t i = 0; i < k->count; i++) {
		if (k->asked[i].call != c)
			continue;
		k->asked[i].call = NULL;
		driver_cancel_put(&m, &(struct driver_cancel){ .id = k->asked[i].id });
		driver_link_send(link, &m);
		buf_fini(&m);
		if (lock_link_is_up(link))
			link_ping(k);
		return;
	}
}
