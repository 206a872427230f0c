#include "locks/redis/redis_link.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/nonce.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
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

struct redis_link {
	struct lock_link link; /* first */
	int db;
	const char *const *scripts;
	void (*push)(void *arg, const redisReply *r);

	bool replica; /* the host said so when it was asked last */
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
};

static struct redis_link *of(struct lock_link *k)
{
	return (struct redis_link *)k;
}

static void link_close(struct lock_link *link)
{
	struct redis_link *k = of(link);

	if (k->reader)
		redisReaderFree(k->reader);
	k->reader = NULL;
	freeReplyObject(k->held);
	k->held = NULL;
	buf_fini(&k->out);
}

/* ---- bytes ---- */

/* An error is the reader's to see: it is told about a connection that has ended, too. */
static void link_send(struct lock_link *link)
{
	struct redis_link *k = of(link);

	while (k->out.len) {
		ssize_t n = send(link->fd, k->out.data, k->out.len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		explicit_bzero(k->out.data, (size_t)n); /* it may have been a password */
		buf_drop(&k->out, (size_t)n);
	}
	lock_link_wait(link, link->fd, k->out.len ? EV_READ | EV_WRITE : EV_READ);
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

static void link_greet(struct lock_link *link)
{
	struct redis_link *k = of(link);
	const struct lock_url *url = link->url;
	char db[16];

	k->replica = false;
	k->greeted = 0;
	memset(k->greeting, 0, sizeof k->greeting);
	make_reader(k);
	if (url->password && *url->user)
		put_words(k, 'a', 3, (const char *[]){ "AUTH", url->user, url->password });
	else if (url->password)
		put_words(k, 'a', 2, (const char *[]){ "AUTH", url->password });
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
	link_send(link);
}

static bool says(const redisReply *r, const char *code)
{
	return r->type == REDIS_REPLY_ERROR && strncmp(r->str, code, strlen(code)) == 0;
}

static void mix_up(struct redis_link *k, const redisReply *r)
{
	if (r->type == REDIS_REPLY_ERROR)
		lock_link_lose(&k->link, LOCK_FAILED, ERR_UNREACHABLE, "it answered ECHO with: %s", r->str);
	else
		lock_link_lose(&k->link, LOCK_FAILED, ERR_INVALID, LOCK_QUEUE_MIXED_UP);
}

/* true: the greeting cannot go on, and the link was told. */
static bool refused(struct redis_link *k, char what, const redisReply *r)
{
	if (says(r, "NOAUTH") || says(r, "ERR operation not permitted"))
		lock_link_lose(&k->link, LOCK_REFUSED, ERR_DENIED,
		               "it wants a password: give it in the URL, as ?password_file=PATH, or in %s",
		               LOCK_URL_PASSWORD);
	else if (says(r, "DENIED"))
		lock_link_lose(&k->link, LOCK_REFUSED, ERR_DENIED,
		               "it is in protected mode, and takes connections from its own host only");
	else if (what == 'a' && r->type == REDIS_REPLY_ERROR && !says(r, "LOADING"))
		lock_link_lose(&k->link, LOCK_REFUSED, ERR_DENIED, "it refuses the user or the password: %s", r->str);
	else if (what == 's' && r->type == REDIS_REPLY_ERROR && !says(r, "LOADING"))
		lock_link_lose(&k->link, LOCK_REFUSED, ERR_MISSING, "it refuses the database %d: %s", k->db, r->str);
	else if (what == 'e' && says(r, "NOPERM"))
		lock_link_lose(&k->link, LOCK_REFUSED, ERR_DENIED,
		               "%s: docs/locks.md lists the rights that a lock needs", r->str);
	else if (says(r, "LOADING") || says(r, "MASTERDOWN") || says(r, "ERR max number"))
		lock_link_lose(&k->link, LOCK_FAILED, ERR_UNREACHABLE, "it is not ready: %s", r->str);
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
		lock_link_lose(&k->link, LOCK_FAILED, ERR_UNREACHABLE,
		               "it is a replica, which cannot be written to: name its primary, or all of its servers");
	else if (strcmp(role, "sentinel") == 0)
		lock_link_lose(&k->link, LOCK_REFUSED, ERR_USAGE, "it is a Sentinel: name the servers that it watches");
	else
		return false;
	return true;
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
		lock_link_up(&k->link);
}

/* ---- answers ---- */

/* An answer, or the stamp behind one. Takes r. */
static void match(struct redis_link *k, redisReply *r)
{
	redisReply *answer = k->held;
	bool good = answer ? is_stamp(k, r) : k->link.queue.count > 0;

	k->held = good && !answer ? r : NULL;
	if (!good) {
		mix_up(k, r);
	} else if (answer) {
		struct lock_call *c = lock_pipeline_pop(&k->link.queue);
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
	bool up = lock_link_is_up(&k->link);

	if (up && !k->push) {
		match(k, r);
		return;
	}
	if (up)
		k->push(k->link.arg, r);
	else
		on_greeted(k, r);
	freeReplyObject(r);
}

/* A callback may lose the connection, and with it the reader. */
static void take_answers(struct redis_link *k)
{
	uint64_t number = k->link.number;
	void *reply;

	while (!lock_link_ended(&k->link, number)) {
		if (redisReaderGetReply(k->reader, &reply) != REDIS_OK) {
			if (k->reader->err == REDIS_ERR_OOM)
				lock_link_lose(&k->link, LOCK_FAILED, ERR_INVALID, TOO_LARGE);
			else
				lock_link_lose(&k->link, LOCK_FAILED, ERR_INVALID,
				               "what listens there does not speak Redis' protocol (%s)",
				               k->reader->errstr);
			break;
		}
		if (!reply)
			break;
		k->bytes = k->reader->len - k->reader->pos;
		k->elements = 0;
		dispatch(k, reply);
	}
	if (!lock_link_ended(&k->link, number) && k->bytes > ANSWER_MAX)
		lock_link_lose(&k->link, LOCK_FAILED, ERR_INVALID, TOO_LARGE);
}

static void link_parse(struct lock_link *link)
{
	struct redis_link *k = of(link);
	char piece[PIECE];
	ssize_t n = read(link->fd, piece, sizeof piece);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		lock_link_lose(&k->link, LOCK_FAILED, ERR_UNREACHABLE, "the connection was lost%s%s",
		               n < 0 ? ": " : ", the server closed it", n < 0 ? strerror(errno) : "");
		return;
	}
	k->bytes += (size_t)n;
	if (redisReaderFeed(k->reader, piece, (size_t)n) != REDIS_OK)
		abort(); /* out of memory */
	take_answers(k);
}

static void link_overdue(struct lock_link *link)
{
	lock_link_lose(link, LOCK_FAILED, ERR_TIMEOUT, "it accepts connections, but does not answer");
}

/* ---- the whole ---- */

void redis_link_send(struct lock_link *link, struct lock_call *c, int count, const char **words, const size_t *lens)
{
	struct redis_link *k = of(link);

	if (!lock_link_is_up(link))
		return;
	put(k, count, words, lens);
	if (!k->push) {
		put_stamp(k);
		lock_pipeline_push(&link->queue, c);
	}
	link_send(link);
}

void redis_link_turn_away(struct lock_link *link, const char *why)
{
	if (!lock_link_is_up(link))
		return;
	lock_link_next_host(link);
	lock_link_lose(link, LOCK_FAILED, ERR_UNREACHABLE, "%s", why);
}

const char *redis_link_script(const struct lock_link *link, int which)
{
	const struct redis_link *k = (const struct redis_link *)link;

	return *k->digest[which] ? k->digest[which] : NULL;
}

bool redis_link_is_replica(const struct lock_link *link)
{
	return ((const struct redis_link *)link)->replica;
}

struct lock_link *redis_link_new(struct lock_env *env, const struct lock_url *url, int db, const char *const *scripts,
                                 const struct lock_link_events *events, void (*push)(void *arg, const redisReply *r),
                                 void *arg)
{
	static const struct lock_link_ops ops = {
		.attempt = ATTEMPT,
		.rest = REST,
		.greet = link_greet,
		.send = link_send,
		.parse = link_parse,
		.overdue = link_overdue,
		.close = link_close,
	};
	struct redis_link *k = mem_zero(sizeof *k);

	lock_link_init(&k->link, env, url, &ops, events, arg);
	k->db = db;
	k->scripts = scripts;
	k->push = push;
	return &k->link;
}
