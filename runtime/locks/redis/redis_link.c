#include "locks/redis/redis_link.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/module.h"
#include "base/nonce.h"
#include "net/tls/tls.h"

#include <ctype.h>
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
#define SILENCE_S 3.               /* after which a connection that only listens is asked whether it is alive */
#define PIECE 65536
#define MARK 8 /* random bytes */
#define STAMP (2 * MARK + 24)
#define ANSWER_MAX (1024 * 1024) /* bytes; nothing we ask for is larger: a record, or INFO */
#define ELEMENTS_MAX 4096        /* of one answer, in all its arrays: ROLE names the replicas */

#if HIREDIS_MAJOR < 1
typedef int array_size;
#else
typedef size_t array_size;
#endif

struct redis_link {
	struct lock_link link; /* first */
	const struct redis_place *place;
	int db;
	const char *const *scripts;
	void (*push)(void *arg, const redisReply *r);

	redisReader *reader;
	redisReplyObjectFunctions makers;                                 /* the reader's, but for arrays */
	void *(*make_array)(const redisReadTask *task, array_size count); /* the reader's */
	size_t bytes, elements;                                           /* of the answer that is coming in */
	char mark[2 * MARK + 1];   /* of the connection: with it every stamp begins */
	uint64_t asked, answered;  /* stamps; the numbers in them */
	struct lock_call asking;   /* in the queue before each question behind ASKING, whose answer has no stamp */
	redisReply *held;          /* the answer whose stamp is still to come */
	struct instant probed;     /* when the owner was last asked to ask something; of a link with push */
	struct buf out;            /* in the clear */
	const struct tls_ops *tls; /* NULL: not encrypted, or not loaded yet */
	struct tls *secret;        /* of the connection, as are the rest; NULL: not encrypted */
	struct buf wire;           /* what of `out` went through it, to be sent */
	struct err broken;         /* why nothing more goes through it; code ERR_NONE: it does */
	bool cluster;              /* the server is one of a cluster */
	char run_id[48];           /* of a Sentinel */
	char greeting
		[6 +
	         REDIS_SCRIPTS]; /* a AUTH, s SELECT, c INFO cluster (a Sentinel's: server), r ROLE, a digit the script, e ECHO */
	int greeted;             /* how many of them were answered */
	char digest[REDIS_SCRIPTS][41];
};

static struct redis_link *redis_link_of(struct lock_link *k)
{
	return (struct redis_link *)k;
}

static void link_close(struct lock_link *link)
{
	struct redis_link *k = redis_link_of(link);

	if (k->reader)
		redisReaderFree(k->reader);
	k->reader = NULL;
	freeReplyObject(k->held);
	k->held = NULL;
	if (k->out.len)
		explicit_bzero(k->out.data, k->out.len); /* it may have been a password */
	buf_fini(&k->out);
	if (k->secret)
		k->tls->end(k->secret);
	k->secret = NULL;
	buf_fini(&k->wire);
	k->broken.code = ERR_NONE;
}

/* ---- questions ---- */

/* What there is to say goes into TLS, and what TLS has to say onto the wire. */
static void link_encrypt(struct redis_link *k)
{
	if (k->out.len && k->tls->write(k->secret, k->out.data, k->out.len, &k->broken) < 0)
		lock_link_poke(&k->link);
	if (k->out.len)
		explicit_bzero(k->out.data, k->out.len); /* it may have been a password */
	buf_drop(&k->out, k->out.len);
	k->tls->take(k->secret, &k->wire);
}

