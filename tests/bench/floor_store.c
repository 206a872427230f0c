/* The floor of a handover in a store: who leads writes, another connection is told of it, and writes on that condition;
 * after half a second in which nothing happened, as before a real one. NAME_start: the floor of a start, without the
 * process: a connection is there, reads and writes. No processes, hooks, proofs or leases; raw
 * requests where that can be. Not a peer. Used by tests/bench/store_rows.py; prints the milliseconds of each round. */
#include "net/grpc/grpc.h"

#include <arpa/inet.h>
#include <err.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <postgresql/libpq-fe.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

#define VALUE \
	"{\"holder\":\"floor\",\"of\":\"a record as long as those of most locks are, with its times, term and address in it, and what else there is\"}"

struct store {
	const char *name;
	void (*open)(const char *port);
	void (*leave)(void);  /* the leader's last write; may return before it is answered */
	void (*notice)(void); /* returns when the other one is told */
	void (*take)(void);   /* the other one's write, answered */
	void (*rest)(void);   /* what else is still to come */
};

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* ---- sockets ---- */

static int leader, other, ear;

static int dial(const char *port)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
		                 .sin_port = htons((uint16_t)atoi(port)),
		                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
		err(1, "port %s", port);
	return fd;
}

static void say(int fd, const char *text)
{
	if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		err(1, "write");
}

/* Reads until this has come, and all that came with it. */
static void hear(int fd, const char *what)
{
	static char text[65536];
	size_t n = 0;

	while (n == 0 || !strstr(text, what)) {
		ssize_t got = read(fd, text + n, sizeof text - n - 1);
		if (got <= 0)
			err(1, "no %s in what was heard", what);
		n += (size_t)got;
		text[n] = '\0';
	}
}

/* ---- etcd, in its own protocol ---- */

/* A connection, and the one call on it. */
struct talk {
	struct grpc_call call; /* first */
	int fd;
	struct grpc *g;
	struct buf out;
	int messages, ends;
};
static struct talk first, second, watch;
static int heard; /* messages of the watch */

static void talk_on_message(struct grpc_call *c, const void *bytes, size_t len)
{
	(void)bytes;
	(void)len;
	((struct talk *)c)->messages++;
}

static void talk_on_end(struct grpc_call *c, const struct grpc_end *end)
{
	if (end->status != 0)
		errx(1, "etcd: %s", end->text);
	((struct talk *)c)->ends++;
}

static void talk_send(struct talk *t)
{
	grpc_take(t->g, &t->out);
	if (t->out.len && write(t->fd, t->out.data, t->out.len) != (ssize_t)t->out.len)
		err(1, "write");
	buf_drop(&t->out, t->out.len);
}

