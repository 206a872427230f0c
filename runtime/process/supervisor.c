#include "process/supervisor.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/proc.h"
#include "base/proc_tree.h"
#include "loop/reaper.h"
#include "process/channel.h"
#include "process/guard_start.h"
#include "process/guard_wire.h"

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define UNREAD_MAX 4096    /* messages that wait for a worker, or orders for a guard */
#define MESSAGES_A_TURN 64 /* a worker that sends without end must not keep the loop from renewing */

enum phase {
	RUNNING,
	ORPHANED, /* the guard is dead, or has been sent SIGKILL; what is left of the tree is being killed from here */
	GONE,
};

struct supervisor {
	struct ev_loop *loop;
	struct reaper *reaper;
	const struct supervisor_callbacks *cb;
	void *arg;
	nsec kill_allowance;
	struct page *page;

	enum phase phase;
	pid_t guard;                       /* 0 once reaped */
	pid_t worker;                      /* 0 until known; kept after its end */
	struct reaper_child *guard_child;  /* NULL once reaped */
	struct reaper_child *worker_child; /* ORPHANED: it is our child now; NULL once reaped */
	bool held;                         /* the command waits for supervisor_begin */
	bool ended;
	int wait_status;               /* -1: nobody saw it */
	struct instant asked;          /* supervisor_kill */
	struct reaper_killing killing; /* ORPHANED */
	struct instant give_up;        /* ORPHANED: say that something lives */

	struct channel *to_guard;  /* NULL when GONE */
	struct channel *to_worker; /* NULL for a command, and when GONE */
	bool poke_waits;           /* in to_guard, unsent: one is enough */
	ev_io overdue;
	nsec overdue_at; /* CLOCK_BOOTTIME; NSEC_NEVER: the timer is not set */
	nsec overdue_in; /* how far away overdue_at was when it was set */
};

/* ---- the end: of a guard, and of what it left ---- */

static void supervisor_on_worker_exit(void *arg, int status)
{
	struct supervisor *c = arg;

	c->worker_child = NULL;
	if (!c->ended)
		c->wait_status = status;
}

/* A dead guard's worker is a child of ours, and nobody else sees how it ends. */
static void supervisor_watch_worker(struct supervisor *c)
{
	if (c->phase != ORPHANED || !c->worker || c->ended || c->worker_child)
		return;
	c->worker_child = reaper_add(c->reaper, c->worker, supervisor_on_worker_exit, c, NULL);
	reaper_condemn(c->worker_child);
}

static void supervisor_take_over(struct supervisor *c)
{
	if (c->phase != RUNNING)
		return;
	c->phase = ORPHANED;
	c->give_up = instant_add(clock_now(), c->kill_allowance);
	if (c->guard_child)
		reaper_condemn(c->guard_child);
	supervisor_watch_worker(c);
	reaper_begin_killing(c->reaper, &c->killing);
}

