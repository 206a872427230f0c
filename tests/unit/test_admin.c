/* What the admin endpoint says, where a running leader cannot be made to show it: a term that nobody ended in time. */
#include "tap.h"

#include "admin.h"
#include "buf.h"
#include "elector.h"

static struct elector_status status = { .lock = "file:/x", .identity = "me", .leader = "me", .address = "" };
static struct admin_renewals renewals;

static void list(void *arg, void (*each)(void *each_arg, const struct admin_election *e), void *each_arg)
{
	(void)arg;
	each(each_arg, &(struct admin_election){ .name = "", .status = &status, .lease = 15 * NSEC_PER_SEC, .renewals = &renewals });
}

static int ask(const char *path, struct buf *body)
{
	static const struct admin_source source = { list, NULL };
	const char *type = "";

	buf_drop(body, body->len);
	return admin_answer(&source, path, body, &type);
}

static void health(enum lease_phase phase, nsec since_renewal, int want, const char *what)
{
	struct buf body = { 0 };

	status.phase = phase;
	status.leading = phase == PHASE_LEADING && since_renewal < 10 * NSEC_PER_SEC;
	status.since_renewal = since_renewal;
	is_int(ask("/healthz", &body), want, what);
	if (want == 503)
		ok(strstr(body.data, "not renewed for 15.0") != NULL, "and says for how long: %s", body.data);
	buf_fini(&body);
}

int main(void)
{
	struct buf body = { 0 };

	health(PHASE_LEADING, NSEC_PER_SEC, 200, "a leader that renews is healthy");
	health(PHASE_LEADING, 15 * NSEC_PER_SEC, 200, "up to its lease");
	health(PHASE_LEADING, 15 * NSEC_PER_SEC + 1, 503, "a leader without a renewal for longer than its lease is sick");
	health(PHASE_LOST, 15 * NSEC_PER_SEC + 1, 503, "also while its script refuses to stop");
	health(PHASE_FOLLOWING, 100 * NSEC_PER_SEC, 200, "a standby that led long ago is healthy");
	health(PHASE_FOLLOWING, -1, 200, "and so is one that never led");

	admin_renewed(&renewals, NSEC_PER_MS);
	admin_renewed(&renewals, NSEC_PER_MS + 1);
	admin_renewed(&renewals, 100 * NSEC_PER_SEC);
	is_int(ask("/metrics", &body), 200, "metrics are there");
	ok(strstr(body.data, "_bucket{name=\"file:/x\",le=\"0.001\"} 1\n") != NULL, "a limit belongs to its bucket");
	ok(strstr(body.data, "_bucket{name=\"file:/x\",le=\"0.0025\"} 2\n") != NULL, "buckets are cumulative");
	ok(strstr(body.data, "le=\"10\"} 2\n") && strstr(body.data, "le=\"+Inf\"} 3\n"), "what is longer than all is in +Inf");
	ok(strstr(body.data, "_sum{name=\"file:/x\"} 100.002000\n") != NULL, "the sum is in seconds");
	buf_fini(&body);
	return tap_done();
}
