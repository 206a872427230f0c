/* What a load of a script says about its elections, and whether a later load of the same version says the same. */
#include "run/script_version.h"

#include "base/mem.h"
#include "run/worker_set.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

static struct script_version v;
static struct worker_set s;
static struct err err;

/* A worker has loaded elections: "NAME=LOCK", with a * behind those that are isolated. */
static int load(const char *const *elections)
{
	for (uint32_t i = 0; i < s.settings_count; i++)
		election_settings_fini(&s.settings[i]);
	s.settings_count = 0;
	for (; *elections; elections++) {
		char name[32] = "";
		const char *lock = strchr(*elections, '=') + 1;
		memcpy(name, *elections, (size_t)(lock - *elections - 1));
		struct wire_election e = { .name = name,
			                   .lock = lock,
			                   .identity = "",
			                   .address = "",
			                   .where = "s.lua:1",
			                   .hooks = "",
			                   .flags = strchr(lock, '*') ? WIRE_ELECTION_ISOLATE : 0 };
		s.settings = mem_resize(s.settings, sizeof *s.settings * (s.settings_count + 1));
		election_settings_copy(&s.settings[s.settings_count++], &e);
	}
	return script_version_take(&v, &s, &err);
}

static int load_two(const char *one, const char *other)
{
	return load((const char *const[]){ one, other, NULL });
}

static void forget(void)
{
	for (uint32_t i = 0; i < s.settings_count; i++)
		election_settings_fini(&s.settings[i]);
	free(s.settings);
	free(s.slot);
	s = (struct worker_set){ 0 };
	script_version_fini(&v);
}

static void test_order(void)
{
	ok(load_two("a=x", "b=y") == 0 && v.count == 2 && v.groups == 0, "the first load says what the version is");
	ok(strcmp(v.settings[0].name, "a") == 0 && s.slot[0] == 0 && s.slot[1] == 1, "in its order");
	ok(load_two("b=y", "a=x") == 0 && s.slot[0] == 1 && s.slot[1] == 0,
	   "a worker that follows may list them in another order: they are told apart by their names");
	ok(s.election[0] == 1 && s.election[1] == 0, "and so is what it says of them");
	ok(strcmp(v.settings[0].name, "a") == 0 && strcmp(v.settings[0].lock, "x") == 0,
	   "the version stays what it is");
	forget();
}

static void test_others(void)
{
	load_two("a=x", "b=y");
	ok(load_two("a=x", "b=other") < 0 && strstr(err.text, "b"), "one with another lock is not of this version");
	ok(load_two("a=x", "c=y") < 0, "nor is one with another name");
	ok(load_two("a=x", "b=y*") < 0, "nor one with other hooks, or a worker of its own");
	ok(load((const char *const[]){ "a=x", NULL }) < 0, "nor are fewer");
	ok(load((const char *const[]){ "a=x", "b=y", "c=z", NULL }) < 0, "nor more");
	ok(load_two("a=x", "b=y") == 0, "but the same still are");
	forget();
}

static void test_groups(void)
{
	load((const char *const[]){ "a=x", "b=y*", "c=z", "d=w*", NULL });
	ok(v.groups == 2 && v.group[0] == 0 && v.group[1] == 1 && v.group[2] == 0 && v.group[3] == 2,
	   "each isolated election has a worker of its own, the others share one");
	forget();
	load((const char *const[]){ "a=x*", NULL });
	ok(v.groups == 0 && v.group[0] == 0, "a single one needs none");
	forget();
	ok(load((const char *const[]){ NULL }) == 0 && v.count == 0, "a script may have no election");
	forget();
}

static void test_nameless(void)
{
	load_two("=x", "=y");
	ok(load_two("=y", "=x") == 0 && s.slot[0] == 1, "elections without a name are told apart by their locks");
	forget();
	load((const char *const[]){ "=x", "=x", "=y", NULL });
	ok(load((const char *const[]){ "=y", "=x", "=x", NULL }) == 0 && s.slot[0] != s.slot[1],
	   "and none is taken for two");
	forget();
}

int main(void)
{
	test_order();
	test_others();
	test_groups();
	test_nameless();
	return tap_done();
}
