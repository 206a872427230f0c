#include "script/child.h"

#include "base/mem.h"
#include "base/proc_tree.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define READ_BYTES 65536
#define READS_AFTER_END 16 /* enough for what a full pipe holds; bounded, since a grandchild may go on writing */
#define KILL_AGAIN 0.2     /* seconds; who holds its output may have started another meanwhile */
#define KILLS 20           /* after so many, its output is closed even if somebody still has it open */

/* A collected output: what was read and has not been taken. */
struct stream {
	ev_io readable;
	struct buf *text; /* in child_end */
	size_t at;        /* so many bytes have been taken */
	size_t left_out;  /* bytes that are not kept between its beginning and its end */
	size_t scanned;   /* there is no end of a line before that byte */
	bool holds;       /* when it is full, no more is read until child_took */
	char pipe[32];    /* as /proc calls it */
};

struct child {
	struct scope_child
		in_scope; /* until the child has ended; the first field, so that it can be cast to the child */
	struct scope *scope;
	pid_t pid;
	int pidfd;
	ev_io exited;
	struct stream stream[CHILD_OUTPUTS];
	ev_timer timer; /* its timeout; once it is being stopped, the time of SIGKILL */
	nsec begun;     /* CLOCK_MONOTONIC, as for sleep */
	double kill_after_s;
	size_t output_max;
	int kills;
	bool until_closed, both_ends;
	/* it has ended, and its output is not closed: it is not reaped, so that no other group can get its number */
	bool waits;
	bool stopping, ended, released;
	void (*changed)(void *arg);
	void *arg;
	struct child_end end;
};

/* Only this file reaps the child, so the pid is still the child's, even if it has ended already. */
static int watch(pid_t pid, struct err *err)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	if (fd >= 0)
		return fd;
	err_sys(err, "exec: cannot watch process %d", (int)pid);
	kill(-pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return -1;
}

static struct ev_loop *loop_of(const struct child *c)
{
	return sched_loop(c->scope->sched);
}

static void child_over(struct child *c);
static void child_stop(struct child *c, double kill_after_s);

static void child_tell(struct child *c)
{
	if (c->changed)
		c->changed(c->arg);
}

/* ---- output ---- */

static size_t held(const struct stream *s)
{
	return s->text->len - s->at;
}

static bool full(const struct child *c, const struct stream *s)
{
	return held(s) > 0 && held(s) >= c->output_max;
}

/* Cuts the middle out of what has not been taken. */
static void child_leave_out(struct child *c, struct stream *s)
{
	size_t more = held(s) > c->output_max ? held(s) - c->output_max : 0;

	if (!more)
		return;
	char *from = s->text->data + s->at + c->output_max / 2;
	memmove(from, from + more, held(s) - c->output_max / 2 - more);
	s->text->len -= more;
	s->left_out += more;
	c->end.truncated = true;
}

static void child_collect(struct child *c, struct stream *s, const char *bytes, size_t len)
{
	size_t room = held(s) < c->output_max ? c->output_max - held(s) : 0;

	if (c->both_ends && !s->holds) {
		buf_add(s->text, bytes, len);
		if (held(s) > 2 * c->output_max) /* not each time, since all of the end is moved */
			child_leave_out(c, s);
		return;
	}
	if (len > room && !s->holds) {
		c->end.truncated = true;
		len = room;
	}
	buf_add(s->text, bytes, len);
}

static void stream_close(struct child *c, struct stream *s)
{
	ev_io_stop(loop_of(c), &s->readable);
	if (s->readable.fd >= 0)
		close(s->readable.fd);
	s->readable.fd = -1;
}

/* false: nothing more can be read now, or the output has ended */
static bool read_output(struct child *c, struct stream *s)
{
	char bytes[READ_BYTES];
	ssize_t n = read(s->readable.fd, bytes, sizeof bytes);

	if (n > 0)
		child_collect(c, s, bytes, (size_t)n);
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		stream_close(c, s);
	return n > 0;
}

static bool child_writes(const struct child *c)
{
	bool open = false;

	for (int i = 0; i < CHILD_OUTPUTS; i++)
		open = open || c->stream[i].readable.fd >= 0;
	return open;
}

static void stream_on_readable(struct ev_loop *loop, ev_io *io, int)
{
	struct child *c = io->data;
	struct stream *s = (struct stream *)((char *)io - offsetof(struct stream, readable));

	read_output(c, s);
	if (c->waits && !child_writes(c)) {
		child_over(c);
		return;
	}
	if (s->holds && full(c, s))
		ev_io_stop(loop, io); /* the pipe fills, and the child waits, as with any reader */
	child_tell(c);
}

static void read_on(struct child *c, struct stream *s)
{
	if (s->readable.fd >= 0 && !c->ended && !(s->holds && full(c, s)))
		ev_io_start(loop_of(c), &s->readable);
}

void child_drop(struct child *c, int output)
{
	struct stream *s = &c->stream[output];

	s->holds = false;
	read_on(c, s);
}

