#include "doctor/driver_faults.h"

#include "base/mem.h"
#include "locks/lua/driver_link.h"

#include <errno.h>
#include <ev.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct faults_way { /* of the messages from one end to the other */
	struct driver_faults *faults;
	ev_io io;
	int from, to;
	bool (*spoils)(struct driver_faults *f, struct buf *m);
};

struct driver_faults {
	struct lock_tap tap; /* first */
	struct ev_loop *loop;
	pid_t pid;                 /* of the last driver; 0: there was none */
	struct faults_way out, in; /* to the driver, and to the link. Without sockets (-1): none runs */

	enum driver_fault next; /* of the next operation */
	int n;
	char *raw; /* of the next write */

	enum driver_fault fault; /* of the operation with this id: */
	uint64_t id;
	bool met;
	struct buf late; /* its answer */
	ev_timer timer;
};

/* ---- the two ends ---- */

static void faults_let_go(struct driver_faults *f)
{
	struct faults_way *ways[] = { &f->out, &f->in };

	ev_timer_stop(f->loop, &f->timer);
	for (int i = 0; i < 2; i++) {
		struct faults_way *w = ways[i];
		ev_io_stop(f->loop, &w->io);
		if (w->from >= 0)
			close(w->from);
		w->from = w->to = -1;
	}
}

static void way_await(struct faults_way *w, int fd, int events)
{
	ev_io_stop(w->faults->loop, &w->io);
	ev_io_set(&w->io, fd, events);
	ev_io_start(w->faults->loop, &w->io);
}

