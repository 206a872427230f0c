#include "locks/redis/redis_about.h"

#include <stdio.h>
#include <string.h>

/* The value of a line "name:value" of INFO; without such a line value stays as it is. */
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

/* The lock's keys never expire: only policies for all keys evict them. */
static void about_eviction(struct lock_about *about, const char *info)
{
	char most[24] = "0", policy[24] = "noeviction", risk[100];

	info_get(info, "maxmemory", most, sizeof most);
	info_get(info, "maxmemory_policy", policy, sizeof policy);
	if (strcmp(policy, "noeviction") == 0)
		return;
	if (strncmp(policy, "volatile", 8) == 0)
		snprintf(risk, sizeof risk, ", which spares the lock as long as nobody gives its keys an expiry");
	else if (strcmp(most, "0") == 0)
		snprintf(risk, sizeof risk, ": as soon as maxmemory is set it may evict the record, and then two lead");
	else
		snprintf(risk, sizeof risk, ", and maxmemory %s: it may evict the record, and then two lead", most);
	about->unfit = strncmp(policy, "volatile", 8) != 0 && strcmp(most, "0") != 0;
	snprintf(about->warning, sizeof about->warning, "maxmemory-policy is %s%s (noeviction is right)", policy, risk);
}

void redis_about(struct lock_about *about, const char *info, int replicas_asked)
{
	char version[40] = "of no known version", mode[20] = "standalone", aof[8] = "", replicas[12] = "0";
	const char *lost = "";

	info_get(info, "redis_version", version, sizeof version);
	info_get(info, "redis_mode", mode, sizeof mode);
	info_get(info, "aof_enabled", aof, sizeof aof);
	info_get(info, "connected_slaves", replicas, sizeof replicas);
	*about = (struct lock_about){ .pause_ms = 0 };
	snprintf(about->server, sizeof about->server, "Redis %s, %s, %s replicas", version, mode, replicas);
	about_eviction(about, info);
	if (strcmp(replicas, "0") != 0 && replicas_asked == 0)
		lost = "it has replicas, and the lock does not wait for them: after a failover a term's record may be lost, "
		       "and what it saved (?replicas=N waits for N of them)";
	else if (strcmp(aof, "0") == 0)
		lost = "appendonly is off: a restart may lose the record; nobody is elected for a lease after it, and tokens "
		       "go on by the server's clock";
	size_t len = strlen(about->warning);
	snprintf(about->warning + len, sizeof about->warning - len, "%s%s", len && *lost ? "; " : "", lost);
}
