/* Messages: what goes in comes out, and nothing a sender may send makes a reader look outside the message. */
#include "process/wire.h"
#include "tap.h"

#include <stdlib.h>

static void test_round_trip(void)
{
	struct buf m = { 0 };
	struct wire w;

	wire_begin(&m, WIRE_LEAD);
	wire_u32(&m, UINT32_MAX);
	wire_u64(&m, UINT64_MAX - 1);
	wire_i64(&m, INT64_MIN);
	wire_str(&m, "127.0.0.1:80");
	wire_u8(&m, 255);
	wire_str(&m, NULL);
	is_int(wire_open(&w, m.data, m.len), WIRE_LEAD, "the type comes out");
	ok(wire_get_u32(&w) == UINT32_MAX, "a u32 comes out");
	ok(wire_get_u64(&w) == UINT64_MAX - 1, "a u64 comes out");
	ok(wire_get_i64(&w) == INT64_MIN, "an i64 comes out");
	is_str(wire_get_str(&w), "127.0.0.1:80", "a string comes out");
	ok(wire_get_u8(&w) == 255, "a u8 comes out");
	ok(!wire_done(&w), "it is not done before the last field");
	is_str(wire_get_str(&w), "", "NULL is sent as the empty string");
	ok(wire_done(&w), "then it is done");
	ok(wire_get_u8(&w) == 0 && w.bad && !wire_done(&w), "reading on is an error");
	wire_begin(&m, WIRE_QUIT);
	ok(wire_open(&w, m.data, m.len) == WIRE_QUIT && wire_done(&w),
	   "a buffer can be used again for the next message");
	buf_fini(&m);
}

static void test_refused(void)
{
	struct buf m = { 0 };
	struct wire w;

	ok(wire_open(&w, "", 0) == 0 && !wire_done(&w), "an empty datagram is no message");
	ok(wire_open(&w, "\1\0\0", 3) == 0, "nor is one without a whole type");
	for (uint32_t type = 0; type < 300; type++) {
		uint32_t huge = type == 299 ? UINT32_MAX : type;
#define IS_TYPE(number, TYPE, name) || type == (number)
		bool valid = false WIRE_MESSAGES(IS_TYPE);
		if ((wire_open(&w, &huge, sizeof huge) != 0) != valid)
			ok(0, "type %u is judged wrongly", huge);
	}
	ok(1, "every known type opens, and no other");
	char *big = calloc(1, WIRE_MAX + 1);
	big[0] = WIRE_QUIT;
	ok(wire_open(&w, big, WIRE_MAX + 1) == 0, "a message larger than WIRE_MAX is refused");
	ok(wire_open(&w, big, WIRE_MAX) == WIRE_QUIT, "one of WIRE_MAX is not");
	free(big);

	wire_begin(&m, WIRE_STARTED);
	wire_u32(&m, 4);
	buf_add(&m, "ab\0", 4);
	wire_open(&w, m.data, m.len);
	ok(*wire_get_str(&w) == '\0' && w.bad, "a string with a zero inside is refused");
	wire_begin(&m, WIRE_STARTED);
	wire_u32(&m, 2);
	buf_add(&m, "ab", 2);
	wire_open(&w, m.data, m.len);
	ok(*wire_get_str(&w) == '\0' && w.bad, "a string without its terminator is refused");
	wire_begin(&m, WIRE_STARTED);
	wire_u32(&m, UINT32_MAX);
	buf_add(&m, "ab", 3);
	wire_open(&w, m.data, m.len);
	ok(*wire_get_str(&w) == '\0' && w.bad, "a string longer than the message is refused");
	wire_begin(&m, WIRE_STARTED);
	wire_u32(&m, 0);
	wire_open(&w, m.data, m.len);
	ok(*wire_get_str(&w) == '\0' && w.bad, "a string of no bytes, not even a terminator, is refused");
	wire_begin(&m, WIRE_STARTED);
	wire_u8(&m, 7);
	wire_open(&w, m.data, m.len);
	ok(wire_get_u64(&w) == 0 && w.bad && wire_get_u8(&w) == 0,
	   "a number cut short is 0, and so is all that follows");
	buf_fini(&m);
}

