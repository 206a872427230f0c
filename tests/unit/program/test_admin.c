/* What the admin endpoint says, where a running leader cannot be made to show it: a term that nobody ended in time. */
#include "elector_rig.h"

#include "base/buf.h"
#include "base/mem.h"
#include "program/admin_metrics.h"
#include "program/admin.h"
#include "term/script_jobs.h"

static struct elector_status status = {
	.lock = "file:/x", .identity = "me", .leader = "me", .address = "", .barred = ""
};
static struct admin_renewals renewals;
static struct script_jobs script_jobs;

static void list(void *arg, void (*each)(void *each_arg, const struct standing *e), void *each_arg)
{
	(void)arg;
	each(each_arg, &(struct standing){ .name = "",
	                                   .status = &status,
	                                   .lease = 15 * NSEC_PER_SEC,
	                                   .renewals = &renewals,
	                                   .jobs = &script_jobs });
}

static int ask(const char *what, struct buf *body)
{
	static const struct standing_source source = { .list = list };
	const char *type = "";

	buf_drop(body, body->len);
	return admin_answer(&source, what, body, &type);
}

static void health(nsec since_renewal, int want, const char *what)
{
	struct buf body = { 0 };

	status.since_renewal = since_renewal;
	is_int(ask("/healthz", &body), want, what);
	if (want == 503)
		ok(strstr(body.data, "not renewed for 15.0") != NULL, "and says for how long: %s", body.data);
	buf_fini(&body);
}

static void asks_both(int standby, int readyz, const char *words, const char *what)
{
	struct buf body = { 0 };

	is_int(ask("/standby", &body), standby, what);
	ok(!words || strstr(body.data, words), "/standby says why: %s", body.data);
	is_int(ask("/readyz", &body), readyz, "and so much for /readyz");
	ok(!words || readyz == 200 || strstr(body.data, words), "which says the same");
	is_int(ask("/healthz", &body), 200, "nobody is to be restarted for that");
	buf_fini(&body);
}

static void readiness(void)
{
	struct elector_status before = status;

	status.since_renewal = -1;
	status.store.answered = true;
	asks_both(200, 200, NULL, "who lacks nothing is a standby");
	status.lacks = "it is ill";
	asks_both(503, 503, "it is ill", "who could not lead is none");
	status.standing.observer = true;
	status.lacks = "it only observes";
	asks_both(503, 200, "observes", "nor is an observer, which alone is ready");
	status.store.lost = true;
	asks_both(503, 503, "the store has not answered", "unless it has lost its store");
	status = before;
	status.leading = true;
	status.store.answered = true;
	asks_both(503, 200, "leading", "a leader is no standby");
	status = before;
}

/* ---- an elector whose script does not stop, and cannot be killed ---- */

struct stuck {
	struct rig rig;
	int led, lost;
};

static void on_lead(void *arg, const struct elector_term *t)
{
	(void)t;
	((struct stuck *)arg)->led = true;
}

static void on_stop(void *arg, enum lease_reason reason, bool held, struct instant stop_by)
{
	(void)reason, (void)held, (void)stop_by;
	((struct stuck *)arg)->lost = true;
}

static nsec since_renewal(const struct stuck *s)
{
	struct elector_status now;

	elector_status(s->rig.elector, &now);
	return now.since_renewal;
}

static void lose_and_stay(struct stuck *s, const struct lease_times *times)
{
	is_int(since_renewal(s), -1, "before it has led there is no renewal to speak of");
	elector_bar(s->rig.elector, NULL);
	until(&s->rig, &s->led, 1);
	ok(since_renewal(s) >= 0 && since_renewal(s) <= times->lease, "a leader tells how long ago it renewed");
	unlink(path);
	until(&s->rig, &s->lost, 1);
	while (since_renewal(s) >= 0 && since_renewal(s) <= times->lease)
		turn(&s->rig);
	ok(since_renewal(s) > times->lease,
	   "a term whose script does not stop goes on, without a renewal, for longer than its lease: /healthz sees it");
}

static void stuck(void)
{
	static const struct elector_callbacks callbacks = { .lead = on_lead,
		                                            .stop = on_stop,
		                                            .leader = no_leader,
		                                            .no_leader = nobody_leads,
		                                            .deadline = no_deadline };
	static const struct lease_times times = { .lease = 900 * NSEC_PER_MS,
		                                  .renew = 600 * NSEC_PER_MS,
		                                  .retry = 100 * NSEC_PER_MS,
		                                  .grace = 100 * NSEC_PER_MS,
		                                  .kill = 50 * NSEC_PER_MS,
		                                  .drift = 50 * NSEC_PER_MS };
	struct stuck s = { .led = 0 };

	place_make();
	rig_init(&s.rig);
	struct elector_config config = rig_config(&s.rig, 0);
	config.times = times;
	rig_start(&s.rig, &config, &callbacks, &s);
	lose_and_stay(&s, &times);
	rig_fini(&s.rig);
}

