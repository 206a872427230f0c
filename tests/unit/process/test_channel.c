/* Channels, on real socket pairs: what is sent arrives whole and in order however slow the other end is, and its end is
 * told once. */
#include "process/channel.h"
#include "tap.h"

#include <errno.h>
#include <ev.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct heard {
	struct channel *channel; /* of this end */
	uint32_t numbers[20000];
	int count, wrong; /* messages; those whose length is not what they say */
	int ends;
	size_t oversized;
	void (*also)(struct heard *h); /* done inside the callback */
};

/* A message that says its own number and length. */
struct numbered {
	uint32_t number, len;
};

static void on_message(void *arg, const void *bytes, size_t len)
{
	struct heard *h = arg;
	struct numbered n = { 0 };

	memcpy(&n, bytes, len < sizeof n ? len : sizeof n);
	h->wrong += n.len != len;
	h->numbers[h->count++ % 20000] = n.number;
	if (h->also)
		h->also(h);
	h->wrong += memcmp(&n, bytes, len < sizeof n ? len : sizeof n) != 0; /* still the same */
}

static void on_end(void *arg, size_t oversized)
{
	struct heard *h = arg;

	h->ends++;
	h->oversized = oversized;
	if (h->also)
		h->also(h);
}

static const struct channel_kind kind = {
	.message_max = WIRE_MAX,
	.turn_max = 64,
	.message = on_message,
	.end = on_end,
};

static const struct channel_kind small_kind = {
	.message_max = 16,
	.unsent_max = 100,
	.turn_max = 1,
	.message = on_message,
};

static struct scene {
	struct ev_loop *loop;
	int other; /* the other end's socket, without a channel */
	struct heard heard;
} s;

/* One end with a channel, the other a bare socket. */
static void begin(const struct channel_kind *k)
{
	int fd[2], buffer = 2 * WIRE_MAX;

	s = (struct scene){ .loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOENV) };
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd) < 0)
		exit(1);
	for (int i = 0; i < 2; i++)
		setsockopt(fd[i], SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
	s.other = fd[1];
	s.heard.channel = channel_new(s.loop, fd[0], k, &s.heard);
}

static void end(void)
{
	channel_free(s.heard.channel);
	if (s.other >= 0)
		close(s.other);
	ev_loop_destroy(s.loop);
}

/* Turns of the loop, until it has nothing to do. */
static void turn(int times)
{
	while (times--)
		ev_run(s.loop, EVRUN_NOWAIT);
}

static int send_numbered(uint32_t number, uint32_t len)
{
	static char bytes[WIRE_MAX];

	memcpy(bytes, &(struct numbered){ number, len }, sizeof(struct numbered));
	return channel_send(s.heard.channel, bytes, len);
}

static void other_sends(uint32_t number, uint32_t len)
{
	static char bytes[WIRE_MAX + 100];

	memcpy(bytes, &(struct numbered){ number, len }, sizeof(struct numbered));
	if (send(s.other, bytes, len, MSG_NOSIGNAL) != (ssize_t)len)
		printf("# cannot send %u bytes: %s\n", len, strerror(errno));
}

/* The other end's next message must be this one; false also if there is none. */
static bool other_gets(uint32_t number, uint32_t len)
{
	static char bytes[WIRE_MAX + 100];
	struct numbered n;

	if (recv(s.other, bytes, sizeof bytes, MSG_DONTWAIT) != (ssize_t)len)
		return false;
	memcpy(&n, bytes, sizeof n);
	return n.number == number && n.len == len;
}

/* ---- receiving ---- */

static bool in_order(int count)
{
	for (int i = 0; i < count; i++)
		if (s.heard.numbers[i] != (uint32_t)i)
			return false;
	return s.heard.count == count && !s.heard.wrong;
}

static void test_receiving(void)
{
	begin(&kind);
	for (uint32_t i = 0; i < 100; i++)
		other_sends(i, 8 + i);
	turn(1);
	is_int(s.heard.count, 64, "one turn of the loop receives turn_max messages");
	turn(1);
	ok(in_order(100), "the next receives the rest: whole, and in order");
	for (uint32_t i = 100; i < 200; i++)
		other_sends(i, 8);
	channel_drain(s.heard.channel);
	ok(in_order(200), "draining receives all that is there, without the loop");
	other_sends(200, WIRE_MAX);
	turn(1);
	ok(in_order(201) && s.heard.ends == 0, "a message of the largest size arrives whole");
	end();
}