/* It has exited, and the reaper has not seen that yet: this process was stopped, too. It stays to be waited for. */
static bool supervisor_guard_has_exited(const struct supervisor *c)
{
	siginfo_t info = { 0 };

	return waitid(P_PID, (id_t)c->guard, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == c->guard;
}

/* The guard itself is stopped or stuck: its work is done from here. */
static void supervisor_kill_guard(struct supervisor *c)
{
	if (supervisor_guard_has_exited(c))
		return;
	log_event(LOG_WARN, NULL, "guard_killed", "guard %d did not end its tree in time (stopped?): killing both",
	          c->guard);
	kill(c->guard, SIGKILL);
	supervisor_take_over(c);
}

static bool supervisor_is_due_soon(const struct supervisor *c, struct instant now)
{
	return c->overdue_at != NSEC_NEVER && now.boot > c->overdue_at - c->overdue_in / 4;
}

/* A later time needs no system call while the timer is far from firing. */
static void supervisor_set_timer(struct supervisor *c, nsec boot, struct instant now)
{
	struct itimerspec at = { .it_value = { .tv_sec = boot / NSEC_PER_SEC, .tv_nsec = boot % NSEC_PER_SEC } };

	if (boot >= c->overdue_at && !supervisor_is_due_soon(c, now))
		return;
	timerfd_settime(c->overdue.fd, TFD_TIMER_ABSTIME, &at, NULL);
	c->overdue_at = boot;
	c->overdue_in = boot - now.boot;
}

/* Half of the allowance is the guard's, the other half ours. The timer is set for the end of the first half. */
static void supervisor_check_guard(struct supervisor *c)
{
	struct instant first, now = clock_now();

	if (c->phase != RUNNING || !c->guard)
		return;
	if (!page_first_kill(c->page, &first))
		first = (struct instant){ NSEC_NEVER, NSEC_NEVER };
	first = instant_add(instant_min(first, c->asked), c->kill_allowance / 2);
	if (instant_passed(first, now)) {
		supervisor_kill_guard(c);
		return;
	}
	if (first.boot != NSEC_NEVER || first.raw != NSEC_NEVER)
		supervisor_set_timer(c, now.boot + instant_until(first, now), now);
}

static void supervisor_on_overdue(struct ev_loop *, ev_io *w, int)
{
	struct supervisor *c = w->data;
	uint64_t times;

	if (read(w->fd, &times, sizeof times) != (ssize_t)sizeof times)
		return;
	c->overdue_at = NSEC_NEVER;
	supervisor_check_guard(c);
}

static void supervisor_drain_worker(struct supervisor *c)
{
	if (c->to_worker)
		channel_drain(c->to_worker);
}

static void supervisor_finish(struct supervisor *c, bool reaped)
{
	channel_drain(c->to_guard);
	supervisor_drain_worker(c);
	c->phase = GONE;
	reaper_end_killing(c->reaper, &c->killing);
	reaper_forget(c->guard_child);
	reaper_forget(c->worker_child);
	ev_io_stop(c->loop, &c->overdue);
	close(c->overdue.fd);
	channel_free(c->to_guard);
	channel_free(c->to_worker);
	c->to_guard = c->to_worker = NULL;
	c->cb->gone(c->arg, reaped, c->wait_status);
}

/* An orphan may be of any dead guard, so the dead trees end together; but none before its guard. */
static void supervisor_on_killing_round(void *arg, bool nobody_left)
{
	struct supervisor *c = arg;
	bool reaped = nobody_left && !c->guard_child;

	if (reaped || instant_passed(c->give_up, clock_now()))
		supervisor_finish(c, reaped);
}

/* Its status is 0 if it has seen to it that nothing of its tree lives. */
static void supervisor_on_guard_exit(void *arg, int status)
{
	struct supervisor *c = arg;
	pid_t guard = c->guard;

	c->guard = 0;
	c->guard_child = NULL;
	if (status == 0) {
		supervisor_finish(c, true);
		return;
	}
	if (c->phase == RUNNING)
		log_event(LOG_WARN, NULL, "guard_lost", "guard %d died (wait status 0x%x): killing its tree", guard,
		          (unsigned)status);
	supervisor_take_over(c);
}

/* ---- notes from the guard ---- */

static void supervisor_on_ended(struct supervisor *c, int status)
{
	if (c->ended)
		return;
	c->ended = true;
	c->wait_status = status;
	supervisor_drain_worker(c); /* what it said before it ended comes first */
	if (c->cb->ended)
		c->cb->ended(c->arg, status);
}

static void supervisor_on_guard_failed(const struct supervisor *c, enum guard_failure what, int error)
{
	static const char *const cannot[] = {
		[GUARD_CANNOT_READ] = "read its orders",
		[GUARD_NO_ORDER] = "make sense of what it was told",
		[GUARD_CANNOT_BEGIN] = "tell its worker to begin",
	};
	const char *thing = (size_t)what < sizeof cannot / sizeof *cannot ? cannot[what] : NULL;
	const char *why = strerrordesc_np(error); /* "Success": no call failed */

	log_event(
		LOG_ERROR, NULL, "guard_failed",
		"guard %d could not %s (%s), so it kills what it has started (SIGKILL). If this comes again, look for "
		"what the kernel lacks (dmesg, limits of memory)",
		c->guard, thing ? thing : "go on", why ? why : "no known error");
}

static void supervisor_on_note(void *arg, const void *bytes, size_t len)
{
	struct supervisor *c = arg;
	struct guard_note n;

	if (len != sizeof n)
		return; /* no guard sends such a note */
	memcpy(&n, bytes, sizeof n);
	switch ((enum guard_note_type)n.type) {
	case GUARD_STARTED:
		c->worker = n.value;
		supervisor_watch_worker(c);
		break;
	case GUARD_ENDED:
		supervisor_on_ended(c, n.value);
		break;
	case GUARD_SWEPT:
	case GUARD_UNCLEAR:
		if (c->cb->swept)
			c->cb->swept(c->arg, n.slot, n.term, n.next, n.value, n.type == GUARD_SWEPT);
		break;
	case GUARD_STOPPED:
	case GUARD_CONTINUED:
		if (c->cb->stopped)
			c->cb->stopped(c->arg, n.type == GUARD_STOPPED);
		break;
	case GUARD_FAILED:
		supervisor_on_guard_failed(c, (enum guard_failure)n.slot, n.value);
		break;
	}
}

/* When the guard closes, its exit status follows. */
static const struct channel_kind guard_channel = {
	.message_max = sizeof(struct guard_begin),
	.unsent_max = UNREAD_MAX,
	.turn_max = MESSAGES_A_TURN,
	.message = supervisor_on_note,
};

/* ---- messages from the worker ---- */

/* Ends the conversation, and with it the worker. type 0: of no known type. */
static void supervisor_on_nonsense(struct supervisor *c, enum wire_type type, size_t len)
{
	log_event(LOG_ERROR, NULL, "worker_malformed",
	          "a message (%s, %zu bytes) from the worker makes no sense: killing it",
	          type ? wire_name(type) : "of no known type", len);
	channel_deafen(c->to_worker);
	supervisor_kill(c);
}

static void supervisor_on_message(void *arg, const void *bytes, size_t len)
{
	struct supervisor *c = arg;
	struct wire w;
	enum wire_type type = wire_open(&w, bytes, len);

	if (!type || (c->cb->message && !c->cb->message(c->arg, type, &w)))
		supervisor_on_nonsense(c, type, len);
}

/* When the worker closes, the guard's note of its end follows. */
static void supervisor_on_worker_end(void *arg, size_t oversized)
{
	if (oversized)
		supervisor_on_nonsense(arg, (enum wire_type)0, oversized);
}

static const struct channel_kind worker_channel = {
	.message_max = WIRE_MAX,
	.unsent_max = UNREAD_MAX,
	.turn_max = MESSAGES_A_TURN,
	.message = supervisor_on_message,
	.end = supervisor_on_worker_end,
};

/* ---- start ---- */

static int socket_pair(int fd[2], int buffer, struct err *err)
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd) < 0)
		return err_sys(err, "cannot make a socket pair");
	/* Room for the largest message where the system's default is small; capped by the system, which is no error. */
	for (int i = 0; i < 2; i++)
		setsockopt(fd[i], SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
	return 0;
}

