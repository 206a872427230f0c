/* A credential plugin that hangs, with a limit shorter than the real one. */
#include "kube/kube_exec.h"
#include "kube/kube_config.h"
#include "locks/lock.h"
#include "tap.h"

#include <ev.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#define SHORT_S 0.5
#define LONG_S 600.

struct plugin {
	int alive; /* reads its end when the last process of the plugin is gone */
	bool done;
	struct err err;
	char token[20];
};

static void on_done(void *arg, const struct kube_exec_result *r)
{
	struct plugin *p = arg;

	p->done = true;
	p->err = r->err;
	snprintf(p->token, sizeof p->token, "%s", r->token ? r->token : "");
}

/* Runs it until it is done; with cancel, for one turn of the loop. */
static struct plugin run(char *text, double limit_s, bool cancel)
{
	struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
	struct lock_env env = { .loop = loop };
	char *argv[] = { "sh", "-c", text, NULL };
	const struct kube_exec x = {
		.api_version = "client.authentication.k8s.io/v1",
		.command = "/bin/sh",
		.argv = argv,
	};
	struct plugin p = { 0 };
	int fds[2];

	if (pipe(fds) < 0)
		exit(1);
	fcntl(fds[0], F_SETFD, FD_CLOEXEC);
	struct kube_exec_run *r = kube_exec_start(&env, &x, limit_s, on_done, &p);
	close(fds[1]);
	p.alive = fds[0];
	if (cancel) {
		ev_run(loop, EVRUN_NOWAIT);
		kube_exec_cancel(r);
	}
	while (!cancel && !p.done)
		ev_run(loop, EVRUN_ONCE);
	lock_env_fini(&env);
	ev_loop_destroy(loop);
	return p;
}

static bool all_gone(const struct plugin *p)
{
	char byte;

	return read(p->alive, &byte, 1) == 0;
}

int main(void)
{
	struct plugin p = run("sleep 1000 & exec sleep 1000", SHORT_S, false);
	ok(p.err.code == ERR_TIMEOUT && strstr(p.err.text, "did not answer for 0.5 s and was killed"),
	   "a plugin that hangs: %s", p.err.text);
	ok(all_gone(&p), "it is killed, with what it has started");
	p = run("trap '' TERM INT HUP; while :; do echo x; echo y >&2; done", SHORT_S, false);
	ok(p.err.code == ERR_TIMEOUT && all_gone(&p), "also one that ignores signals and prints without end: %s",
	   p.err.text);
	p = run("sleep 1000", LONG_S, true);
	ok(!p.done && all_gone(&p), "one that nobody waits for any more is killed, and says nothing");
	p = run("sleep 1000 & echo '{\"apiVersion\": \"client.authentication.k8s.io/v1\", \"kind\": \"ExecCredential\", "
	        "\"status\": {\"token\": \"'$!'\"}}'",
	        LONG_S, false);
	ok(p.err.code == ERR_NONE && atoi(p.token) > 0,
	   "one that leaves a process behind has answered when it ends itself: %s", p.err.text);
	if (atoi(p.token) > 0)
		kill(atoi(p.token), SIGKILL);
	return tap_done();
}
