#include "program/program.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/proc.h"
#include "base/trust.h"
#include "election/death_watch.h"
#include "election/poke_socket.h"
#include "loop/offload.h"
#include "loop/reaper.h"
#include "process/kernel.h"
#include "process/privileges.h"
#include "program/changes.h"
#include "program/control_dir.h"
#include "program/sd_notify.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define OFFLOAD_THREADS 4

static void program_on_signal(struct ev_loop *, ev_signal *w, int)
{
	struct program *p = w->data;

	p->ops->signal(p->arg, w->signum);
}

/* SIGCHLD is left out: children could not be waited for. */
static void find_ignored(sigset_t *ignored)
{
	struct sigaction now;

	sigemptyset(ignored);
	for (int i = 1; i < NSIG; i++)
		if (i != SIGCHLD && sigaction(i, NULL, &now) == 0 && now.sa_handler == SIG_IGN)
			sigaddset(ignored, i);
}

static void mask_signals(int how, const int *signals)
{
	sigset_t set;

	sigemptyset(&set);
	for (; *signals; signals++)
		sigaddset(&set, *signals);
	pthread_sigmask(how, &set, NULL);
}

void program_hold_signals(const int *signals)
{
	mask_signals(SIG_BLOCK, signals);
}

void program_release_signals(const int *signals)
{
	mask_signals(SIG_UNBLOCK, signals);
}

static void watch_signals(struct program *p, const int *signals)
{
	find_ignored(&p->ignored);
	signal(SIGPIPE, SIG_IGN);
	for (const int *s = signals; *s && p->signal_count < PROGRAM_SIGNALS; s++) {
		if (sigismember(&p->ignored, *s) == 1)
			continue;
		ev_signal *w = &p->signals[p->signal_count++];
		ev_signal_init(w, program_on_signal, *s);
		w->data = p;
		ev_signal_start(p->loop, w);
	}
	program_release_signals(signals);
}

/* A timer that never fires, but is cancelled when the wall clock jumps, as it does at every resume from suspend
 * (timerfd_create(2), TFD_TIMER_CANCEL_ON_SET). libev's own timers sleep through a suspend. */
static void arm_clock_set(int fd)
{
	struct itimerspec far = { .it_value.tv_sec = INT32_MAX };

	timerfd_settime(fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &far, NULL);
}

static void program_on_clock_set(struct ev_loop *, ev_io *w, int)
{
	struct program *p = w->data;
	uint64_t count;

	if (read(w->fd, &count, sizeof count) >= 0)
		return;
	arm_clock_set(w->fd);
	log_event(LOG_INFO, NULL, "clock_set",
	          "the wall clock was set or the machine was suspended: looking at every deadline");
	p->ops->look(p->arg);
}

static void watch_clock(struct program *p)
{
	int fd = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC);

	p->clock_set.fd = -1;
	if (fd < 0)
		/* without this timer, a deadline that passed during a suspend is noticed when libev's next timer
		 * fires */
		return;
	arm_clock_set(fd);
	ev_io_init(&p->clock_set, program_on_clock_set, fd, EV_READ);
	p->clock_set.data = p;
	ev_io_start(p->loop, &p->clock_set);
}

static void program_on_control(void *arg, const struct control_request *r, struct buf *reply)
{
	struct program *p = arg;

	orders_answer(&(struct orders){ p->ops->orders, p->arg }, r, reply);
}

/* PID.sock, or PID-NAMESPACE.sock (proc_self_name), in the first directory that can be used. NULL: in none of them;
 * *err is about the first. */
static struct control *open_control_somewhere(struct program *p, struct err *err)
{
	struct control *c = NULL;
	struct err other = { 0 };
	char self[PROC_SELF_NAME];

	proc_self_name(self);
	for (int place = 0; !c && place < CONTROL_DIRS; place++) {
		char dir[PATH_MAX];
		struct err *why = place == 0 ? err : &other;
		if (control_dir(p->env.state_dir, place, true, dir, sizeof dir, why) < 0)
			continue;
		char *path = mem_printf("%s/%s.sock", dir, self);
		c = control_new(p->loop, path, program_on_control, p, p->events, why);
		free(path);
	}
	return c;
}

