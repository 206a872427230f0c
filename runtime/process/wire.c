#include "process/wire.h"

const char *wire_name(uint32_t type)
{
	switch (type) {
#define NAME(number, TYPE, name) \
	case number:             \
		return #name;
		WIRE_MESSAGES(NAME)
#undef NAME
	}
	return NULL;
}

enum wire_type wire_open(struct wire *w, const void *data, size_t len)
{
	uint32_t type = wire_start(w, data, len, WIRE_MAX);

	if (!wire_name(type))
		w->bad = true;
	return w->bad ? (enum wire_type)0 : (enum wire_type)type;
}

uint32_t wire_slot(const struct wire *w)
{
	struct wire ahead = *w;

	return wire_get_u32(&ahead);
}

#define MESSAGE(number, TYPE, name) WIRE_DEFINE_MESSAGE(wire_##name, WIRE_##TYPE, WIRE_FIELDS_##name)
#define PART(name) WIRE_DEFINE_PART(wire_##name, WIRE_FIELDS_##name)
WIRE_MESSAGES(MESSAGE)
WIRE_PARTS(PART)
