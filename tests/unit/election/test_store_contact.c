/* When a store counts as lost, and when it is back (store_contact.h). */
#include "election/store_contact.h"
#include "tap.h"

static struct instant at(int s)
{
	struct instant t = { .raw = s * NSEC_PER_SEC, .boot = s * NSEC_PER_SEC };

	return t;
}

int main(void)
{
	const nsec patience = 10 * NSEC_PER_SEC;
	struct store_contact c;

	store_contact_init(&c, at(0));
	ok(!store_contact_failed(&c, false, patience, at(5)), "a read that fails early is no loss of the store");
	ok(c.failing && !c.lost && c.reads_failed == 1, "but it is counted");
	ok(!store_contact_good(&c, at(6)) && c.answered && !c.failing, "an answer ends what was no loss");
	ok(!store_contact_failed(&c, false, patience, at(16)), "silence for just the patience is no loss");
	ok(store_contact_failed(&c, false, patience, at(17)) && c.lost, "a longer one is, said by a read that fails");
	ok(!store_contact_failed(&c, false, patience, at(30)) && c.lost, "that is said once");
	ok(store_contact_good(&c, at(31)) && !c.lost, "the next answer says that it is back");
	ok(!store_contact_good(&c, at(32)), "once");
	ok(!store_contact_failed(&c, true, patience, at(99)) && !c.lost && c.writes_failed == 1,
	   "a write that fails says nothing of the store: it may be refused while reads are answered");
	ok(store_contact_silence(&c, at(40)) == 8 * NSEC_PER_SEC, "the silence is counted from the last answer");
	store_contact_watching(&c, true);
	store_contact_watching(&c, false);
	store_contact_watching(&c, false);
	ok(c.watches_failed == 1, "a watch that ends is counted once");
	return tap_done();
}
