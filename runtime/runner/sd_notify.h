/* Tells systemd how the program is (sd_notify(3)): READY, STATUS, STOPPING, RELOADING.
 * Not libsystemd: linking it costs every candidate start time and memory for one datagram.
 * Used by run and exec. */
#ifndef LUNARCH_SD_NOTIFY_H
#define LUNARCH_SD_NOTIFY_H

/* Remembers NOTIFY_SOCKET and removes it from the environment, so that what is started cannot speak for us. Once. */
void notify_init(void);

/* Sends state, lines of "NAME=value". Never waits, never fails: nobody may be listening. */
void notify(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* RELOADING=1 with the time that Type=notify-reload wants beside it. READY=1 ends it. */
void notify_reloading(void);

#endif
