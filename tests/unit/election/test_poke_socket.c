/* The sockets of pokes: what is an address, who hears what, and that nothing is answered. */
#include "election/poke_socket.h"

#include "base/clock.h"
#include "base/mem.h"
#include "tap.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct ev_loop *loop;
static bool no_memory;

/* In place of libc's: the kernel may have no memory for it. */
int getsockname(int fd, __SOCKADDR_ARG at, socklen_t *restrict len)
{
	if (!no_memory)
		return (int)syscall(SYS_getsockname, fd, at.__sockaddr__, len);
	errno = ENOBUFS;
	return -1;
}

static void addresses(void)
{
	static const char *const good[] = { "192.0.2.1:4000", "127.0.0.1:1024", "[2001:db8::1]:65535", "[::1]:4000" };
	static const char *const bad[] = {
		"",
		"192.0.2.1",
		"192.0.2.1:",
		"192.0.2.1:53",
		"192.0.2.1:04000",
		"192.0.2.1:65536",
		"192.0.2.1:+4000",
		"192.0.2.1:4000 ",
		" 192.0.2.1:4000",
		"192.0.2.1:4000:1",
		"192.0.2:4000",
		"host:4000",
		":4000",
		"0.0.0.0:4000",
		"0.1.2.3:4000",
		"169.254.169.254:4000",
		"224.0.0.1:4000",
		"255.255.255.255:4000",
		"2001:db8::1:4000",
		"[2001:db8::1]4000",
		"[2001:db8::1]",
		"[192.0.2.1]:4000",
		"[::]:4000",
		"[ff02::1]:4000",
		"[fe80::1]:4000",
		"[fe80::1%eth0]:4000",
		"[::ffff:192.0.2.1]:4000",
		"[2001:db8::1:4000",
		"[00000000000000000000000000000000000000000000000000::1]:4000",
	};
	struct sockaddr_storage a;
	socklen_t len;

	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		ok(poke_address(good[i], &a, &len), "%s is an address", good[i]);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		ok(!poke_address(bad[i], &a, &len), "\"%s\" is none", bad[i]);
}

static bool opens(const char *where)
{
	struct err err;
	struct poke_sockets *all = poke_sockets_new(loop, where, &err);

	poke_sockets_free(all);
	return all != NULL;
}

static void options(void)
{
	ok(opens("auto") && opens("127.0.0.1") && opens("127.0.0.1:4000") && opens("::1") && opens("[::1]") &&
	           opens("[::1]:4000"),
	   "--poke is auto, or an address with or without a port");
	ok(!opens("") && !opens("host") && !opens("127.0.0.1:0") && !opens("0.0.0.0") && !opens("127.0.0.1:53") &&
	           !opens("127.0.0.1:x") && !opens("[::1]x"),
	   "and nothing else");
}

static void on_look(void *arg)
{
	++*(int *)arg;
}

static void run_until(const int *count, int want)
{
	for (int i = 0; i < 6000 && *count < want; i++) {
		ev_run(loop, EVRUN_NOWAIT);
		usleep(10000);
	}
}

/* What comes of none of these is shown by what follows: a datagram comes after the earlier ones of one socket. */
static void send_raw(int fd, const char *address, const void *bytes, size_t len)
{
	struct sockaddr_storage to;
	socklen_t to_len;

	if (poke_address(address, &to, &to_len))
		sendto(fd, bytes, len, 0, (struct sockaddr *)&to, to_len);
}

/* What is to be published then. */
static int listen_at(struct poke_sockets *all, struct poke_ear *ear, const char *where, char *address, char *key)
{
	struct err err;
	int done = poke_sockets_listen(all, ear, where, &err);

	snprintf(address, POKE_ADDRESS + 1, "%s", poke_ear_address(ear));
	snprintf(key, POKE_KEY + 1, "%s", ear->gate.key);
	return done;
}

