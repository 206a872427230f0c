/* When a store counts as lost, and when it is back (store_contact.h). */
#include "election/store_contact.h"
#include "tap.h"

static struct instant at(int s)
{
	struct instant t = { .raw = s * NSEC_PER_SEC, .boot = s * NSEC_PER_SEC };

	return t;
}

static const nsec patience = 10 * NSEC_PER_SEC;

static void writing(void)
{
	struct store_contact c;

	store_contact_init(&c, at(0));
	ok(!c.unwritable && !c.wrote, "before the first write it is not known whether the store takes any");
	ok(!store_contact_write_failed(&c, WRITE_UNSURE, patience, at(1)),
	   "a write that is not answered proves nothing");
	ok(!store_contact_write_failed(&c, WRITE_UNSURE, patience, at(11)), "nor do more within the patience");
	ok(store_contact_write_failed(&c, WRITE_UNSURE, patience, at(12)) && c.unwritable,
	   "after it the store counts as unwritable");
	ok(!store_contact_write_failed(&c, WRITE_UNSURE, patience, at(13)), "which is said once");
	store_contact_good(&c, at(14));
	ok(c.unwritable, "a read that is answered does not end that");
	store_contact_others_wrote(&c);
	ok(!c.unwritable, "another's write does");
	ok(!store_contact_write_failed(&c, WRITE_UNSURE, patience, at(15)), "and the next failure is the first again");
	store_contact_wrote(&c);
	ok(c.wrote && !store_contact_write_failed(&c, WRITE_UNSURE, patience, at(26)),
	   "so it is after a write of our own");
	ok(store_contact_write_failed(&c, WRITE_FULL, patience, at(27)),
	   "a store that says that it takes no writes is believed at once");
	store_contact_others_wrote(&c);
	ok(!c.unwritable, "until it takes another's");
	ok(store_contact_write_failed(&c, WRITE_REFUSED, patience, at(28)), "and so is one that takes none of ours");
	store_contact_others_wrote(&c);
	ok(c.unwritable, "of which another's write says nothing");
	store_contact_write_failed(&c, WRITE_UNSURE, patience, at(29));
	store_contact_others_wrote(&c);
	ok(c.unwritable, "nor does a write that is lost");
	store_contact_wrote(&c);
	ok(!c.unwritable, "but one of ours does");
}

int main(void)
{
	struct store_contact c;

	store_contact_init(&c, at(0));
	ok(!store_contact_read_failed(&c, patience, at(5)), "a read that fails early is no loss of the store");
	ok(c.failing && !c.lost && c.reads_failed == 1, "but it is counted");
	ok(!store_contact_good(&c, at(6)) && c.answered && !c.failing, "an answer ends what was no loss");
	ok(!store_contact_read_failed(&c, patience, at(16)), "silence for just the patience is no loss");
	ok(store_contact_read_failed(&c, patience, at(17)) && c.lost, "a longer one is, said by a read that fails");
	ok(!store_contact_read_failed(&c, patience, at(30)) && c.lost, "that is said once");
	ok(store_contact_good(&c, at(31)) && !c.lost, "the next answer says that it is back");
	ok(!store_contact_good(&c, at(32)), "once");
	ok(!store_contact_write_failed(&c, WRITE_UNSURE, patience, at(33)) && !c.lost && c.writes_failed == 1,
	   "a write that fails says nothing of reads: it may be refused while they are answered");
	ok(store_contact_silence(&c, at(40)) == 8 * NSEC_PER_SEC, "the silence is counted from the last answer");
	store_contact_watching(&c, true);
	store_contact_watching(&c, false);
	store_contact_watching(&c, false);
	ok(c.watches_failed == 1, "a watch that ends is counted once");
	writing();
	return tap_done();
}
