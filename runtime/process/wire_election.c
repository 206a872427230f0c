#include "process/wire_election.h"

void wire_election_put(struct buf *m, const struct wire_election *e)
{
	wire_u32(m, e->index);
	wire_str(m, e->name);
	wire_str(m, e->lock);
	wire_str(m, e->identity);
	wire_str(m, e->address);
	wire_i64(m, e->lease_ms);
	wire_i64(m, e->renew_ms);
	wire_i64(m, e->retry_ms);
	wire_i64(m, e->stop_grace_ms);
	wire_i64(m, e->shutdown_grace_ms);
	wire_u32(m, e->flags);
	wire_str(m, e->where);
}

bool wire_election_get(struct wire *w, struct wire_election *e)
{
	e->index = wire_get_u32(w);
	e->name = wire_get_str(w);
	e->lock = wire_get_str(w);
	e->identity = wire_get_str(w);
	e->address = wire_get_str(w);
	e->lease_ms = wire_get_i64(w);
	e->renew_ms = wire_get_i64(w);
	e->retry_ms = wire_get_i64(w);
	e->stop_grace_ms = wire_get_i64(w);
	e->shutdown_grace_ms = wire_get_i64(w);
	e->flags = wire_get_u32(w);
	e->where = wire_get_str(w);
	return wire_done(w);
}