static void test_end(void)
{
	begin(&kind);
	other_sends(0, 8);
	close(s.other);
	s.other = -1;
	turn(3);
	ok(in_order(1), "what the other end sent before it closed arrives");
	ok(s.heard.ends == 1 && s.heard.oversized == 0, "then its end is told, once");
	is_int(send_numbered(1, 8), 0, "sending to nobody is no error");
	ok(!channel_waits(s.heard.channel), "and leaves nothing waiting");
	end();
}

static void test_end_unread(void)
{
	begin(&kind);
	send_numbered(0, 8);
	other_sends(0, 8);
	other_sends(1, 8);
	close(s.other);
	s.other = -1;
	turn(3);
	ok(in_order(2), "what the other end sent before it closed arrives, also if it left messages of ours unread");
	ok(s.heard.ends == 1 && s.heard.oversized == 0, "and its end is told, once");
	end();
}

static void test_refused(void)
{
	begin(&kind);
	other_sends(0, 8);
	other_sends(1, WIRE_MAX + 1);
	other_sends(2, 8);
	turn(3);
	ok(in_order(1) && s.heard.ends == 1, "a message that is too large ends the conversation: none follows");
	is_int((int64_t)s.heard.oversized, WIRE_MAX + 1, "its true size is told");
	send_numbered(7, 8);
	ok(other_gets(7, 8), "this end may still send");
	end();

	begin(&small_kind);
	other_sends(0, 16);
	other_sends(1, 17);
	other_sends(2, 16);
	turn(5);
	ok(in_order(1), "the limit is the kind's own; without a callback for the end it is silent");
	end();

	begin(&kind);
	if (send(s.other, "", 0, 0) < 0)
		printf("# %s\n", strerror(errno));
	other_sends(1, 8);
	turn(3);
	ok(s.heard.count == 0 && s.heard.ends == 1 && s.heard.oversized == 0, "an empty message counts as the end");
	end();

	begin(&kind);
	other_sends(0, 8);
	channel_deafen(s.heard.channel);
	turn(3);
	channel_drain(s.heard.channel);
	close(s.other);
	s.other = -1;
	turn(3);
	ok(s.heard.count == 0 && s.heard.ends == 0, "a channel that was deafened says nothing, not even the end");
	end();
}

/* ---- sending ---- */

/* More than the socket takes; returns how many messages there are. */
static uint32_t fill(uint32_t len, uint32_t more)
{
	uint32_t n = 0;

	while (!channel_waits(s.heard.channel) && n < 10000)
		send_numbered(n++, len);
	for (uint32_t i = 0; i < more; i++)
		send_numbered(n++, len);
	return n;
}

static void test_queue(void)
{
	begin(&kind);
	uint32_t n = fill(10000, 5000), got = 0;
	ok(n > 5000, "a socket that is full blocks nobody: the rest waits, however much it is");
	turn(3);
	ok(channel_waits(s.heard.channel), "as long as nobody reads");
	while (got < n && other_gets(got, 10000)) {
		got++;
		turn(1);
	}
	is_int(got, n, "when the other end reads, all of it arrives, whole and in order");
	ok(!channel_waits(s.heard.channel), "then nothing waits");
	send_numbered(n, WIRE_MAX);
	ok(other_gets(n, WIRE_MAX), "and the next message leaves at once");
	end();
}

/* There is room again, but the loop has not had its turn: a message that is sent now could leave at once. */
static void test_overtaking(void)
{
	uint32_t got = 0;

	begin(&kind);
	uint32_t n = fill(10000, 10);
	while (other_gets(got, 10000))
		got++;
	send_numbered(n, 10000);
	n++;
	turn(1);
	while (other_gets(got, 10000))
		got++;
	is_int(got, n, "a message that is sent when there is room again does not overtake those that wait");
	end();
}

static void test_limit(void)
{
	uint32_t got = 0;

	begin(&small_kind);
	uint32_t n = fill(16, 99);
	is_int(send_numbered(n, 16), -1, "beyond unsent_max waiting messages one more is refused");
	while (other_gets(got, 16))
		got++;
	turn(1);
	while (other_gets(got, 16))
		got++;
	is_int(got, n, "the others arrive");
	uint32_t again = fill(16, 98);
	is_int(send_numbered(again, 16), 0, "and when they have left, as many may wait again");
	is_int(send_numbered(again + 1, 16), -1, "but no more");
	for (got = 0; other_gets(got, 16); got++)
		;
	turn(1);
	while (other_gets(got, 16))
		got++;
	is_int(got, again + 1, "these arrive, too");
	end();
}

