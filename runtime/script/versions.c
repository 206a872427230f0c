#include "script/versions.h"

#include "base/buf.h"

#include <ev.h>
#include <jansson.h>
#include <lua.h>

void versions_add(struct buf *out)
{
	buf_printf(out, "%s, libev %d.%d, jansson %s", LUA_RELEASE, ev_version_major(), ev_version_minor(),
	           jansson_version_str());
}