static void close_if(int fd)
{
	if (fd >= 0)
		close(fd);
}

static struct supervisor *supervisor_new(struct reaper *reaper, const struct supervisor_spec *spec,
                                         const struct supervisor_callbacks *cb, void *arg)
{
	struct supervisor *c = mem_zero(sizeof *c);

	c->loop = reaper_loop(reaper);
	c->reaper = reaper;
	c->killing = (struct reaper_killing){ .round = supervisor_on_killing_round, .arg = c };
	c->cb = cb;
	c->arg = arg;
	c->kill_allowance = spec->kill_allowance;
	c->held = spec->held;
	c->wait_status = -1;
	c->overdue_at = NSEC_NEVER;
	c->asked = (struct instant){ NSEC_NEVER, NSEC_NEVER };
	return c;
}

/* A command has one term, in the first slot. */
static void supervisor_begin_term(struct supervisor *c, const struct supervisor_term *t)
{
	page_begin(c->page, 0, t->term, t->token, t->end, t->kill);
}

struct supervisor *supervisor_spawn(struct reaper *reaper, const struct supervisor_spec *spec,
                                    const struct supervisor_callbacks *cb, void *arg, struct err *err)
{
	struct supervisor *c = supervisor_new(reaper, spec, cb, arg);
	struct guard_handed h = { .control = -1,
		                  .wire = -1,
		                  .page = { -1, -1 },
		                  .kept = spec->kept_fd ? spec->kept_fd : -1,
		                  .tree = spec->tree_fd,
		                  .elector = -1 };
	int control[2] = { -1, -1 }, wire[2] = { -1, -1 }, timer = -1, failed = -1;

	c->page = page_new(PAGE_SLOTS, h.page, err);
	if (!c->page || socket_pair(control, WIRE_MAX, err) < 0 ||
	    (!spec->command && socket_pair(wire, 2 * WIRE_MAX, err) < 0))
		goto out;
	if (spec->first.term && !spec->held)
		supervisor_begin_term(c, &spec->first);
	h.control = control[1];
	h.wire = wire[1];
	h.elector = (int)syscall(SYS_pidfd_open, getpid(), 0);
	timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	if (h.elector < 0 || timer < 0)
		err_sys(err, "cannot make the descriptors of a worker (pidfd, timerfd)");
	else
		failed = guard_start(&c->guard, spec, &h, err);
out:
	close_if(h.page[PAGE_DEADLINES]);
	close_if(h.page[PAGE_MARKS]);
	close_if(control[1]);
	close_if(wire[1]);
	close_if(h.elector);
	if (failed) {
		close_if(control[0]);
		close_if(wire[0]);
		close_if(timer);
		if (c->page)
			page_unmap(c->page);
		free(c);
		return NULL;
	}
	c->to_guard = channel_new(c->loop, control[0], &guard_channel, c);
	if (wire[0] >= 0)
		c->to_worker = channel_new(c->loop, wire[0], &worker_channel, c);
	ev_io_init(&c->overdue, supervisor_on_overdue, timer, EV_READ);
	c->overdue.data = c;
	ev_io_start(c->loop, &c->overdue);
	c->guard_child = reaper_add(reaper, c->guard, supervisor_on_guard_exit, c, NULL);
	supervisor_check_guard(c);
	return c;
}

