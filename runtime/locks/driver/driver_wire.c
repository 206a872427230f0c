#include "locks/driver/driver_wire.h"

const char *driver_message_name(uint32_t type)
{
	switch (type) {
#define NAME(number, TYPE, name) \
	case number:             \
		return #name;
		DRIVER_MESSAGES(NAME)
#undef NAME
	}
	return NULL;
}

enum driver_type driver_message_open(struct wire *w, const void *data, size_t len)
{
	uint32_t type = wire_start(w, data, len, DRIVER_MAX);

	if (!driver_message_name(type))
		w->bad = true;
	return w->bad ? (enum driver_type)0 : (enum driver_type)type;
}

#define MESSAGE(number, TYPE, name) WIRE_DEFINE_MESSAGE(driver_##name, DRIVER_##TYPE, DRIVER_FIELDS_##name)
DRIVER_MESSAGES(MESSAGE)
