#include "program/sd_notify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static struct {
	int fd; /* connected; 0 = no NOTIFY_SOCKET, or it cannot be reached */
	uint64_t watchdog_us;
} systemd;

/* A path, or "@name" in the abstract namespace (sd_notify(3)). */
static int sd_connect(const char *name)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	size_t len = strlen(name);

	if ((*name != '/' && *name != '@') || len >= sizeof to.sun_path)
		return 0;
	memcpy(to.sun_path, name, len);
	if (*name == '@')
		to.sun_path[0] = '\0';
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return 0;
	if (connect(fd, (struct sockaddr *)&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0) {
		close(fd);
		return 0;
	}
	return fd;
}

/* A whole number in the environment; 0: there is none. */
static uint64_t sd_number(const char *variable)
{
	const char *text = getenv(variable);
	char *end;

	if (!text || *text < '0' || *text > '9')
		return 0;
	errno = 0;
	uint64_t number = strtoull(text, &end, 10);
	return errno || *end ? 0 : number;
}

/* Where WATCHDOG_PID names another process, the watchdog waits for that one. */
static uint64_t sd_read_watchdog(void)
{
	bool ours = !getenv("WATCHDOG_PID") || sd_number("WATCHDOG_PID") == (uint64_t)getpid();

	return ours ? sd_number("WATCHDOG_USEC") / 2 : 0;
}

void sd_notify_init(void)
{
	const char *name = getenv("NOTIFY_SOCKET");

	if (name)
		systemd.fd = sd_connect(name);
	systemd.watchdog_us = systemd.fd ? sd_read_watchdog() : 0;
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
}

uint64_t sd_notify_watchdog_us(void)
{
	return systemd.watchdog_us;
}

bool sd_notify_listened(void)
{
	return systemd.fd != 0;
}

void sd_notify_send(const char *fmt, ...)
{
	char text[2048];
	va_list ap;

	if (!systemd.fd)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (send(systemd.fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return; /* systemd is gone: nothing depends on it */
}

void sd_notify_stopping(nsec longest)
{
	sd_notify_send("STOPPING=1\nSTATUS=draining\nEXTEND_TIMEOUT_USEC=%" PRId64, (int64_t)(longest / 1000));
}

void sd_notify_reloading(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	sd_notify_send("RELOADING=1\nMONOTONIC_USEC=%" PRId64, (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000);
}