/* Random fields read from random bytes: copied to an exact heap block, so that a sanitizer sees one byte too far. */
static int fuzz(const unsigned char *bytes, size_t len)
{
	unsigned char *exact = malloc(len ? len : 1);
	struct wire w;
	size_t total = 0;

	memcpy(exact, bytes, len);
	int outside = 0;
	wire_open(&w, exact, len);
	for (int i = 0; i < 40; i++) {
		const char *s = "";
		switch (rand() % 5) {
		case 0:
			total += wire_get_u8(&w);
			break;
		case 1:
			total += wire_get_u32(&w);
			break;
		case 2:
			total += wire_get_u64(&w);
			break;
		case 3:
			total += (size_t)wire_get_i64(&w);
			break;
		default:
			s = wire_get_str(&w);
			break;
		}
		size_t n = strlen(s);
		if (n && ((const unsigned char *)s < exact || (const unsigned char *)s + n + 1 > exact + len))
			outside++;
		if (w.at < exact || w.at > exact + len || w.end != exact + len)
			outside++;
	}
	free(exact);
	return outside + (total == 1); /* the sum is used, so that no read can be left out */
}

static void test_fuzz(void)
{
	unsigned char bytes[200];
	int outside = 0;

	srand(1);
	for (int i = 0; i < 200000; i++) {
		size_t len = (size_t)rand() % sizeof bytes;
		for (size_t j = 0; j < len; j++)
			bytes[j] = (unsigned char)(rand() % 4 ? rand() % 8 : rand());
		if (len >= 4 && rand() % 4)
			memcpy(bytes, &(uint32_t){ (uint32_t)rand() % 72 }, 4);
		outside += fuzz(bytes, len) > 1;
	}
	is_int(outside, 0, "200,000 random messages: no getter leaves the message");
}

/* A real message cut at every length, and with every byte changed: each reading fails or ends inside. */
static void test_cut(void)
{
	struct buf m = { 0 };
	struct wire w;
	int whole = 0;

	wire_begin(&m, WIRE_LEADER);
	wire_u32(&m, 3);
	wire_str(&m, "alpha");
	wire_str(&m, "");
	wire_i64(&m, 12);
	wire_u8(&m, 1);
	wire_str(&m, "beta");
	for (size_t len = 0; len <= m.len; len++) {
		unsigned char *exact = malloc(len ? len : 1);
		memcpy(exact, m.data, len);
		wire_open(&w, exact, len);
		wire_get_u32(&w);
		wire_get_str(&w);
		wire_get_str(&w);
		wire_get_i64(&w);
		wire_get_u8(&w);
		wire_get_str(&w);
		whole += wire_done(&w);
		free(exact);
	}
	is_int(whole, 1, "a message cut anywhere is not done; only the whole one is");
	buf_fini(&m);
}

/* ---- every kind of message ----
 *
 * For each of the table: a filled message comes out as it went in; cut at any length, or with a byte more, it is
 * refused. */

static void fill(struct buf *list)
{
	for (uint32_t i = 0; i < 3; i++)
		wire_kept_put(list, &(struct wire_kept){ .index = i, .lock = "lock", .identity = "identity" });
}

/* Values that differ between fields. */
#define VALUE_u8(name) (uint8_t)(sizeof #name + 200)
#define VALUE_u32(name) (uint32_t)(sizeof #name + 4000000000)
#define VALUE_u64(name) UINT64_MAX - sizeof #name
#define VALUE_i64(name) INT64_MIN + (int64_t)sizeof #name
#define VALUE_str(name) "the field " #name
#define VALUE_cut VALUE_str
#define VALUE_list(name)                                                                       \
	{                                                                                      \
		.at = (unsigned char *)list.data, .end = (unsigned char *)list.data + list.len \
	}
