/* Every state that a program can come into, breadth first: each is checked, and from each somebody leads when the
 * disturbances end. The shortest way to what must not be is printed. */
#include "life_world.h"

#include "tap.h"

#include <time.h>

/* States of a scene: in the check, which has seconds; and by `make test-full`, which searches some scenes whole. */
enum { BOUNDED = 60000, FULL = 2000000 };

/* The states that were found, in their order: each in few bytes, behind one another. */
struct search {
	uint8_t *bytes;
	uint64_t bytes_len, bytes_cap;
	uint64_t *at; /* where the bytes of a state begin; one more than there are states */
	uint32_t *parent;
	struct happened *how;
	uint8_t (*calm)[2]; /* of each, by slow: 0, or it is known to come to rest, after one back-off less */
	uint32_t count, cap;
	uint32_t *table; /* number + 1, by hash */
	uint64_t table_len;
};

static uint64_t hash(const uint8_t *b, uint32_t len)
{
	uint64_t h = 0x9e3779b97f4a7c15u;

	for (uint32_t i = 0; i < len; i++)
		h = (h ^ b[i]) * 0x100000001b3u;
	return h ^ h >> 29;
}

static void *resized(void *p, uint64_t size)
{
	p = realloc(p, size);
	if (!p)
		exit(2);
	return p;
}

static void table_place(struct search *s, uint32_t state)
{
	uint64_t h = hash(s->bytes + s->at[state], (uint32_t)(s->at[state + 1] - s->at[state]));

	while (s->table[h % s->table_len])
		h++;
	s->table[h % s->table_len] = state + 1;
}

static void grow(struct search *s)
{
	if (s->count + 1 >= s->cap) {
		s->cap = s->cap ? 2 * s->cap : 1 << 16;
		s->at = resized(s->at, sizeof *s->at * (s->cap + 1));
		s->parent = resized(s->parent, sizeof *s->parent * s->cap);
		s->how = resized(s->how, sizeof *s->how * s->cap);
		s->calm = resized(s->calm, sizeof *s->calm * s->cap);
		free(s->table);
		s->table_len = 2 * (uint64_t)s->cap;
		s->table = calloc(s->table_len, sizeof *s->table);
		for (uint32_t i = 0; i < s->count; i++)
			table_place(s, i);
	}
	if (s->bytes_len + sizeof((struct packed *)0)->bytes > s->bytes_cap) {
		s->bytes_cap = s->bytes_cap ? 2 * s->bytes_cap : 1 << 22;
		s->bytes = resized(s->bytes, s->bytes_cap);
	}
}

/* Its number; s->count before: it is new, and was added if `add`. */
static uint32_t find(struct search *s, const struct packed *p, bool add, uint32_t parent, struct happened how)
{
	uint64_t h = hash(p->bytes, p->len);

	for (; s->table_len && s->table[h % s->table_len]; h++) {
		uint32_t i = s->table[h % s->table_len] - 1;
		if (s->at[i + 1] - s->at[i] == p->len && memcmp(s->bytes + s->at[i], p->bytes, p->len) == 0)
			return i;
	}
	if (!add)
		return UINT32_MAX;
	grow(s);
	memcpy(s->bytes + s->bytes_len, p->bytes, p->len);
	s->at[s->count] = s->bytes_len;
	s->bytes_len += p->len;
	s->at[s->count + 1] = s->bytes_len;
	s->parent[s->count] = parent;
	s->how[s->count] = how;
	s->calm[s->count][0] = s->calm[s->count][1] = 0;
	table_place(s, s->count);
	return s->count++;
}

static void load(const struct search *s, uint32_t state, struct world *w)
{
	struct packed p;

	memcpy(p.bytes, s->bytes + s->at[state], s->at[state + 1] - s->at[state]);
	world_load(w, &p);
}

/* ---- what is printed of a failure ---- */

