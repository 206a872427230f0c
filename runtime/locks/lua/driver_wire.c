#include "locks/lua/driver_wire.h"

static bool is_message(uint32_t type)
{
#define IS(number, TYPE, name) || type == (number)
	return false DRIVER_MESSAGES(IS);
#undef IS
}

enum driver_type driver_message_open(struct wire *w, const void *data, size_t len)
{
	uint32_t type = wire_start(w, data, len, DRIVER_MAX);

	if (!is_message(type))
		w->bad = true;
	return w->bad ? (enum driver_type)0 : (enum driver_type)type;
}

#define MESSAGE(number, TYPE, name) WIRE_DEFINE_MESSAGE(driver_##name, DRIVER_##TYPE, DRIVER_FIELDS_##name)
DRIVER_MESSAGES(MESSAGE)