/* The taken bytes are not removed with each line: that would take time in the square of the buffer's size. */
void child_took(struct child *c, int output, size_t took)
{
	struct stream *s = &c->stream[output];

	s->at += took;
	if (s->at == s->text->len || s->at > READ_BYTES) {
		buf_drop(s->text, s->at);
		s->at = 0;
	}
	s->scanned = s->at;
	read_on(c, s);
}

bool child_line(struct child *c, int output, struct child_line *line)
{
	struct stream *s = &c->stream[output];
	const char *text = s->text->data;
	const char *newline = held(s) ? memchr(text + s->scanned, '\n', s->text->len - s->scanned) : NULL;
	bool last = s->readable.fd < 0;

	if (!newline && !(held(s) && (last || full(c, s)))) {
		s->scanned = s->text->len;
		line->end = last;
		return false;
	}
	line->text = text + s->at;
	line->len = newline ? (size_t)(newline - line->text) : held(s);
	line->took = line->len + (newline ? 1 : 0);
	if (line->len > c->output_max && c->output_max)
		line->len = line->took = c->output_max;
	line->end = false;
	return true;
}

/* ---- stopping ---- */

/* Sends it to its group; and to all that hold its output, if these count as parts of it. They are below the guard,
 * which is our parent and a subreaper. */
static void child_send(const struct child *c, int signal)
{
	kill(-c->pid, signal);
	if (!c->until_closed)
		return;
	struct tree *t = mem_zero(sizeof *t);
	for (int i = 0; i < CHILD_OUTPUTS; i++)
		if (c->stream[i].readable.fd >= 0 && *c->stream[i].pipe)
			tree_signal_writers(t, getppid(), c->pid, c->stream[i].pipe, signal);
	free(t);
}

static void child_give_up(struct child *c)
{
	for (int i = 0; i < CHILD_OUTPUTS; i++)
		stream_close(c, &c->stream[i]);
	if (c->waits)
		child_over(c);
}

static void child_on_timer(struct ev_loop *loop, ev_timer *timer, int)
{
	struct child *c = timer->data;

	if (c->stopping) {
		child_send(c, SIGKILL);
		if (c->until_closed && ++c->kills == KILLS) {
			child_give_up(c);
		} else if (c->until_closed) {
			ev_timer_set(timer, KILL_AGAIN, 0);
			ev_timer_start(loop, timer);
		}
		return;
	}
	c->end.timed_out = true;
	child_stop(c, c->kill_after_s);
}

/* A second call can only make that time shorter. */
static void child_stop(struct child *c, double kill_after_s)
{
	struct ev_loop *loop = loop_of(c);

	if (c->ended || (c->stopping && !ev_is_active(&c->timer)))
		return;
	if (c->stopping && ev_timer_remaining(loop, &c->timer) <= kill_after_s)
		return;
	if (!c->stopping) {
		child_send(c, SIGTERM);
		child_send(c, SIGCONT); /* a stopped process does not handle SIGTERM until it is continued */
	}
	c->stopping = true;
	ev_now_update(loop);
	ev_timer_stop(loop, &c->timer);
	ev_timer_set(&c->timer, kill_after_s, 0);
	ev_timer_start(loop, &c->timer);
}

void child_stop_gently(struct child *c)
{
	if (!c->stopping)
		child_stop(c, c->kill_after_s);
}

bool child_signal(struct child *c, int signal)
{
	if (c->ended)
		return false;
	child_send(c, signal);
	return true;
}

/* ---- its end ---- */

static void child_free(struct child *c)
{
	child_end_fini(&c->end);
	free(c);
}

static void child_stop_watching(struct child *c, struct ev_loop *loop)
{
	ev_timer_stop(loop, &c->timer);
	ev_io_stop(loop, &c->exited);
	close(c->pidfd);
	for (int i = 0; i < CHILD_OUTPUTS; i++)
		stream_close(c, &c->stream[i]);
}

static void read_the_rest(struct child *c)
{
	for (int i = 0; i < CHILD_OUTPUTS; i++)
		for (int n = 0; n < READS_AFTER_END && c->stream[i].readable.fd >= 0; n++)
			if (!read_output(c, &c->stream[i]))
				break;
}

