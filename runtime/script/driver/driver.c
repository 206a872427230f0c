#include "script/driver/driver.h"

#include "base/log.h"
#include "base/mem.h"
#include "process/channel.h"
#include "script/api/api.h"
#include "script/driver/driver_state.h"

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define LUA_MEMORY_MAX ((size_t)64 << 20)
#define MEMORY_MAX ((rlim_t)1 << 30) /* of the whole process */
#define TURN_MESSAGES 32

struct process {
	struct ev_loop *loop;
	struct timeline timeline;
	struct channel *to_elector;
	struct driver driver;
};

static void process_on_nonsense(void)
{
	log_event(LOG_ERROR, NULL, "lock_driver_message", "a message from the elector makes no sense: giving up");
	_exit(1);
}

static void process_on_message(void *arg, const void *bytes, size_t len)
{
	struct process *p = arg;

	if (!driver_message(&p->driver, bytes, len))
		process_on_nonsense();
}

static void process_on_elector_end(void *, size_t oversized)
{
	if (oversized)
		process_on_nonsense();
	_exit(0); /* nobody waits for an answer any more, and a lock file's finalizers may take long */
}

static const struct channel_kind elector_channel = {
	.message_max = DRIVER_MAX,
	.turn_max = TURN_MESSAGES,
	.message = process_on_message,
	.end = process_on_elector_end,
};

static void process_send(void *arg, const struct buf *m)
{
	struct process *p = arg;

	channel_send(p->to_elector, m->data, m->len);
}

/* A script sends what it has of elections: this one has none. */
static void process_drop(void *, const struct buf *)
{
}

/* ---- what surrounds it ---- */

static void on_signal(int)
{
}

/* It ends with the elector, which needs it until its locks are released: what stops a whole group or service must not
 * stop it before. Handlers, since what is ignored would be ignored in the programs that the lock file starts. */
static void catch_signals(void)
{
	static const int stopping[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGUSR1, SIGUSR2 };
	struct sigaction go_on = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	sigset_t none;

	for (size_t i = 0; i < sizeof stopping / sizeof *stopping; i++)
		sigaction(stopping[i], &go_on, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* No core file, which would have the lock's password in it; and no more memory than a lock file can need. The soft
 * limit alone: a program that it starts may raise its own. */
static void set_limits(void)
{
	struct rlimit memory;

	setrlimit(RLIMIT_CORE, &(struct rlimit){ 0 });
#ifndef __SANITIZE_ADDRESS__ /* which reserves much more */
	if (getrlimit(RLIMIT_AS, &memory) == 0 && memory.rlim_cur > MEMORY_MAX) {
		memory.rlim_cur = MEMORY_MAX;
		setrlimit(RLIMIT_AS, &memory);
	}
#else
	(void)memory;
#endif
}

static void process_run(struct process *p)
{
	while (!p->driver.leaving || channel_waits(p->to_elector)) {
		bool more = sched_run(p->driver.script->sched);
		if (p->driver.leaving && !channel_waits(p->to_elector))
			return;
		ev_run(p->loop, more ? EVRUN_NOWAIT : EVRUN_ONCE);
	}
}

/* argv: FD LOGFORMAT LOGLEVEL IDENTITY; IDENTITY "": not known. */
int driver_main(int argc, char **argv)
{
	struct process p = { 0 };

	if (argc < 4 || log_level_parse(argv[2]) < 0) {
		fputs("lunarch -x driver is a role that lunarch starts itself\n", stderr);
		return 2;
	}
	int fd = atoi(argv[0]);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "lunarch-driver");
	setsid(); /* a group of its own, with what the lock file starts by os.execute */
	catch_signals();
	set_limits();
	log_init(strcmp(argv[1], "json") == 0 ? LOG_JSON : LOG_TEXT, (enum log_level)log_level_parse(argv[2]));
	log_follow();
	if (*argv[3])
		log_program(argv[3], NULL);
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	dup2(STDERR_FILENO, STDOUT_FILENO); /* stdout is the script's, or the command's */
	setvbuf(stdout, NULL, _IOLBF, 0);
	p.loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
	if (!p.loop) {
		log_event(LOG_ERROR, NULL, "lock_driver_failed", "no event loop: %s", strerror(errno));
		return 1;
	}
	timeline_init(&p.timeline, p.loop);
	const struct script_spec spec = { .loop = p.loop,
		                          .timeline = &p.timeline,
		                          .memory_max = LUA_MEMORY_MAX,
		                          .natives = api_open,
		                          .send = process_drop };
	p.driver = (struct driver){
		.timeline = &p.timeline, .script = script_new(&spec), .send = process_send, .arg = &p
	};
	driver_init(&p.driver);
	p.to_elector = channel_new(p.loop, fd, &elector_channel, &p);
	process_run(&p);
	script_free(p.driver.script);
	driver_fini(&p.driver);
	channel_free(p.to_elector);
	timeline_fini(&p.timeline);
	ev_loop_destroy(p.loop);
	return 0;
}
