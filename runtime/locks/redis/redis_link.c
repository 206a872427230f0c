#include "locks/redis/redis_link.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/nonce.h"
#include "loop/dial.h"

#include <errno.h>
#include <ev.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ATTEMPT (3 * NSEC_PER_SEC) /* to connect to one host and greet it */
#define REST (3 * NSEC_PER_SEC)    /* after a refusal that a new try will hardly change */
#define PIECE 65536
#define MARK 8 /* random bytes */
#define STAMP (2 * MARK + 24)
#define ANSWER_MAX (1024 * 1024) /* bytes; nothing we ask for is larger: a record, or INFO */
#define ELEMENTS_MAX 4096        /* of one answer, in all its arrays: ROLE names the replicas */
#define TOO_LARGE "it sent an answer that is larger than anything asked for"

#if HIREDIS_MAJOR < 1
typedef int array_size;
#else
typedef size_t array_size;
#endif

enum state { DOWN, DIALING, GREETING, UP };

struct redis_link {
	struct lock_env *env;
	const struct lock_url *url;
	int db;
	const char *const *scripts;
	const struct redis_link_events *events;
	void *arg;

	enum state state;
	bool replica;    /* that host said so when it was asked last */
	int host, tried; /* asked now or last; how many in this round */
	struct dial *dial;
	int fd;
	uint64_t number; /* of the connection: an answer to an older one is none */
	ev_io reads, writes;
	ev_timer timer; /* of an attempt; while resting, the turn of those who wait */
	redisReader *reader;
	redisReplyObjectFunctions makers; /* the reader's, but for arrays */
	void *(*array_of)(const redisReadTask *task, array_size count);
	size_t bytes, elements;   /* of the answer that is coming in */
	char mark[2 * MARK + 1];  /* of the connection: the stamps' beginning */
	uint64_t asked, answered; /* questions, with the greeting as one; their numbers are in the stamps */
	redisReply *held;         /* the answer whose stamp is still to come */
	struct buf out;
	char greeting[5 + REDIS_SCRIPTS]; /* what was asked: a, s, r, l, e; then terminated */
	int greeted;
	char digest[REDIS_SCRIPTS][41];
	char peer[300];

	struct lock_pipeline queue;
	struct instant heard;

	bool resting; /* until, refused for `why` */
	struct instant until;
	enum lock_outcome outcome;
	struct err why;
	int busy;  /* callbacks are running */
	bool dead; /* freed while they do */
};

/* ---- callbacks, in which the link may be freed ---- */

static void enter(struct redis_link *k)
{
	k->busy++;
}

static void destroy(struct redis_link *k)
{
	lock_pipeline_fini(&k->queue);
	free(k);
}

static void leave(struct redis_link *k)
{
	if (--k->busy == 0 && k->dead)
		destroy(k);
}

/* ---- going down ---- */

static void hang_up(struct redis_link *k)
{
	ev_timer_stop(k->env->loop, &k->timer);
	ev_io_stop(k->env->loop, &k->reads);
	ev_io_stop(k->env->loop, &k->writes);
	dial_cancel(k->dial);
	k->dial = NULL;
	if (k->fd >= 0)
		close(k->fd);
	k->fd = -1;
	if (k->reader)
		redisReaderFree(k->reader);
	k->reader = NULL;
	freeReplyObject(k->held);
	k->held = NULL;
	buf_fini(&k->out);
	k->state = DOWN;
	k->number++;
}

static void tell_all(struct redis_link *k, enum lock_outcome outcome, const struct err *why)
{
	struct err copy = *why;

	enter(k);
	lock_pipeline_lose(&k->queue, outcome, &copy);
	if (!k->dead && k->events->down)
		k->events->down(k->arg, outcome, &copy);
	leave(k);
}

static void try_host(struct redis_link *k);