/* ---- what the elector asks for ---- */

struct page *supervisor_page(struct supervisor *c)
{
	return c->page;
}

void supervisor_worker_doing(const struct supervisor *c, struct worker_doing *out)
{
	struct proc_stat stat;

	*out = (struct worker_doing){ .pid = c->ended ? 0 : c->worker };
	if (!out->pid)
		return;
	out->work = page_work_now(c->page, &out->slot);
	out->work_for = page_work_for(c->page, clock_now());
	out->stopped = proc_stat((uint64_t)out->pid, &stat) == 0 && (stat.state == 'T' || stat.state == 't');
}

bool supervisor_worker_blocks(const struct supervisor *c)
{
	struct worker_doing d = { 0 };

	if (c->ended)
		return false;
	d.work = page_work_now(c->page, &d.slot);
	d.work_for = d.work == PAGE_WAITS ? 0 : page_work_for(c->page, clock_now());
	return worker_doing_blocks(&d);
}

static bool supervisor_is_ending(const struct supervisor *c)
{
	return c->phase != RUNNING || c->asked.boot != NSEC_NEVER;
}

void supervisor_send(struct supervisor *c, const struct buf *message)
{
	if (!c->to_worker || channel_send(c->to_worker, message->data, message->len) == 0 || supervisor_is_ending(c))
		return;
	log_event(LOG_ERROR, NULL, "worker_deaf", "the worker has left %d messages unread: killing it", UNREAD_MAX);
	supervisor_kill(c);
}

