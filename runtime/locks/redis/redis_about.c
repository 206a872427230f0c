#include "locks/redis/redis_about.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A line of INFO: "name:value". Nothing is written where there is none. */
static void info_get(const char *info, const char *name, char *value, size_t size)
{
	size_t len = strlen(name);

	for (const char *line = info; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, name, len) != 0 || line[len] != ':')
			continue;
		snprintf(value, size, "%.*s", (int)strcspn(line + len + 1, "\r\n"), line + len + 1);
		return;
	}
}

__attribute__((format(printf, 2, 3))) static void about_warn(struct lock_about *about, const char *fmt, ...)
{
	size_t len = strlen(about->warning);
	va_list ap;

	if (len && len < sizeof about->warning - 2)
		len += (size_t)snprintf(about->warning + len, sizeof about->warning - len, "; ");
	va_start(ap, fmt);
	vsnprintf(about->warning + len, sizeof about->warning - len, fmt, ap);
	va_end(ap);
}

/* The lock's keys never expire: only policies for all keys evict them. */
static void about_eviction(struct lock_about *about, const char *info)
{
	char most[24] = "0", policy[24] = "noeviction";

	info_get(info, "maxmemory", most, sizeof most);
	info_get(info, "maxmemory_policy", policy, sizeof policy);
	if (strcmp(policy, "noeviction") == 0)
		return;
	if (strncmp(policy, "volatile", 8) == 0)
		about_warn(
			about,
			"maxmemory-policy is %s, which spares the lock as long as nobody gives its keys an expiry (noeviction is right)",
			policy);
	else if (strcmp(most, "0") == 0)
		about_warn(
			about,
			"maxmemory-policy is %s: as soon as maxmemory is set it may evict the record, and then two lead (noeviction is right)",
			policy);
	else
		about_warn(
			about,
			"maxmemory-policy is %s, and maxmemory %s: it may evict the record, and then two lead (noeviction is right)",
			policy, most);
	about->unfit = strncmp(policy, "volatile", 8) != 0 && strcmp(most, "0") != 0;
}

void redis_about(struct lock_about *about, const char *info, int replicas_asked)
{
	char version[40] = "of no known version", mode[20] = "standalone", aof[8] = "", replicas[12] = "0";

	info_get(info, "redis_version", version, sizeof version);
	info_get(info, "redis_mode", mode, sizeof mode);
	info_get(info, "aof_enabled", aof, sizeof aof);
	info_get(info, "connected_slaves", replicas, sizeof replicas);
	*about = (struct lock_about){ .pause_ms = 0 };
	snprintf(about->server, sizeof about->server, "Redis %s, %s, %s replicas", version, mode, replicas);
	about_eviction(about, info);
	if (strcmp(replicas, "0") != 0 && replicas_asked == 0)
		about_warn(
			about,
			"it has replicas, and the lock does not wait for them: after a failover a term's record may be lost, and what it saved "
			"(?replicas=N waits for N of them)");
	else if (strcmp(aof, "0") == 0)
		about_warn(
			about,
			"appendonly is off: a restart may lose the record; nobody is elected for a lease after it, and tokens go on by the "
			"server's clock");
}
