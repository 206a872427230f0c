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

bool store_contact_read_failed(struct store_contact *c, nsec patience, struct instant now)
{
	bool was_lost = c->lost;

	c->failing = true;
	c->reads_failed++;
	c->lost = was_lost || store_contact_silence(c, now) > patience;
	return c->lost && !was_lost;
}

bool store_contact_write_failed(struct store_contact *c, enum write_failure how, nsec patience, struct instant now)
{
	bool was_unwritable = c->unwritable;

	c->failing = true;
	c->writes_failed++;
	if (how == WRITE_UNSURE && !c->unsure)
		c->unsure_at = now;
	c->unsure = how == WRITE_UNSURE;
	c->refused = how == WRITE_REFUSED || (c->refused && c->unsure);
	c->unwritable = was_unwritable || !c->unsure || elapsed_holder(c->unsure_at, now) > patience;
	return c->unwritable && !was_unwritable;
}

void store_contact_wrote(struct store_contact *c)
{
	c->wrote = true;
	c->unwritable = c->refused = c->unsure = false;
}

void store_contact_others_wrote(struct store_contact *c)
{
	c->unsure = false;
	c->unwritable = c->unwritable && c->refused;
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
