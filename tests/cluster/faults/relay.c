/* The network of the chaos test: each machine is a network namespace with a TUN device, and this program carries the
 * packets from one to another. So faults are done to packets of the kernel's own TCP, on any kernel: none of it needs
 * netem or a packet filter. Not a part of Lunarch. Built and used by tests/lib/machines.py.
 *
 * On standard input: "machine ADDRESS NETNS" (a.b.c.N, N from 0 to 63, a path) makes the device and answers "ok";
 * "way FROM TO MODE DELAY JITTER LOSS TWICE LATE", where MODE is pass, drop or reject, the times are microseconds and
 * the chances are parts of a million. It says "stall AT LENGTH" (ms, CLOCK_MONOTONIC) when it was not run for so long:
 * then others may not have been, either. Argument: the seed of the chances. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MACHINES = 64, PACKET = 2048, QUEUE = 16384, TICK_MS = 10, STALL_MS = 150, LATE_US = 40000 };

struct way {
	char mode; /* of its name's letters the first */
	unsigned delay_us, jitter_us, loss, twice, late;
	uint64_t last_us; /* when the newest packet that keeps its place is due */
};

struct packet {
	uint64_t due_us, number;
	int to;
	unsigned size;
	unsigned char data[PACKET];
};

struct relay {
	int tun[MACHINES];
	struct way ways[MACHINES][MACHINES];
	struct packet *queue[QUEUE]; /* a heap, what is due first on top */
	int queued;
	uint64_t numbers, random;
};

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static unsigned draw(struct relay *r, unsigned below)
{
	r->random ^= r->random << 13;
	r->random ^= r->random >> 7;
	r->random ^= r->random << 17;
	return below ? (unsigned)(r->random % below) : 0;
}

static int before(const struct packet *a, const struct packet *b)
{
	return a->due_us < b->due_us || (a->due_us == b->due_us && a->number < b->number);
}

static void push(struct relay *r, const unsigned char *data, unsigned size, int to, uint64_t due_us)
{
	struct packet *p = r->queued < QUEUE ? malloc(sizeof *p) : NULL;
	int i = r->queued;

	if (!p)
		return; /* as a router with a full queue */
	*p = (struct packet){ .due_us = due_us, .number = r->numbers++, .to = to, .size = size };
	memcpy(p->data, data, size);
	for (r->queued++; i > 0 && before(p, r->queue[(i - 1) / 2]); i = (i - 1) / 2)
		r->queue[i] = r->queue[(i - 1) / 2];
	r->queue[i] = p;
}

static struct packet *pop(struct relay *r)
{
	struct packet *top = r->queue[0], *p = r->queue[--r->queued];
	int i = 0, child;

	while ((child = 2 * i + 1) < r->queued) {
		if (child + 1 < r->queued && before(r->queue[child + 1], r->queue[child]))
			child++;
		if (!before(r->queue[child], p))
			break;
		r->queue[i] = r->queue[child];
		i = child;
	}
	r->queue[i] = p;
	return top;
}

static void put16(unsigned char *p, unsigned v)
{
	p[0] = (unsigned char)(v >> 8);
	p[1] = (unsigned char)v;
}

static void put32(unsigned char *p, uint32_t v)
{
	put16(p, v >> 16);
	put16(p + 2, v & 0xffff);
}

static uint32_t get32(const unsigned char *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static unsigned checksum(const unsigned char *p, unsigned size, uint32_t sum)
{
	for (unsigned i = 0; i + 1 < size; i += 2)
		sum += (uint32_t)p[i] << 8 | p[i + 1];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return ~sum & 0xffff;
}

/* The answer of a firewall that rejects: a reset (RFC 9293, 3.5.2), from whom the packet was for. */
static void reject(struct relay *r, const unsigned char *in, unsigned size, int from)
{
	unsigned head = (in[0] & 15u) * 4, offset;
	unsigned char out[40] = { 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, IPPROTO_TCP };

	if (in[9] != IPPROTO_TCP || size < head + 20 || in[head + 13] & 0x04)
		return;
	const unsigned char *tcp = in + head;
	offset = (tcp[12] >> 4) * 4u;
	if (size < head + offset)
		return;
	uint32_t length = size - head - offset + ((tcp[13] & 0x02) != 0) + ((tcp[13] & 0x01) != 0);
	memcpy(out + 12, in + 16, 4);
	memcpy(out + 16, in + 12, 4);
	put16(out + 10, checksum(out, 20, 0));
	memcpy(out + 20, tcp + 2, 2);
	memcpy(out + 22, tcp, 2);
	if (tcp[13] & 0x10)
		memcpy(out + 24, tcp + 8, 4);
	put32(out + 28, get32(tcp + 4) + length);
	out[32] = 0x50;
	out[33] = tcp[13] & 0x10 ? 0x04 : 0x14;
	put16(out + 36, checksum(out + 12, 28, IPPROTO_TCP + 20));
	push(r, out, sizeof out, from, now_us());
}

static void carry(struct relay *r, const unsigned char *data, unsigned size, int from)
{
	int to = size >= 20 && data[0] >> 4 == 4 ? data[19] : MACHINES;
	uint64_t due = now_us();

	if (to >= MACHINES || r->tun[to] < 0)
		return;
	struct way *w = &r->ways[from][to];
	if (w->mode == 'r')
		reject(r, data, size, from);
	if (w->mode != 'p' || draw(r, 1000000) < w->loss)
		return;
	due += w->delay_us + draw(r, w->jitter_us);
	if (draw(r, 1000000) < w->late) {
		due += draw(r, LATE_US);
	} else {
		due = due < w->last_us ? w->last_us : due;
		w->last_us = due;
	}
	push(r, data, size, to, due);
	if (draw(r, 1000000) < w->twice)
		push(r, data, size, to, due + draw(r, LATE_US));
}

static void receive(struct relay *r, int from)
{
	unsigned char data[PACKET];
	ssize_t n;

	while ((n = read(r->tun[from], data, sizeof data)) > 0)
		carry(r, data, (unsigned)n, from);
}

static void deliver(struct relay *r)
{
	while (r->queued && r->queue[0]->due_us <= now_us()) {
		struct packet *p = pop(r);
		if (write(r->tun[p->to], p->data, p->size) < 0 && errno == EBADF)
			abort();
		free(p);
	}
}

static int set_up(const char *name, const char *address)
{
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), result = -1;
	struct ifreq i = { 0 };
	struct sockaddr_in a = { .sin_family = AF_INET };

	snprintf(i.ifr_name, sizeof i.ifr_name, "%s", name);
	if (address) {
		inet_pton(AF_INET, address, &a.sin_addr);
		memcpy(&i.ifr_addr, &a, sizeof a);
		if (ioctl(s, SIOCSIFADDR, &i) < 0)
			goto out;
		inet_pton(AF_INET, "255.255.255.0", &a.sin_addr);
		memcpy(&i.ifr_netmask, &a, sizeof a);
		if (ioctl(s, SIOCSIFNETMASK, &i) < 0)
			goto out;
	}
	i.ifr_flags = IFF_UP | IFF_RUNNING;
	result = ioctl(s, SIOCSIFFLAGS, &i);
out:
	close(s);
	return result;
}

