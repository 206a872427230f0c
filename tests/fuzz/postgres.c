/* What a PostgreSQL server's rows say, for each question; URIs of libpq; and names as SQL quotes them. The first byte
 * chooses: a URI, or rows whose fields are texts behind zero bytes. */
#include "fuzz.h"

#include "locks/postgres/pg_sql.h"
#include "locks/postgres/pg_url.h"

static void url(struct input *in)
{
	struct pg_url u, again;
	struct err err = { 0 };
	char *text = input_text(in, NULL);

	if (pg_url_parse(&u, text, &err) == 0) {
		char *print = pg_url_print(&u);
		must(strncmp(print, "postgres:", 9) == 0);
		if (pg_url_parse(&again, print + 9, &err) == 0) {
			char *twice = pg_url_print(&again);
			if (strcmp(print, twice) != 0) {
				fprintf(stderr, "%s\n%s\n", print, twice);
				must(!"the URL of a lock is one text");
			}
			free(twice);
			pg_place_free(again.place);
			free(again.name);
			free(again.table);
		}
		free(print);
		pg_place_free(u.place);
		free(u.name);
		free(u.table);
	}
	char *quoted = pg_sql_quote(text);
	size_t quotes = 0;
	for (const char *p = quoted; *p; p++)
		quotes += *p == '"';
	must(quotes % 2 == 0);
	free(quoted);
	free(text);
}

static PGresult *rows(struct input *in)
{
	int fields = input_byte(in) % 7, tuples = input_byte(in) % 3;
	PGresult *r = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
	PGresAttDesc columns[7];

	for (int i = 0; i < fields; i++)
		columns[i] = (PGresAttDesc){ .name = "c", .typid = 25, .typlen = -1 };
	if (fields)
		PQsetResultAttrs(r, fields, columns);
	for (int t = 0; t < tuples; t++)
		for (int f = 0; f < fields; f++) {
			size_t len;
			char *text = input_text(in, &len);
			PQsetvalue(r, t, f, text[0] == 1 ? NULL : text, text[0] == 1 ? -1 : (int)len);
			free(text);
		}
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	struct lock_about about = { 0 };

	if (input_byte(&in) % 2) {
		url(&in);
		return 0;
	}
	PGresult *r = rows(&in);
	for (int what = PG_READ; what <= PG_MARK; what++)
		if (pg_sql_fits((enum pg_asked)what, r) && what == PG_ABOUT)
			pg_sql_judge(&about, r);
	must(strlen(about.server) < sizeof about.server && strlen(about.warning) < sizeof about.warning);
	if (pg_sql_is_stamped("0.1", r))
		must(strcmp(PQgetvalue(r, 0, 3), "0.1") == 0);
	char *state = input_text(&in, NULL);
	must(pg_sql_refusal(state) && pg_sql_refusal(state)->advice);
	pg_sql_is_missing_table(state);
	pg_sql_is_made_already(state);
	free(state);
	PQclear(r);
	return 0;
}
