/* A poke: which datagrams lead to a look, and when. */
#include "lease/poke.h"

#include "tap.h"

#define KEY "00112233445566778899aabbccddeeff"
#define OTHER "10112233445566778899aabbccddeeff"
#define LAST "00112233445566778899aabbccddeefe"

static struct instant at_ms(int ms)
{
	return (struct instant){ .boot = ms * NSEC_PER_MS, .raw = ms * NSEC_PER_MS };
}

static bool hears(struct poke_gate *g, const char *key)
{
	char datagram[POKE_BYTES];

	poke_fill(datagram, key);
	return poke_gate_hear(g, datagram, sizeof datagram);
}

static void draw(struct poke_gate *g, const char *key)
{
	memcpy(g->key, key, sizeof g->key);
}

static void keys(void)
{
	struct poke_gate g = { .key = "" };
	char datagram[POKE_BYTES + 1] = "";

	ok(!hears(&g, KEY) && poke_gate_wait(&g, at_ms(0)) == NSEC_NEVER, "without a key nothing is heard");
	draw(&g, KEY);
	ok(!hears(&g, OTHER) && !hears(&g, LAST), "nor what has another key, in its first digit or in its last");
	poke_fill(datagram, KEY);
	ok(!poke_gate_hear(&g, datagram, POKE_BYTES + 1) && !poke_gate_hear(&g, datagram, POKE_BYTES - 1) &&
	           !poke_gate_hear(&g, datagram, 0),
	   "nor what is longer, or shorter");
	datagram[0] ^= 1;
	ok(!poke_gate_hear(&g, datagram, POKE_BYTES), "nor what does not begin with the word");
	is_int(poke_gate_wait(&g, at_ms(0)), NSEC_NEVER, "by none of these a look is due");
	ok(hears(&g, KEY) && poke_gate_wait(&g, at_ms(0)) == 0, "the key leads to a look at once");
	ok(!hears(&g, KEY), "and to one: it is spent");
	poke_gate_looks(&g, at_ms(0));
	ok(!hears(&g, KEY) && poke_gate_wait(&g, at_ms(1000)) == NSEC_NEVER, "also later");
}

static void pace(void)
{
	struct poke_gate g = { .key = "" };

	draw(&g, KEY);
	hears(&g, KEY);
	poke_gate_looks(&g, at_ms(10));
	draw(&g, OTHER);
	ok(hears(&g, OTHER), "a new key is heard at once");
	is_int(poke_gate_wait(&g, at_ms(40)), 70 * NSEC_PER_MS, "but two looks are 100 ms apart");
	is_int(poke_gate_wait(&g, at_ms(110)), 0, "then it is made");
	poke_gate_looks(&g, at_ms(110));
	is_int(poke_gate_wait(&g, at_ms(500)), NSEC_NEVER, "once");
}

int main(void)
{
	keys();
	pace();
	return tap_done();
}