/* An error is seen by link_parse: reading tells of a connection that has ended, too. */
static void link_flush(struct lock_link *link)
{
	struct redis_link *k = redis_link_of(link);
	struct buf *out = k->secret ? &k->wire : &k->out;

	if (k->secret)
		link_encrypt(k);
	while (out->len) {
		ssize_t n = send(link->fd, out->data, out->len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		explicit_bzero(out->data, (size_t)n); /* it may have been a password */
		buf_drop(out, (size_t)n);
	}
	lock_link_wait(link, link->fd, out->len ? EV_READ | EV_WRITE : EV_READ);
}

static void link_put(struct redis_link *k, const char **words)
{
	char *command;
	int count = 0;

	while (words[count])
		count++;
	int len = redisFormatCommandArgv(&command, count, words, NULL);
	if (len < 0)
		mem_end();
	buf_add(&k->out, command, (size_t)len);
	explicit_bzero(command, (size_t)len);
	free(command);
}

/* An answer of Redis does not say what it answers, and one that came twice would be taken for the next question's. So
 * each question is followed by an ECHO of a text of its own, the stamp. */
static void stamp_print(const struct redis_link *k, uint64_t number, char out[STAMP])
{
	snprintf(out, STAMP, "%s.%" PRIu64, k->mark, number);
}

static void stamp_put(struct redis_link *k)
{
	char stamp[STAMP];

	stamp_print(k, k->asked++, stamp);
	/* A Sentinel has no ECHO; and a server's user may have no right to PING. */
	link_put(k, (const char *[]){ k->db == REDIS_SENTINEL ? "PING" : "ECHO", stamp, NULL });
}

static bool stamp_take(struct redis_link *k, const redisReply *r)
{
	char stamp[STAMP];

	stamp_print(k, k->answered, stamp);
	if (r->type != REDIS_REPLY_STRING || strcmp(r->str, stamp) != 0)
		return false;
	k->answered++;
	return true;
}

static void link_mix_up(struct redis_link *k, const redisReply *r)
{
	if (r->type == REDIS_REPLY_ERROR)
		lock_link_lose(&k->link, LOCK_FAILED, ERR_UNREACHABLE, "it answered ECHO with: %s", r->str);
	else
		lock_link_lose(&k->link, LOCK_FAILED, ERR_INVALID, LOCK_QUEUE_MIXED_UP);
}

/* ---- limits: what listens there may be anything ---- */

/* The reader would allocate what the first line announces, before any of it is there. */
static void *reader_make_array(const redisReadTask *task, array_size count)
{
	struct redis_link *k = task->privdata;

	if ((size_t)count > ELEMENTS_MAX - k->elements)
		return NULL;
	k->elements += (size_t)count;
	return k->make_array(task, count);
}

static redisReader *reader_new(struct redis_link *k)
{
	redisReader *reader = redisReaderCreate();

	if (!reader)
		mem_end();
	k->makers = *reader->fn;
	k->make_array = k->makers.createArray;
	k->makers.createArray = reader_make_array;
	reader->fn = &k->makers;
	reader->privdata = k;
	k->bytes = k->elements = 0;
	return reader;
}

/* ---- greeting ---- */

static void greeting_put(struct redis_link *k, char what, const char **words)
{
	link_put(k, words);
	k->greeting[strlen(k->greeting)] = what;
}

/* Begins TLS: what is said is kept until the handshake is over. */
static int link_go_secret(struct redis_link *k, struct err *err)
{
	const struct lock_url *url = k->link.url, *options = &k->place->url;
	const struct module *module = k->tls ? NULL : module_open("tls", err);

	if (!k->tls && !module)
		return -1;
	if (module)
		k->tls = module->tls;
	k->secret = k->tls->begin(&(struct tls_settings){ .host = url->host[k->link.host].name,
	                                                  .server_name = lock_url_option(options, "server_name"),
	                                                  .ca_file = lock_url_option(options, "ca"),
	                                                  .cert_file = lock_url_option(options, "cert"),
	                                                  .key_file = lock_url_option(options, "key") },
	                          err);
	return k->secret ? 0 : -1;
}

static void link_greet(struct lock_link *link)
{
	struct redis_link *k = redis_link_of(link);
	const struct lock_url *url = link->url;
	struct err err;
	char db[16];

	if (k->place->tls && link_go_secret(k, &err) < 0) {
		lock_link_lose(link, LOCK_FAILED, err.code, "%s", err.text);
		return;
	}
	k->greeted = 0;
	k->probed = (struct instant){ 0 };
	memset(k->greeting, 0, sizeof k->greeting);
	k->reader = reader_new(k);
	if (url->password && *url->user)
		greeting_put(k, 'a', (const char *[]){ "AUTH", url->user, url->password, NULL });
	else if (url->password)
		greeting_put(k, 'a', (const char *[]){ "AUTH", url->password, NULL });
	snprintf(db, sizeof db, "%d", k->db);
	if (k->db > 0)
		greeting_put(k, 's', (const char *[]){ "SELECT", db, NULL });
	greeting_put(k, 'c', (const char *[]){ "INFO", k->db == REDIS_SENTINEL ? "server" : "cluster", NULL });
	greeting_put(k, 'r', (const char *[]){ "ROLE", NULL });
	for (int i = 0; k->scripts && i < REDIS_SCRIPTS; i++)
		greeting_put(k, (char)('0' + i), (const char *[]){ "SCRIPT", "LOAD", k->scripts[i], NULL });
	nonce_hex(k->mark, MARK);
	k->asked = k->answered = 0;
	stamp_put(k);
	k->greeting[strlen(k->greeting)] = 'e';
	link_flush(link);
}

static bool says(const redisReply *r, const char *code)
{
	return r->type == REDIS_REPLY_ERROR && strncmp(r->str, code, strlen(code)) == 0;
}

/* true: the greeting cannot go on, and the connection has been given up. */
static bool greeting_refused(struct redis_link *k, char what, const redisReply *r)
{
	bool error = r->type == REDIS_REPLY_ERROR;

	if (says(r, "LOADING") || says(r, "MASTERDOWN") || says(r, "ERR max number"))
		lock_link_lose(&k->link, LOCK_FAILED, ERR_UNREACHABLE, "it is not ready: %s", r->str);
	else if (says(r, "NOAUTH") || says(r, "ERR operation not permitted"))
		lock_link_lose(
			&k->link, LOCK_REFUSED, ERR_DENIED,
			k->db == REDIS_SENTINEL
				? "it wants a password: give it as ?sentinel_password_file=PATH"
				: "it wants a password: give it in the URL, as ?password_file=PATH, or in " LOCK_URL_PASSWORD);
	else if (says(r, "DENIED"))
		lock_link_lose(&k->link, LOCK_REFUSED, ERR_DENIED,
		               "it is in protected mode, and takes connections from its own host only");
	else if (what == 'a' && error)
		lock_link_lose(&k->link, LOCK_REFUSED, ERR_DENIED, "it refuses the user or the password: %s", r->str);
	else if (what == 's' && error)
		lock_link_lose(&k->link, LOCK_REFUSED, ERR_MISSING, "it refuses the database %d: %s", k->db, r->str);
	else if (what == 'e' && says(r, "NOPERM"))
		lock_link_lose(&k->link, LOCK_REFUSED, ERR_DENIED, "%s" REDIS_RIGHTS, r->str);
	else if (what == 'e' && !stamp_take(k, r))
		link_mix_up(k, r);
	else
		return false;
	return true;
}

/* The same, by its answer to ROLE. Who may not ask for that takes it for a primary. A cluster's replica says where the
 * key is. */
static bool role_refused(struct redis_link *k, const redisReply *r)
{
	const char *role = redis_word_at(r, 0);
	bool sentinel = strcmp(role, "sentinel") == 0;

	if (k->db == REDIS_SENTINEL && *role && !sentinel)
		lock_link_lose(&k->link, LOCK_REFUSED, ERR_USAGE,
		               "it is no Sentinel, but a server: name the Sentinels (their port is mostly 26379), or "
		               "write redis://");
	else if (strcmp(role, "slave") == 0 && !k->cluster)
		lock_link_lose(&k->link, LOCK_FAILED, ERR_UNREACHABLE,
		               "it is a replica, which cannot be written to: name its primary, or all of its servers");
	else if (k->db != REDIS_SENTINEL && sentinel)
		lock_link_lose(&k->link, LOCK_REFUSED, ERR_USAGE,
		               "it is a Sentinel: name the servers that it watches, or write "
		               "redis+sentinel://S1,S2,S3/MASTER#KEY");
	else
		return false;
	return true;
}

static void link_on_greeted(struct redis_link *k, const redisReply *r)
{
	char what = k->greeting[k->greeted++];

	if (greeting_refused(k, what, r) || (what == 'r' && role_refused(k, r)))
		return;
	if (what == 'c') {
		const char *info = r->type == REDIS_REPLY_STRING ? r->str : "";
		k->cluster = strstr(info, "cluster_enabled:1");
		k->run_id[0] = '\0';
		redis_info(info, "run_id", k->run_id, sizeof k->run_id);
	}
	if (isdigit((unsigned char)what))
		snprintf(k->digest[what - '0'], sizeof *k->digest, "%s", r->type == REDIS_REPLY_STRING ? r->str : "");
	if (k->greeting[k->greeted])
		return;
	if (k->push)
		lock_link_tick(&k->link, SILENCE_S);
	lock_link_up(&k->link);
}

/* Nobody asks on a connection that only listens, so a server that hangs, or a cut network, would never be noticed
 * there. */
static void link_tick(struct lock_link *link)
{
	struct redis_link *k = redis_link_of(link);
	uint64_t number = link->number;
	struct instant now = clock_now();

	lock_link_late(link, k->probed);
	if (lock_link_ended(link, number))
		return;
	if (elapsed_standby(link->heard, now) >= (nsec)(SILENCE_S * NSEC_PER_SEC)) {
		k->probed = now;
		k->push(link->arg, NULL);
	}
	lock_link_tick(link, SILENCE_S);
}

/* ---- answers ---- */

/* Takes r, an answer or the stamp behind one. A callback may lose the connection, and with it the reader. */
static void link_take(struct redis_link *k, redisReply *r)
{
	redisReply *held = k->held;
	struct lock_pipeline *q = &k->link.queue;

	if (!lock_link_is_up(&k->link)) {
		link_on_greeted(k, r);
	} else if (k->push) {
		k->push(k->link.arg, r);
	} else if (!held && q->count && q->ring[q->at] == &k->asking) {
		lock_pipeline_pop(q);
		if (r->type == REDIS_REPLY_ERROR)
			lock_link_lose(&k->link, LOCK_REFUSED, ERR_DENIED, "it answered ASKING with: %s" REDIS_RIGHTS,
			               r->str);
	} else if (!held && q->count) {
		k->held = r;
		return;
	} else if (held && stamp_take(k, r)) {
		struct lock_call *c = lock_pipeline_pop(q);
		k->held = NULL;
		if (c)
			c->answered(c, held);
		freeReplyObject(held);
	} else {
		link_mix_up(k, r);
	}
	freeReplyObject(r);
}

/* Bytes have come, in the clear. */
static void link_feed(struct redis_link *k, const char *bytes, size_t n)
{
	struct lock_link *link = &k->link;
	uint64_t number = link->number;
	void *reply;

	k->bytes += n;
	if (redisReaderFeed(k->reader, bytes, n) != REDIS_OK)
		mem_end();
	while (redisReaderGetReply(k->reader, &reply) == REDIS_OK && reply) {
		k->bytes = k->reader->len - k->reader->pos;
		k->elements = 0;
		link_take(k, reply);
		if (lock_link_ended(link, number))
			return;
	}
	if (k->reader->err && k->reader->err != REDIS_ERR_OOM)
		lock_link_lose(link, LOCK_FAILED, ERR_INVALID, "what listens there does not speak Redis' protocol (%s)",
		               k->reader->errstr);
	else if (k->reader->err || k->bytes > ANSWER_MAX)
		lock_link_lose(link, LOCK_FAILED, ERR_INVALID,
		               "it sent an answer that is larger than anything asked for");
}

static void link_decrypt(struct redis_link *k, const char *bytes, size_t n)
{
	struct lock_link *link = &k->link;
	uint64_t number = link->number;
	struct buf clear = { 0 };
	struct err err;
	int rc = k->tls->feed(k->secret, bytes, n, &clear, &err);

	if (clear.len)
		link_feed(k, clear.data, clear.len);
	buf_fini(&clear);
	if (lock_link_ended(link, number))
		return;
	link_flush(link); /* also an alert that says why this end hangs up */
	if (rc < 0)
		lock_link_lose(link, LOCK_FAILED, err.code, "%s", err.text);
}

/* A server that expects TLS hangs up on who speaks without. */
static const char *link_hint(const struct redis_link *k)
{
	if (k->secret && !k->tls->ready(k->secret))
		return " before TLS was agreed upon: if it speaks none, the URL is redis://";
	if (!k->secret && k->link.state == LOCK_LINK_GREETING && !k->greeted)
		return " without a word: if it speaks TLS, the URL is rediss://";
	return "";
}

static void link_parse(struct lock_link *link)
{
	struct redis_link *k = redis_link_of(link);
	char piece[PIECE];

	if (k->broken.code != ERR_NONE) {
		lock_link_lose(link, LOCK_FAILED, k->broken.code, "%s", k->broken.text);
		return;
	}
	ssize_t n = read(link->fd, piece, sizeof piece);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0)
		lock_link_lose(link, LOCK_FAILED, ERR_UNREACHABLE, "the connection was lost%s%s%s",
		               n < 0 ? ": " : ", the server closed it", n < 0 ? strerror(errno) : "", link_hint(k));
	else if (k->secret)
		link_decrypt(k, piece, (size_t)n);
	else
		link_feed(k, piece, (size_t)n);
}