static void print_way(const struct search *s, uint32_t state)
{
	struct world w;

	if (s->parent[state] == UINT32_MAX)
		return;
	print_way(s, s->parent[state]);
	load(s, s->parent[state], &w);
	happened_print(&w, s->how[state]);
	tracing = true;
	world_happens(&w, s->how[state]);
	tracing = false;
}

static void print_failure(const struct search *s, uint32_t state, struct happened last)
{
	struct world w;

	print_way(s, state);
	load(s, state, &w);
	happened_print(&w, last);
	tracing = true;
	world_happens(&w, last);
	tracing = false;
}

/* ---- it comes to rest ---- */

enum { CALM_STEPS = 300 };

/* More than one back-off for each worker of the version in force, and one for each that ends, is none that is
 * documented. */
enum { BACK_OFFS = 4 };

static bool is_back_off(const struct world *w, struct happened h)
{
	return h.what == HAPPENS_TIMER && w->timer[h.arg] == LIFE_TIMER_BACK_OFF;
}

static const char *come_to_rest(struct search *s, uint32_t from, bool slow, struct happened *way, int *steps)
{
	uint32_t seen[CALM_STEPS], at = from;
	uint8_t before[CALM_STEPS], back_offs = 0;
	struct packed p;
	struct world w;
	int n = 0;

	load(s, from, &w);
	for (*steps = 0; *steps < CALM_STEPS; ++*steps) {
		if (at != UINT32_MAX && s->calm[at][slow])
			break;
		if (at != UINT32_MAX) {
			before[n] = back_offs;
			seen[n++] = at;
		}
		if (!world_calm(&w, slow, &way[*steps]))
			break;
		back_offs += is_back_off(&w, way[*steps]);
		world_happens(&w, way[*steps]);
		if (w.broken)
			return w.broken;
		world_save(&w, &p);
		at = find(s, &p, false, 0, way[0]);
	}
	if (*steps == CALM_STEPS)
		return "it never comes to rest";
	bool known = at != UINT32_MAX && s->calm[at][slow];
	if (!known && world_lacks(&w))
		return world_lacks(&w);
	uint8_t all = (uint8_t)(back_offs + (known ? s->calm[at][slow] - 1 : 0));
	while (n-- > 0)
		s->calm[seen[n]][slow] = (uint8_t)(1 + all - before[n]);
	return all > BACK_OFFS ? "it comes to rest after more back-offs than there are workers" : NULL;
}

static bool rests(struct search *s, uint32_t state)
{
	struct happened way[CALM_STEPS];
	struct world w;
	int steps;

	for (int slow = 0; slow < 2; slow++) {
		const char *why = come_to_rest(s, state, slow, way, &steps);
		if (!why)
			continue;
		printf("# %s, when the disturbances end%s:\n", why, slow ? ", and workers are slow" : "");
		print_way(s, state);
		printf("# -- now nothing disturbs any more\n");
		load(s, state, &w);
		world_print(&w);
		tracing = true;
		for (int i = 0; i < steps + (w.broken != NULL) && i < 25; i++) {
			happened_print(&w, way[i]);
			world_happens(&w, way[i]);
		}
		tracing = false;
		return false;
	}
	return true;
}

/* ---- the search ---- */

static void search_free(struct search *s)
{
	free(s->bytes);
	free(s->at);
	free(s->parent);
	free(s->how);
	free(s->calm);
	free(s->table);
}

static bool visit(struct search *s, uint32_t state)
{
	struct happenings h;
	struct world from, w;
	struct packed p;

	load(s, state, &from);
	world_may(&from, &h);
	for (int i = 0; i < h.count; i++) {
		memcpy(&w, &from, sizeof w);
		world_point(&w);
		world_happens(&w, h.list[i]);
		if (w.broken) {
			printf("# %s:\n", w.broken);
			print_failure(s, state, h.list[i]);
			return false;
		}
		world_save(&w, &p);
		find(s, &p, true, state, h.list[i]);
	}
	return rests(s, state);
}

