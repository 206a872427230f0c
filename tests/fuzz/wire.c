/* A hostile worker, and a hostile elector: datagrams of the input's bytes go through a socket to the elector's end of
 * the channel; each that can be read is written again as the same bytes, and goes where the elector keeps it. */
#include "fuzz.h"

#include "process/channel.h"
#include "process/wire.h"
#include "config/election_settings.h"
#include "term/script_jobs.h"
#include "term/script_metrics.h"

#include <ev.h>
#include <sys/socket.h>
#include <unistd.h>

static struct script_metrics metrics;
static struct script_jobs jobs;
static int messages, ended;

/* true: it was read; then it is written as it came. */
#define TRY(number, TYPE, name)                                                    \
	case number: {                                                             \
		struct wire_##name m = { 0 };                                      \
		struct buf out = { 0 };                                            \
		if (wire_##name##_get(&w, &m)) {                                   \
			wire_##name##_put(&out, &m);                               \
			must(out.len == len && memcmp(out.data, bytes, len) == 0); \
		}                                                                  \
		buf_fini(&out);                                                    \
		break;                                                             \
	}

static void use(uint32_t sum)
{
	static volatile uint32_t last;

	last = sum;
}

static void kept(struct wire w)
{
	struct wire_go go;
	struct wire_kept part;
	uint32_t sum = 0;

	if (!wire_go_get(&w, &go))
		return;
	while (go.elections.at < go.elections.end && wire_kept_get(&go.elections, &part))
		sum += part.index + (uint32_t)strlen(part.lock) + (uint32_t)strlen(part.identity);
	must(go.elections.at <= go.elections.end);
	use(sum);
}

static void settings(struct wire w)
{
	struct wire_election e;
	struct election_settings s = { 0 };

	if (!wire_election_get(&w, &e))
		return;
	if (election_settings_copy(&s, &e))
		for (uint32_t i = 0; i < s.said_count; i++)
			must(option_table[s.said[i].option].is_key);
	election_settings_fini(&s);
}

/* What is kept of a job can be shown. */
static void judge_job(const struct wire_job *j)
{
	const char *const texts[] = { j->name, j->schedule, j->zone, j->status, j->why };

	must(*j->name && strlen(j->name) <= WIRE_JOB_NAME_MAX && j->next_s >= -1 && j->last_s >= -1 &&
	     j->took_ms >= -1);
	for (int i = 0; i < 5; i++) {
		must(strlen(texts[i]) <= WIRE_JOB_TEXT_MAX);
		for (const char *c = texts[i]; *c; c++)
			must((unsigned char)*c >= ' ' && *c != 127);
	}
}

static void on_message(void *arg, const void *bytes, size_t len)
{
	struct wire w, start;
	struct wire_metric metric;
	struct wire_job job;
	enum wire_type type = wire_open(&w, bytes, len);

	(void)arg;
	messages++;
	start = w;
	if (!type)
		return;
	wire_slot(&w);
	switch ((int)type) {
		WIRE_MESSAGES(TRY)
	}
	must(w.at <= w.end);
	if (type == WIRE_GO)
		kept(start);
	else if (type == WIRE_ELECTION)
		settings(start);
	else if (type == WIRE_METRIC && wire_metric_get(&start, &metric))
		script_metrics_put(&metrics, &metric, metric.slot % 3);
	else if (type == WIRE_JOB && wire_job_get(&start, &job) && script_jobs_put(&jobs, &job, job.slot % 3))
		judge_job(&job);
}

static void on_end(void *arg, size_t oversized)
{
	(void)arg, (void)oversized;
	must(++ended == 1);
}

/* A channel lasts until an input has ended it: to make one for each costs more than all that goes through it. */
static struct channel *connected(struct channel *c, int *other)
{
	static const struct channel_kind kind = {
		.message_max = WIRE_MAX, .turn_max = 64, .message = on_message, .end = on_end
	};
	static struct ev_loop *loop;
	int ends[2];

	if (!loop) {
		loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
		fuzz_silence();
	}
	if (c && !ended)
		return c;
	if (c) {
		channel_free(c);
		close(*other);
	}
	ended = 0;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
		abort();
	*other = ends[1];
	return channel_new(loop, ends[0], &kind, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct channel *c;
	static int other;
	struct input in = { data, size };
	char answer[8];
	int sent = 0;

	c = connected(c, &other);
	messages = 0;
	while (in.left >= 2) {
		size_t len = input_byte(&in);
		len |= (size_t)input_byte(&in) << 8;
		if (len > in.left)
			len = in.left;
		if (send(other, in.at, len, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
			sent++;
		in.at += len;
		in.left -= len;
		channel_drain(c);
	}
	must(messages <= sent);
	if (!ended) {
		channel_send(c, "answer", 6);
		must(recv(other, answer, sizeof answer, MSG_DONTWAIT) == 6);
	}
	if (jobs.count) {
		struct buf shown = { 0 };
		script_jobs_json(&shown, &jobs);
		must(buf_is_utf8(shown.data));
		buf_fini(&shown);
	}
	script_jobs_clear(&jobs);
	script_metrics_term_over(&metrics);
	script_metrics_worker_gone(&metrics);
	script_metrics_fini(&metrics);
	metrics = (struct script_metrics){ 0 };
	return 0;
}
