#include "script/driver/driver_log.h"

#include "base/buf.h"
#include "base/hash.h"
#include "base/mem.h"

#include <string.h>

#define SAID_AGAIN (60 * NSEC_PER_SEC)
#define SECRET_MIN 4

bool driver_log_due(struct driver_log *l, const char *text, nsec now)
{
	uint64_t hash = hash_bytes(HASH_SEED, text, strlen(text));
	size_t oldest = 0;

	for (size_t i = 0; i < DRIVER_LOG_TEXTS; i++) {
		if (l->said[i].used && l->said[i].hash == hash) {
			if (now - l->said[i].at < SAID_AGAIN)
				return false;
			l->said[i].at = now;
			return true;
		}
		if (!l->said[i].used || (l->said[oldest].used && l->said[i].at < l->said[oldest].at))
			oldest = i;
	}
	l->said[oldest].hash = hash;
	l->said[oldest].at = now;
	l->said[oldest].used = true;
	return true;
}

char *driver_log_hide(const char *text, const char *secret)
{
	size_t len = secret ? strlen(secret) : 0;
	struct buf out = { 0 };
	const char *found;

	if (len < SECRET_MIN)
		return mem_dup(text);
	while ((found = strstr(text, secret))) {
		buf_add(&out, text, (size_t)(found - text));
		buf_adds(&out, "***");
		text = found + len;
	}
	buf_adds(&out, text);
	return out.data ? out.data : mem_dup("");
}
