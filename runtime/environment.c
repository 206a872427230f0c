#include "environment.h"

#include "mem.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const names[MARKER_VARIABLES] = {
	"LUNARCH_TERM", "LUNARCH_TOKEN", "LUNARCH_TERM_LOCK", "LUNARCH_TERM_IDENTITY", "LUNARCH_TERM_ADDRESS",
};
static char no_term[] = "LUNARCH_TERM=-";

/* One block for all five, since a process may lead a thousand terms. */
void marker_init(struct marker *m, uint32_t slot, uint64_t term, int64_t token, const char *lock, const char *identity,
                 const char *address)
{
	char slot_term[48], token_text[24];

	snprintf(slot_term, sizeof slot_term, "%" PRIu32 ".%" PRIu64, slot, term);
	snprintf(token_text, sizeof token_text, "%" PRId64, token);
	const char *const values[MARKER_VARIABLES] = { slot_term, token_text, lock, identity, address };
	size_t size = 0;
	for (int i = 0; i < MARKER_VARIABLES; i++)
		size += strlen(names[i]) + 1 + strlen(values[i]) + 1;
	char *at = mem_zero(size);
	for (int i = 0; i < MARKER_VARIABLES; i++) {
		m->entry[i] = at;
		at += sprintf(at, "%s=%s", names[i], values[i]) + 1;
	}
}

void marker_fini(struct marker *m)
{
	free(m->entry[0]);
	*m = (struct marker){ 0 };
}

static bool is_marker(const char *entry)
{
	for (int i = 0; i < MARKER_VARIABLES; i++) {
		size_t len = strlen(names[i]);
		if (strncmp(entry, names[i], len) == 0 && entry[len] == '=')
			return true;
	}
	return false;
}

/* environ is not ours yet, or setenv(3) has replaced it by a copy of its own. */
static void adopt(struct environment *e)
{
	size_t n = 0;

	while (environ && environ[n])
		n++;
	char **entries = mem_zero((n + MARKER_VARIABLES + 1) * sizeof *entries);
	e->inherited = 0;
	for (size_t i = 0; i < n; i++)
		if (!is_marker(environ[i]))
			entries[e->inherited++] = environ[i];
	free(e->entries);
	e->entries = entries;
	environ = entries;
}

void environment_init(struct environment *e)
{
	*e = (struct environment){ 0 };
	environment_enter(e, NULL);
}

void environment_fini(struct environment *e)
{
	if (environ == e->entries)
		environ = NULL;
	free(e->entries);
	*e = (struct environment){ 0 };
}

void environment_enter(struct environment *e, const struct marker *m)
{
	if (environ != e->entries || !environ)
		adopt(e);
	for (int i = 0; i < MARKER_VARIABLES; i++)
		e->entries[e->inherited + i] = m ? m->entry[i] : i == 0 ? no_term : NULL;
}