/* In that namespace; then back. */
static int plug_in(struct relay *r, const char *address, const char *path)
{
	int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), there = open(path, O_RDONLY | O_CLOEXEC),
	    result = -1;
	struct ifreq i = { .ifr_flags = IFF_TUN | IFF_NO_PI };
	unsigned number = (unsigned)atoi(strrchr(address, '.') + 1);

	snprintf(i.ifr_name, sizeof i.ifr_name, "tun%u-%u", number, (unsigned)getpid() % 10000);
	if (number >= MACHINES || home < 0 || there < 0 || setns(there, CLONE_NEWNET) < 0)
		goto out;
	int tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (tun >= 0 && ioctl(tun, TUNSETIFF, &i) == 0 && set_up(i.ifr_name, address) == 0 && set_up("lo", NULL) == 0) {
		r->tun[number] = tun;
		result = 0;
	}
	if (setns(home, CLONE_NEWNET) < 0)
		result = -1;
out:
	close(home);
	close(there);
	return result;
}

static int obey(struct relay *r, const char *line)
{
	char address[32], path[256], mode[16];
	unsigned from, to;
	struct way w = { 0 };

	if (sscanf(line, "machine %31s %255s", address, path) == 2)
		return strrchr(address, '.') ? plug_in(r, address, path) : -1;
	if (sscanf(line, "way %u %u %15s %u %u %u %u %u", &from, &to, mode, &w.delay_us, &w.jitter_us, &w.loss,
	           &w.twice, &w.late) != 8 ||
	    from >= MACHINES || to >= MACHINES)
		return -1;
	w.mode = mode[0];
	r->ways[from][to] = w;
	return 0;
}

/* Lines come whole: each is written at once. 0 at the end. */
static int listen_to(struct relay *r)
{
	static char text[65536];
	ssize_t n = read(0, text, sizeof text - 1);
	char *line, *rest = text;

	if (n <= 0)
		return 0;
	text[n] = 0;
	while ((line = strsep(&rest, "\n")) && *line) {
		if (obey(r, line) < 0)
			printf("failed: %s: %s\n", line, strerror(errno));
		else if (line[0] == 'm')
			puts("ok");
	}
	return 1;
}

int main(int argc, char **argv)
{
	struct relay *r = calloc(1, sizeof *r);
	struct pollfd p[MACHINES + 1];
	int open = 1;

	if (!r || argc != 2)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	r->random = strtoull(argv[1], NULL, 10) * 2 + 1;
	for (int i = 0; i < MACHINES; i++) {
		r->tun[i] = -1;
		for (int j = 0; j < MACHINES; j++)
			r->ways[i][j].mode = 'p';
	}
	while (open) {
		uint64_t began = now_us(), due = r->queued ? r->queue[0]->due_us : UINT64_MAX;
		int wait_ms = due <= began                   ? 0
		              : due - began < TICK_MS * 1000 ? (int)((due - began + 999) / 1000)
		                                             : TICK_MS;
		for (int i = 0; i < MACHINES; i++)
			p[i] = (struct pollfd){ .fd = r->tun[i], .events = POLLIN };
		p[MACHINES] = (struct pollfd){ .fd = 0, .events = POLLIN };
		poll(p, MACHINES + 1, wait_ms);
		uint64_t took_ms = (now_us() - began) / 1000;
		if (took_ms > STALL_MS)
			printf("stall %llu %llu\n", (unsigned long long)(now_us() / 1000), (unsigned long long)took_ms);
		if (p[MACHINES].revents)
			open = listen_to(r);
		for (int i = 0; i < MACHINES; i++)
			if (p[i].revents)
				receive(r, i);
		deliver(r);
	}
	return 0;
}