static void hearing(const char *where, int family)
{
	struct err err = { .code = ERR_NONE };
	char address[POKE_ADDRESS + 1], key[POKE_KEY + 1], other_address[POKE_ADDRESS + 1], other_key[POKE_KEY + 1];
	char again[POKE_KEY + 1], datagram[POKE_BYTES], answer[100];
	int looks = 0, others = 0, fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct poke_ear ear = { .look = on_look, .arg = &looks }, other = { .look = on_look, .arg = &others };
	struct poke_sockets *all = poke_sockets_new(loop, "auto", &err);

	no_memory = true;
	ok(poke_sockets_listen(all, &ear, where, &err) < 0 && !*poke_ear_address(&ear) && strstr(err.text, "poke"),
	   "where the port is not known, no address is told: %s", err.text);
	no_memory = false;
	is_int(listen_at(all, &ear, where, address, key), 0, "it listens at a free port");
	listen_at(all, &other, where, other_address, other_key);
	ok(strcmp(address, other_address) == 0 && strcmp(key, other_key) != 0,
	   "two elections share a socket, and have a key each");
	is_str(poke_ear_address(&ear), address, "and its address is known");
	send_raw(fd, address, "nonsense", 8);
	memset(datagram, 'x', sizeof datagram);
	send_raw(fd, address, datagram, sizeof datagram);
	poke_fill(datagram, key);
	for (int i = 0; i < 3; i++)
		send_raw(fd, address, datagram, sizeof datagram);
	poke_fill(datagram, other_key);
	send_raw(fd, address, datagram, sizeof datagram);
	run_until(&others, 1);
	ok(looks == 1 && others == 1, "what has a key leads to a look of its election, once; all else to none");
	ok(recv(fd, answer, sizeof answer, 0) < 0, "nothing was answered");
	listen_at(all, &ear, where, address, again);
	ok(strcmp(again, key) != 0, "a key that is spent is replaced");
	listen_at(all, &ear, where, address, key);
	is_str(again, key, "one that is not is kept");
	ok(poke_sockets_send(all, where, address, key), "a leader sends");
	run_until(&looks, 2);
	is_int(looks, 2, "and is heard");
	poke_ear_close(all, &ear);
	poke_ear_close(all, &ear);
	is_str(poke_ear_address(&ear), "", "who is closed listens no more");
	poke_ear_close(all, &other);
	int port = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct sockaddr_storage at;
	socklen_t len;
	poke_address(address, &at, &len);
	is_int(bind(port, (struct sockaddr *)&at, len), 0, "and with the last one the port is free");
	struct poke_sockets *fixed = poke_sockets_new(loop, address, &err);
	ok(poke_sockets_listen(fixed, &ear, "", &err) < 0 && !*poke_ear_address(&ear) && strstr(err.text, "poke"),
	   "a port that is taken is an error, which says so: %s", err.text);
	close(port);
	poke_sockets_free(fixed);
	poke_sockets_free(all);
	close(fd);
}

/* What a hostile record may say. */
static void refusals(void)
{
	struct err err;
	struct poke_sockets *all = poke_sockets_new(loop, "auto", &err);
	static const char key[] = "00112233445566778899aabbccddeeff";
	int looks = 0;
	struct poke_ear ear = { .look = on_look, .arg = &looks };

	ok(!poke_sockets_send(all, "127.0.0.1", "224.0.0.1:4000", key), "nothing is sent to many");
	ok(!poke_sockets_send(all, "127.0.0.1", "", key), "nor to nobody");
	ok(!poke_sockets_send(all, "127.0.0.1", "127.0.0.1:4000", ""), "nor without a key");
	ok(!poke_sockets_send(all, "127.0.0.1", "127.0.0.1:4000", "00112233445566778899aabbccddee-f"),
	   "nor with what is no key");
	ok(!poke_sockets_send(all, "192.0.2.1", "127.0.0.1:4000", key) &&
	           !poke_sockets_send(all, "", "[::1]:4000", key),
	   "nor to the loopback by who reaches its store by another address");
	ok(poke_sockets_send(all, "127.0.0.1", "127.0.0.1:4000", key), "else it is");
	ok(poke_sockets_listen(all, &ear, "", &err) < 0 && err.code == ERR_MISSING,
	   "auto needs the address by which the store is reached");
	ok(poke_sockets_listen(all, &ear, "192.0.2.1", &err) < 0, "which must be this machine's: %s", err.text);
	poke_sockets_free(all);
}

int main(void)
{
	loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
	addresses();
	options();
	hearing("127.0.0.1", AF_INET);
	hearing("::1", AF_INET6);
	refusals();
	ev_loop_destroy(loop);
	return tap_done();
}
