#include "program/status.h"

#include "base/json_out.h"
#include "base/module.h"
#include "base/proc.h"
#include "lease/record_time.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void add_election(void *arg, const struct standing *e)
{
	standing_json(arg, e);
}

void status_json(struct buf *out, const struct standing_source *source)
{
	struct proc_stat self = { 0 };
	uint64_t pid = (uint64_t)getpid();
	char boot[37], at[32];

	proc_boot_id(boot);
	if (proc_stat(pid, &self) < 0)
		self.start = 0;
	record_time_print(clock_wall_us(), at, sizeof at);
	json_out_open(out, NULL, "{");
	json_out_text(out, "version", LUNARCH_BUILD);
	json_out_int(out, "pid", (int64_t)pid);
	json_out_int(out, "startTicks", (int64_t)self.start);
	json_out_text(out, "boot", boot);
	json_out_bool(out, "stopped", !source);
	json_out_text(out, "at", at);
	json_out_open(out, "elections", "[");
	if (source)
		source->list(source->arg, add_election, out);
	buf_adds(out, "]}\n");
}

bool status_author(const char *text, struct status_author *out)
{
	char pid[21], start[21], stopped[6];
	int boot = 0;

	*out = (struct status_author){ 0 };
	if (sscanf(text, "{\"version\":\"%*[^\"]\",\"pid\":%20[0-9],\"startTicks\":%20[0-9],\"boot\":\"%n", pid, start,
	           &boot) != 2 ||
	    !boot)
		return false;
	size_t len = strcspn(text + boot, "\"");
	if (len >= sizeof out->boot || sscanf(text + boot + len, "\",\"stopped\":%5[a-z]", stopped) != 1)
		return false;
	memcpy(out->boot, text + boot, len);
	out->pid = strtoull(pid, NULL, 10);
	out->start = strtoull(start, NULL, 10);
	out->stopped = strcmp(stopped, "true") == 0;
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