static void open_control(struct program *p, const struct options *o)
{
	const char *given = options_text(o, OPTION_CONTROL_SOCKET, NULL);
	struct err err;

	p->control = *given ? control_new(p->loop, given, program_on_control, p, p->events, &err)
	                    : open_control_somewhere(p, &err);
	if (p->control)
		p->control_var = mem_printf("LUNARCH_CONTROL=%s", control_path(p->control));
	else
		log_event(LOG_WARN, NULL, "no_control", "`lunarch ctl` will not reach this process: %s", err.text);
}

/* ---- systemd's watchdog ---- */

/* The loop alone tells the watchdog that all is well. When the loop no longer runs, nobody renews, and systemd is to
 * start the program again. */
static void program_on_watchdog(struct ev_loop *, ev_timer *, int)
{
	sd_notify_send("WATCHDOG=1");
}

static void feed_watchdog(struct program *p)
{
	double period = (double)sd_notify_watchdog_us() / 1e6;

	ev_timer_init(&p->watchdog, program_on_watchdog, period, period);
	if (period > 0)
		ev_timer_start(p->loop, &p->watchdog);
}

static void program_list_elections(void *arg, void (*each)(void *each_arg, const struct standing *e), void *each_arg)
{
	struct program *p = arg;

	p->ops->orders->list(p->arg, each, each_arg);
}

static struct standing_source program_source(struct program *p)
{
	return (struct standing_source){ program_list_elections, p, p->state_file };
}

/* A state file that was asked for and cannot be written is an error, as with the endpoint below. */
static int open_state_file(struct program *p, const struct options *o, struct err *err)
{
	const char *path = options_text(o, OPTION_STATE_FILE, NULL);
	struct standing_source source = program_source(p);

	if (*path)
		p->state_file = state_file_new(p->loop, path, &source, p->changes, err);
	return *path && !p->state_file ? -1 : 0;
}

/* An endpoint that was asked for and cannot be opened is an error: nobody would see whether the program leads. */
static int open_admin(struct program *p, const struct options *o, struct err *err)
{
	const char *address = options_text(o, OPTION_LISTEN, NULL);

	struct standing_source source = program_source(p);

	if (*address)
		p->admin = admin_new(p->loop, address, &source, p->events, err);
	return *address && !p->admin ? -1 : 0;
}

/* A directory that was asked for and cannot be used is an error. A user who has none (a service's, a container's) has
 * never had the evidence, so this is no warning. */
static int make_evidence(struct program *p, struct err *err)
{
	char dir[PATH_MAX];
	const char *given = p->env.state_dir;
	bool have = lock_state_dir(given, dir, sizeof dir, err) == 0;

	if (!have && *given)
		return -1;
	if (*given && access(dir, W_OK) < 0)
		return err_set(err, ERR_USAGE, "--state-dir %s: cannot write there: %s", given, strerror(errno));
	if (!have)
		log_event(err->code == ERR_MISSING ? LOG_INFO : LOG_WARN, NULL, "no_evidence",
		          "our death cannot be proved, so after a crash others wait the lease out: %s", err->text);
	if (have && trust_dir(dir, err) < 0)
		log_event(LOG_WARN, NULL, "state_dir_shared",
		          "other users can change plain-name locks and the evidence of our death: %s", err->text);
	proof_self_init(&p->self, have ? dir : NULL);
	p->tree_var = mem_printf("%s=%s", PROOF_ENV, p->self.incarnation);
	return 0;
}