/* Those to whom nothing was sent yet have the other servers left. */
static void next_host(struct redis_link *k, enum lock_outcome outcome, const struct err *why)
{
	hang_up(k);
	if (++k->tried < k->url->hosts) {
		k->host = (k->host + 1) % k->url->hosts;
		try_host(k);
		return;
	}
	k->host = (k->host + 1) % k->url->hosts;
	if (outcome == LOCK_REFUSED) {
		k->resting = true;
		k->until = instant_add(clock_now(), REST);
		k->outcome = outcome;
		k->why = *why;
	}
	tell_all(k, outcome, why);
}

__attribute__((format(printf, 4, 5))) static void lose(struct redis_link *k, enum lock_outcome outcome,
                                                       enum err_code code, const char *fmt, ...)
{
	struct err why;
	char text[700];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	err_set(&why, code, "%s: %s", k->peer, text);
	if (k->state != UP) {
		next_host(k, outcome, &why);
		return;
	}
	hang_up(k);
	tell_all(k, outcome, &why);
}

/* ---- bytes ---- */

/* An error is the reader's to see: it is told about a connection that has ended, too. */
static void flush(struct redis_link *k)
{
	while (k->out.len) {
		ssize_t n = send(k->fd, k->out.data, k->out.len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		explicit_bzero(k->out.data, (size_t)n); /* it may have been a password */
		buf_drop(&k->out, (size_t)n);
	}
	if (k->out.len)
		ev_io_start(k->env->loop, &k->writes);
	else
		ev_io_stop(k->env->loop, &k->writes);
}

static void on_writable(struct ev_loop *loop, ev_io *w, int revents)
{
	(void)loop;
	(void)revents;
	flush(w->data);
}

static void put(struct redis_link *k, int count, const char **words, const size_t *lens)
{
	char *command;
	int len = redisFormatCommandArgv(&command, count, words, lens);

	if (len < 0)
		abort(); /* out of memory is the only reason */
	buf_add(&k->out, command, (size_t)len);
	explicit_bzero(command, (size_t)len);
	free(command);
}

/* Redis' answers do not say what they answer, and one that came twice would be taken for the next question's: so each
 * is followed by that of an ECHO, which does. */
static void print_stamp(const struct redis_link *k, uint64_t number, char *out, size_t size)
{
	snprintf(out, size, "%s.%" PRIu64, k->mark, number);
}

static void put_stamp(struct redis_link *k)
{
	char stamp[STAMP];

	print_stamp(k, k->asked++, stamp, sizeof stamp);
	put(k, 2, (const char *[]){ "ECHO", stamp }, NULL);
}

static bool is_stamp(struct redis_link *k, const redisReply *r)
{
	char stamp[STAMP];

	print_stamp(k, k->answered, stamp, sizeof stamp);
	if (r->type != REDIS_REPLY_STRING || strcmp(r->str, stamp) != 0)
		return false;
	k->answered++;
	return true;
}

static void put_words(struct redis_link *k, char what, int count, const char **words)
{
	put(k, count, words, NULL);
	k->greeting[strlen(k->greeting)] = what;
}

/* ---- limits: what listens there may be anything ---- */

/* The reader would allocate what the first line announces, before any of it is there. */
static void *make_array(const redisReadTask *task, array_size count)
{
	struct redis_link *k = task->privdata;

	if ((size_t)count > ELEMENTS_MAX - k->elements)
		return NULL;
	k->elements += (size_t)count;
	return k->array_of(task, count);
}

static void make_reader(struct redis_link *k)
{
	k->reader = redisReaderCreate();
	if (!k->reader)
		abort();
	k->makers = *k->reader->fn;
	k->array_of = k->makers.createArray;
	k->makers.createArray = make_array;
	k->reader->fn = &k->makers;
	k->reader->privdata = k;
	k->bytes = k->elements = 0;
}

/* ---- greeting ---- */

static void greet(struct redis_link *k)
{
	char db[16];

	k->state = GREETING;
	k->replica = false;
	k->greeted = 0;
	memset(k->greeting, 0, sizeof k->greeting);
	make_reader(k);
	if (k->url->password && *k->url->user)
		put_words(k, 'a', 3, (const char *[]){ "AUTH", k->url->user, k->url->password });
	else if (k->url->password)
		put_words(k, 'a', 2, (const char *[]){ "AUTH", k->url->password });
	snprintf(db, sizeof db, "%d", k->db);
	if (k->db)
		put_words(k, 's', 2, (const char *[]){ "SELECT", db });
	put_words(k, 'r', 1, (const char *[]){ "ROLE" });
	for (int i = 0; k->scripts && i < REDIS_SCRIPTS; i++)
		put_words(k, 'l', 3, (const char *[]){ "SCRIPT", "LOAD", k->scripts[i] });
	nonce_hex(k->mark, MARK);
	k->asked = k->answered = 0;
	put_stamp(k);
	k->greeting[strlen(k->greeting)] = 'e';
	flush(k);
}

static bool says(const redisReply *r, const char *code)
{
	return r->type == REDIS_REPLY_ERROR && strncmp(r->str, code, strlen(code)) == 0;
}

static void mix_up(struct redis_link *k, const redisReply *r)
{
	if (r->type == REDIS_REPLY_ERROR)
		lose(k, LOCK_FAILED, ERR_UNREACHABLE, "it answered ECHO with: %s", r->str);
	else
		lose(k, LOCK_FAILED, ERR_INVALID, LOCK_QUEUE_MIXED_UP);
}

/* true: the greeting cannot go on, and the link was told. */
static bool refused(struct redis_link *k, char what, const redisReply *r)
{
	if (says(r, "NOAUTH") || says(r, "ERR operation not permitted"))
		lose(k, LOCK_REFUSED, ERR_DENIED,
		     "it wants a password: give it in the URL, as ?password_file=PATH, or in %s", LOCK_URL_PASSWORD);
	else if (says(r, "DENIED"))
		lose(k, LOCK_REFUSED, ERR_DENIED,
		     "it is in protected mode, and takes connections from its own host only");
	else if (what == 'a' && r->type == REDIS_REPLY_ERROR && !says(r, "LOADING"))
		lose(k, LOCK_REFUSED, ERR_DENIED, "it refuses the user or the password: %s", r->str);
	else if (what == 's' && r->type == REDIS_REPLY_ERROR && !says(r, "LOADING"))
		lose(k, LOCK_REFUSED, ERR_MISSING, "it refuses the database %d: %s", k->db, r->str);
	else if (what == 'e' && says(r, "NOPERM"))
		lose(k, LOCK_REFUSED, ERR_DENIED, "%s: docs/locks.md lists the rights that a lock needs", r->str);
	else if (says(r, "LOADING") || says(r, "MASTERDOWN") || says(r, "ERR max number"))
		lose(k, LOCK_FAILED, ERR_UNREACHABLE, "it is not ready: %s", r->str);
	else if (what == 'e' && !is_stamp(k, r))
		mix_up(k, r);
	else
		return false;
	return true;
}

static bool wrong_role(struct redis_link *k, const redisReply *r)
{
	const char *role =
		r->type == REDIS_REPLY_ARRAY && r->elements && r->element[0]->str ? r->element[0]->str : "master";

	k->replica = strcmp(role, "slave") == 0;
	if (k->replica)
		lose(k, LOCK_FAILED, ERR_UNREACHABLE,
		     "it is a replica, which cannot be written to: name its primary, or all of its servers");
	else if (strcmp(role, "sentinel") == 0)
		lose(k, LOCK_REFUSED, ERR_USAGE, "it is a Sentinel: name the servers that it watches");
	else
		return false;
	return true;
}

static void up(struct redis_link *k)
{
	ev_timer_stop(k->env->loop, &k->timer);
	k->state = UP;
	k->tried = 0;
	k->resting = false;
	enter(k);
	if (k->events->up)
		k->events->up(k->arg);
	while (!k->dead && k->state == UP && k->queue.first) {
		struct lock_call *c = lock_pipeline_next(&k->queue);
		c->ready(c);
	}
	leave(k);
}

static void on_greeted(struct redis_link *k, const redisReply *r)
{
	char what = k->greeting[k->greeted++];

	if (refused(k, what, r) || (what == 'r' && wrong_role(k, r)))
		return;
	if (what == 'l') {
		int which = 0;
		for (int i = 0; i < k->greeted - 1; i++)
			which += k->greeting[i] == 'l';
		snprintf(k->digest[which], sizeof k->digest[which], "%s", r->type == REDIS_REPLY_STRING ? r->str : "");
	}
	if (!k->greeting[k->greeted])
		up(k);
}

/* ---- answers ---- */

/* An answer, or the stamp behind one. Takes r. */
static void match(struct redis_link *k, redisReply *r)
{
	redisReply *answer = k->held;
	bool good = answer ? is_stamp(k, r) : k->queue.count > 0;

	k->held = good && !answer ? r : NULL;
	if (!good) {
		mix_up(k, r);
	} else if (answer) {
		struct lock_call *c = lock_pipeline_pop(&k->queue);
		if (c)
			c->answered(c, answer);
	}
	freeReplyObject(answer);
	if (r != k->held)
		freeReplyObject(r);
}

/* Takes r. */
static void dispatch(struct redis_link *k, redisReply *r)
{
	if (k->state == UP && !k->events->push) {
		match(k, r);
		return;
	}
	if (k->state == GREETING)
		on_greeted(k, r);
	else
		k->events->push(k->arg, r);
	freeReplyObject(r);
}

/* A callback may lose the connection, and with it the reader. */
static void take_answers(struct redis_link *k)
{
	uint64_t number = k->number;
	void *reply;

	enter(k);
	while (!k->dead && k->number == number) {
		if (redisReaderGetReply(k->reader, &reply) != REDIS_OK) {
			if (k->reader->err == REDIS_ERR_OOM)
				lose(k, LOCK_FAILED, ERR_INVALID, TOO_LARGE);
			else
				lose(k, LOCK_FAILED, ERR_INVALID,
				     "what listens there does not speak Redis' protocol (%s)", k->reader->errstr);
			break;
		}
		if (!reply)
			break;
		k->bytes = k->reader->len - k->reader->pos;
		k->elements = 0;
		dispatch(k, reply);
	}
	if (!k->dead && k->number == number && k->bytes > ANSWER_MAX)
		lose(k, LOCK_FAILED, ERR_INVALID, TOO_LARGE);
	leave(k);
}

static void on_readable(struct ev_loop *loop, ev_io *w, int revents)
{
	struct redis_link *k = w->data;
	char piece[PIECE];
	ssize_t n = read(k->fd, piece, sizeof piece);

	(void)loop;
	(void)revents;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		lose(k, LOCK_FAILED, ERR_UNREACHABLE, "the connection was lost%s%s",
		     n < 0 ? ": " : ", the server closed it", n < 0 ? strerror(errno) : "");
		return;
	}
	k->heard = clock_now();
	k->bytes += (size_t)n;
	if (redisReaderFeed(k->reader, piece, (size_t)n) != REDIS_OK)
		abort(); /* out of memory */
	take_answers(k);
}

