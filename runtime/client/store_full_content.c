/* What records and keys may hold: long texts, odd ones, and what is no record at all. */
#include "client/store_full_internal.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ODD "J\u00fcrgen \u540d\u524d \"quoted\" \\ 'x' {y} %s $1 \u2603 \U0001f984 \u202e\x01\n\t;--"

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
			full_unfit(f, "%s is another text when it is read: of %zu bytes %zu came back%s", what,
			           strlen(wrote), strlen(got),
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

/* A JSON text of so many bytes. */
static char *long_json(size_t size)
{
	char *text = mem_zero(size + 1);

	memset(text, 'x', size);
	text[0] = text[size - 1] = '"';
	return text;
}

static bool checkpoint_is_kept(struct full *f, size_t size, const char *what)
{
	full_fill(f, f->b);
	free(f->b->record.checkpoint);
	f->b->record.checkpoint = long_json(size);
	return text_is_kept(f, what, &f->b->record);
}

void full_big(struct full *f)
{
	if (full_reads(f, f->a, "a read", LOCK_ABSENT) &&
	    checkpoint_is_kept(f, RECORD_CHECKPOINT_MAX, "a record with a checkpoint of 16 KB") &&
	    checkpoint_is_kept(f, RECORD_KEPT_MAX - 4096, "a record of 92 KB"))
		full_good(f, "records of 16 and of 92 KB are kept whole");
}

/* In the middle of a text, and at its ends. */
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
	if (text_is_kept(f, "a record with quotes, backslashes, control characters and letters of other scripts", r) &&
	    blanks_are_kept(f))
		full_good(
			f,
			"quotes, backslashes, blanks, control characters and letters of other scripts are kept as they are");
}

/* ---- keys ---- */

/* Behind a scratch key; no two of them are the same key. Where a URL has no escapes, they are keys as they stand. */
static const char *const odd_keys[] = {
	"-plain",     "-a%2Fb",
	"-a%252Fb",   "-with%20space",
	"-a+b",       "-k%C3%A4se",
	"-%E5%90%8D", "-q%22u%27o",
	"-Plain",     "-%7Ba%7D",
	"-a%3Fb%23c", "-a%26b%3Dc",
	"-d.o.t",     "-0123456789012345678901234567890123456789",
};
#define KEYS ((int)(sizeof odd_keys / sizeof *odd_keys))

/* -1: this kind of lock takes no such key. */
static int key_turn(struct full *f, struct lock_client *s, int i)
{
	struct err err;
	char *more = mem_printf("-key%s", odd_keys[i]), *url = full_url(f, more);
	int status = full_turn_to(f, s, url, &err);

	free(more);
	free(url);
	return status;
}

/* true: it is written, and is the record of this key. */
static bool key_write(struct full *f, int i)
{
	char holder[40], *what = mem_printf("the key \"...%s\"", odd_keys[i]);
	bool good = false;

	snprintf(holder, sizeof holder, "holder %d", i);
	if (lock_client_read(f->a) == LOCK_OK)
		full_unfit(f, "%s has the record of another key: %s", what, f->a->record.holder);
	else if (f->a->result.outcome != LOCK_ABSENT)
		full_astray(f, f->a, what, LOCK_ABSENT);
	else {
		struct version expected = f->a->result.version;
		full_fill(f, f->a);
		mem_replace(&f->a->record.holder, holder);
		good = full_try(f, f->a, &expected, true) == LOCK_OK;
		if (!good)
			full_astray(f, f->a, what, LOCK_OK);
	}
	free(what);
	return good;
}

static void key_check(struct full *f, int i)
{
	char holder[40];

	snprintf(holder, sizeof holder, "holder %d", i);
	if (lock_client_read(f->b) != LOCK_OK)
		full_astray(f, f->b, "a read of a key with odd letters", LOCK_OK);
	else if (strcmp(f->b->record.holder, holder) != 0)
		full_unfit(f, "the key \"...%s\" has the record of another key: is each byte of the key escaped?",
		           odd_keys[i]);
}

void full_keys(struct full *f)
{
	bool wrote[KEYS] = { false };
	int usable = 0, refused = 0;

	for (int i = 0; i < KEYS && f->findings == 0 && !f->x->report->signal; i++) {
		if (key_turn(f, f->a, i) < 0)
			refused++;
		else
			usable += wrote[i] = key_write(f, i);
	}
	for (int i = 0; i < KEYS && f->findings == 0; i++)
		if (wrote[i] && key_turn(f, f->b, i) == 0)
			key_check(f, i);
	for (int i = 0; i < KEYS; i++)
		if (wrote[i] && key_turn(f, f->a, i) == 0)
			full_clean(f, f->a);
	full_good(f, "%d keys with odd letters, %d records%s", usable, usable,
	          refused ? "; some are no keys for this kind of lock, which says so" : "");
}