static uint32_t depth(const struct search *s, uint32_t state)
{
	uint32_t n = 0;

	for (; state < s->count && s->parent[state] != UINT32_MAX; state = s->parent[state])
		n++;
	return n;
}

static void search(const char *what, const struct scene *of, uint32_t limit)
{
	struct search s = { 0 };
	struct packed p;
	struct world w;
	uint32_t done = 0;
	clock_t began = clock();

	scene = *of;
	world_begin(&w, scene.script[0]);
	if (w.broken)
		printf("# %s, at the beginning\n", w.broken);
	world_save(&w, &p);
	find(&s, &p, true, UINT32_MAX, (struct happened){ 0 });
	while (done < s.count && done < limit && visit(&s, done))
		done++;
	bool whole = done == s.count && !w.broken;
	ok(whole || done == limit, "%s: all is well in %s%u states", what, whole ? "all " : "the first ", done);
	printf("# %s%u events; %.1f s, %llu MB\n",
	       whole ? "the farthest comes after " : "all that come after less than ", depth(&s, done - 1),
	       (double)(clock() - began) / CLOCKS_PER_SEC, (unsigned long long)(s.bytes_len >> 20));
	search_free(&s);
}

static const struct {
	const char *what;
	struct scene scene;
	bool whole; /* all of its states are searched by `make test-full` */
} scenes[] = {
	{ "one election", { .script = { 3 }, .script_count = 1, .with_ends = true }, true },
	{ "one election with on_stopping",
	  { .script = { 3 }, .script_count = 1, .with_ends = true, .with_hooks = true },
	  true },
	{ "one election with on_next",
	  { .script = { 3 }, .script_count = 1, .with_ends = true, .with_next = true },
	  true },
	{ "one election with orders",
	  { .script = { 3 }, .script_count = 1, .with_ends = true, .with_orders = true },
	  true },
	{ "one election, and the loop is late",
	  { .script = { 3 }, .script_count = 1, .with_ends = true, .late = true } },
	{ "one whose worker reloads by itself",
	  { .script = { 3 }, .script_count = 1, .with_ends = true, .takes = true },
	  true },
	{ "one whose worker reloads by itself, and the loop is late",
	  { .script = { 3 }, .script_count = 1, .with_ends = true, .takes = true, .late = true } },
	{ "one becomes another", { .script = { 3, 9 }, .script_count = 2 }, true },
	{ "one that never starts", { .script = { 3, 10 }, .script_count = 2 }, true },
	{ "two elections, the same again", { .script = { 0 }, .script_count = 1 }, true },
	{ "two elections", { .script = { 0, 1 }, .script_count = 2 } },
	{ "another lock", { .script = { 0, 2 }, .script_count = 2, .with_orders = true } },
	{ "another lock, and the loop is late", { .script = { 0, 2 }, .script_count = 2, .late = true } },
	{ "a new name for a lock", { .script = { 0, 5 }, .script_count = 2 } },
	{ "fewer and more", { .script = { 3, 0, 4 }, .script_count = 3 } },
	{ "isolated", { .script = { 0, 6, 7 }, .script_count = 3 } },
	{ "without hooks", { .script = { 0, 8 }, .script_count = 2 } },
	{ "two that never start", { .script = { 0, 11 }, .script_count = 2 } },
	{ "all of it",
	  { .script = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 },
	    .script_count = SCRIPTS,
	    .with_next = true,
	    .with_hooks = true,
	    .with_orders = true,
	    .with_ends = true,
	    .late = true } },
};

/* test_life_search LIMIT SCENE: so many states of each scene at most, or of that one. */
int main(int argc, char **argv)
{
	bool full = getenv("FULL") != NULL;

	for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
		uint32_t limit = !full ? BOUNDED : scenes[i].whole ? UINT32_MAX : FULL;
		if (argc < 3 || strcmp(argv[2], scenes[i].what) == 0)
			search(scenes[i].what, &scenes[i].scene,
			       argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : limit);
	}
	return tap_done();
}
