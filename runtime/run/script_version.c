#include "run/script_version.h"

#include "base/mem.h"
#include "process/sources.h"
#include "run/worker_set.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int script_version_keep(struct script_version *v, struct err *err)
{
	int fd = v->kept ? v->kept : sources_new(err);

	if (fd > 0)
		v->kept = fd;
	return fd;
}

void script_version_fini(struct script_version *v)
{
	for (uint32_t i = 0; i < v->count; i++)
		election_settings_fini(&v->settings[i]);
	free(v->settings);
	free(v->group);
	if (v->kept)
		close(v->kept);
	*v = (struct script_version){ 0 };
}

/* A worker of its own is of use only beside others. */
static void version_group(struct script_version *v)
{
	v->group = mem_zero(sizeof *v->group * (v->count + 1));
	for (uint32_t i = 0; i < v->count && v->count > 1; i++)
		if (v->settings[i].flags & WIRE_ELECTION_ISOLATE)
			v->group[i] = ++v->groups;
}

static bool same_election(const struct election_settings *a, const struct election_settings *b)
{
	return strcmp(a->name, b->name) == 0 && strcmp(a->lock, b->lock) == 0 && a->flags == b->flags;
}

/* Fills in which of the worker's elections is which of the version's. Two of the same kind without a name are told
 * apart by their order. */
static int version_map(const struct script_version *v, struct worker_set *s, struct err *err)
{
	for (uint32_t i = 0; i < v->count; i++)
		s->election[i] = UINT32_MAX;
	for (uint32_t i = 0; i < v->count; i++) {
		uint32_t k = i; /* most often the order is the same */
		for (uint32_t tries = 0; tries < v->count; tries++, k = (k + 1) % v->count)
			if (s->election[k] == UINT32_MAX && same_election(&v->settings[i], &s->settings[k]))
				break;
		if (s->election[k] != UINT32_MAX || !same_election(&v->settings[i], &s->settings[k]))
			return err_set(err, ERR_INVALID,
			               "%s: the script describes other elections than when it was loaded first: its "
			               "election %s is not among them, or has another lock or other hooks",
			               v->settings[i].where, v->settings[i].name);
		s->slot[i] = k;
		s->election[k] = i;
	}
	return 0;
}

int script_version_take(struct script_version *v, struct worker_set *s, struct err *err)
{
	bool first = !v->group;

	if (!first && s->settings_count != v->count)
		return err_set(err, ERR_INVALID, "the script describes %u elections, and %u when it was loaded first",
		               s->settings_count, v->count);
	free(s->slot);
	s->slot = mem_zero(2 * sizeof *s->slot * (s->settings_count + 1));
	s->election = s->slot + s->settings_count;
	if (!first)
		return version_map(v, s, err);
	for (uint32_t i = 0; i < s->settings_count; i++)
		s->slot[i] = s->election[i] = i;
	v->settings = s->settings;
	v->count = s->settings_count;
	s->settings = NULL;
	s->settings_count = 0;
	version_group(v);
	return 0;
}
