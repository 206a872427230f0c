#include "locks/postgres/pg_meter.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define ANSWER_MOST (8 << 20) /* bytes: thirty records of the largest kind */

bool pg_meter_is_over(struct pg_meter *m, const PGconn *conn)
{
	struct tcp_info info = { .tcpi_bytes_received = 0 };
	int waiting = 0;

	if (getsockopt(PQsocket(conn), IPPROTO_TCP, TCP_INFO, &info, &(socklen_t){ sizeof info }) < 0 ||
	    ioctl(PQsocket(conn), FIONREAD, &waiting) < 0 || info.tcpi_bytes_received < (uint64_t)waiting)
		return false;
	uint64_t taken = info.tcpi_bytes_received - (uint64_t)waiting;
	if (m->ended)
		m->taken = taken;
	m->ended = false;
	return taken > m->taken + ANSWER_MOST;
}
