#include "exec/exec_warm.h"

#include "base/err.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FIRST_DESCRIPTOR 3 /* behind the standard ones */

/* ---- what it says ---- */

static void warm_on_line(struct exec_warm *w)
{
	if (w->led)
		return;
	if (strcmp(w->line, "ready") == 0) {
		w->ready = true;
		log_event(LOG_INFO, NULL, "warm_ready", "the command is ready to lead, %.3g s after its start",
		          (double)elapsed_standby(w->started, clock_now()) / NSEC_PER_SEC);
		return;
	}
	if (w->puzzled)
		return;
	w->puzzled = true;
	log_event(LOG_WARN, NULL, "warm_unknown",
	          "the command wrote \"%s%s\" to LUNARCH_WARM_FD: only \"ready\" says "
	          "something there",
	          w->line, w->length >= sizeof w->line ? "..." : "");
}

/* A line that does not fit is longer than any that we know. */
static void warm_take(struct exec_warm *w, const char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (bytes[i] != '\n') {
			if (w->length < sizeof w->line - 1)
				w->line[w->length] = bytes[i];
			w->length += w->length < sizeof w->line;
			continue;
		}
		w->line[w->length < sizeof w->line ? w->length : sizeof w->line - 1] = '\0';
		warm_on_line(w);
		w->length = 0;
	}
}

static void warm_read(struct exec_warm *w)
{
	char bytes[512];
	ssize_t n;

	while ((n = recv(w->said.fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
		warm_take(w, bytes, (size_t)n);
	if (n < 0 && (errno == EAGAIN || errno == EINTR || err_kernel_lacks(errno)))
		return;
	w->deaf = true;
	w->reset = n < 0 && errno == ECONNRESET;
	ev_io_stop(w->loop, &w->said);
}

static void warm_on_said(struct ev_loop *, ev_io *io, int)
{
	warm_read(io->data);
}

/* ---- life ---- */

int exec_warm_init(struct exec_warm *w, nsec slow, struct err *err)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	*w = (struct exec_warm){ .asked = true, .slow = slow, .descriptor = null };
	if (null >= 0 && null < FIRST_DESCRIPTOR) {
		w->descriptor = fcntl(null, F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR);
		close(null);
	}
	return w->descriptor < 0 ? err_sys(err, "cannot keep a descriptor for LUNARCH_WARM_FD") : 0;
}

void exec_warm_fini(struct exec_warm *w)
{
	if (!w->asked)
		return;
	exec_warm_close(w);
	close(w->descriptor);
}

int exec_warm_open(struct exec_warm *w, struct ev_loop *loop, struct err *err)
{
	int fd[2];

	exec_warm_close(w);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) < 0)
		return err_sys(err, "cannot make a socket for LUNARCH_WARM_FD");
	w->loop = loop;
	w->open = true;
	w->ready = w->deaf = w->reset = w->led = w->puzzled = false;
	w->length = 0;
	w->number++;
	w->started = clock_now();
	ev_io_init(&w->said, warm_on_said, fd[0], EV_READ);
	w->said.data = w;
	ev_io_start(w->loop, &w->said);
	return fd[1];
}

void exec_warm_close(struct exec_warm *w)
{
	if (!w->open)
		return;
	ev_io_stop(w->loop, &w->said);
	close(w->said.fd);
	w->open = false;
}

/* ---- leading ---- */

/* What it has written meanwhile is looked at first: it may be ready since a moment ago, or have ended. */
bool exec_warm_lead(struct exec_warm *w, int64_t token)
{
	char line[32];
	int n = snprintf(line, sizeof line, "lead %" PRId64 "\n", token);

	if (w->open && !w->deaf)
		warm_read(w);
	if (!w->open || !w->ready || w->deaf)
		return false;
	w->led = send(w->said.fd, line, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL) == n;
	return w->led;
}

/* The socket says so: it is reset if its other end is closed before all was read (unix(7)). */
bool exec_warm_unheard(struct exec_warm *w)
{
	if (w->open && !w->deaf)
		warm_read(w);
	return w->open && w->led && w->reset;
}

const char *exec_warm_standing(const struct exec_warm *w)
{
	if (!w->open || w->deaf)
		return "cold";
	if (w->ready)
		return "ready";
	return elapsed_standby(w->started, clock_now()) < w->slow ? "starting" : "cold";
}