static bool tell_job(const char *name, int64_t last_s, uint64_t term)
{
	const struct wire_job w = { .term = 3,
		                    .name = name,
		                    .schedule = "*/5 * * * *",
		                    .zone = "",
		                    .next_s = 1795646400,
		                    .last_s = last_s,
		                    .took_ms = last_s < 0 ? -1 : 1500,
		                    .status = last_s < 0 ? "" : "failed",
		                    .why = last_s < 0 ? "" : "exit status 3",
		                    .running = 1 };

	return script_jobs_put(&script_jobs, &w, term);
}

static void shows_jobs(struct buf *body, const char *want, const char *what)
{
	is_int(ask("/jobs", body), 200, "jobs are there");
	const char *got = strstr(body->data, "\"jobs\":");
	is_str(got ? got : body->data, want, what);
}

static void jobs(struct buf *body)
{
	char name[120];

	shows_jobs(body, "\"jobs\":[]}]}\n", "a script that tells of no job has none");
	ok(tell_job("sync", -1, 3), "a job is told");
	shows_jobs(body,
	           "\"jobs\":[{\"name\":\"sync\",\"schedule\":\"*/5 * * * *\",\"zone\":null,\"running\":1,"
	           "\"next\":\"2026-11-25T22:40:00.000000Z\",\"last\":null,\"status\":null,\"why\":null,"
	           "\"tookMs\":null}]}]}\n",
	           "what is not known is null");
	ok(tell_job("sync", 1795646100, 3), "it is told again");
	shows_jobs(body,
	           "\"jobs\":[{\"name\":\"sync\",\"schedule\":\"*/5 * * * *\",\"zone\":null,\"running\":1,"
	           "\"next\":\"2026-11-25T22:40:00.000000Z\",\"last\":\"2026-11-25T22:35:00.000000Z\","
	           "\"status\":\"failed\",\"why\":\"exit status 3\",\"tookMs\":1500}]}]}\n",
	           "and replaces what was told before");
	ok(tell_job("late", -1, 4) && tell_job("late", -1, 0) && script_jobs.count == 1,
	   "a job of a term that is over is dropped");
	ok(!tell_job("", -1, 3), "one without a name makes no sense");
	ok(!tell_job("sync", INT64_MAX, 3) && !tell_job("sync", -2, 3), "nor does a time that is none");
	memset(name, 'n', sizeof name);
	name[sizeof name - 1] = '\0';
	ok(!tell_job(name, -1, 3), "nor a name of %zu bytes", strlen(name));
	ok(!tell_job("a\tb", -1, 3), "nor a control character");
	for (int i = 0; i < SCRIPT_JOBS_MAX + 5; i++) {
		snprintf(name, sizeof name, "job-%d", i);
		tell_job(name, -1, 3);
	}
	ok(script_jobs.count == SCRIPT_JOBS_MAX, "there are no more than so many");
	script_jobs_clear(&script_jobs);
	shows_jobs(body, "\"jobs\":[]}]}\n", "when the term is over, they are gone");
}

int main(void)
{
	struct buf body = { 0 };

	health(NSEC_PER_SEC, 200, "a leader that renews is healthy");
	health(15 * NSEC_PER_SEC, 200, "up to its lease");
	health(15 * NSEC_PER_SEC + 1, 503, "a term without a renewal for longer than its lease is sick");
	health(-1, 200, "who has no term is healthy");
	readiness();
	stuck();

	struct record r;
	record_init(&r);
	mem_replace(&r.holder, "me");
	mem_replace(&r.past, "[{\"identity\":\"you\",\"token\":7,\"reason\":\"resigned\"}]");
	status.record = &r;
	is_int(ask("/history", &body), 200, "past terms are there");
	ok(strncmp(body.data, "{\"at\":\"2", 8) == 0, "with the time of this machine");
	is_str(strstr(body.data, "\"elections\"") ? strstr(body.data, "\"elections\"") : body.data,
	       "\"elections\":[{\"name\":\"\",\"lock\":\"file:/x\",\"state\":\"leading\",\"terms\":[{\"identity\":\"you\",\"token\":7,\"from\":"
	       "null,\"to\":null,\"lastedMs\":null,\"gapMs\":null,\"reason\":\"resigned\",\"lasts\":false},{\"identity\":"
	       "\"me\",\"token\":null,\"from\":null,\"to\":null,\"lastedMs\":null,\"gapMs\":null,\"reason\":null,\"lasts\":"
	       "true}]}]}\n",
	       "with the one that lasts");
	record_fini(&r);
	jobs(&body);

	admin_renewed(&renewals, NSEC_PER_MS);
	admin_renewed(&renewals, NSEC_PER_MS + 1);
	admin_renewed(&renewals, 100 * NSEC_PER_SEC);
	is_int(ask("/metrics", &body), 200, "metrics are there");
	ok(strstr(body.data, "_bucket{name=\"file:/x\",le=\"0.001\"} 1\n") != NULL, "a limit belongs to its bucket");
	ok(strstr(body.data, "_bucket{name=\"file:/x\",le=\"0.0025\"} 2\n") != NULL, "buckets are cumulative");
	ok(strstr(body.data, "le=\"10\"} 2\n") && strstr(body.data, "le=\"+Inf\"} 3\n"),
	   "what is longer than all is in +Inf");
	ok(strstr(body.data, "_sum{name=\"file:/x\"} 100.002000\n") != NULL, "the sum is in seconds");
	buf_fini(&body);
	return place_end();
}