static void test_too_large(void)
{
	int status;

	begin(&small_kind);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		close(STDERR_FILENO);
		send_numbered(0, 17);
		_exit(0);
	}
	ok(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT,
	   "who sends a message larger than the kind allows has a bug, and ends");
	end();
}

static void test_gone_while_waiting(void)
{
	begin(&kind);
	fill(10000, 100);
	close(s.other);
	s.other = -1;
	turn(3);
	ok(s.heard.ends == 1 && !channel_waits(s.heard.channel),
	   "messages that wait when the other end goes are dropped, and the end is told");
	end();
	begin(&kind);
	fill(10000, 100);
	end();
	ok(1, "a channel with waiting messages can be freed");
}

/* ---- a kernel without memory ---- */

/* From now on this process' calls of that kind fail so (seccomp(2)). */
static void deny(unsigned call, unsigned error)
{
	struct sock_filter each[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog all = { .len = 4, .filter = each };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) < 0)
		_exit(2);
}

/* Whether it is true in a process of its own, in which nothing can be sent, or received. */
static bool is_true_without(unsigned call, unsigned error, bool (*test)(void))
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		begin(&kind);
		other_sends(0, 8);
		deny(call, error);
		_exit(!test());
	}
	return waitpid(pid, &status, 0) == pid && status == 0;
}

static bool sends_later(void)
{
	return send_numbered(0, 8) == 0 && channel_waits(s.heard.channel);
}

static bool hears_later(void)
{
	turn(3);
	return s.heard.count == 0 && s.heard.ends == 0;
}

static void test_no_memory(void)
{
	ok(is_true_without(SYS_sendto, ENOMEM, sends_later) && is_true_without(SYS_sendto, ENOBUFS, sends_later),
	   "a message for which the kernel has no memory waits, and is not lost");
	ok(is_true_without(SYS_recvfrom, ENOMEM, hears_later) && is_true_without(SYS_recvfrom, ENOBUFS, hears_later),
	   "the other end is not gone because the kernel has no memory");
}

/* ---- inside the callbacks ---- */

static void free_it(struct heard *h)
{
	channel_free(h->channel);
	h->channel = NULL;
}

static void drain_it(struct heard *h)
{
	if (h->count == 1)
		channel_drain(h->channel);
}

static void deafen_it(struct heard *h)
{
	channel_deafen(h->channel);
}

static void answer_it(struct heard *h)
{
	channel_send(h->channel, &(struct numbered){ h->numbers[h->count - 1], 8 }, 8);
}

static void test_inside(void)
{
	char byte;

	begin(&kind);
	s.heard.also = free_it;
	other_sends(0, 8);
	other_sends(1, 8);
	turn(2);
	ok(s.heard.count == 1, "a channel that is freed in its callback receives no more");
	ok(recv(s.other, &byte, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET, "and its socket is closed");
	end();

	begin(&kind);
	s.heard.also = free_it;
	other_sends(0, 8);
	channel_drain(s.heard.channel);
	ok(s.heard.count == 1 && !s.heard.channel, "the same while it is drained");
	end();

	begin(&kind);
	s.heard.also = free_it;
	close(s.other);
	s.other = -1;
	turn(2);
	ok(s.heard.ends == 1 && !s.heard.channel, "and when it is told of the end");
	end();

	begin(&kind);
	s.heard.also = drain_it;
	for (uint32_t i = 0; i < 100; i++)
		other_sends(i, 8);
	turn(1);
	ok(in_order(100), "one that is drained in its callback keeps the order");
	end();

	begin(&kind);
	s.heard.also = deafen_it;
	other_sends(0, 8);
	other_sends(1, 8);
	turn(2);
	is_int(s.heard.count, 1, "one that is deafened in its callback receives no more");
	end();

	begin(&kind);
	s.heard.also = answer_it;
	for (uint32_t i = 0; i < 3; i++)
		other_sends(i, 8);
	turn(1);
	ok(other_gets(0, 8) && other_gets(1, 8) && other_gets(2, 8), "one may answer in its callback");
	end();
}

int main(void)
{
	test_receiving();
	test_end();
	test_end_unread();
	test_refused();
	test_queue();
	test_overtaking();
	test_limit();
	test_too_large();
	test_gone_while_waiting();
	test_no_memory();
	test_inside();
	return tap_done();
}
