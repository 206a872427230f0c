/* Sweeps: which marks a guard kills by, and how orders that come before an answer join. */
#include "process/sweeps.h"
#include "tap.h"

static struct sweeps asked(uint32_t slot, uint64_t term, uint32_t next)
{
	struct sweeps s = { 0 };

	sweeps_ask(&s, slot, term, next);
	return s;
}

static bool finds(struct sweeps *s, const char *term, const char *next)
{
	return sweeps_find(s, term, next) != NULL;
}

static void test_marks(void)
{
	struct sweeps s = asked(3, 7, 0);

	ok(sweeps_find(&s, "3.7", NULL) == &s.slot[3], "a process of the term is found");
	ok(!finds(&s, "3.8", NULL) && !finds(&s, "2.7", NULL), "not one of another term, or of another election");
	ok(!finds(&s, "-", NULL) && !finds(&s, "-", "3.7"),
	   "not one outside any term, or of an on_next of that number");
	ok(!finds(&s, "", NULL) && !finds(&s, "3", NULL) && !finds(&s, "3.", NULL) && !finds(&s, ".7", NULL) &&
	           !finds(&s, "3.7x", NULL) && !finds(&s, "x3.7", NULL) && !finds(&s, "4294967299.7", NULL) &&
	           !finds(&s, "999.7", NULL),
	   "a mark that is none finds nothing");
	s = asked(3, 0, 2);
	ok(sweeps_find(&s, "-", "3.2") == &s.slot[3], "a process of the on_next is found");
	ok(!finds(&s, "-", "3.1") && !finds(&s, "-", "3.3") && !finds(&s, "-", "2.2"),
	   "not one of an earlier or later on_next, or of another election");
	ok(!finds(&s, "3.2", NULL), "not a term of that number");
	ok(!finds(&s, "-", "3.0") && !finds(&s, "3.0", NULL), "number 0 is no mark");
	s = asked(3, 7, 2);
	ok(finds(&s, "3.7", NULL) && finds(&s, "-", "3.2"), "a term that an on_next became has both marks");
	s = (struct sweeps){ 0 };
	ok(!finds(&s, "0.0", "0.0") && !finds(&s, "0.1", "0.1"), "nothing is found when nothing was asked for");
}

static void test_orders(void)
{
	struct sweeps s = asked(3, 0, 2);

	s.slot[3].killed = 5;
	ok(sweeps_ask(&s, 3, 7, 0) && s.pending == 1 && s.slot[3].killed == 5,
	   "an order that comes before the answer joins the one before");
	ok(finds(&s, "3.7", NULL) && finds(&s, "-", "3.2"), "both are looked for");
	ok(sweeps_ask(&s, 4, 1, 0) && s.pending == 2, "each slot has its own");
	sweeps_answered(&s, &s.slot[3]);
	ok(s.pending == 1 && !finds(&s, "3.7", NULL) && finds(&s, "4.1", NULL), "what is answered is not looked for");
	sweeps_ask(&s, 3, 8, 0);
	ok(!finds(&s, "-", "3.2") && s.slot[3].killed == 0 && s.pending == 2, "and does not join a later order");
	ok(!sweeps_ask(&s, PAGE_SLOTS, 1, 0) && s.pending == 2, "there is no slot behind the last one");
}

int main(void)
{
	test_marks();
	test_orders();
	return tap_done();
}
