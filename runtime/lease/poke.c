#include "lease/poke.h"

#include <string.h>

void poke_fill(char datagram[POKE_BYTES], const char *key)
{
	memcpy(datagram, POKE_WORD, sizeof POKE_WORD - 1);
	memcpy(datagram + sizeof POKE_WORD - 1, key, POKE_KEY);
}

bool poke_gate_hear(struct poke_gate *g, const void *datagram, size_t len)
{
	char expected[POKE_BYTES];
	unsigned char differs = 0;

	if (!*g->key || len != POKE_BYTES)
		return false;
	poke_fill(expected, g->key);
	for (size_t i = 0; i < POKE_BYTES; i++)
		differs |= (unsigned char)(expected[i] ^ ((const char *)datagram)[i]);
	if (differs)
		return false;
	g->key[0] = '\0';
	g->due = true;
	return true;
}

nsec poke_gate_wait(const struct poke_gate *g, struct instant now)
{
	if (!g->due)
		return NSEC_NEVER;
	return g->looked ? instant_until(instant_add(g->looked_at, POKE_PAUSE), now) : 0;
}

void poke_gate_looks(struct poke_gate *g, struct instant now)
{
	g->due = false;
	g->looked = true;
	g->looked_at = now;
}
