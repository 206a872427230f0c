/* What clang-tidy is told about Lua, whose headers do not say it: these functions never return (.clang-tidy).
 * Not included by any source. Used by make lint. */
#include <lua.h>
#include <lauxlib.h>

__attribute__((noreturn)) int(lua_error)(lua_State *L);
__attribute__((noreturn)) int(luaL_error)(lua_State *L, const char *fmt, ...);
__attribute__((noreturn)) int(luaL_argerror)(lua_State *L, int arg, const char *extramsg);
