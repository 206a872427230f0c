/* Tells systemd how the program is (sd_notify(3)): READY, STATUS, STOPPING, RELOADING, WATCHDOG.
 * Not libsystemd: linking it costs every candidate start time and memory for one datagram.
 * Used by run and exec. */
#pragma once

#include "base/clock.h"

#include <stdbool.h>
#include <stdint.h>

/* Remembers NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID and removes them from the environment, so that what is
 * started cannot notify in our name. Once. */
void sd_notify_init(void);

/* How often systemd wants to hear WATCHDOG=1, in microseconds: half of what it waits for (sd_watchdog_enabled(3)); 0:
 * it does not. */
uint64_t sd_notify_watchdog_us(void);

bool sd_notify_listened(void); /* somebody waits for what is sent */

/* Sends state, lines of "NAME=value". Never waits and never fails: without a listener nothing is sent. */
void sd_notify_send(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* STOPPING=1; systemd shows that the terms are draining, and waits for the time `longest` even if TimeoutStopSec is
 * shorter. */
void sd_notify_stopping(nsec longest);

/* RELOADING=1 with the time that Type=notify-reload wants beside it. READY=1 ends it. */
void sd_notify_reloading(void);
