/* Lock URLs: what is printed reads as the same, nothing printed has the password, and a text is encoded and decoded as
 * it was. */
#include "fuzz.h"

#include "base/buf.h"
#include "locks/lock_url.h"

static void encoding(const char *text)
{
	struct buf b = { 0 };

	lock_url_encode(&b, text, LOCK_URL_PATH);
	char *back = lock_url_decode(b.data ? b.data : "", b.len);
	must(back && strcmp(back, text) == 0);
	free(back);
	buf_fini(&b);
	free(lock_url_decode(text, strlen(text)));
}

static void round_trip(const struct lock_url *u, int port)
{
	struct lock_url again;
	struct err err;
	char *print = lock_url_print(u, "s"), host[300];

	must(u->hosts >= 1 && u->hosts <= LOCK_URL_HOSTS && u->options <= LOCK_URL_OPTIONS);
	for (int i = 0; i < u->hosts; i++)
		lock_url_print_host(u, i, host);
	if (lock_url_parse(&again, "s", print + 2, port, lock_url_any, &err) < 0) {
		fprintf(stderr, "%s: %s\n", print, err.text);
		must(!"what is printed can be read");
	}
	char *twice = lock_url_print(&again, "s");
	must(strcmp(print, twice) == 0 && strcmp(u->user, again.user) == 0 && strcmp(u->path, again.path) == 0);
	free(twice);
	lock_url_fini(&again);
	free(print);
}

/* A password with whatever bytes before and behind a secret: the URL is refused, or nothing shown has the secret. */
static void hides(const char *before, const char *behind)
{
	char text[400];
	struct lock_url u;
	struct err err = { .text = "" };

	snprintf(text, sizeof text, "s://u:%.99sGEHEIM%.99s@h/k", before, behind);
	char *shown = lock_url_redact(text);
	must(!strstr(shown, "GEHEIM"));
	free(shown);
	if (lock_url_check(text, &err) < 0 || lock_url_parse(&u, "s", text + 2, 80, lock_url_any, &err) < 0) {
		must(!strstr(err.text, "GEHEIM"));
		return;
	}
	shown = lock_url_print(&u, "s");
	must(!strstr(shown, "GEHEIM"));
	free(shown);
	lock_url_fini(&u);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	struct lock_url u;
	struct err err;
	int port = input_byte(&in) % 2 ? 80 : 0, number;
	char *text = input_text(&in, NULL);

	if (!strstr(text, "password_file")) { /* which would read a file */
		if (lock_url_parse(&u, "s", text, port, lock_url_any, &err) == 0) {
			lock_url_number(&u, "db", 0, 15, 0, &number, &err);
			must(lock_url_same_servers(&u, &u));
			round_trip(&u, port);
			lock_url_fini(&u);
		}
		if (lock_url_parse_options(&u, "l", text, lock_url_any, &err) == 0)
			lock_url_fini(&u);
	}
	char *redacted = lock_url_redact(text), *twice = lock_url_redact(redacted);
	must(strcmp(redacted, twice) == 0);
	free(redacted);
	free(twice);
	encoding(text);
	if (!strstr(text, "password_file"))
		hides(text, text + strlen(text) / 2);
	free(text);
	return 0;
}
