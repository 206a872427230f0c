/* Log-ins to PostgreSQL where no thread can be started: each is given up with its connection, and none counts as one in
 * which the server lets a thread work without end. */
#include "locks/postgres/pg_login.h"

#include "few_threads.h"
#include "loop/offload.h"
#include "tap.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef PATIENCE_S
#define PATIENCE_S 120.
#endif
#define PATIENCE_MS (int)(PATIENCE_S * 1000)
#define ATTEMPTS 8 /* twice as many as may be stuck */

/* A server that takes connections and says nothing. Its port; *fd: it. */
static int listen_somewhere(int *fd)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof at;

	*fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (*fd < 0 || bind(*fd, (struct sockaddr *)&at, len) < 0 || listen(*fd, 64) < 0 ||
	    getsockname(*fd, (struct sockaddr *)&at, &len) < 0)
		return -1;
	return ntohs(at.sin_port);
}

static int accept_one(int server)
{
	struct pollfd p = { .fd = server, .events = POLLIN };

	return poll(&p, 1, PATIENCE_MS) == 1 ? accept(server, NULL, NULL) : -1;
}

/* Waits for bytes or the end. How many bytes came; 0: the end; -1: nothing, for so long. */
static ssize_t take(int fd, int within_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char bytes[4096];

	return poll(&p, 1, within_ms) == 1 ? recv(fd, bytes, sizeof bytes, 0) : -1;
}

static int failed;

static void on_login(struct lock_link *link, PGconn *conn, enum lock_outcome outcome, const struct err *why)
{
	(void)link, (void)outcome;
	failed++;
	printf("# %s\n", conn ? "logged in" : why->text);
	PQfinish(conn);
}

/* The test takes the steps. */
static void on_nothing(struct lock_link *k)
{
	(void)k;
}

static void keep_link(struct lock_link *k)
{
	(void)k;
}

static const struct lock_link_ops ops = {
	.attempt = NSEC_PER_SEC, .send = on_nothing, .parse = on_nothing, .overdue = on_nothing, .free = keep_link
};
static const struct lock_link_events events = { .up = NULL };

static void begin(struct pg_login *l)
{
	pg_login_start(l, instant_add(clock_now(), NSEC_PER_SEC));
	if (!failed)
		pg_login_step(l);
}

static void test_no_thread(struct pg_login *l, int server)
{
	int ended = 0;

	creations_fail = CREATIONS_ALL;
	for (int i = 0; i < ATTEMPTS && ended == i && !failed; i++) {
		begin(l);
		pg_login_cancel(l);
		int fd = accept_one(server);
		ended += take(fd, PATIENCE_MS) == 0;
		close(fd);
	}
	ok(creations_failed > 0, "no thread can be started");
	is_int(ended, ATTEMPTS, "a log-in that is given up while it waits for one ends with its connection");
	is_int(failed, 0, "and no number of them is the server's fault");
	creations_fail = 0;
}

static bool wait_for_step(struct ev_loop *loop, const struct lock_link *link)
{
	for (int i = 0; i < PATIENCE_MS && !ev_is_active(&link->io); i++) {
		ev_run(loop, EVRUN_NOWAIT);
		usleep(1000);
	}
	return ev_is_active(&link->io);
}

/* The loop does not run after the step by which bytes come, so that it is not reported yet when it is cancelled. */
static void test_begun(struct ev_loop *loop, const struct lock_link *link, struct pg_login *l, int server)
{
	ssize_t got = -1;

	begin(l);
	int fd = accept_one(server);
	for (int i = 0; i < PATIENCE_MS / 1000 && got < 0 && wait_for_step(loop, link); i++) {
		pg_login_step(l);
		got = take(
			fd,
			1000); /* long enough: what comes in the next turn would not show that a thread has begun that one */
	}
	ok(got > 0, "when there is a thread it takes the steps");
	pg_login_free(l);
	ok(take(fd, 100) != 0, "after its log-in was freed the connection stays, which the thread may use");
	got = -1;
	for (int i = 0; i < PATIENCE_MS / 10 && got != 0; i++) {
		ev_run(loop, EVRUN_NOWAIT);
		got = take(fd, 10);
	}
	is_int(got, 0, "and ends when that has come back");
	close(fd);
}

int main(void)
{
	struct lock_env env = { .loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV) };
	struct lock_link link;
	struct pg_url u;
	struct err err = { 0 };
	char text[100];
	int server, port = listen_somewhere(&server);

	snprintf(text, sizeof text, "//me@127.0.0.1:%d/d?sslmode=disable&hostaddr=127.0.0.1#n", port);
	if (!is_int(pg_url_parse(&u, text, &err), 0, "the URL is taken")) {
		printf("# %s\n", err.text);
		return tap_done();
	}
	lock_link_init(&link, &env, NULL, &ops, &events, NULL);
	struct pg_login *login = pg_login_new(&link, u.place, on_login);
	test_no_thread(login, server);
	test_begun(env.loop, &link, login, server);
	lock_link_free(&link);
	lock_env_fini(&env);
	pg_place_free(u.place);
	free(u.name);
	free(u.table);
	close(server);
	ev_loop_destroy(env.loop);
	return tap_done();
}
