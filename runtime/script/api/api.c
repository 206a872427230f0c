#include "script/api/api.h"

void api_open(lua_State *L)
{
	api_open_coroutine(L);
	api_open_cron(L);
	api_open_exec(L);
	api_open_json(L);
	api_open_lock(L);
	api_open_log(L);
	api_open_signals(L);
	api_open_tcp(L);
	api_open_time(L);
}
