/* What a running elector can be asked at its control socket: each order's name, and its help. Not how it is
 * answered: orders.h. Only a table. Used by orders.c, by the socket, and by `lunarch ctl`, its completion and its
 * help. */
#pragma once

#include <stdbool.h>

enum {
	ORDER_STATUS,
	ORDER_IS_LEADING,
	ORDER_DEADLINE,
	ORDER_WHY,
	ORDER_RESIGN,
	ORDER_HANDOVER,
	ORDER_PAUSE,
	ORDER_RESUME,
	ORDER_RELOAD,
	ORDER_RUN,
	ORDERS
};

struct order {
	const char *name;
	bool changes;      /* asked for by POST */
	const char *usage; /* as in `lunarch ctl`; NULL: another command asks for it */
	const char *help;  /* lines */
};
extern const struct order order_table[ORDERS + 1]; /* a name NULL at the end */
const struct order *order_find(const char *name);  /* NULL: there is none */
