/* Names that are cut still differ. */
#include "client/short_name.h"
#include "tap.h"

#include <stdlib.h>

#define HOST "worker-pool-a.example.org_503e0e3f-8581-4e34-9e4f-"

static const char *const names[] = { HOST "545286b677a1", HOST "545286b677b2", HOST "645286b677b2", "web-1",
	                             "build-17.example.org_8f1c9e2a" };
#define NAMES (sizeof names / sizeof *names)

static char *short_of(const char *name, int most, int *put)
{
	struct buf b = { 0 };

	*put = short_name_put(&b, name, names, NAMES, most);
	return b.data;
}

static void is_short(const char *name, int most, const char *want, const char *what)
{
	int put;
	char *got = short_of(name, most, &put);

	is_str(got, want, what);
	free(got);
}

static void all_differ(int most)
{
	char *got[NAMES];
	int put;

	for (size_t i = 0; i < NAMES; i++) {
		got[i] = short_of(names[i], most, &put);
		if (put > most || (size_t)put != strlen(got[i]))
			ok(0, "%s is of %d characters, %d at most", got[i], put, most);
		for (size_t k = 0; k < i; k++)
			if (strcmp(got[i], got[k]) == 0)
				ok(0, "%d characters: %s and %s are both %s", most, names[i], names[k], got[i]);
	}
	for (size_t i = 0; i < NAMES; i++)
		free(got[i]);
	ok(1, "cut to %d characters all differ, and none is longer", most);
}

int main(void)
{
	is_short("web-1", 10, "web-1", "what fits stays as it is");
	is_short("build-17.example.org_8f1c9e2a", 20, "build-17.example.org",
	         "what differs in its beginning is cut behind it");
	is_short(HOST "545286b677a1", 20, "worker..545286b677a1", "else it keeps its beginning, and what differs");
	is_short("a\033[2Jb", 10, "a\\x1b[2Jb", "nothing moves the cursor");
	is_short("äöüäöüäöüäöü", 10, "äöüäöüäöüä", "a character of two bytes is one, and is not cut");
	for (int most = 10; most < 60; most += 7)
		all_differ(most);
	return tap_done();
}