#define SET(type, name) .name = VALUE_##type(name),

/* Is this a message in itself, whose lists are whole too? */
#define WHOLE_u8(name)
#define WHOLE_u32(name)
#define WHOLE_u64(name)
#define WHOLE_i64(name)
#define WHOLE_str(name)
#define WHOLE_cut(name)
#define WHOLE_list(name) good = good && list_whole(&v.name);
#define WHOLE(type, name) WHOLE_##type(name)

static bool list_whole(struct wire *list)
{
	struct wire_kept k;
	int n = 0;

	while (!wire_done(list) && wire_kept_get(list, &k))
		n++;
	return n == 3 && wire_done(list);
}

#define KIND(number, TYPE, kind)                                    \
	static bool kind##_whole(struct wire *w, struct buf *again) \
	{                                                           \
		struct wire_##kind v;                               \
		bool good = wire_##kind##_get(w, &v);               \
		if (good)                                           \
			wire_##kind##_put(again, &v);               \
		WIRE_FIELDS_##kind(WHOLE) return good;              \
	}                                                           \
	static void kind##_put(struct buf *m)                       \
	{                                                           \
		struct buf list = { 0 };                            \
		fill(&list);                                        \
		struct wire_##kind v = { WIRE_FIELDS_##kind(SET) }; \
		wire_##kind##_put(m, &v);                           \
		buf_fini(&list);                                    \
	}
WIRE_MESSAGES(KIND)

static const struct kind {
	enum wire_type type;
	const char *name;
	void (*put)(struct buf *m);
	bool (*whole)(struct wire *w, struct buf *again);
} kinds[] = {
#define ROW(number, TYPE, kind) { WIRE_##TYPE, #kind, kind##_put, kind##_whole },
	WIRE_MESSAGES(ROW)
};

/* The message in a heap block of exactly its size, so that a sanitizer sees one byte too far. */
static bool reads(const struct kind *k, const void *bytes, size_t len, struct buf *again)
{
	unsigned char *exact = malloc(len ? len : 1);
	struct wire w;

	memcpy(exact, bytes, len);
	again->len = 0;
	bool good = wire_open(&w, exact, len) == k->type && k->whole(&w, again);
	free(exact);
	return good;
}

static void test_kind(const struct kind *k)
{
	struct buf m = { 0 }, again = { 0 };
	int cut_read = 0;

	k->put(&m);
	ok(reads(k, m.data, m.len, &again) && again.len == m.len && memcmp(again.data, m.data, m.len) == 0,
	   "%s comes out as it went in", k->name);
	for (size_t len = 0; len < m.len; len++)
		cut_read += reads(k, m.data, len, &again);
	is_int(cut_read, 0, "cut at any length it is refused");
	buf_add(&m, "x", 1);
	ok(!reads(k, m.data, m.len, &again), "and with a byte behind its end");
	while (m.len <= WIRE_MAX)
		buf_add(&m, "", 1);
	ok(!reads(k, m.data, m.len, &again), "and larger than WIRE_MAX");
	ok(strcmp(wire_name(k->type), k->name) == 0, "its name is known");
	buf_fini(&m);
	buf_fini(&again);
}

static void test_slot(void)
{
	struct buf m = { 0 };
	struct wire w;
	struct wire_stop v;

	wire_stop_put(&m, &(struct wire_stop){ .slot = 17, .term = 3 });
	wire_open(&w, m.data, m.len);
	ok(wire_slot(&w) == 17 && wire_stop_get(&w, &v) && v.slot == 17 && v.term == 3,
	   "its slot can be looked at before a message is read");
	buf_fini(&m);
}

int main(void)
{
	test_round_trip();
	test_refused();
	test_fuzz();
	test_cut();
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		test_kind(&kinds[i]);
	test_slot();
	return tap_done();
}
