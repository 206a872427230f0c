#include "script/script_state.h"

#include "base/mem.h"
#include "process/wire.h"

#include <stdlib.h>
#include <string.h>

void script_push_internal(struct script *s, const char *name)
{
	lua_rawgeti(s->L, LUA_REGISTRYINDEX, s->internals);
	lua_getfield(s->L, -1, name);
	lua_remove(s->L, -2);
}

void script_send(struct script *s, struct buf *message)
{
	s->spec.send(s->spec.arg, message);
	buf_fini(message);
}
