/* What records and keys may hold: long texts, odd ones, odd names, of which each is a record of its own; and what is
 * listed of them. */
#include "doctor/store_full_internal.h"

#include "base/mem.h"
#include "locks/lock_listing.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ODD "J\u00fcrgen \u540d\u524d \"quoted\" \\ 'x' {y} %s $1 \u2603 \U0001f984 \u202e\u0301\x01\n\t;--"

#define LIST_WITHIN (20 * NSEC_PER_SEC) /* each by a connection of its own, which a busy machine takes long to make */

#define BLANKS " \t  a   b \t\t c  \t "

/* ---- texts ---- */

/* What a reads is what b wrote, whole. */
static bool kept(struct full *f, char *wrote, const char *what)
{
	bool same = false;

	if (full_reads(f, f->a, "a read of it", LOCK_OK)) {
		f->a->record.token = f->b->record.token; /* the store may have made it */
		char *got = record_print(&f->a->record);
		same = strcmp(got, wrote) == 0;
		if (!same)
			full_tell(f, STORE_UNFIT, "%s is another text when it is read: of %zu bytes %zu came back%s",
			          what, strlen(wrote), strlen(got),
			          strlen(got) == strlen(wrote) ? ", and not the same ones" : "");
		free(got);
	}
	return same;
}

static bool text_is_kept(struct full *f, const char *what, struct record *r)
{
	char *wrote = record_print(r);
	struct version expected = f->at;

	bool good = full_try(f, f->b, &expected, true) == LOCK_OK;
	if (good)
		f->at = f->b->result.version;
	else if (f->b->result.outcome == LOCK_FAILED || full_true(f, f->b))
		full_astray(f, f->b, what, LOCK_OK);
	good = good && kept(f, wrote, what);
	free(wrote);
	return good;
}

/* A JSON text of so many bytes at most, of which it has as many of these letters as there is room for. */
static char *long_json(size_t size, const char *letters)
{
	char *text = mem_zero(size + 1);
	size_t each = strlen(letters), len = 1;

	*text = '"';
	for (; len + each < size; len += each)
		memcpy(text + len, letters, each);
	text[len] = '"';
	return text;
}

static bool checkpoint_is_kept(struct full *f, size_t size, const char *letters, const char *what)
{
	full_fill(f, f->b);
	free(f->b->record.checkpoint);
	f->b->record.checkpoint = long_json(size, letters);
	return text_is_kept(f, what, &f->b->record);
}

void full_big(struct full *f)
{
	if (full_reads(f, f->a, "a read", LOCK_ABSENT) &&
	    checkpoint_is_kept(f, RECORD_CHECKPOINT_MAX, "x", "a record with a checkpoint of 16 KB") &&
	    checkpoint_is_kept(f, RECORD_CHECKPOINT_MAX, "\u00e9\u540d\\\"", "one of 16 KB of other letters") &&
	    checkpoint_is_kept(f, RECORD_KEPT_MAX - 4096, "x", "a record of 92 KB"))
		full_tell(f, STORE_GOOD, "records of 16 and of 92 KB are kept whole");
}

/* Blanks stand in the middle of a text, and at its ends. */
static bool blanks_are_kept(struct full *f)
{
	struct record *r = &f->b->record;

	full_fill(f, f->b);
	mem_replace(&r->holder, BLANKS);
	mem_replace(&r->checkpoint, "\"   a   b  \\t\\t c  \\t  \"");
	return text_is_kept(f, "a record with runs of blanks, and blanks at the ends of its texts,", r);
}

void full_texts(struct full *f)
{
	struct record *r = &f->b->record;

	if (!full_reads(f, f->a, "a read", LOCK_ABSENT))
		return;
	full_fill(f, f->b);
	mem_replace(&r->holder, ODD);
	mem_replace(&r->address, ODD);
	mem_replace(&r->previous_holder, ODD);
	mem_replace(&r->checkpoint, "{\"a\":\"\\u0001\\\\\\\"\u540d\",\"b\":[null,1.5,\"'; --\"]}");
	/* Fields of other programs, and of later versions. */
	r->extra = json_pack("{s:{s:[i,n,s,I]}}", "somebodysField", "kept", 1, ODD, (json_int_t)1 << 53);
	if (text_is_kept(f, "a record with quotes, backslashes, control characters and letters of other scripts", r) &&
	    blanks_are_kept(f))
		full_tell(
			f, STORE_GOOD,
			"quotes, backslashes, blanks, control characters and letters of other scripts are kept as they are");
}

/* ---- keys ---- */

struct key {
	const char *base, *more; /* behind the scratch key */
	bool wrote;
};

/* -1: this kind of lock takes no such key. */
static int key_turn(struct full *f, struct lock_client *s, const struct key *k)
{
	struct err err;
	char *more = mem_printf("%s%s", k->base, k->more), *url = full_url(f, more);
	int status = full_turn_to(f, s, url, &err);

	free(more);
	free(url);
	return status;
}

static bool key_is_holder(const struct key *k, const char *holder)
{
	size_t base = strlen(k->base);

	return strncmp(holder, k->base, base) == 0 && strcmp(holder + base, k->more) == 0;
}

