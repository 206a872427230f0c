/* The script half: commands from stdin, results to stdout. One loop and one env for all the locks of a script, so that
 * what backends share among locks (connections, watches) is shared here too. */
#include "conform.h"

#include "base/buf.h"
#include "base/mem.h"
#include "locks/lock.h"
#include "locks/lock_listing.h"
#include "loop/offload.h"

#include <ev.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct held {
	struct held *next;
	struct script *script;
	char *name;
	struct lock *lock;
	char *prefix;         /* the URL of what is listed; NULL: this is a lock */
	struct record record; /* the write under way borrows these */
	struct version expected;
	struct lock_listing listing; /* as the list under way */
	json_int_t op;               /* id of the operation under way */
	const char *what;
	int calls;             /* of done, for the last operation */
	bool starting, closes; /* the lock is closed as soon as the operation has ended, from inside done */
	struct instant started;
};

struct script {
	struct lock_env env;
	struct held *locks;
	struct buf input;
	ev_io in;
};

static void say(json_t *line)
{
	char *text = json_dumps(line, JSON_COMPACT);

	printf("%s\n", text);
	fflush(stdout);
	free(text);
	json_decref(line);
}

static struct held *find(struct script *s, const char *name)
{
	for (struct held *h = s->locks; h; h = h->next)
		if (name && strcmp(h->name, name) == 0)
			return h;
	fprintf(stderr, "conform: no lock %s is open\n", name ? name : "(none)");
	exit(2);
}

static const char *text_of(const json_t *command, const char *key)
{
	const char *text = json_string_value(json_object_get(command, key));

	return text ? text : "";
}

static nsec within(const json_t *command)
{
	return (nsec)json_integer_value(json_object_get(command, "within_ms")) * NSEC_PER_MS;
}

/* ---- operations ---- */

static json_t *record_json(const struct record *r)
{
	char *text = record_print(r);
	json_t *j = json_loads(text, 0, NULL);

	free(text);
	return j;
}

static void close_lock(struct held *h)
{
	struct held **at = &h->script->locks;

	while (*at != h)
		at = &(*at)->next;
	*at = h->next;
	h->closes = false; /* it cancels, which calls done */
	h->lock->ops->close(h->lock);
	record_fini(&h->record);
	lock_listing_fini(&h->listing);
	free(h->prefix);
	free(h->name);
	free(h);
}

static void on_done(void *arg, const struct lock_result *r)
{
	struct held *h = arg;
	struct instant now = clock_now();
	json_t *line = json_pack("{s:I, s:s, s:s, s:s, s:I, s:i, s:b, s:f, s:f}", "id", h->op, "op", h->what, "outcome",
	                         lock_outcome_name(r->outcome), "version", r->version.text, "token",
	                         (json_int_t)r->token, "calls", ++h->calls, "inside", h->starting, "took_ms",
	                         (double)elapsed_holder(h->started, now) / NSEC_PER_MS, "sent_ms",
	                         (double)(r->sent_at.raw - h->started.raw) / NSEC_PER_MS);

	if (r->record)
		json_object_set_new(line, "record", record_json(r->record));
	if (r->outcome != LOCK_OK && r->outcome != LOCK_ABSENT && r->outcome != LOCK_CONFLICT)
		json_object_set_new(line, "err",
		                    json_pack("{s:i, s:s}", "code", (int)r->err.code, "text", r->err.text));
	if (h->prefix) {
		json_t *names = json_array();
		for (size_t i = 0; i < h->listing.count; i++)
			json_array_append_new(names, json_string(h->listing.name[i]));
		json_object_set_new(line, "names", names);
		json_object_set_new(line, "more", json_boolean(h->listing.more));
	}
	say(line);
	if (h->closes)
		close_lock(h);
}

static void begin(struct held *h, const json_t *command, const char *what)
{
	h->op = json_integer_value(json_object_get(command, "id"));
	h->what = what;
	h->calls = 0;
	h->starting = true;
	h->closes = json_is_true(json_object_get(command, "close"));
	h->started = clock_now();
}

static void do_read(struct script *s, const json_t *command)
{
	struct held *h = find(s, text_of(command, "lock"));

	begin(h, command, "read");
	h->lock->ops->read(h->lock, instant_add(h->started, within(command)), on_done, h);
	h->starting = false;
}

static void do_write(struct script *s, const json_t *command)
{
	struct held *h = find(s, text_of(command, "lock"));
	char *text = json_dumps(json_object_get(command, "record"), 0);
	struct err err;

	record_fini(&h->record);
	record_init(&h->record);
	if (!text || record_parse(&h->record, text, strlen(text), &err) < 0) {
		fprintf(stderr, "conform: %s\n", text ? err.text : "a write without a record");
		exit(2);
	}
	snprintf(h->expected.text, sizeof h->expected.text, "%s", text_of(command, "expected"));
	h->lock->token_floor = (int64_t)json_integer_value(json_object_get(command, "floor"));
	begin(h, command, "write");
	h->lock->ops->write(h->lock, &h->record, &h->expected, json_is_true(json_object_get(command, "durable")),
	                    instant_add(h->started, within(command)), on_done, h);
	h->starting = false;
	free(text);
}