/* ---- going up ---- */

static void on_dialed(void *arg, int fd, const struct err *err)
{
	struct redis_link *k = arg;

	k->dial = NULL;
	if (fd < 0) {
		struct err why = *err;
		next_host(k, LOCK_FAILED, &why);
		return;
	}
	k->fd = fd;
	k->heard = clock_now();
	ev_io_set(&k->reads, fd, EV_READ);
	ev_io_set(&k->writes, fd, EV_WRITE);
	ev_io_start(k->env->loop, &k->reads);
	greet(k);
}

static void try_host(struct redis_link *k)
{
	struct ev_loop *loop = k->env->loop;

	k->state = DIALING;
	lock_url_print_host(k->url, k->host, k->peer);
	k->dial = dial_start(loop, lock_lookups(k->env), k->url->host[k->host].name, k->url->host[k->host].port,
	                     instant_add(clock_now(), ATTEMPT), on_dialed, k);
	ev_now_update(loop);
	ev_timer_set(&k->timer, (double)ATTEMPT / NSEC_PER_SEC + 0.1, 0.); /* dialing ends by itself */
	ev_timer_start(loop, &k->timer);
}

static void on_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
	struct redis_link *k = w->data;

	(void)loop;
	(void)revents;
	if (k->state == DOWN)
		tell_all(k, k->outcome, &k->why);
	else
		lose(k, LOCK_FAILED, ERR_TIMEOUT, "it accepts connections, but does not answer");
}

