#include "base/env.h"

#include "base/mem.h"

#include <stdbool.h>
#include <string.h>

static size_t env_length(char *const *list)
{
	size_t n = 0;

	while (list && list[n])
		n++;
	return n;
}

/* Whether one of the changes names the variable that this entry sets. */
static bool env_is_changed(const char *entry, char *const *changes)
{
	for (; changes && *changes; changes++) {
		size_t len = strcspn(*changes, "=");
		if (strncmp(entry, *changes, len) == 0 && entry[len] == '=')
			return true;
	}
	return false;
}

char **env_with(char *const *own, char *const *changes)
{
	size_t n = env_length(own), more = env_length(changes), at = 0;
	char **list = mem_zero((n + more + 1) * sizeof *list);

	for (size_t i = 0; i < n; i++)
		if (!env_is_changed(own[i], changes))
			list[at++] = own[i];
	for (size_t i = 0; i < more; i++)
		if (strchr(changes[i], '=') && !env_is_changed(changes[i], changes + i + 1))
			list[at++] = changes[i];
	return list;
}
