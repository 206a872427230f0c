#include "locks/postgres/pg_meter.h"

#include <linux/tcp.h>
#include <malloc.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define ANSWER_MOST (8 << 20) /* bytes: thirty records of the largest kind */

/* libpq doubles its buffer until a message fits, and a result's value is a copy: what is above this is no answer. glibc
 * takes pieces of more than 32 MB from the kernel one by one (mallopt(3), M_MMAP_THRESHOLD), and counts them. */
#define ROOM_MOST (4 * (size_t)ANSWER_MOST)

void pg_meter_begin(struct pg_meter *m)
{
	m->mapped = mallinfo2().hblkhd;
}

bool pg_meter_is_over(struct pg_meter *m, const PGconn *conn)
{
	struct tcp_info info = { .tcpi_bytes_received = 0 };
	int waiting = 0;

	if (mallinfo2().hblkhd > m->mapped + ROOM_MOST)
		return true;
	if (getsockopt(PQsocket(conn), IPPROTO_TCP, TCP_INFO, &info, &(socklen_t){ sizeof info }) < 0 ||
	    ioctl(PQsocket(conn), FIONREAD, &waiting) < 0 || info.tcpi_bytes_received < (uint64_t)waiting)
		return false;
	uint64_t taken = info.tcpi_bytes_received - (uint64_t)waiting;
	if (m->ended)
		m->taken = taken;
	m->ended = false;
	return taken > m->taken + ANSWER_MOST;
}