static double seconds(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

static bool child_reap(struct child *c)
{
	struct rusage used;

	/* Until the child is reaped, no other group can get its number. So its group is killed before that. */
	if (c->stopping)
		kill(-c->pid, SIGKILL);
	pid_t pid = wait4(c->pid, &c->end.wait_status, WNOHANG, &used);
	if (pid == 0 || (pid < 0 && errno == EINTR))
		return false;
	c->end.elapsed_s = (double)(clock_monotonic() - c->begun) / (double)NSEC_PER_SEC;
	c->end.user_s = seconds(used.ru_utime);
	c->end.system_s = seconds(used.ru_stime);
	return true;
}

static void child_on_exit(struct ev_loop *loop, ev_io *io, int)
{
	struct child *c = io->data;

	if (c->until_closed)
		read_the_rest(c);
	c->waits = c->until_closed && child_writes(c);
	if (c->waits)
		ev_io_stop(loop, io);
	else
		child_over(c);
}

static void child_over(struct child *c)
{
	struct scope *scope = c->scope;

	if (!child_reap(c))
		return;
	read_the_rest(c);
	child_stop_watching(c, loop_of(c));
	c->ended = true;
	scope_drop_child(&c->in_scope);
	if (c->released)
		child_free(c);
	else
		child_tell(c);
	scope_check_idle(scope);
}

/* ---- the functions of child.h ---- */

static void watch_output(struct child *c, int i, int fd, bool hold)
{
	struct stream *s = &c->stream[i];
	char path[32];

	s->text = &c->end.output[i];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (fd >= 0 && c->until_closed && readlink(path, s->pipe, sizeof s->pipe - 1) < 0)
		*s->pipe = '\0'; /* no /proc: who else holds the pipe cannot be found out */
	s->holds = hold;
	ev_io_init(&s->readable, stream_on_readable, fd, EV_READ);
	s->readable.data = c;
	if (fd >= 0)
		ev_io_start(loop_of(c), &s->readable);
}

static void scope_child_stop(struct scope_child *c, double kill_after_s)
{
	child_stop((struct child *)c, kill_after_s);
}

static void child_adopt(struct child *c)
{
	ev_io_init(&c->exited, child_on_exit, c->pidfd, EV_READ);
	c->exited.data = c;
	ev_io_start(loop_of(c), &c->exited);
	c->in_scope.stop = scope_child_stop;
	scope_add_child(c->scope, &c->in_scope);
}

static void child_limit(struct child *c, double timeout_s)
{
	ev_init(&c->timer, child_on_timer);
	c->timer.data = c;
	if (timeout_s < 0)
		return;
	ev_now_update(loop_of(c));
	ev_timer_set(&c->timer, timeout_s, 0);
	ev_timer_start(loop_of(c), &c->timer);
}

struct child *child_start(struct scope *scope, const struct child_spec *spec, struct err *err)
{
	int ours[CHILD_OUTPUTS];
	pid_t pid;
	nsec begun = clock_monotonic();

	if (child_spawn(spec, &pid, ours, err) < 0)
		return NULL;
	int pidfd = watch(pid, err);
	if (pidfd < 0) {
		for (int i = 0; i < CHILD_OUTPUTS; i++)
			if (ours[i] >= 0)
				close(ours[i]);
		return NULL;
	}
	struct child *c = mem_zero(sizeof *c);
	*c = (struct child){ .scope = scope,
		             .pid = pid,
		             .pidfd = pidfd,
		             .begun = begun,
		             .output_max = spec->output_max,
		             .kill_after_s = spec->kill_after_s,
		             .until_closed = spec->until_closed,
		             .both_ends = spec->both_ends,
		             .changed = spec->changed,
		             .arg = spec->arg };
	for (int i = 0; i < CHILD_OUTPUTS; i++)
		watch_output(c, i, ours[i], spec->hold);
	child_adopt(c);
	child_limit(c, spec->timeout_s);
	return c;
}

pid_t child_pid(const struct child *c)
{
	return c->pid;
}

bool child_ended(const struct child *c)
{
	return c->ended;
}

static void child_say_left_out(struct child *c, struct stream *s)
{
	struct buf all = { 0 };
	size_t half = c->output_max / 2;

	child_leave_out(c, s);
	if (!s->left_out)
		return;
	buf_add(&all, s->text->data, half);
	buf_printf(&all, "%s[%zu bytes are left out here]\n", half && all.data[half - 1] == '\n' ? "" : "\n",
	           s->left_out);
	buf_add(&all, s->text->data + half, s->text->len - half);
	buf_fini(s->text);
	*s->text = all;
}

void child_take(struct child *c, struct child_end *end)
{
	for (int i = 0; i < CHILD_OUTPUTS; i++) {
		struct stream *s = &c->stream[i];
		buf_drop(s->text, s->at);
		s->at = s->scanned = 0;
		if (c->both_ends) {
			child_say_left_out(c, s);
			continue;
		}
		if (s->text->len > c->output_max) { /* held for a reader that did not take it */
			s->text->len = c->output_max;
			c->end.truncated = true;
		}
	}
	*end = c->end;
	memset(c->end.output, 0, sizeof c->end.output);
}

void child_end_fini(struct child_end *end)
{
	for (int i = 0; i < CHILD_OUTPUTS; i++)
		buf_fini(&end->output[i]);
}

void child_release(struct child *c)
{
	c->released = true;
	c->changed = NULL;
	if (c->ended) {
		child_free(c);
		return;
	}
	for (int i = 0; i < CHILD_OUTPUTS; i++)
		child_drop(c, i);
}
