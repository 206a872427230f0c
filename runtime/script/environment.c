#include "script/environment.h"

#include "base/env.h"
#include "base/mem.h"
#include "process/guard_wire.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *const names[MARKER_VARIABLES + 1] = {
	TERM_MARK_ENV,           "LUNARCH_TOKEN",        "LUNARCH_TERM_LOCK",
	"LUNARCH_TERM_IDENTITY", "LUNARCH_TERM_ADDRESS", NEXT_MARK_ENV,
};
enum { TERM_VARIABLES = MARKER_VARIABLES - 1 }; /* all but the last */
static char no_term[] = TERM_MARK_ENV "=-";

/* Called if environ is not our list: at the start, and after setenv(3) has replaced it by a copy. */
static void adopt(struct environment *e)
{
	char **entries = env_with(environ, names);

	for (e->inherited = 0; entries[e->inherited]; e->inherited++)
		;
	free(e->entries);
	e->entries = environ = entries; /* with room for the markers, since they were among the changes */
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
	free(e->text);
	*e = (struct environment){ 0 };
}

static void write_out(struct environment *e, const struct marker *m)
{
	char slot_term[48], token[24];
	const char *const values[TERM_VARIABLES] = { slot_term, token, m->lock, m->identity, m->address };
	size_t size = 0;

	snprintf(slot_term, sizeof slot_term, "%" PRIu32 ".%" PRIu64, m->slot, m->term);
	snprintf(token, sizeof token, "%" PRId64, m->token);
	for (int i = 0; i < TERM_VARIABLES; i++)
		size += strlen(names[i]) + 1 + strlen(values[i]) + 1;
	e->text = mem_resize(e->text, size);
	char *at = e->text;
	for (int i = 0; i < TERM_VARIABLES; i++) {
		e->entries[e->inherited + (size_t)i] = at;
		at += sprintf(at, "%s=%s", names[i], values[i]) + 1;
	}
	e->entries[e->inherited + TERM_VARIABLES] = NULL;
}

static void write_out_next(struct environment *e, const struct marker *m)
{
	free(e->text);
	e->text = mem_printf(NEXT_MARK_ENV "=%" PRIu32 ".%" PRIu32, m->slot, m->next);
	e->entries[e->inherited] = no_term;
	e->entries[e->inherited + 1] = e->text;
	e->entries[e->inherited + 2] = NULL;
}

void environment_enter(struct environment *e, const struct marker *m)
{
	bool adopted = environ != e->entries || !environ;

	if (adopted)
		adopt(e);
	else if (m ? m->slot == e->slot && m->term == e->term && m->next == e->next : !e->term && !e->next)
		return;
	e->slot = m ? m->slot : 0;
	e->term = m ? m->term : 0;
	e->next = m ? m->next : 0;
	if (m) {
		if (m->next)
			write_out_next(e, m);
		else
			write_out(e, m);
		return;
	}
	e->entries[e->inherited] = no_term;
	e->entries[e->inherited + 1] = NULL;
}