int program_init(struct program *p, const struct options *o, const int *signals, const struct program_ops *ops,
                 void *arg, struct err *err)
{
	const char *user = options_text(o, OPTION_USER, NULL);

	*p = (struct program){ .ops = ops, .arg = arg, .options = o };
	if (options_set(o, OPTION_USER) && privileges_become(user, err) < 0)
		return -1;
	p->no_privileges = options_flag(o, OPTION_NO_NEW_PRIVS);
	if (kernel_check(err) < 0)
		return -1;
	if (options_set(o, OPTION_IDENTITY))
		log_program(options_text(o, OPTION_IDENTITY, NULL), NULL);
	p->loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
	if (!p->loop)
		return err_sys(err, "cannot make an event loop");
	timeline_init(&p->timeline, p->loop);
	p->reaper = reaper_new(p->loop);
	p->env.loop = p->loop;
	p->env.reaper = p->reaper;
	p->env.state_dir = options_text(o, OPTION_STATE_DIR, NULL);
	p->env.offload = offload_new(p->loop, OFFLOAD_THREADS, err);
	if (!p->env.offload || reaper_adopt(p->reaper, err) < 0)
		return -1;
	sd_notify_init();
	feed_watchdog(p);
	if (make_evidence(p, err) < 0)
		return -1;
	p->death_watches = death_watches_new(p->loop, p->env.offload);
	if (options_set(o, OPTION_POKE)) {
		p->pokes = poke_sockets_new(p->loop, options_text(o, OPTION_POKE, NULL), err);
		if (!p->pokes)
			return -1;
	}
	watch_signals(p, signals);
	watch_clock(p);
	struct standing_source source = program_source(p);
	p->changes = changes_new(p->loop, &source);
	p->events = events_new(&source, p->changes);
	open_control(p, o);
	if (open_state_file(p, o, err) < 0)
		return -1;
	if (open_admin(p, o, err) == 0)
		return 0;
	state_file_free(p->state_file);
	return -1;
}

/* Called in the fork, which may run a script: the lock's URL is wiped, since it may have a password. */
static void program_let_go(void *arg)
{
	const struct program *p = arg;
	const char *lock = options_text(p->options, OPTION_LOCK, NULL); /* the last, or of the environment */

	for (int i = 0; i < p->signal_count; i++)
		ev_signal_stop(p->loop, (ev_signal *)&p->signals[i]);
	reaper_let_go(p->reaper);
	for (int i = 0; i < p->options->lock_count; i++)
		explicit_bzero((char *)p->options->locks[i], strlen(p->options->locks[i]));
	if (options_set(p->options, OPTION_LOCK)) // of the command line, or the environment: memory of our own
		explicit_bzero((char *)lock, strlen(lock));
}

struct guard_fork program_fork(struct program *p, guard_worker *worker)
{
	return (struct guard_fork){ .worker = worker, .let_go = program_let_go, .arg = p };
}

/* A second SIGTERM that comes now would end a program that has ended well by its default action. */
static void hold_last_signals(const struct program *p)
{
	for (int i = 0; i < p->signal_count; i++)
		program_hold_signals((const int[]){ p->signals[i].signum, 0 });
}

void program_fini(struct program *p)
{
	hold_last_signals(p);
	for (int i = 0; i < p->signal_count; i++)
		ev_signal_stop(p->loop, &p->signals[i]);
	ev_timer_stop(p->loop, &p->watchdog);
	if (p->clock_set.fd >= 0) {
		ev_io_stop(p->loop, &p->clock_set);
		close(p->clock_set.fd);
	}
	admin_free(p->admin);
	control_free(p->control);
	events_free(p->events);
	state_file_free(p->state_file);
	changes_free(p->changes);
	death_watches_free(p->death_watches);
	poke_sockets_free(p->pokes);
	lock_env_fini(&p->env);
	offload_free(p->env.offload);
	reaper_free(p->reaper);
	proof_self_fini(&p->self);
	free(p->tree_var);
	free(p->control_var);
	timeline_fini(&p->timeline);
	ev_loop_destroy(p->loop);
}

void program_say_local(struct program *p, const char *lock)
{
	if (p->told_local || !isatty(STDERR_FILENO) || !lock_is_plain_name(lock))
		return;
	p->told_local = true;
	log_event(LOG_WARN, NULL, "local_lock",
	          "the lock %s is this machine's alone: for several machines give --lock a store's URL, or a directory "
	          "that they share (--lock file:%s says that one machine is meant)",
	          lock, lock);
}

bool program_in_background(void)
{
	pid_t front = isatty(STDIN_FILENO) ? tcgetpgrp(STDIN_FILENO) : -1;

	return front >= 0 && front != getpgrp();
}
