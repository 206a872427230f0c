/* What a node's state says of its servers: whether they have gone back behind what they had shown, and whether what
 * they had shown is there after all. */
#include "locks/zookeeper/zk_seen.h"
#include "tap.h"

#define EPOCH(n) ((int64_t)(n) << 32)

/* One after the other, each with what is to be said of it. */
static void are(const char *what, const struct zk_state *states, const enum zk_look *looks, int count)
{
	struct zk_seen seen = { 0 };
	int wrong = -1;

	for (int i = 0; i < count && wrong < 0; i++)
		if (zk_seen_look(&seen, &states[i]) != looks[i])
			wrong = i;
	is_int(wrong, -1, what);
}

#define ARE(what, states, ...) are(what, states, (const enum zk_look[]){ __VA_ARGS__ }, sizeof states / sizeof *states)
#define ON ZK_FOLLOWS
#define BACK ZK_BACK
#define RETURNED ZK_RETURNED

static void steps_back(void)
{
	const struct zk_state first[] = { { 5, 900, 12, "a" } };
	ARE("the first state that is seen is as good as any", first, ON);

	const struct zk_state written[] = {
		{ 5, 6, 1, "a" }, { 5, 6, 1, "a" }, { 5, 7, 2, "a" }, { 5, EPOCH(3) + 1, 9, "b" }
	};
	ARE("a node that is written, also under other leaders of its servers, goes on", written, ON, ON, ON, ON);

	const struct zk_state made[] = { { 5, 9, 4, "a" }, { 10, 11, 1, "b" }, { EPOCH(1) + 1, EPOCH(1) + 1, 0, "" } };
	ARE("so does one that is deleted and made again, and counts from 0", made, ON, ON, ON);

	const struct zk_state older[] = { { 5, 9, 4, "a" }, { 5, 8, 3, "a" } };
	ARE("an older write of the same node is a step back", older, ON, BACK);

	const struct zk_state again[] = { { 5, 9, 4, "a" }, { 5, EPOCH(1) + 1, 4, "a" } };
	ARE("so is a version that was counted twice, however large the zxid", again, ON, BACK);

	const struct zk_state fewer[] = { { 5, 9, 4, "a" }, { 5, EPOCH(1) + 1, 3, "a" } };
	ARE("and a smaller version", fewer, ON, BACK);

	const struct zk_state smaller[] = { { 5, 9, 4, "a" }, { 5, 8, 5, "a" } };
	ARE("and a smaller zxid with a larger version: servers that count zxids anew", smaller, ON, BACK);

	const struct zk_state same[] = { { 5, 9, 4, "a" }, { 5, 9, 3, "a" } };
	ARE("and another version by the same zxid", same, ON, BACK);

	const struct zk_state undeleted[] = { { 5, 9, 4, "a" }, { 11, 12, 1, "b" }, { 5, 9, 4, "a" } };
	ARE("and the node that was there before it was made again", undeleted, ON, ON, BACK);

	const struct zk_state other[] = { { 11, 15, 3, "a" }, { 12, EPOCH(1) + 4, 9, "a" } };
	ARE("and one that was made when the seen one was there", other, ON, BACK);

	const struct zk_state on[] = {
		{ 5, 9, 4, "b" }, { 5, 7, 2, "a" }, { 5, EPOCH(1) + 1, 3, "c" }, { 5, EPOCH(1) + 2, 4, "c" }
	};
	ARE("what follows upon a step back is told from it, not from what is lost", on, ON, BACK, ON, ON);
}

static void returns(void)
{
	const struct zk_state exact[] = { { 5, 9, 4, "b" }, { 5, 7, 2, "a" }, { 5, 7, 2, "a" }, { 5, 9, 4, "b" } };
	ARE("a cut-off server had answered: the newest state is shown again", exact, ON, BACK, ON, RETURNED);

	const struct zk_state later[] = { { 5, 9, 4, "a" }, { 5, 7, 2, "a" }, { 5, 12, 7, "a" }, { 5, 13, 8, "a" } };
	ARE("or a later one of its term, once", later, ON, BACK, RETURNED, ON);

	const struct zk_state by_steps[] = { { 5, 9, 4, "a" }, { 5, 7, 2, "a" }, { 5, 8, 3, "a" }, { 5, 9, 4, "a" } };
	ARE("also by way of states of that term before it", by_steps, ON, BACK, ON, RETURNED);

	const struct zk_state twice[] = {
		{ 5, 9, 4, "a" }, { 5, 7, 2, "a" }, { 5, 9, 4, "a" }, { 5, 7, 2, "a" }, { 5, 9, 4, "a" }
	};
	ARE("and each time anew", twice, ON, BACK, RETURNED, BACK, RETURNED);

	const struct zk_state counted[] = { { 5, 9, 4, "a" }, { 5, 7, 2, "a" }, { 5, EPOCH(1) + 1, 4, "a" } };
	ARE("not by a version that was counted twice", counted, ON, BACK, ON);

	const struct zk_state another[] = { { 5, 9, 4, "b" }, { 5, 7, 2, "a" }, { 5, EPOCH(1) + 9, 9, "c" } };
	ARE("a larger version and zxid of another term prove nothing", another, ON, BACK, ON);

	const struct zk_state restored[] = { { 5, 9, 4, "b" }, { 5, 8, 3, "a" }, { 5, 9, 4, "c" } };
	ARE("nor the same ones, which restored servers count again", restored, ON, BACK, ON);

	const struct zk_state unknown[] = { { 5, 9, 4, "" }, { 5, 7, 2, "a" }, { 5, 9, 4, "" } };
	ARE("nor a state without a child", unknown, ON, BACK, ON);

	const struct zk_state between[] = {
		{ 5, 9, 4, "b" }, { 5, 7, 2, "a" }, { 5, 8, 3, "c" }, { 5, 10, 5, "b" }, { 5, 11, 6, "b" }
	};
	ARE("nor when another term was shown in between, which is then lost in turn", between, ON, BACK, ON, ON, ON);

	const struct zk_state second[] = {
		{ 5, 9, 4, "a" }, { 5, 7, 2, "a" }, { 5, 6, 1, "a" }, { 5, 7, 2, "a" }, { 5, 9, 4, "a" }
	};
	ARE("nor after a second step back", second, ON, BACK, BACK, ON, ON);

	const struct zk_state stale[] = {
		{ 5, 9, 4, "a" }, { 5, EPOCH(1) + 1, 3, "a" }, { 5, 9, 4, "a" }, { 5, EPOCH(1) + 2, 5, "a" }
	};
	ARE("nor by a server that still has it when the others have gone on without", stale, ON, BACK, BACK, ON);
}

static void settled(void)
{
	struct zk_seen seen = { 0 };
	const struct zk_state newest = { 5, 9, 4, "b" }, older = { 5, 7, 2, "a" }, oldest = { 5, 6, 1, "a" };

	zk_seen_look(&seen, &newest);
	zk_seen_look(&seen, &older);
	zk_seen_settle(&seen);
	is_int(zk_seen_look(&seen, &newest), ON, "a doubt that was waited out is not answered any more");
	is_int(zk_seen_look(&seen, &oldest), BACK, "a next step back is one");
	is_int(zk_seen_look(&seen, &newest), RETURNED, "and has an answer of its own");
}

int main(void)
{
	steps_back();
	returns();
	settled();
	return tap_done();
}