void redis_link_raise(struct redis_link *k)
{
	if (k->state != DOWN || ev_is_active(&k->timer))
		return;
	k->tried = 0;
	if (k->resting && !instant_passed(k->until, clock_now())) {
		ev_timer_set(&k->timer, 0., 0.);
		ev_timer_start(k->env->loop, &k->timer);
		return;
	}
	k->resting = false;
	try_host(k);
}

void redis_link_want(struct redis_link *k, struct lock_call *c)
{
	if (k->state == UP) {
		c->ready(c);
		return;
	}
	lock_pipeline_wait(&k->queue, c);
	redis_link_raise(k);
}

void redis_link_send(struct redis_link *k, struct lock_call *c, int count, const char **words, const size_t *lens)
{
	if (k->state != UP)
		return;
	put(k, count, words, lens);
	if (!k->events->push) {
		put_stamp(k);
		lock_pipeline_push(&k->queue, c);
	}
	flush(k);
}

void redis_link_forget(struct redis_link *k, struct lock_call *c, bool late)
{
	bool sent = lock_pipeline_forget(&k->queue, c);

	if (sent && late && k->state == UP && elapsed_standby(k->heard, c->sent_at) >= 0)
		lose(k, LOCK_FAILED, ERR_TIMEOUT, "the server does not answer");
}

