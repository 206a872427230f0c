/* Files beside a file lock, and sentences about what it answers.
 * Not the lock: lock_drive.h drives it.
 * Used by tests/unit/locks/file. */
#pragma once

#include "locks/lock.h"
#include "tap.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

static char base[200]; /* a directory of this test's own */

static const char *in(const char *name)
{
	static char path[4][600];
	static int turn;

	turn = (turn + 1) % 4;
	snprintf(path[turn], sizeof path[0], "%s/%s", base, name);
	return path[turn];
}

/* Temporary files, or all that are not hidden. */
static int files_in(const char *dir, bool temps)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int n = 0;

	while (d && (e = readdir(d)))
		n += temps ? strstr(e->d_name, ".tmp") != NULL : *e->d_name != '.';
	if (d)
		closedir(d);
	return n;
}

static void put_file(const char *path, const void *bytes, size_t len)
{
	FILE *f = fopen(path, "w");

	if (!f || fwrite(bytes, 1, len, f) != len || fclose(f) != 0)
		ok(0, "the test can write %s", path);
}

__attribute__((unused)) static void put_text(const char *path, const char *text)
{
	put_file(path, text, strlen(text));
}

static void outcome_is(enum lock_outcome got, enum lock_outcome want, const char *sentence)
{
	is_str(lock_outcome_name(got), lock_outcome_name(want), sentence);
}

static void has(const char *text, const char *what, const char *sentence)
{
	if (!ok(strstr(text, what) != NULL, "%s", sentence))
		printf("# '%s' is not in: %s\n", what, text);
}