/* What logs and `status` print names the same lock, where it can be opened without the secret that is not printed. */
static bool key_prints(struct full *f, struct lock_client *s, const char *what)
{
	struct err err;
	struct lock *again = lock_open(&s->env, s->lock->url, &err);
	bool good = !again || strcmp(again->url, s->lock->url) == 0;

	if (!good)
		full_tell(f, STORE_UNFIT, "%s is printed as %s, which is another lock when it is opened: %s", what,
		          s->lock->url, again->url);
	if (again)
		again->ops->close(again);
	return good;
}

/* true: it is written, and is the record of this key, by whose name it is held. */
static bool key_write(struct full *f, struct key *k)
{
	char *what = mem_printf("the key \"...%s%s\"", k->base, k->more);

	if (lock_client_read(f->a) == LOCK_OK)
		full_tell(f, STORE_UNFIT, "%s has the record of another key: %s", what, f->a->record.holder);
	else if (f->a->result.outcome != LOCK_ABSENT)
		full_astray(f, f->a, what, LOCK_ABSENT);
	else if (key_prints(f, f->a, what)) {
		struct version expected = f->a->result.version;
		full_fill(f, f->a);
		free(f->a->record.holder);
		f->a->record.holder = mem_printf("%s%s", k->base, k->more);
		k->wrote = full_try(f, f->a, &expected, true) == LOCK_OK;
		if (!k->wrote)
			full_astray(f, f->a, what, LOCK_OK);
	}
	free(what);
	return k->wrote;
}

/* The number of those that the lock refuses. */
static int keys_write(struct full *f, struct key *keys, int count)
{
	int refused = 0;

	for (int i = 0; i < count && f->findings == 0 && !f->x->report->signal; i++) {
		if (key_turn(f, f->a, &keys[i]) < 0)
			refused++;
		else
			key_write(f, &keys[i]);
	}
	return refused;
}

static void key_check(struct full *f, const struct key *k)
{
	if (lock_client_read(f->b) != LOCK_OK)
		full_astray(f, f->b, "a read of one of several keys", LOCK_OK);
	else if (!key_is_holder(k, f->b->record.holder))
		full_tell(f, STORE_UNFIT,
		          "the key \"...%s%s\" has the record of another key: is each byte of the key escaped?",
		          k->base, k->more);
}

/* Removes the keys one after the other. Each must still be there when those before it have been removed. */
static void keys_check(struct full *f, struct key *keys, int count)
{
	for (int i = 0; i < count; i++) {
		if (!keys[i].wrote || key_turn(f, f->b, &keys[i]) < 0)
			continue;
		if (f->findings == 0)
			key_check(f, &keys[i]);
		full_clean(f, f->b);
	}
}

/* ---- odd names ---- */

/* No two of them are the same key, for a store that folds case or accents, or that cuts blanks, either. Where a URL has
 * no escapes, they are keys as they stand. */
static const char *const odd_keys[] = {
	"-plain",
	"-Plain",
	"-a%2Fb",
	"-a%252Fb",
	"-a%2Fc%2Fd",
	"-a+b",
	"-with%20space",
	"-with%20space%20",
	"-k%C3%A4se",
	"-kase",
	"-%E5%90%8D",
	"-q%22u%27o",
	"-%5Cx",
	"-%7Ba%7D",
	"-open%7B",
	"-shut%7D",
	"-a%3Fb%23c",
	"-a%26b%3Dc",
	"-a%3Ah%2Ci%3Bj%40k%24l%21%28m%29%2A~",
	"-%27%3B%20DROP%20TABLE%20lunarch_locks%3B%20--",
	"-d.o.t",
	"-01234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789",
};
#define KEYS ((int)(sizeof odd_keys / sizeof *odd_keys))

void full_keys(struct full *f)
{
	struct key keys[KEYS];

	for (int i = 0; i < KEYS; i++)
		keys[i] = (struct key){ "-key", odd_keys[i], false };
	int refused = keys_write(f, keys, KEYS), usable = 0;
	for (int i = 0; i < KEYS; i++)
		usable += keys[i].wrote;
	keys_check(f, keys, KEYS);
	full_tell(f, STORE_GOOD, "%d keys with odd letters, %d records%s", usable, usable,
	          refused ? "; some are no keys for this kind of lock, which says so" : "");
}

/* ---- what is listed ---- */

/* What languages for patterns give a meaning to, and what each would match as a pattern; and what markup does. */
static const struct key listed[] = {
	{ "-list", "-one", false },       { "-list", "-two", false },   { "-list", "-two-b", false },
	{ "-like", "-a%25z", false },     { "-like", "-aXz", false },   { "-like", "-b_z", false },
	{ "-like", "-bXz", false },       { "-like", "-c%2Az", false }, { "-like", "-cXz", false },
	{ "-like", "-d%3Fz", false },     { "-like", "-dXz", false },   { "-like", "-e%5Bf-g%5Dz", false },
	{ "-like", "-efz", false },       { "-like", "-h.z", false },   { "-like", "-hXz", false },
	{ "-like", "-i%5Cjz", false },    { "-like", "-ijz", false },   { "-like", "-k%5Ez", false },
	{ "-like", "-m%26%3Cnz", false },
};
#define LISTED ((int)(sizeof listed / sizeof *listed))