static void do_list(struct script *s, const json_t *command)
{
	struct held *h = find(s, text_of(command, "lock"));

	if (!h->lock->ops->list) {
		fprintf(stderr, "conform: %s has no list\n", h->lock->url);
		exit(2);
	}
	lock_listing_fini(&h->listing);
	begin(h, command, "list");
	h->lock->ops->list(h->lock, &h->listing, instant_add(h->started, within(command)), on_done, h);
	h->starting = false;
}

static void do_remove(struct script *s, const json_t *command)
{
	struct held *h = find(s, text_of(command, "lock"));

	snprintf(h->expected.text, sizeof h->expected.text, "%s", text_of(command, "expected"));
	begin(h, command, "remove");
	h->lock->ops->remove(h->lock, &h->expected, instant_add(h->started, within(command)), on_done, h);
	h->starting = false;
}

/* The URL beside that of a lock; beside a prefix: of what has this name in the listing. */
static void do_beside(struct script *s, const json_t *command)
{
	const struct held *h = find(s, text_of(command, "lock"));
	char *url = lock_url_beside(h->lock, h->prefix ? h->prefix : text_of(command, "url"), text_of(command, "more"));

	say(json_pack("{s:O, s:s}", "id", json_object_get(command, "id"), "url", url));
	free(url);
}

static void do_cancel(struct script *s, const json_t *command)
{
	struct held *h = find(s, text_of(command, "lock"));

	h->lock->ops->cancel(h->lock);
	say(json_pack("{s:O, s:i}", "id", json_object_get(command, "id"), "calls", h->calls));
}

static void on_changed(void *arg)
{
	struct held *h = arg;

	say(json_pack("{s:s}", "notice", h->name));
}

static void do_watch(struct script *s, const json_t *command)
{
	struct held *h = find(s, text_of(command, "lock"));
	bool watching = h->lock->ops->watch && h->lock->ops->watch(h->lock, on_changed, h);

	say(json_pack("{s:O, s:b}", "id", json_object_get(command, "id"), "watching", watching));
}

/* ---- open and close ---- */

static void do_open(struct script *s, const json_t *command)
{
	json_t *id = json_object_get(command, "id");
	struct err err = { 0 };
	char *prefix = NULL;
	const char *url = text_of(command, "url"), *beside = text_of(command, "next_of");
	struct lock *l = json_is_true(json_object_get(command, "prefix"))
	                         ? lock_open_prefix(&s->env, url, &prefix, &err)
	                 : *beside ? lock_open_next(&s->env, find(s, beside)->lock, url, &err)
	                           : lock_open(&s->env, url, &err);

	if (!l) {
		free(prefix);
		say(json_pack("{s:O, s:b, s:i, s:s}", "id", id, "ok", 0, "code", (int)err.code, "err", err.text));
		return;
	}
	struct held *h = mem_zero(sizeof *h);
	record_init(&h->record);
	h->script = s;
	h->name = mem_dup(text_of(command, "lock"));
	h->lock = l;
	h->prefix = prefix;
	h->next = s->locks;
	s->locks = h;
	say(json_pack("{s:O, s:b, s:s, s:b, s:b}", "id", id, "ok", 1, "url", l->url, "token_in_record",
	              l->ops->token_in_record, "can_watch", l->ops->watch != NULL));
}

static void do_close(struct script *s, const json_t *command)
{
	close_lock(find(s, text_of(command, "lock")));
	say(json_pack("{s:O}", "id", json_object_get(command, "id")));
}

/* ---- the script ---- */

static void obey(struct script *s, const char *line)
{
	static const struct {
		const char *name;
		void (*act)(struct script *s, const json_t *command);
	} verbs[] = {
		{ "open", do_open },     { "read", do_read },     { "write", do_write },
		{ "cancel", do_cancel }, { "watch", do_watch },   { "close", do_close },
		{ "list", do_list },     { "remove", do_remove }, { "beside", do_beside },
	};
	json_t *command = json_loads(line, 0, NULL);

	for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
		if (command && strcmp(verbs[i].name, text_of(command, "do")) == 0) {
			verbs[i].act(s, command);
			json_decref(command);
			return;
		}
	}
	fprintf(stderr, "conform: not understood: %s\n", line);
	exit(2);
}

static void on_input(struct ev_loop *loop, ev_io *w, int events)
{
	struct script *s = w->data;
	char bytes[4096], *end;
	ssize_t n = read(w->fd, bytes, sizeof bytes);

	(void)events;
	if (n <= 0) {
		ev_break(loop, EVBREAK_ALL);
		return;
	}
	buf_add(&s->input, bytes, (size_t)n);
	while (s->input.len && (end = memchr(s->input.data, '\n', s->input.len))) {
		char *line = mem_dupn(s->input.data, (size_t)(end - s->input.data));
		buf_drop(&s->input, strlen(line) + 1);
		obey(s, line);
		free(line);
	}
}

int conform_script(void)
{
	struct script s = { 0 };

	s.env.loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
	s.env.offload = offload_new(s.env.loop, 2, NULL);
	ev_io_init(&s.in, on_input, STDIN_FILENO, EV_READ);
	s.in.data = &s;
	ev_io_start(s.env.loop, &s.in);
	ev_run(s.env.loop, 0);
	while (s.locks)
		close_lock(s.locks);
	lock_env_fini(&s.env);
	offload_free(s.env.offload);
	ev_loop_destroy(s.env.loop);
	buf_fini(&s.input);
	return 0;
}