static void talk_open(struct talk *t, const char *port)
{
	t->call = (struct grpc_call){ .message = talk_on_message, .ended = talk_on_end };
	t->fd = dial(port);
	setsockopt(t->fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	t->g = grpc_new("etcd", false, 1 << 20);
}

static void talk_until(struct talk *t, const int *count, int want)
{
	char bytes[65536];
	struct err why;

	while (*count < want) {
		ssize_t n = read(t->fd, bytes, sizeof bytes);
		if (n <= 0 || grpc_feed(t->g, bytes, (size_t)n, &why) < 0)
			errx(1, "etcd ended the connection");
		talk_send(t);
	}
}

/* A field of protobuf: its number, and bytes, which are fewer than 16,384. */
static void field(struct buf *b, int number, const void *bytes, size_t len)
{
	unsigned char head[3] = { (unsigned char)(number << 3 | 2), (unsigned char)(len % 128 | 128),
		                  (unsigned char)(len / 128) };

	buf_add(b, head, sizeof head); /* the length in two bytes, whether it needs them or not */
	buf_add(b, bytes, len);
}

static void talk_ask(struct talk *t, const char *path, const struct buf *message, bool half)
{
	grpc_start(t->g, &t->call, path, NULL, message->data, message->len, half);
	talk_send(t);
}

/* A transaction on a condition that holds: the key's version is greater than -1. */
static void etcd_write(struct talk *t)
{
	struct buf compare = { 0 }, put = { 0 }, op = { 0 }, txn = { 0 };

	buf_add(&compare, "\x08\x01", 2); /* result: GREATER; target: VERSION, which is 0 */
	field(&compare, 3, "floor", 5);
	buf_add(&compare, "\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11);
	field(&put, 1, "floor", 5);
	field(&put, 2, VALUE, sizeof VALUE - 1);
	field(&op, 2, put.data, put.len);
	field(&txn, 1, compare.data, compare.len);
	field(&txn, 2, op.data, op.len);
	talk_ask(t, "/etcdserverpb.KV/Txn", &txn, true);
	buf_fini(&compare);
	buf_fini(&put);
	buf_fini(&op);
	buf_fini(&txn);
}

static void etcd_answered(struct talk *t)
{
	talk_until(t, &t->ends, t->ends + 1);
}

static void etcd_open(const char *port)
{
	struct buf key = { 0 }, create = { 0 };

	talk_open(&first, port);
	talk_open(&second, port);
	talk_open(&watch, port);
	etcd_write(&first);
	etcd_answered(&first);
	etcd_write(&second);
	etcd_answered(&second);
	field(&key, 1, "floor", 5);
	field(&create, 1, key.data, key.len);
	talk_ask(&watch, "/etcdserverpb.Watch/Watch", &create, false);
	talk_until(&watch, &watch.messages, ++heard); /* that it was created */
	buf_fini(&key);
	buf_fini(&create);
}

static void etcd_leave(void)
{
	etcd_write(&first);
}

static void etcd_notice(void)
{
	talk_until(&watch, &watch.messages, ++heard);
}

static void etcd_take(void)
{
	etcd_write(&second);
	etcd_answered(&second);
}

static void etcd_rest(void)
{
	talk_until(&first, &first.ends, first.ends + !!grpc_under_way(&first.call));
	talk_until(&watch, &watch.messages, ++heard);
}

/* A start: the key is read, then written, on one connection. */
static void etcd_open_one(const char *port)
{
	talk_open(&second, port);
	etcd_take();
}

static void etcd_look(void)
{
	struct buf range = { 0 };

	field(&range, 1, "floor", 5);
	talk_ask(&second, "/etcdserverpb.KV/Range", &range, true);
	etcd_answered(&second);
	buf_fini(&range);
}

static void nothing(void)
{
}

/* ---- Redis ---- */

static void redis_open(const char *port)
{
	leader = dial(port);
	other = dial(port);
	ear = dial(port);
	say(ear, "SUBSCRIBE floor\r\n");
	hear(ear, ":1\r\n");
	say(leader, "PING\r\n");
	hear(leader, "PONG");
	say(other, "PING\r\n");
	hear(other, "PONG");
}

static void redis_leave(void)
{
	say(leader,
	    "EVAL \"redis.call('publish','floor','x') redis.call('hset',KEYS[1],'record',ARGV[1]) return 'written'\" 1 floor 'left'\r\n");
}

static void redis_notice(void)
{
	hear(ear, "message");
}

static void redis_take(void)
{
	say(other, "EVAL \"redis.call('hset',KEYS[1],'record',ARGV[1]) return 'written'\" 1 floor 'taken'\r\n");
	hear(other, "written");
}

static void redis_rest(void)
{
	hear(leader, "written");
}

static void redis_open_one(const char *port)
{
	other = dial(port);
	redis_take();
}

static void redis_look(void)
{
	say(other, "HGET floor record\r\n");
	hear(other, "taken");
}

/* ---- PostgreSQL ---- */

static PGconn *pg[2];

static void pg_do(PGconn *c, const char *sql)
{
	PGresult *r = PQexec(c, sql);

	if (PQresultStatus(r) != PGRES_COMMAND_OK && PQresultStatus(r) != PGRES_TUPLES_OK)
		errx(1, "%s", PQerrorMessage(c));
	PQclear(r);
}

static void pg_open(const char *port)
{
	char at[100];

	snprintf(at, sizeof at, "host=127.0.0.1 port=%s dbname=postgres", port);
	for (int i = 0; i < 2; i++) {
		pg[i] = PQconnectdb(at);
		if (PQstatus(pg[i]) != CONNECTION_OK)
			errx(1, "%s", PQerrorMessage(pg[i]));
	}
	pg_do(pg[0], "CREATE TABLE IF NOT EXISTS floor (name text PRIMARY KEY, record text)");
	pg_do(pg[0], "INSERT INTO floor VALUES ('x', '') ON CONFLICT DO NOTHING");
	pg_do(pg[1], "LISTEN floor");
	for (int i = 0; i < 2; i++) {
		PQclear(PQprepare(
			pg[i], "write",
			i ? "UPDATE floor SET record = $1 WHERE name = 'x'"
			  : "WITH w AS (UPDATE floor SET record = $1 WHERE name = 'x') SELECT pg_notify('floor', '')",
			1, NULL));
		PQclear(PQexecPrepared(pg[i], "write", 1, (const char *[]){ VALUE }, NULL, NULL, 0));
	}
	for (PGnotify *n; (n = PQnotifies(pg[1]));)
		PQfreemem(n);
}

static void pg_leave(void)
{
	if (!PQsendQueryPrepared(pg[0], "write", 1, (const char *[]){ VALUE }, NULL, NULL, 0))
		errx(1, "%s", PQerrorMessage(pg[0]));
}

static void pg_notice(void)
{
	PGnotify *n;

	while (!(n = PQnotifies(pg[1]))) {
		struct pollfd p = { .fd = PQsocket(pg[1]), .events = POLLIN };
		if (poll(&p, 1, 10000) <= 0 || !PQconsumeInput(pg[1]))
			errx(1, "no notice: %s", PQerrorMessage(pg[1]));
	}
	PQfreemem(n);
}

static void pg_take(void)
{
	PQclear(PQexecPrepared(pg[1], "write", 1, (const char *[]){ VALUE }, NULL, NULL, 0));
}

static void pg_rest(void)
{
	for (PGresult *r; (r = PQgetResult(pg[0]));)
		PQclear(r);
}

static void pg_look(void)
{
	pg_do(pg[1], "SELECT record FROM floor WHERE name = 'x'");
}

/* ---- ZooKeeper ---- */

static zhandle_t *zk[2];
static bool told, answered;

static void on_event(zhandle_t *z, int type, int state, const char *path, void *arg)
{
	(void)z;
	(void)state;
	(void)path;
	(void)arg;
	told = told || type == ZOO_CHANGED_EVENT;
}

static void on_written(int rc, const struct Stat *stat, const void *arg)
{
	(void)stat;
	if (rc != ZOK)
		errx(1, "ZooKeeper says %d", rc);
	*(bool *)(uintptr_t)arg = true;
}

static void on_read(int rc, const char *value, int len, const struct Stat *stat, const void *arg)
{
	(void)value;
	(void)len;
	on_written(rc, stat, arg);
}

static void on_made(int rc, const char *value, const void *arg)
{
	(void)rc; /* it may be there */
	(void)value;
	*(bool *)(uintptr_t)arg = true;
}

/* Serves both sessions until it is so. */
static void zk_until(const bool *done)
{
	while (!*done) {
		struct pollfd p[2];
		struct timeval wait, least = { .tv_sec = 1 };
		for (int i = 0; i < 2; i++) {
			int interest = 0;
			zookeeper_interest(zk[i], &p[i].fd, &interest, &wait);
			p[i].events = (short)((interest & ZOOKEEPER_READ ? POLLIN : 0) |
			                      (interest & ZOOKEEPER_WRITE ? POLLOUT : 0));
			if (wait.tv_sec < least.tv_sec)
				least = wait;
		}
		poll(p, 2, (int)(least.tv_sec * 1000 + least.tv_usec / 1000));
		for (int i = 0; i < 2; i++)
			zookeeper_process(zk[i], (p[i].revents & POLLIN ? ZOOKEEPER_READ : 0) |
			                                 (p[i].revents & POLLOUT ? ZOOKEEPER_WRITE : 0));
	}
}

static void zk_listen(void)
{
	bool read_it = false;

	told = false;
	zoo_awget(zk[1], "/floor", on_event, NULL, on_read, &read_it);
	zk_until(&read_it);
}

static void zk_open(const char *port)
{
	char at[40];
	bool made = false;

	zoo_set_debug_level((ZooLogLevel)0);
	snprintf(at, sizeof at, "127.0.0.1:%s", port);
	for (int i = 0; i < 2; i++)
		if (!(zk[i] = zookeeper_init(at, NULL, 10000, NULL, NULL, 0)))
			err(1, "zookeeper_init");
	zoo_acreate(zk[0], "/floor", VALUE, sizeof VALUE, &ZOO_OPEN_ACL_UNSAFE, 0, on_made, &made);
	zk_until(&made);
	zk_listen();
}

static void zk_leave(void)
{
	answered = false;
	zoo_aset(zk[0], "/floor", VALUE, sizeof VALUE, -1, on_written, &answered);
}

static void zk_notice(void)
{
	zk_until(&told);
	zk_listen(); /* the event does not say what was written */
}

static void zk_take(void)
{
	bool taken = false;

	zoo_aset(zk[1], "/floor", VALUE, sizeof VALUE, -1, on_written, &taken);
	zk_until(&taken);
}

static void zk_look(void)
{
	bool read_it = false;

	zoo_aget(zk[1], "/floor", 0, on_read, &read_it);
	zk_until(&read_it);
}

static void zk_rest(void)
{
	zk_until(&answered);
	zk_until(&told);
	zk_listen();
}

/* ---- rounds ---- */

static const struct store stores[] = {
	{ "etcd", etcd_open, etcd_leave, etcd_notice, etcd_take, etcd_rest },
	{ "etcd_start", etcd_open_one, etcd_look, nothing, etcd_take, nothing },
	{ "redis", redis_open, redis_leave, redis_notice, redis_take, redis_rest },
	{ "redis_start", redis_open_one, redis_look, nothing, redis_take, nothing },
	{ "postgres_start", pg_open, pg_look, nothing, pg_take, nothing },
	{ "zookeeper_start", zk_open, zk_look, nothing, zk_take, nothing },
	{ "postgres", pg_open, pg_leave, pg_notice, pg_take, pg_rest },
	{ "zookeeper", zk_open, zk_leave, zk_notice, zk_take, zk_rest },
};

#define STORES (sizeof stores / sizeof *stores)

int main(int argc, char **argv)
{
	const struct store *s = stores;

	if (argc != 4)
		errx(2, "usage: floor_store etcd|redis|postgres|zookeeper[_start] PORT ROUNDS");
	while (s < stores + STORES && strcmp(s->name, argv[1]) != 0)
		s++;
	if (s == stores + STORES)
		errx(2, "no such store: %s", argv[1]);
	s->open(argv[2]);
	for (int i = atoi(argv[3]); i > 0; i--) {
		usleep(500000);
		double began = now_ms();
		s->leave();
		s->notice();
		s->take();
		printf("%.3f\n", now_ms() - began);
		s->rest();
	}
	return 0;
}
