#include "client/short_name.h"

#include <string.h>

#define CUT ".."

static bool begins_character(char c)
{
	return (c & 0xc0) != 0x80;
}

static int length_of(const char *text)
{
	int n = 0;

	for (; *text; text++)
		n += begins_character(*text);
	return n;
}

/* Where the n-th character begins, or the end. */
static const char *at_character(const char *text, int n)
{
	while (*text && (n > 0 || !begins_character(*text))) {
		text++;
		n -= begins_character(*text);
	}
	return text;
}

/* How many whole characters both begin with. */
static int common_length(const char *a, const char *b)
{
	int n = 0;

	while (*a && *a == *b) {
		a++;
		b++;
		n += begins_character(*a) && begins_character(*b);
	}
	return n;
}

/* The largest number of characters that the name begins with as another one does. */
static int differs_at(const char *name, const char *const *others, size_t count)
{
	int most = 0;

	for (size_t i = 0; i < count; i++) {
		struct buf other = { 0 };
		buf_plain(&other, others[i]);
		int n = other.data && strcmp(other.data, name) != 0 ? common_length(name, other.data) : 0;
		most = n > most ? n : most;
		buf_fini(&other);
	}
	return most;
}

static int put_part(struct buf *out, const char *text, int from, int count)
{
	const char *begin = at_character(text, from), *end = at_character(begin, count);

	buf_add(out, begin, (size_t)(end - begin));
	return length_of(begin) - length_of(end);
}

int short_name_put(struct buf *out, const char *name, const char *const *others, size_t count, int most)
{
	struct buf plain = { 0 };

	buf_plain(&plain, name);
	const char *text = plain.data ? plain.data : "";
	int length = length_of(text), put;
	int differs = length > most ? differs_at(text, others, count) : 0;
	if (differs < most) {
		put = put_part(out, text, 0, most);
	} else {
		int head = most / 3, part = most - head - (int)strlen(CUT);
		int from = differs - 1 < length - part ? differs - 1 : length - part;
		put = put_part(out, text, 0, head) + (int)strlen(CUT);
		buf_adds(out, CUT);
		put += put_part(out, text, from, part);
	}
	buf_fini(&plain);
	return put;
}
