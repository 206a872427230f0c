/* The floor of a handover in a store: who leads writes, another connection is told of it, and writes on that condition;
 * after half a second in which nothing happened, as before a real one. No processes, hooks, proofs or leases; raw
 * requests where that can be. Not a peer. Used by tests/bench/store_rows.py; prints the milliseconds of each round. */
#include <arpa/inet.h>
#include <err.h>
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

/* ---- etcd ---- */

static void post(int fd, const char *path, const char *body)
{
	char text[2048];

	snprintf(text, sizeof text,
	         "POST %s HTTP/1.1\r\nHost: etcd\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
	         path, strlen(body), body);
	say(fd, text);
}

static void etcd_write(int fd)
{
	post(fd, "/v3/kv/txn",
	     "{\"compare\":[{\"target\":\"VERSION\",\"result\":\"GREATER\",\"key\":\"Zmxvb3I=\",\"version\":\"-1\"}],"
	     "\"success\":[{\"request_put\":{\"key\":\"Zmxvb3I=\",\"value\":\""
	     "eyJob2xkZXIiOiJmbG9vciIsIm9mIjoiYSByZWNvcmQgYXMgbG9uZyBhcyB0aG9zZSBvZiBtb3N0IGxvY2tzIGFyZSwgd2l0aCBpdHMgdGltZXMifQ=="
	     "\"}}]}");
}

static void etcd_open(const char *port)
{
	leader = dial(port);
	other = dial(port);
	ear = dial(port);
	etcd_write(leader);
	hear(leader, "succeeded");
	etcd_write(other);
	hear(other, "succeeded");
	post(ear, "/v3/watch", "{\"create_request\":{\"key\":\"Zmxvb3I=\"}}");
	hear(ear, "created");
}

static void etcd_leave(void)
{
	etcd_write(leader);
}

static void etcd_notice(void)
{
	hear(ear, "events");
}

static void etcd_take(void)
{
	etcd_write(other);
	hear(other, "succeeded");
}

static void etcd_rest(void)
{
	hear(leader, "succeeded");
	hear(ear, "events");
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

static void zk_rest(void)
{
	zk_until(&answered);
	zk_until(&told);
	zk_listen();
}

/* ---- rounds ---- */

static const struct store stores[] = {
	{ "etcd", etcd_open, etcd_leave, etcd_notice, etcd_take, etcd_rest },
	{ "redis", redis_open, redis_leave, redis_notice, redis_take, redis_rest },
	{ "postgres", pg_open, pg_leave, pg_notice, pg_take, pg_rest },
	{ "zookeeper", zk_open, zk_leave, zk_notice, zk_take, zk_rest },
};

int main(int argc, char **argv)
{
	const struct store *s = stores;

	if (argc != 4)
		errx(2, "usage: floor_store etcd|redis|postgres|zookeeper PORT ROUNDS");
	while (s < stores + 4 && strcmp(s->name, argv[1]) != 0)
		s++;
	if (s == stores + 4)
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
