/* What is said to a command that was started before its candidate leads: this test has the command's end of the
 * socket. */
#include "exec/exec_warm.h"
#include "tap.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct ev_loop *loop;
static struct exec_warm warm;

static void say(int fd, const char *text)
{
	if (write(fd, text, strlen(text)) < 0)
		perror("write");
}

/* As the elector's loop would. */
static void turn(void)
{
	ev_run(loop, EVRUN_NOWAIT);
}

static int begin(void)
{
	struct err err;
	int fd = exec_warm_open(&warm, loop, &err);

	fcntl(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

static const char *heard(int fd)
{
	static char text[64];
	ssize_t n = read(fd, text, sizeof text - 1);

	text[n > 0 ? n : 0] = '\0';
	return text;
}

static void test_ready(void)
{
	int fd = begin();

	is_str(exec_warm_standing(&warm), "starting", "a command that has said nothing is starting");
	ok(!exec_warm_lead(&warm, 7), "and is not told to lead");
	say(fd, "rea");
	turn();
	ok(!exec_warm_lead(&warm, 7), "nor while its line is not complete");
	say(fd, "dy\n");
	ok(exec_warm_lead(&warm, INT64_C(9007199254740993)), "one that has said just now that it is ready is told");
	is_str(heard(fd), "lead 9007199254740993\n", "with the token");
	close(fd);
	ok(!exec_warm_unheard(&warm), "it has heard that, whatever comes after");
	exec_warm_close(&warm);
}

static void test_unheard(void)
{
	int fd = begin();

	say(fd, "ready\n");
	turn();
	is_str(exec_warm_standing(&warm), "ready", "one that has said that it is ready is");
	ok(exec_warm_lead(&warm, 7), "and is told to lead");
	close(fd);
	turn();
	ok(exec_warm_unheard(&warm), "if it ends without having read that, it has not led");
	exec_warm_close(&warm);
	ok(!exec_warm_unheard(&warm), "which is forgotten with it");
}

static void test_deaf(void)
{
	int fd = begin();

	say(fd, "ready\n");
	close(fd);
	ok(!exec_warm_lead(&warm, 7), "one that has closed its end is not told");
	is_str(exec_warm_standing(&warm), "cold", "it is cold, though it was ready");
	ok(!exec_warm_unheard(&warm), "and has nothing to hear");
	exec_warm_close(&warm);
	is_str(exec_warm_standing(&warm), "cold", "so is one that is gone");
}

static void test_nonsense(void)
{
	static char large[5000];
	int fd = begin();

	memset(large, 'x', sizeof large - 1);
	say(fd, large);
	say(fd, "\nnot ready\nready or not\nreadyreadyready\n\n");
	turn();
	ok(!exec_warm_lead(&warm, 7), "lines of other words say nothing, however long they are");
	say(fd, "ready\n");
	turn();
	ok(exec_warm_lead(&warm, 7), "and keep none from being heard that says something");
	exec_warm_close(&warm);
	close(fd);
}

static void test_again(void)
{
	int fd = begin();

	say(fd, "ready\n");
	turn();
	exec_warm_close(&warm);
	close(fd);
	fd = begin();
	ok(!exec_warm_lead(&warm, 7), "a new command is not ready because the one before was");
	is_int(warm.number, 6, "it has a number of its own");
	exec_warm_close(&warm);
	close(fd);
}

static void test_slow(void)
{
	struct exec_warm w;
	struct err err;

	exec_warm_init(&w, 0, &err);
	int fd = exec_warm_open(&w, loop, &err);
	is_str(exec_warm_standing(&w), "cold", "one that takes longer than it should is cold");
	say(fd, "ready\n");
	turn();
	is_str(exec_warm_standing(&w), "ready", "until it is ready");
	close(fd);
	exec_warm_fini(&w);
}

int main(void)
{
	struct err err;

	loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOENV);
	exec_warm_init(&warm, 3600 * NSEC_PER_SEC, &err);
	ok(warm.descriptor >= 3, "the command's descriptor is none of the standard ones");
	test_ready();
	test_unheard();
	test_deaf();
	test_nonsense();
	test_again();
	test_slow();
	exec_warm_fini(&warm);
	ev_loop_destroy(loop);
	return tap_done();
}
