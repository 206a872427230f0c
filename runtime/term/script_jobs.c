#include "term/script_jobs.h"

#include "base/json_out.h"
#include "base/log.h"
#include "base/mem.h"
#include "lease/record_time.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TIME_MAX_S (RECORD_TIME_MAX / 1000000)

struct script_job {
	char *name, *schedule, *zone, *status, *why; /* one block of memory, which begins at name */
	int64_t next_s, last_s, took_ms;             /* -1: not known */
	uint32_t running;
};
#define JOB_TEXTS 5

/* Control characters would be six bytes each as JSON, and an answer is made on the elector's loop. */
static bool text_fits(const char *text, size_t max)
{
	for (const char *c = text; *c; c++)
		if (iscntrl((unsigned char)*c))
			return false;
	return strlen(text) <= max;
}

static bool time_is_valid(int64_t s)
{
	return s >= -1 && s <= TIME_MAX_S;
}

static bool job_is_valid(const struct wire_job *w)
{
	return *w->name && text_fits(w->name, WIRE_JOB_NAME_MAX) && text_fits(w->schedule, WIRE_JOB_TEXT_MAX) &&
	       text_fits(w->zone, WIRE_JOB_TEXT_MAX) && text_fits(w->status, WIRE_JOB_TEXT_MAX) &&
	       text_fits(w->why, WIRE_JOB_TEXT_MAX) && time_is_valid(w->next_s) && time_is_valid(w->last_s) &&
	       w->took_ms >= -1;
}

/* The place of the job with this name, zeroed if it is new. NULL: there is none, and the log has said so. */
static struct script_job *jobs_place(struct script_jobs *jobs, const char *name)
{
	for (size_t i = 0; i < jobs->count; i++)
		if (strcmp(jobs->job[i].name, name) == 0)
			return &jobs->job[i];
	if (jobs->count == SCRIPT_JOBS_MAX) {
		if (!jobs->full)
			log_event(LOG_WARN, NULL, "jobs_full",
			          "the script has told of more than %d jobs: %s and others run, and are not shown",
			          SCRIPT_JOBS_MAX, name);
		jobs->full = true;
		return NULL;
	}
	jobs->job = mem_resize(jobs->job, (jobs->count + 1) * sizeof *jobs->job);
	jobs->job[jobs->count] = (struct script_job){ 0 };
	return &jobs->job[jobs->count++];
}

static void jobs_drop(struct script_jobs *jobs, const char *name)
{
	for (size_t i = 0; i < jobs->count; i++) {
		if (strcmp(jobs->job[i].name, name) != 0)
			continue;
		free(jobs->job[i].name);
		memmove(&jobs->job[i], &jobs->job[i + 1], (--jobs->count - i) * sizeof *jobs->job);
		return;
	}
}

bool script_jobs_put(struct script_jobs *jobs, const struct wire_job *w, uint64_t term)
{
	char *text[JOB_TEXTS];

	if (!job_is_valid(w))
		return false;
	if (!term || w->term != term)
		return true;
	if (!*w->schedule) {
		jobs_drop(jobs, w->name);
		return true;
	}
	struct script_job *job = jobs_place(jobs, w->name);
	if (!job)
		return true;
	free(job->name);
	mem_pack(JOB_TEXTS, (const char *const[]){ w->name, w->schedule, w->zone, w->status, w->why }, text);
	*job = (struct script_job){ .name = text[0],
		                    .schedule = text[1],
		                    .zone = text[2],
		                    .status = text[3],
		                    .why = text[4],
		                    .next_s = w->next_s,
		                    .last_s = w->last_s,
		                    .took_ms = w->took_ms,
		                    .running = w->running };
	return true;
}

void script_jobs_clear(struct script_jobs *jobs)
{
	for (size_t i = 0; i < jobs->count; i++)
		free(jobs->job[i].name);
	free(jobs->job);
	*jobs = (struct script_jobs){ 0 };
}

/* ---- as JSON ---- */

static void put_time(struct buf *out, const char *key, int64_t s)
{
	char text[32] = "";

	if (s >= 0)
		record_time_print(s * 1000000, text, sizeof text);
	json_out_known_text(out, key, text);
}

void script_jobs_json(struct buf *out, const struct script_jobs *jobs)
{
	json_out_open(out, NULL, "[");
	for (size_t i = 0; jobs && i < jobs->count; i++) {
		const struct script_job *job = &jobs->job[i];
		json_out_open(out, NULL, "{");
		json_out_text(out, "name", job->name);
		json_out_known_text(out, "schedule", job->schedule);
		json_out_known_text(out, "zone", job->zone);
		json_out_int(out, "running", job->running);
		put_time(out, "next", job->next_s);
		put_time(out, "last", job->last_s);
		json_out_known_text(out, "status", job->status);
		json_out_known_text(out, "why", job->why);
		json_out_known_int(out, "tookMs", job->took_ms);
		buf_adds(out, "}");
	}
	buf_adds(out, "]");
}
