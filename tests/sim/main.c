#include "sim.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What one job reports through its pipe. */
struct totals {
	uint64_t seeds, counted, terms, handovers, given, taken, left, fenced, faults[FAULTS], bad_seed;
	int64_t virtual_ms, node_ms, bad_at_ms;
	char violated[120];
};

static void add(struct totals *t, uint64_t seed, const struct sim_result *r)
{
	t->seeds++;
	t->counted += r->counts;
	t->terms += r->terms;
	t->handovers += r->handovers;
	t->given += r->given;
	t->taken += r->taken;
	t->left += r->left;
	t->fenced += r->fenced;
	t->virtual_ms += r->virtual_ms;
	t->node_ms += r->node_ms;
	for (int f = 0; f < FAULTS; f++)
		t->faults[f] += r->faults[f];
	if (!r->violated || *t->violated)
		return;
	t->bad_seed = seed;
	t->bad_at_ms = r->violated_at_ms;
	snprintf(t->violated, sizeof t->violated, "%s", r->violated);
}

static void merge(struct totals *to, const struct totals *t)
{
	to->seeds += t->seeds;
	to->counted += t->counted;
	to->terms += t->terms;
	to->handovers += t->handovers;
	to->given += t->given;
	to->taken += t->taken;
	to->left += t->left;
	to->fenced += t->fenced;
	to->virtual_ms += t->virtual_ms;
	to->node_ms += t->node_ms;
	for (int f = 0; f < FAULTS; f++)
		to->faults[f] += t->faults[f];
	if (!*t->violated || (*to->violated && to->bad_seed < t->bad_seed))
		return;
	to->bad_seed = t->bad_seed;
	to->bad_at_ms = t->bad_at_ms;
	memcpy(to->violated, t->violated, sizeof to->violated);
}

/* `bad` is the first seed that breaks a promise, as far as any job knows: none goes beyond it. */
static void job(int fd, uint64_t first, uint64_t seeds, unsigned jobs, unsigned me, _Atomic uint64_t *bad)
{
	struct totals t = { 0 };

	for (uint64_t s = first + me; s < first + seeds && s < *bad; s += jobs) {
		struct sim_result r = sim_run(s, false);
		add(&t, s, &r);
		for (uint64_t known = *bad; r.violated && s < known && !atomic_compare_exchange_weak(bad, &known, s);)
			;
	}
	if (write(fd, &t, sizeof t) != (ssize_t)sizeof t)
		_exit(1);
	exit(0); /* writes what an instrumented build counted */
}

static struct totals run(uint64_t first, uint64_t seeds, unsigned jobs)
{
	struct totals all = { 0 }, t;
	_Atomic uint64_t *bad = mmap(NULL, sizeof *bad, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int fds[2];

	if (bad == MAP_FAILED || pipe(fds) < 0) {
		perror("sim");
		exit(2);
	}
	*bad = UINT64_MAX;
	for (unsigned i = 0; i < jobs; i++)
		if (fork() == 0)
			job(fds[1], first, seeds, jobs, i, bad);
	close(fds[1]);
	while (read(fds[0], &t, sizeof t) == (ssize_t)sizeof t)
		merge(&all, &t);
	close(fds[0]);
	while (wait(NULL) > 0 || errno == EINTR)
		;
	return all;
}

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void print(const struct totals *t, double seconds)
{
	printf("# %" PRIu64 " seeds, %" PRIu64 " count, %.0f a minute; %.0f virtual hours, %.0f node-hours, %" PRIu64
	       " terms, %" PRIu64 " handovers\n",
	       t->seeds, t->counted, (double)t->seeds / seconds * 60, (double)t->virtual_ms / 3.6e6,
	       (double)t->node_ms / 3.6e6, t->terms, t->handovers);
	printf("# %" PRIu64 " releases for the one that comes next, %" PRIu64 " of them acquired by it\n", t->given,
	       t->taken);
	printf("# %" PRIu64 " machines on which a process began again had work left outside, %" PRIu64
	       " terms fenced somebody before they began\n",
	       t->left, t->fenced);
	printf("# faults:");
	for (int f = 0; f < FAULTS; f++)
		printf(" %" PRIu64 " %s%s", t->faults[f], fault_names[f], f + 1 < FAULTS ? "," : "\n");
	if (*t->violated)
		printf("# seed %" PRIu64 " at %.3f s: %s (see --trace %" PRIu64 ")\n", t->bad_seed,
		       (double)t->bad_at_ms / 1e3, t->violated, t->bad_seed);
}

static int verdict(const struct totals *t)
{
	int enough = t->counted * 10 >= t->seeds * 9;

	printf("%sok 1 - P1, P4, P5, P7 and the time rules hold over %" PRIu64 " seeds\n", *t->violated ? "not " : "",
	       t->seeds);
	printf("%sok 2 - nine of ten seeds count: 60 virtual seconds, 3 terms, a handover, 4 kinds of fault\n",
	       enough ? "" : "not ");
	printf("1..2\n");
	return *t->violated || !enough;
}

static uint64_t number(const char *text)
{
	char *end;
	uint64_t n = strtoull(text, &end, 10);

	if (*text && !*end)
		return n;
	fprintf(stderr, "sim: \"%s\" is not a number\n", text);
	exit(2);
}

int main(int argc, char **argv)
{
	uint64_t seeds = 20000, first = 1, jobs = 2;

	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--seeds") == 0) {
			seeds = number(argv[i + 1]);
		} else if (strcmp(argv[i], "--first") == 0) {
			first = number(argv[i + 1]);
		} else if (strcmp(argv[i], "--jobs") == 0) {
			jobs = number(argv[i + 1]);
		} else if (strcmp(argv[i], "--trace") == 0) {
			return sim_run(number(argv[i + 1]), true).violated != NULL;
		} else {
			fprintf(stderr, "usage: sim [--seeds N] [--first SEED] [--jobs N] | --trace SEED\n");
			return 2;
		}
	}
	double began = now_s();
	struct totals t = run(first, seeds, (unsigned)jobs);
	print(&t, now_s() - began);
	return verdict(&t);
}
