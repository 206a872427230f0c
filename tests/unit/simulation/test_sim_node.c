/* A simulated worker whose messages make no sense: as under `run` it is killed, the log says which message was wrong,
 * and the next worker runs on_stopped. No script can send such a message, so this test puts it among a worker's own:
 * sim:clock(NODE, N), in the tests below, puts the N-th there. */
#include "base/mem.h"
#include "simulation/sim.h"
#include "simulation/testing.h"
#include "tap.h"

#include <stdlib.h>
#include <unistd.h>

static const char script[] = "return {\n"
			     "  on_leading = function() sleep(1e6) end,\n"
			     "  on_stopped = function(_, reason) print('stopped', reason) end,\n"
			     "}\n";

static const char tests[] =
	"for i, name in ipairs(names) do\n"
	"  test(name .. ': it is killed, the log says which message it was, the next worker runs on_stopped', function()\n"
	"    local sim = simulate { script = 'script.lua', nodes = { 'a', 'b' } }\n"
	"    local old = sim:elect()\n"
	"    sim:clock(old, i)\n"
	"    sim:run(60)\n"
	"    equal(sim:printed('^stopped', old), { 'stopped\\tworker' })\n"
	"    local said = sim:errors()\n"
	"    equal(#said, 1)\n"
	"    matches(said[1], name)\n"
	"    equal(#sim:events 'worker_malformed', 1)\n"
	"    expect(sim:leader())\n"
	"  end)\n"
	"end\n";

/* Every kind of message with a byte behind its end, and one of no kind. */
struct nonsense {
	const char *name;
	void (*put)(struct buf *m);
};

#define PUT(number, TYPE, name)                                \
	static void put_##name(struct buf *m)                  \
	{                                                      \
		wire_##name##_put(m, &(struct wire_##name){}); \
		buf_add(m, "", 1);                             \
	}
#define ROW(number, TYPE, name) { #name, put_##name },
WIRE_MESSAGES(PUT)

static void put_unknown(struct buf *m)
{
	buf_add(m, &(uint32_t){ 63 }, sizeof(uint32_t));
}

static const struct nonsense nonsense[] = { WIRE_MESSAGES(ROW){ "of no known type", put_unknown } };

static int put_nonsense(struct sim *s, const char *what, const char *name, double number, struct err *err)
{
	struct buf m = { 0 };

	if (strcmp(what, "clock") != 0)
		return sim_fault(s, what, name, number, err);
	nonsense[(int)number - 1].put(&m);
	struct sim_message *message = mem_zero(sizeof *message + m.len);
	message->len = m.len;
	memcpy(message->bytes, m.data, m.len);
	buf_fini(&m);
	for (uint32_t i = 0; i < s->count; i++)
		if (strcmp(s->nodes[i]->name, name) == 0) {
			struct sim_messages *b = &s->nodes[i]->to_elector; /* it is empty: nobody's code runs */
			b->first = message;
			b->end = &message->next;
		}
	return 0;
}

static char *put_file(const char *directory, const char *name, const char *text)
{
	char *path = mem_printf("%s/%s", directory, name);
	FILE *f = fopen(path, "w");

	if (!f || fputs(text, f) < 0 || fclose(f) != 0)
		exit(1);
	return path;
}

int main(void)
{
	char directory[] = "/tmp/lunarch-test-XXXXXX";
	struct buf text = { 0 };
	struct err err;
	int count = 0;

	buf_adds(&text, "local names = {");
	for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++)
		buf_printf(&text, " '%s',", nonsense[i].name);
	buf_adds(&text, " }\n");
	buf_adds(&text, tests);
	if (!mkdtemp(directory))
		return 1;
	char *script_path = put_file(directory, "script.lua", script);
	char *tests_path = put_file(directory, "some_test.lua", text.data);
	int failed = testing_run(tests_path, put_nonsense, 1, &count, &err);
	if (failed < 0)
		printf("# %s\n", err.text);
	tap_count = count;
	tap_failed = failed;
	is_int(count, sizeof nonsense / sizeof *nonsense, "every kind of message has been tried");
	unlink(script_path);
	unlink(tests_path);
	rmdir(directory);
	free(script_path);
	free(tests_path);
	buf_fini(&text);
	int status = tap_done();
	fflush(stdout);
	_exit(status); /* as `lunarch test` does: what a simulated process had when it died is not freed */
}
