/* Which checkpoint goes into which record, without an election: saves.c is told what the lease and the store say. */
#include "election/saves.h"

#include "tap.h"

#include <stdlib.h>

static struct saves s;
static struct record r;

/* What a write of this kind makes of a record whose checkpoint is this; borrowed until the next call. */
static const char *put(enum lease_write what, const char *before)
{
	free(r.checkpoint);
	r = (struct record){ .checkpoint = before ? strdup(before) : NULL };
	saves_put(&s, &r, what);
	return r.checkpoint;
}

/* Whether a record of ours is restored that was made by our write number count and shows this checkpoint. */
static enum saves_restored fall_back(uint64_t count, const char *shown, const char *incarnation)
{
	free(r.checkpoint);
	r = (struct record){ .checkpoint = shown ? strdup(shown) : NULL, .writes = count };
	strcpy(r.incarnation, "ours");
	return saves_restore(&s, &r, incarnation);
}

static void see(uint64_t count, const char *checkpoint)
{
	char text[20] = "";

	strcpy(text, checkpoint ? checkpoint : "");
	saves_seen(&s, &(struct record){ .checkpoint = checkpoint ? text : NULL, .writes = count });
}

static void forget(void)
{
	saves_fini(&s);
	s = (struct saves){ 0 };
}

static void terms(void)
{
	is_str(put(LEASE_RENEW, "0"), "0", "nothing was saved: a renewal keeps the record's checkpoint");
	saves_add(&s, 1, "1");
	is_str(put(LEASE_RENEW, "0"), "1", "a save goes with the next renewal");
	saves_add(&s, 2, "2");
	saves_answer(&s, 1, true);
	is_str(put(LEASE_RENEW, "1"), "2", "the answer to an earlier save leaves a later one pending");
	saves_answer(&s, 2, true);
	is_str(put(LEASE_RENEW, "2x"), "2x", "an answered save is not written again");
	saves_add(&s, 3, "3");
	is_str(put(LEASE_RELEASE, "2"), "2", "a save of the term that runs is not the release's");
	saves_answer(&s, 3, false);
	is_str(put(LEASE_RELEASE, "2"), "3", "a save that was pending when its term ended goes with the release");
	is_str(put(LEASE_NEXT_TERM, "2"), "3", "or with the next term, if it follows without a release");
	is_str(put(LEASE_RENEW, "2"), "2", "but with no renewal of another term");
	is_str(put(LEASE_ACQUIRE, "other"), "other", "an acquisition keeps what others saved meanwhile");
	is_str(put(LEASE_RELEASE, "other"), "other", "and what was left over is forgotten by then");
	saves_add(&s, 4, "4");
	saves_answer(&s, 4, true);
	is_str(put(LEASE_RELEASE, "x"), "x", "a save that was answered in time is not left over");
	forget();
}

static void restoring(void)
{
	see(5, "5");
	ok(fall_back(5, "5", "ours") == SAVES_KEPT, "the store shows our newest record: nothing is restored");
	ok(fall_back(5, "edited", "ours") == SAVES_KEPT && strcmp(r.checkpoint, "edited") == 0,
	   "what a person puts into it stands");
	ok(fall_back(3, "3", "ours") == SAVES_RESTORED && strcmp(r.checkpoint, "5") == 0,
	   "it shows an older one: the newest checkpoint is put back");
	ok(fall_back(3, "3", "ours") == SAVES_AGAIN && strcmp(r.checkpoint, "5") == 0,
	   "a second write over the same record puts it back again, and says so");
	ok(fall_back(4, "3", "ours") == SAVES_RESTORED, "over another older record it is news");
	ok(fall_back(3, "5", "ours") == SAVES_KEPT, "an older record with the same checkpoint lacks nothing");
	ok(fall_back(3, NULL, "ours") != SAVES_KEPT && strcmp(r.checkpoint, "5") == 0,
	   "one without a checkpoint lacks it");
	ok(fall_back(3, "3", "another") == SAVES_KEPT && strcmp(r.checkpoint, "3") == 0,
	   "another's record: what others saved stands");
	ok(fall_back(0, "3", "ours") == SAVES_KEPT, "a record that counts no writes is not called older");
	see(4, "4");
	ok(fall_back(2, "2", "ours") == SAVES_RESTORED && strcmp(r.checkpoint, "5") == 0,
	   "a record that is seen late does not become the newest");
	saves_add(&s, 1, "6");
	fall_back(3, "3", "ours");
	saves_put(&s, &r, LEASE_RENEW);
	is_str(r.checkpoint, "6", "a save that is pending goes before what is put back");
	see(7, NULL);
	ok(fall_back(3, "3", "ours") == SAVES_KEPT, "our newest record has no checkpoint: none is put back");
	forget();
}

int main(void)
{
	terms();
	restoring();
	free(r.checkpoint);
	return tap_done();
}