/* The guard looks at the page after each order. One that reads no orders is stopped, and then the deadline is ours. */
static void supervisor_order(struct supervisor *c, struct guard_order o)
{
	if (c->phase == RUNNING && channel_send(c->to_guard, &o, sizeof o) < 0)
		supervisor_kill(c);
	supervisor_check_guard(c);
}

/* Length of the order; 0: they do not fit. */
static size_t order_with_variables(struct guard_begin *b, char *const *env)
{
	char *at = b->variables, *end = at + sizeof b->variables;

	for (; *env; env++) {
		size_t size = strlen(*env) + 1;
		if (size > (size_t)(end - at))
			return 0;
		memcpy(at, *env, size);
		at += size;
	}
	return (size_t)(at - (char *)b);
}

bool supervisor_begin(struct supervisor *c, const struct supervisor_term *t, char *const *env)
{
	struct guard_begin b = { .order = { .type = GUARD_BEGIN } };
	size_t len = order_with_variables(&b, env);

	if (!c->held || !len || supervisor_is_ending(c) || !c->guard || supervisor_guard_has_exited(c))
		return false;
	c->held = false;
	supervisor_begin_term(c, t);
	channel_send(c->to_guard, &b, len);
	supervisor_check_guard(c);
	return true;
}

void supervisor_allow(struct supervisor *c, nsec kill_allowance)
{
	c->kill_allowance = kill_allowance;
	supervisor_check_guard(c);
}

void supervisor_extended(struct supervisor *c)
{
	if (supervisor_is_due_soon(c, clock_now()))
		supervisor_check_guard(c);
}

void supervisor_poke(struct supervisor *c)
{
	if (c->phase != RUNNING)
		return;
	if (c->poke_waits && channel_waits(c->to_guard)) {
		supervisor_check_guard(c);
		return;
	}
	supervisor_order(c, (struct guard_order){ .type = GUARD_POKE });
	c->poke_waits = channel_waits(c->to_guard);
}

void supervisor_interrupt(struct supervisor *c)
{
	supervisor_order(c, (struct guard_order){ .type = GUARD_INTERRUPT });
}

void supervisor_listen(struct supervisor *c)
{
	if (c->to_guard)
		channel_drain(c->to_guard);
}

void supervisor_signal(struct supervisor *c, int signal)
{
	supervisor_order(c, (struct guard_order){ .type = GUARD_SIGNAL, .signal = signal });
}

void supervisor_kill(struct supervisor *c)
{
	struct guard_order o = { .type = GUARD_KILL };

	if (supervisor_is_ending(c))
		return;
	c->asked = clock_now();
	channel_send(c->to_guard, &o, sizeof o);
	supervisor_check_guard(c);
}

bool supervisor_sweep(struct supervisor *c, uint32_t slot, uint64_t term, uint32_t next)
{
	if (c->phase == RUNNING && c->worker && !c->ended && tree_is_only(c->guard, c->worker))
		return true;
	supervisor_order(c, (struct guard_order){ .type = GUARD_SWEEP, .slot = slot, .next = next, .term = term });
	return false;
}

void supervisor_free(struct supervisor *c)
{
	if (!c)
		return;
	if (c->phase != GONE)
		abort(); /* its tree would live on without anybody to watch it */
	page_unmap(c->page);
	free(c);
}
