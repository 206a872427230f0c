/* Who wrote a state file, by its beginning: what status_json makes is known again, and nothing else is. And what `ctl deadline` says. */
#include "tap.h"

#include "program/status.h"
#include "base/proc.h"
#include "election/elector.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static void none(void *arg, void (*each)(void *each_arg, const struct standing *e), void *each_arg)
{
	(void)arg, (void)each, (void)each_arg;
}

static void test_own(void)
{
	const struct standing_source source = { .list = none };
	struct status_author author;
	struct proc_stat self;
	struct buf out = { 0 };
	char boot[37];

	proc_boot_id(boot);
	proc_stat((uint64_t)getpid(), &self);
	status_json(&out, &source);
	ok(status_author(out.data, &author), "what status_json made is known again");
	ok(author.pid == (uint64_t)getpid() && author.start == self.start && strcmp(author.boot, boot) == 0,
	   "with the process that made it");
	ok(!author.stopped && strstr(out.data, "\"elections\":[]}\n"), "which has not stopped");
	ok(!status_author_lives(&author), "and is this one: nobody else writes there");
	buf_drop(&out, out.len);
	status_json(&out, NULL);
	ok(status_author(out.data, &author) && author.stopped, "at the end it says that it stops");
	buf_fini(&out);
}

static void test_other(void)
{
	struct status_author author = { 0 };
	struct proc_stat stat;
	int gate[2];
	char c;

	if (pipe(gate) < 0)
		return;
	pid_t child = fork();
	if (child == 0) {
		close(gate[1]);
		_exit(read(gate[0], &c, 1) != 0);
	}
	close(gate[0]);
	proc_stat((uint64_t)child, &stat);
	proc_boot_id(author.boot);
	author.pid = (uint64_t)child;
	author.start = stat.start;
	ok(status_author_lives(&author), "another process that runs still writes its file");
	author.stopped = true;
	ok(!status_author_lives(&author), "not if it said that it stops");
	author.stopped = false;
	author.start++;
	ok(!status_author_lives(&author), "nor does one that has its number, but was started at another time");
	author.start--;
	author.boot[0] = author.boot[0] == '0' ? '1' : '0';
	ok(!status_author_lives(&author), "nor one of another boot");
	proc_boot_id(author.boot);
	close(gate[1]);
	waitpid(child, NULL, 0);
	ok(!status_author_lives(&author), "nor one that has ended");
}

static void test_strangers(void)
{
	static const char *const texts[] = {
		"",
		"{}",
		"{\"version\":\"1\"",
		"{\"version\":\"1\",\"pid\":1,\"elections\":[]}",
		"{\"version\":\"1\",\"pid\":-1,\"startTicks\":2,\"boot\":\"x\",\"stopped\":false",
		"{\"version\":\"1\",\"pid\": 1,\"startTicks\":2,\"boot\":\"x\",\"stopped\":false",
		"{\"version\":\"1\",\"pid\":1,\"startTicks\":,\"boot\":\"x\",\"stopped\":false",
		"{\"version\":\"1\",\"pid\":1,\"startTicks\":2,\"boot\":\"0123456789012345678901234567890123456789\","
		"\"stopped\":false",
		"{\"version\":\"1\",\"pid\":1,\"startTicks\":2,\"boot\":\"x",
		"root:x:0:0:root:/root:/bin/bash\n",
	};
	struct status_author author;
	int taken = 0;

	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		taken += status_author(texts[i], &author);
	is_int(taken, 0, "what somebody else wrote, or half of a state, is none");
	ok(status_author("{\"version\":\"1\",\"pid\":1,\"startTicks\":2,\"boot\":\"\",\"stopped\":true,", &author) &&
	           author.pid == 1 && author.stopped && !*author.boot,
	   "but one of who could not read the boot's id is one");
}

/* What many receivers take for no limit at all is never said. */
static void test_deadline(void)
{
	const struct {
		nsec left;
		const char *said;
	} cases[] = { { 12345999999, "\"remainingMs\":12345," },
		      { 12345999999, "\"message\":\"12.345\"" },
		      { NSEC_PER_MS, "\"message\":\"0.001\"" },
		      { NSEC_PER_MS - 1, "\"ok\":false" },
		      { 0, "\"ok\":false" } };
	struct elector_status st = { .leading = true };
	struct standing e = { .name = "", .status = &st };
	struct buf out = { 0 };

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		st.remaining = cases[i].left;
		standing_deadline(&out, &e);
		ok(strstr(out.data, cases[i].said) != NULL, "a deadline in %" PRId64 " ns: %s", cases[i].left,
		   out.data);
		buf_drop(&out, out.len);
	}
	buf_fini(&out);
}

int main(void)
{
	test_deadline();
	test_own();
	test_other();
	test_strangers();
	return tap_done();
}