/* There is room, if it is done by way_on_io. What an end is sent that is gone is dropped. */
static void way_send(const struct faults_way *w, const struct buf *m)
{
	(void)!send(w->to, m->data, m->len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* A socket that can be written to has room for more than the largest message. */
static bool way_is_free(const struct faults_way *w)
{
	struct pollfd p = { .fd = w->to, .events = POLLOUT };

	return poll(&p, 1, 0) != 0;
}

/* false: nothing has come, or the end is gone. */
static bool way_receive(struct faults_way *w, struct buf *m)
{
	m->len = 0;
	char *room = buf_more(m, DRIVER_MAX + 1);
	ssize_t n = recv(w->from, room, DRIVER_MAX + 1, MSG_DONTWAIT);

	if (n < 0 && errno == ECONNRESET) /* it ended with messages unread; what it sent follows */
		n = recv(w->from, room, DRIVER_MAX + 1, MSG_DONTWAIT);
	m->len = n > 0 ? (size_t)n : 0;
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		faults_let_go(w->faults);
	return n > 0;
}

static void way_on_io(struct ev_loop *, ev_io *io, int revents)
{
	struct faults_way *w = io->data;
	struct buf m = { 0 };

	if (revents & EV_WRITE)
		way_await(w, w->from, EV_READ);
	else if (!way_is_free(w))
		way_await(w, w->to, EV_WRITE);
	else if (way_receive(w, &m) && !w->spoils(w->faults, &m))
		way_send(w, &m);
	buf_fini(&m);
}

/* The link hears of a driver's end by the reaper, which may be before its last message came through here. */
static void faults_on_ended(struct lock_tap *tap)
{
	struct driver_faults *f = (struct driver_faults *)tap;
	struct buf m = { 0 };

	while (f->in.from >= 0 && way_receive(&f->in, &m))
		if (!f->in.spoils(f, &m))
			way_send(&f->in, &m);
	buf_fini(&m);
}

/* The socket for the link; without one, that of a driver that seems to have ended at once. */
static int faults_on_started(struct lock_tap *tap, pid_t pid, int fd)
{
	struct driver_faults *f = (struct driver_faults *)tap;
	const int room = DRIVER_MAX + 4096; /* as driver_process_start has it */
	int ends[2];

	faults_let_go(f);
	f->pid = pid;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0) {
		shutdown(fd, SHUT_RDWR);
		return fd;
	}
	for (int i = 0; i < 2; i++)
		setsockopt(ends[i], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
	f->out.from = f->in.to = ends[0];
	f->out.to = f->in.from = fd;
	way_await(&f->out, ends[0], EV_READ);
	way_await(&f->in, fd, EV_READ);
	return ends[1];
}

/* ---- faults ---- */

static bool is_of_store(enum driver_fault fault)
{
	return fault == DRIVER_FAULT_STORE_LOST || fault == DRIVER_FAULT_STORE_AGAIN;
}

/* The fault is this question's from now on. true: it is not to be passed on. */
static bool fault_begin(struct driver_faults *f, uint64_t id)
{
	struct buf m = { 0 };

	if (f->next == DRIVER_FAULT_NONE)
		return false;
	f->fault = f->next;
	f->next = DRIVER_FAULT_NONE;
	f->id = id;
	f->met = false;
	if (is_of_store(f->fault)) {
		driver_lose_put(&m, &(struct driver_lose){ .id = id,
		                                           .nth = (uint32_t)f->n,
		                                           .again = f->fault == DRIVER_FAULT_STORE_AGAIN });
		way_send(&f->out, &m);
		buf_fini(&m);
	}
	return f->fault == DRIVER_FAULT_MESSAGE_LOST;
}

static void fault_put_raw(struct driver_faults *f, struct wire *w, struct buf *m)
{
	struct driver_ask write;
	struct buf raw = { 0 };

	if (!driver_ask_get(w, &write) || write.kind != DRIVER_WRITE)
		return;
	write.flags = DRIVER_WRITE_ADVICE;
	write.waited_out = "";
	write.text = f->raw;
	driver_ask_put(&raw, &write);
	buf_fini(m);
	*m = raw;
	mem_replace(&f->raw, NULL);
}

static bool faults_spoil_question(struct driver_faults *f, struct buf *m)
{
	struct wire w, front;
	enum driver_type type = driver_message_open(&w, m->data, m->len);

	front = w;
	if (type != DRIVER_ASK)
		return false;
	uint64_t id = wire_get_u64(&front); /* before the message is another one */
	if (f->raw)
		fault_put_raw(f, &w, m);
	return fault_begin(f, id);
}

static void faults_on_late(struct ev_loop *, ev_timer *timer, int)
{
	struct driver_faults *f = timer->data;

	way_send(&f->in, &f->late);
	buf_fini(&f->late);
}

static bool faults_spoil_answer(struct driver_faults *f, struct buf *m)
{
	struct wire w;
	enum driver_type type = driver_message_open(&w, m->data, m->len);
	enum driver_fault fault = f->fault;

	if ((type != DRIVER_ANSWER && type != DRIVER_LOST) || wire_get_u64(&w) != f->id)
		return false;
	if (type == DRIVER_LOST) {
		f->met |= is_of_store(fault);
		return is_of_store(fault);
	}
	f->fault = DRIVER_FAULT_NONE;
	if (fault == DRIVER_FAULT_ANSWER_LATE) {
		buf_fini(&f->late);
		buf_add(&f->late, m->data, m->len);
		ev_now_update(f->loop);
		ev_timer_stop(f->loop, &f->timer);
		ev_timer_set(&f->timer, f->n / 1000., 0.);
		ev_timer_start(f->loop, &f->timer);
	} else if (fault == DRIVER_FAULT_ANSWER_TWICE) {
		way_send(&f->in, m);
	}
	return fault == DRIVER_FAULT_ANSWER_LATE || fault == DRIVER_FAULT_ANSWER_LOST;
}

/* ---- for who asks ---- */

static void way_init(struct faults_way *w, struct driver_faults *f,
                     bool (*spoils)(struct driver_faults *, struct buf *))
{
	w->faults = f;
	w->from = w->to = -1;
	w->spoils = spoils;
	ev_init(&w->io, way_on_io);
	w->io.data = w;
}

struct driver_faults *driver_faults_new(struct ev_loop *loop, struct lock_env *env)
{
	struct driver_faults *f = mem_zero(sizeof *f);

	f->tap.started = faults_on_started;
	f->tap.ended = faults_on_ended;
	f->loop = loop;
	way_init(&f->out, f, faults_spoil_question);
	way_init(&f->in, f, faults_spoil_answer);
	ev_init(&f->timer, faults_on_late);
	f->timer.data = f;
	env->tap = &f->tap;
	return f;
}

void driver_faults_free(struct driver_faults *f)
{
	if (!f)
		return;
	faults_let_go(f);
	buf_fini(&f->late);
	free(f->raw);
	free(f);
}

bool driver_fault_next(struct driver_faults *f, enum driver_fault fault, int n)
{
	f->next = fault;
	f->n = n;
	return f->pid;
}

bool driver_fault_raw(struct driver_faults *f, const char *text, size_t len)
{
	free(f->raw);
	f->raw = mem_dupn(text, len);
	return f->pid;
}

bool driver_fault_met(const struct driver_faults *f)
{
	return f->met;
}

/* Its end of the socket is open, so it was not reaped: the number is its own. */
bool driver_fault_signal(struct driver_faults *f, int signal)
{
	struct pollfd p = { .fd = f->in.from };

	return p.fd >= 0 && poll(&p, 1, 0) == 0 && kill(f->pid, signal) == 0;
}
