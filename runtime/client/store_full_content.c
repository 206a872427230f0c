/* What records may hold: long texts, and odd ones. */
#include "client/store_full_internal.h"

#include "base/mem.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ODD "J\u00fcrgen \u540d\u524d \"quoted\" \\ 'x' {y} %s $1 \u2603 \U0001f984 \u202e\u0301\x01\n\t;--"

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
	/* Fields of other programs, and of later versions. */
	r->extra = json_pack("{s:{s:[i,n,s,I]}}", "somebodysField", "kept", 1, ODD, (json_int_t)1 << 53);
	if (text_is_kept(f, "a record with quotes, backslashes, control characters and letters of other scripts", r) &&
	    blanks_are_kept(f))
		full_good(
			f,
			"quotes, backslashes, blanks, control characters and letters of other scripts are kept as they are");
}
