/* Slots: the name of each slot's lock, which elections are slots of one, and whether a script has several elections. */
#include "config/election_settings.h"

#include "tap.h"

#include <stdlib.h>
#include <string.h>

static bool is_lock(const char *all, uint32_t slot, const char *expected)
{
	char *lock = election_slot_lock(all, slot);
	bool good = strcmp(lock, expected) == 0;

	free(lock);
	return good;
}

static struct election_settings slot_of(char *name, uint32_t slot)
{
	return (struct election_settings){ .name = name, .slot = slot };
}

int main(void)
{
	static char web1[] = "web-1", web2[] = "web-2", webs1[] = "webs-1", we_b1[] = "we-b-1", web12[] = "web-12";
	const struct election_settings a = slot_of(web1, 1), b = slot_of(web2, 2), c = slot_of(webs1, 1),
				       d = slot_of(we_b1, 1), e = slot_of(web12, 12), plain = slot_of(web1, 0);

	ok(is_lock("jobs", 1, "jobs-1") && is_lock("file:/x/jobs", 12, "file:/x/jobs-12"),
	   "the slot is behind the name");
	ok(is_lock("etcd://h/jobs?ca=/x-9", 2, "etcd://h/jobs-2?ca=/x-9"), "... and before the options");
	ok(is_lock("postgres://h/db?table=t#jobs", 2, "postgres://h/db?table=t#jobs-2"), "... behind PostgreSQL's #");
	ok(election_same_slots(&a, &b) && election_same_slots(&b, &e), "slots of one election have its name");
	ok(!election_same_slots(&a, &c) && !election_same_slots(&a, &d), "... and those of others another");
	ok(!election_same_slots(&a, &plain) && !election_same_slots(&plain, &a), "an election without slots is none");
	ok(!election_several(&b, 2) && !election_several(&plain, 1), "the slots of one election are one");
	ok(election_several(&plain, 2) && election_several(&b, 3), "two elections are several, with slots or without");
	return tap_done();
}