static void link_overdue(struct lock_link *link)
{
	lock_link_lose(link, LOCK_FAILED, ERR_TIMEOUT, "it accepts connections, but does not answer");
}

/* ---- the whole ---- */

void redis_link_send(struct lock_link *link, struct lock_call *c, const char **words)
{
	struct redis_link *k = redis_link_of(link);

	if (!lock_link_is_up(link))
		return;
	link_put(k, words);
	if (!k->push) {
		stamp_put(k);
		lock_pipeline_push(&link->queue, c);
	}
	link_flush(link);
}

const char *redis_link_run_id(const struct lock_link *link)
{
	return ((const struct redis_link *)link)->run_id;
}

/* Right before the question: what comes between takes it back, also the ECHO of a stamp. */
void redis_link_send_asking(struct lock_link *link)
{
	struct redis_link *k = redis_link_of(link);

	if (!lock_link_is_up(link))
		return;
	link_put(k, (const char *[]){ "ASKING", NULL });
	lock_pipeline_push(&link->queue, &k->asking);
}

/* The question that follows is lost, too. */
static void asking_on_lost(struct lock_call *, bool, enum lock_outcome, const struct err *)
{
}

const char *redis_link_script(const struct lock_link *link, int which)
{
	const char *digest = ((const struct redis_link *)link)->digest[which];

	return *digest ? digest : NULL;
}

struct lock_link *redis_link_new(struct lock_env *env, const struct redis_place *place, const struct lock_url *url,
                                 int db, const char *const *scripts, const struct lock_link_events *events,
                                 void (*push)(void *arg, const redisReply *r), void *arg)
{
	static const struct lock_link_ops ops = {
		.attempt = ATTEMPT,
		.rest = REST,
		.greet = link_greet,
		.send = link_flush,
		.parse = link_parse,
		.tick = link_tick,
		.overdue = link_overdue,
		.close = link_close,
	};
	static const struct lock_link_events no_events = { .up = NULL };
	struct redis_link *k = mem_zero(sizeof *k);

	lock_link_init(&k->link, env, url, &ops, events ? events : &no_events, arg);
	lock_link_limit_age(&k->link, place->max_age);
	k->place = place;
	k->db = db;
	k->scripts = scripts;
	k->push = push;
	k->asking.lost = asking_on_lost;
	return &k->link;
}
