/* Random sequences of what happens to a program, with all scripts and all orders; then nobody disturbs any more, and
 * all comes to rest. COUNT sequences from seed FIRST: test_life_walk COUNT FIRST. A failure names its seed, and prints
 * the sequence. */
#include "life_world.h"

#include "tap.h"

enum { EVENTS = 150, REST = 400 };

static uint64_t noise;

static uint32_t drawn(uint32_t below)
{
	noise ^= noise << 13;
	noise ^= noise >> 7;
	noise ^= noise << 17;
	return (uint32_t)(noise >> 32) % below;
}

static bool disturbs(struct happened h)
{
	return h.what <= HAPPENS_NOT_SPAWNED || h.what == HAPPENS_LOADED_BAD || h.what == HAPPENS_LOAD_FAILED ||
	       h.what == HAPPENS_DIES || h.what == HAPPENS_TIMER || h.what == HAPPENS_LOST ||
	       h.what == HAPPENS_NEXT_TERM_LOST || h.what == HAPPENS_TERM_TIMER || h.what == HAPPENS_NEXT_TIMER ||
	       h.what == HAPPENS_SWEPT_UNCLEAN;
}

static bool ends(struct happened h)
{
	return h.what == HAPPENS_END || h.what == HAPPENS_KILL;
}

/* false: nothing can happen but what is not drawn. The end is seldom: nothing is left to be seen after it. */
static bool draw(struct world *w, uint32_t percent, struct happened *out)
{
	struct happenings h;
	struct happened some[160];
	bool disturbance = drawn(100) < percent;
	uint32_t n = 0;

	world_may(w, &h);
	for (int i = 0; i < h.count; i++)
		if (disturbs(h.list[i]) == disturbance && (!ends(h.list[i]) || drawn(30) == 0))
			some[n++] = h.list[i];
	if (n == 0)
		return false;
	*out = some[drawn(n)];
	return true;
}

static void happen(struct world *w, struct happened h)
{
	if (tracing)
		happened_print(w, h);
	world_happens(w, h);
}

/* Another script for each sequence; the order in which scripts follow one another is random anyway. */
static void set_the_scene(void)
{
	scene = (struct scene){ .script_count = SCRIPTS, .with_orders = true, .with_ends = true };
	scene.with_next = drawn(2);
	scene.with_hooks = drawn(2);
	scene.late = drawn(2);
	for (uint32_t i = 0; i < SCRIPTS; i++)
		scene.script[i] = (uint8_t)i;
}

static const char *rest(struct world *w, bool slow)
{
	struct happened h;

	if (tracing) {
		printf("# -- now nothing disturbs any more%s\n", slow ? ", and workers are slow" : "");
		world_print(w);
	}
	for (int i = 0; i < REST; i++) {
		if (w->broken)
			return w->broken;
		if (!world_calm(w, slow, &h))
			return world_lacks(w);
		tracing = tracing && i < 40;
		happen(w, h);
	}
	return "it never comes to rest";
}

/* NULL: all was well. */
static const char *walk(uint64_t seed, uint64_t *events)
{
	static const uint32_t percents[] = { 3, 10, 30, 60 };
	struct happened h;
	struct world w;

	noise = seed * 0x9e3779b97f4a7c15u | 1;
	for (int i = 0; i < 8; i++)
		drawn(2);
	set_the_scene();
	uint32_t percent = percents[drawn(4)];
	world_begin(&w, (uint8_t)drawn(SCRIPTS));
	for (int i = 0; i < EVENTS && !w.broken; i++)
		if (draw(&w, percent, &h)) {
			happen(&w, h);
			++*events;
		}
	return w.broken ? w.broken : rest(&w, drawn(2));
}

int main(int argc, char **argv)
{
	uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : getenv("FULL") ? 1000000 : 20000;
	uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1, events = 0, seed;
	const char *why = NULL;

	for (seed = first; seed < first + count && !why; seed++)
		why = walk(seed, &events);
	if (why) {
		printf("# seed %llu: %s\n", (unsigned long long)--seed, why);
		tracing = true;
		walk(seed, &events);
	}
	ok(!why, "%llu random sequences, seeds %llu to %llu, come to rest", (unsigned long long)count,
	   (unsigned long long)first, (unsigned long long)(first + count - 1));
	printf("# %llu events\n", (unsigned long long)events);
	return tap_done();
}