/* What is listed where so much of a key is named. Sorted, as listings are. */
static const struct look {
	struct key prefix;
	const char *names[4];
} looks[] = {
	{ { "-list", "", false }, { "-one", "-two", "-two-b" } },
	{ { "-list", "-two", false }, { "", "-b" } },
	{ { "-like", "-a%25z", false }, { "" } },
	{ { "-like", "-b_z", false }, { "" } },
	{ { "-like", "-c%2Az", false }, { "" } },
	{ { "-like", "-d%3Fz", false }, { "" } },
	{ { "-like", "-e%5Bf-g%5Dz", false }, { "" } },
	{ { "-like", "-h.z", false }, { "" } },
	{ { "-like", "-k%5Ez", false }, { "" } },
	{ { "-like", "-m%26%3Cnz", false }, { "" } },
	{ { "-like", "-i%5Cjz", false }, { "" } },
};
static const struct look nothing = { { "-list", "", false }, { NULL } };

static bool listing_is(const struct lock_listing *l, const char *const *names)
{
	size_t count = 0;

	while (count < l->count && names[count] && strcmp(l->name[count], names[count]) == 0)
		count++;
	return !names[count] && count == l->count && !l->more;
}

/* Each name, behind the URL of the prefix, is the URL of its record. */
static bool listing_opens(struct full *f, const struct look *look, const struct lock *place, const char *prefix)
{
	struct err err;

	for (int i = 0; look->names[i]; i++) {
		char *url = lock_url_beside(place, prefix, look->names[i]);
		bool open = full_turn_to(f, f->b, url, &err) == 0;
		char *more = mem_printf("%s%s", look->prefix.more, look->names[i]);
		struct key key = { look->prefix.base, more, true };
		if (!open)
			full_tell(f, STORE_UNFIT, "%s, which list named, cannot be opened: %s", url, err.text);
		else
			key_check(f, &key);
		free(more);
		free(url);
		if (f->findings)
			return false;
	}
	return true;
}

/* No election needs a listing: one that errs where a key has odd letters is worth a note. */
static void listing_tell(struct full *f, const struct lock_listing *l, const struct look *look)
{
	bool odd = strcmp(look->prefix.base, "-like") == 0;

	full_tell(
		f, odd ? STORE_NOTE : STORE_UNFIT,
		"of the records whose keys begin with \"...%s%s\" list names %zu, the first one \"%s\", and %s; expected "
		"are all of them and no others, as they were written: whole keys, of which the prefix is no pattern",
		look->prefix.base, look->prefix.more, l->count, l->count ? l->name[0] : "",
		l->more ? "that there are more" : "no more");
}

static bool look_in(struct full *f, const struct look *look, struct lock_client *place, const char *prefix)
{
	struct lock_listing l = { 0 };
	bool good = false;

	if (!place->place->ops->list)
		full_tell(f, STORE_NOTE, "there is no `list`: `lunarch list` shows nothing here. No election needs it");
	else if (lock_client_list(place, &l) != LOCK_OK)
		full_tell(f, STORE_NOTE, "list returned \"%s\": %s", lock_outcome_name(place->result.outcome),
		          store_trial_why(place));
	else if (place->odd_answers)
		full_tell(f, STORE_UNFIT, "list was answered twice, or before it had begun");
	else if (!listing_is(&l, look->names))
		listing_tell(f, &l, look);
	else
		good = listing_opens(f, look, place->place, prefix);
	lock_listing_fini(&l);
	return good;
}

/* false: it is not as it should be, or there is no list. */
static bool look_at(struct full *f, const struct look *look)
{
	struct lock_client place = { .env.state_dir = f->a->env.state_dir, .within = LIST_WITHIN };
	char *more = mem_printf("%s%s", look->prefix.base, look->prefix.more), *url = full_url(f, more), *prefix;
	struct err err;
	bool good = false;

	if (lock_client_open_prefix(&place, url, &prefix, &err) < 0)
		full_tell(f, STORE_NOTE, "the place cannot be opened to be listed: %s", err.text);
	else
		good = look_in(f, look, &place, prefix);
	lock_client_close(&place);
	free(prefix);
	free(url);
	free(more);
	return good;
}

void full_list(struct full *f)
{
	struct key keys[LISTED];
	bool good = look_at(f, &nothing);

	memcpy(keys, listed, sizeof keys);
	if (good)
		keys_write(f, keys, LISTED);
	for (size_t i = 0; good && i < sizeof looks / sizeof *looks && f->findings == 0; i++)
		if (key_turn(f, f->a, &looks[i].prefix) == 0)
			good = look_at(f, &looks[i]);
	keys_check(f, keys, LISTED);
	if (good)
		full_tell(f, STORE_GOOD, "what begins with a prefix is listed, and nothing else");
}
