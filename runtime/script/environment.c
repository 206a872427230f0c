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
	*e = (struct environment){ .before = environ };
	environment_enter(e, NULL);
}

void environment_fini(struct environment *e)
{
	if (environ == e->entries)
		environ = e->before;
	free(e->entries);
	free(e->text);
	*e = (struct environment){ 0 };
}

/* The variables of a term, or of an on_next, one behind the other. */
static void write_out(struct environment *e, const struct marker *m)
{
	size_t n = e->inherited;

	free(e->text);
	if (m->next) {
		e->text = mem_printf(NEXT_MARK_ENV "=%" PRIu32 ".%" PRIu32, m->slot, m->next);
		e->entries[n++] = no_term;
		e->entries[n++] = e->text;
	} else {
		e->text = mem_printf("%s=%" PRIu32 ".%" PRIu64 "%c%s=%" PRId64 "%c%s=%s%c%s=%s%c%s=%s", names[0],
		                     m->slot, m->term, 0, names[1], m->token, 0, names[2], m->lock, 0, names[3],
		                     m->identity, 0, names[4], m->address);
		char *at = e->text;
		for (int i = 0; i < TERM_VARIABLES; i++, at += strlen(at) + 1)
			e->entries[n++] = at;
	}
	e->entries[n] = NULL;
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
		write_out(e, m);
		return;
	}
	e->entries[e->inherited] = no_term;
	e->entries[e->inherited + 1] = NULL;
}