void redis_link_turn_away(struct redis_link *k, const char *why)
{
	if (k->state != UP)
		return;
	k->host = (k->host + 1) % k->url->hosts;
	lose(k, LOCK_FAILED, ERR_UNREACHABLE, "%s", why);
}

/* ---- the whole ---- */

bool redis_link_is_up(const struct redis_link *k)
{
	return k->state == UP;
}

const char *redis_link_script(const struct redis_link *k, int which)
{
	return *k->digest[which] ? k->digest[which] : NULL;
}

const char *redis_link_peer(const struct redis_link *k)
{
	return k->peer;
}

bool redis_link_is_replica(const struct redis_link *k)
{
	return k->replica;
}

int redis_link_host(const struct redis_link *k)
{
	return k->host;
}

struct redis_link *redis_link_new(struct lock_env *env, const struct lock_url *url, int db, const char *const *scripts,
                                  const struct redis_link_events *events, void *arg)
{
	struct redis_link *k = mem_zero(sizeof *k);

	*k = (struct redis_link){
		.env = env, .url = url, .db = db, .scripts = scripts, .events = events, .arg = arg, .fd = -1
	};
	ev_init(&k->reads, on_readable);
	ev_init(&k->writes, on_writable);
	ev_init(&k->timer, on_timer);
	k->reads.data = k->writes.data = k->timer.data = k;
	return k;
}

void redis_link_free(struct redis_link *k)
{
	if (!k)
		return;
	hang_up(k);
	k->dead = k->queue.stopped = true;
	if (k->busy == 0)
		destroy(k);
}
