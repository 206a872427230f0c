/* URLs of locks in PostgreSQL: what libpq does not understand is refused, whatever words it has. */
#include "locks/postgres/pg_url.h"
#include "tap.h"

#include <stdlib.h>

static void is_refused(const char *text)
{
	struct pg_url u;
	struct err err = { 0 };

	ok(pg_url_parse(&u, text, &err) < 0 && err.code == ERR_USAGE, "%s is refused: %s", text, err.text);
}

static void is_printed(const char *text, const char *form)
{
	struct pg_url u;
	struct err err = { 0 };

	if (!is_int(pg_url_parse(&u, text, &err), 0, text))
		return;
	char *print = pg_url_print(&u);
	is_str(print, form, "is taken, and has its canonical form");
	free(print);
	pg_place_free(u.place);
	free(u.name);
	free(u.table);
}

int main(void)
{
	is_printed("//me@h/d?sslmode=require&table=t#n", "postgres://me@h:5432/d?table=t#n");
	is_printed("//me@h/d?port=x/y%01#n", "postgres://me@h:x%2Fy%01/d#n"); /* libpq says so when it connects */
	is_printed("//me@h:x%2Fy%01/d#n", "postgres://me@h:x%2Fy%01/d#n");
	is_printed("//me@h/d?max_age=60#n", "postgres://me@h:5432/d#n");
	is_refused("//h/d?max_age=0#n");
	is_refused("//h/d?max_age=60s#n");
	is_refused("//h/d?max_age=86401#n");
	is_refused("//h/d?max_age=10000000#n");
	is_refused("//h/d?no=such#n");
	is_refused("//h/d?sslmode\"b#n"); /* libpq's message has the word by which we know that all else is right */
	is_refused("//h/d?sslmodes=require#n");
	return tap_done();
}
