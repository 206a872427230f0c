#include "election/store_contact.h"

void store_contact_init(struct store_contact *c, struct instant now)
{
	*c = (struct store_contact){ .at = now };
}

bool store_contact_good(struct store_contact *c, struct instant now)
{
	bool was_lost = c->lost;

	c->answered = true;
	c->failing = c->lost = false;
	c->at = now;
	return was_lost;
}

bool store_contact_failed(struct store_contact *c, bool write, nsec patience, struct instant now)
{
	bool was_lost = c->lost;

	c->failing = true;
	if (write) {
		c->writes_failed++;
		return false;
	}
	c->reads_failed++;
	c->lost = was_lost || store_contact_silence(c, now) > patience;
	return c->lost && !was_lost;
}

void store_contact_watching(struct store_contact *c, bool on)
{
	c->watches_failed += c->watching && !on;
	c->watching = on;
}

nsec store_contact_silence(const struct store_contact *c, struct instant now)
{
	return elapsed_holder(c->at, now);
}
