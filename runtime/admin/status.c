#include "admin/status.h"

#include "base/module.h"
#include "base/proc.h"
#include "lease/record_time.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct status_list {
	struct buf *out;
	int count;
};

static void add_election(void *arg, const struct standing *e)
{
	struct status_list *l = arg;

	buf_adds(l->out, l->count++ ? "," : "");
	standing_json(l->out, e);
}

void status_json(struct buf *out, const struct standing_source *source)
{
	struct status_list list = { .out = out };
	struct proc_stat self = { 0 };
	uint64_t pid = (uint64_t)getpid();
	char boot[37], at[32];

	proc_boot_id(boot);
	if (proc_stat(pid, &self) < 0)
		self.start = 0;
	record_time_print(clock_wall_us(), at, sizeof at);
	buf_printf(out, "{\"version\":\"" LUNARCH_BUILD "\",\"pid\":%" PRIu64 ",\"startTicks\":%" PRIu64, pid,
	           self.start);
	buf_printf(out, ",\"boot\":\"%s\",\"stopped\":%s,\"at\":\"%s\",\"elections\":[", boot,
	           source ? "false" : "true", at);
	if (source)
		source->list(source->arg, add_election, &list);
	buf_adds(out, "]}\n");
}

static bool take_number(const char **at, const char *before, uint64_t *out)
{
	size_t len = strlen(before);
	char *end;

	if (strncmp(*at, before, len) != 0 || !isdigit((unsigned char)(*at)[len]))
		return false;
	*out = strtoull(*at + len, &end, 10);
	*at = end;
	return true;
}

bool status_author(const char *text, struct status_author *out)
{
	static const char version[] = "{\"version\":\"", boot[] = ",\"boot\":\"", stopped[] = "\",\"stopped\":";
	const char *at = text;

	*out = (struct status_author){ 0 };
	if (strncmp(at, version, sizeof version - 1) != 0)
		return false;
	at += sizeof version - 1;
	at += strcspn(at, "\"");
	if (!take_number(&at, "\",\"pid\":", &out->pid) || !take_number(&at, ",\"startTicks\":", &out->start) ||
	    strncmp(at, boot, sizeof boot - 1) != 0)
		return false;
	at += sizeof boot - 1;
	size_t len = strcspn(at, "\"");
	if (len >= sizeof out->boot || strncmp(at + len, stopped, sizeof stopped - 1) != 0)
		return false;
	memcpy(out->boot, at, len);
	out->stopped = strncmp(at + len + sizeof stopped - 1, "true", 4) == 0;
	return true;
}

bool status_author_lives(const struct status_author *a)
{
	struct proc_stat now;
	char boot[37];

	proc_boot_id(boot);
	return !a->stopped && a->pid != (uint64_t)getpid() && strcmp(boot, a->boot) == 0 &&
	       proc_stat(a->pid, &now) == 0 && now.start == a->start && proc_runs(&now);
}
