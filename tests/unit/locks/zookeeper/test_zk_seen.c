/* What a node's state says of its servers: whether they have gone back behind what they had shown. */
#include "locks/zookeeper/zk_seen.h"
#include "tap.h"

#define EPOCH(n) ((int64_t)(n) << 32)

/* One after the other, each with what is to be said of it. */
static void are(const char *what, const struct zk_state *states, const bool *back, int count)
{
	struct zk_state last = { 0 };
	int wrong = -1;

	for (int i = 0; i < count && wrong < 0; i++)
		if (zk_seen_back(&last, &states[i]) != back[i])
			wrong = i;
	is_int(wrong, -1, what);
}

#define ARE(what, states, ...) are(what, states, (const bool[]){ __VA_ARGS__ }, sizeof states / sizeof *states)
#define ON false
#define BACK true

static void steps_back(void)
{
	const struct zk_state first[] = { { 5, 900, 12 } };
	ARE("the first state that is seen is as good as any", first, ON);

	const struct zk_state written[] = { { 5, 6, 1 }, { 5, 6, 1 }, { 5, 7, 2 }, { 5, EPOCH(3) + 1, 9 } };
	ARE("a node that is written, also under other leaders of its servers, goes on", written, ON, ON, ON, ON);

	const struct zk_state made[] = { { 5, 9, 4 }, { 10, 11, 1 }, { EPOCH(1) + 1, EPOCH(1) + 1, 0 } };
	ARE("so does one that is deleted and made again, and counts from 0", made, ON, ON, ON);

	const struct zk_state older[] = { { 5, 9, 4 }, { 5, 8, 3 } };
	ARE("an older write of the same node is a step back", older, ON, BACK);

	const struct zk_state again[] = { { 5, 9, 4 }, { 5, EPOCH(1) + 1, 4 } };
	ARE("so is a version that was counted twice, however large the zxid", again, ON, BACK);

	const struct zk_state fewer[] = { { 5, 9, 4 }, { 5, EPOCH(1) + 1, 3 } };
	ARE("and a smaller version", fewer, ON, BACK);

	const struct zk_state smaller[] = { { 5, 9, 4 }, { 5, 8, 5 } };
	ARE("and a smaller zxid with a larger version: servers that count zxids anew", smaller, ON, BACK);

	const struct zk_state same[] = { { 5, 9, 4 }, { 5, 9, 3 } };
	ARE("and another version by the same zxid", same, ON, BACK);

	const struct zk_state undeleted[] = { { 5, 9, 4 }, { 11, 12, 1 }, { 5, 9, 4 } };
	ARE("and the node that was there before it was made again", undeleted, ON, ON, BACK);

	const struct zk_state other[] = { { 11, 15, 3 }, { 12, EPOCH(1) + 4, 9 } };
	ARE("and one that was made when the seen one was there", other, ON, BACK);

	const struct zk_state on[] = { { 5, 9, 4 }, { 5, 7, 2 }, { 5, EPOCH(1) + 1, 3 }, { 5, EPOCH(1) + 2, 4 } };
	ARE("what follows upon a step back is told from it, not from what is lost", on, ON, BACK, ON, ON);

	const struct zk_state again_and_again[] = { { 5, 9, 4 }, { 5, 7, 2 }, { 5, 9, 4 }, { 5, 7, 2 } };
	ARE("and so is a next step back", again_and_again, ON, BACK, ON, BACK);
}

int main(void)
{
	steps_back();
	return tap_done();
}
