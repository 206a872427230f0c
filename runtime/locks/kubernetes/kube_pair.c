#include "locks/kubernetes/kube_pair.h"

#include "base/mem.h"
#include "kube/kube_meta.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* client-go's name for the holder while the two of a pair disagree */
#define NOBODY_KNOWS "leaderelection.k8s.io/unknown"

void kube_pair_init(struct kube_pair *p, struct kube_lock *lock, const struct kube_url *url,
                    void (*news)(void *part, enum kube_news what, struct json_t *object))
{
	*p = (struct kube_pair){ .count = url->kinds, .url = url };
	for (int i = 0; i < p->count; i++) {
		struct kube_part *part = &p->part[i];
		const struct kube_resource *k = &kube_resources[url->kind[i]];
		part->lock = lock;
		part->kind = url->kind[i];
		part->base = mem_printf("%s%s/%s", k->base, url->ns, k->plural);
		part->watch.news = news;
		part->watch.arg = part;
	}
}

void kube_pair_fini(struct kube_pair *p)
{
	for (int i = 0; i < p->count; i++) {
		kube_watch_stop(&p->part[i].watch);
		json_decref(p->part[i].object);
		free(p->part[i].base);
	}
}

void kube_part_keep(struct kube_part *part, json_t *object)
{
	int64_t number = 0;

	if (object)
		kube_meta_number(object, &number, NULL);
	if (object && number < part->newest)
		return; /* a watch was faster */
	if (number > part->newest)
		part->newest = number;
	json_decref(part->object);
	part->object = json_incref(object);
	json_object_del(json_object_get(part->object, "metadata"), "managedFields");
	kube_watch_expect(&part->watch, part->newest);
}

/* ---- versions ---- */

void kube_version_add(struct version *v, const json_t *object)
{
	size_t n = strlen(v->text);

	snprintf(v->text + n, sizeof v->text - n, object ? "%s%.8s.%.18s" : "%s-", n ? "," : "", kube_meta_uid(object),
	         kube_meta_revision(object));
}

struct version kube_pair_version(const struct kube_pair *p)
{
	struct version v = { "" };
	bool any = false;

	for (int i = 0; i < p->count; i++) {
		kube_version_add(&v, p->part[i].object);
		any = any || p->part[i].object;
	}
	if (!any)
		v.text[0] = '\0';
	return v;
}

json_t *kube_pair_last(const struct kube_pair *p)
{
	int i = p->count - 1;

	while (i > 0 && !p->part[i].object)
		i--;
	return p->part[i].object;
}

int64_t kube_pair_token(struct kube_pair *p, const json_t *last, const char *write)
{
	const char *uid = kube_meta_uid(last);

	if (*write && *uid && strcmp(p->first.write, write) == 0 && strcmp(p->first.uid, uid) == 0)
		return p->first.token;
	snprintf(p->first.write, sizeof p->first.write, "%s", write);
	snprintf(p->first.uid, sizeof p->first.uid, "%s", uid);
	p->first.token = 0;
	kube_meta_number(last, &p->first.token, NULL);
	return p->first.token;
}

/* ---- records ---- */

static void hash_text(const struct record *a, const struct record *b, char *out)
{
	snprintf(out, sizeof a->write, "%016" PRIx64 "%016" PRIx64, record_sight_id(a), record_sight_id(b));
}

/* What the two of a pair say together. A change of either is a change: clients that know only one may hold it. */
static void combine_records(struct record *r, const struct record *other)
{
	bool agree = strcmp(r->holder, other->holder) == 0;
	char write[sizeof r->write];

	if (agree && *r->write && strcmp(r->write, other->write) == 0)
		return;
	hash_text(r, other, write);
	int64_t lease_ms = r->lease_ms > other->lease_ms ? r->lease_ms : other->lease_ms;
	if (!agree) {
		r->incarnation[0] = '\0';
		r->state = RECORD_UNSAID;
		mem_replace(&r->holder, NOBODY_KNOWS);
	}
	if (!agree || !*r->incarnation)
		memcpy(r->write, write, sizeof r->write);
	r->lease_ms = lease_ms;
	if (other->term > r->term)
		r->term = other->term;
}

/* The parts' records, the Lease's first. Returns how many there are; -1: one is foreign. */
static int pair_records(const struct kube_pair *p, struct record *r, struct record *other, struct err *err)
{
	int found = 0;

	for (int i = p->count - 1; i >= 0; i--) {
		const struct kube_part *part = &p->part[i];
		if (!part->object)
			continue;
		switch (kube_object_read(part->kind, part->object, found ? other : r, err)) {
		case KUBE_FOUND:
			found++;
			break;
		case KUBE_NOTHING:
			break;
		case KUBE_FOREIGN:
			err_wrap(err, "the %s %s in the namespace %s is not one to lead by",
			         kube_resources[part->kind].kind, p->url->name, p->url->ns);
			return -1;
		}
	}
	return found;
}

enum kube_found kube_pair_read(const struct kube_pair *p, struct record *r, struct err *err)
{
	struct record other;

	record_init(&other);
	int found = pair_records(p, r, &other, err);
	if (found == 2)
		combine_records(r, &other);
	record_fini(&other);
	return found < 0 ? KUBE_FOREIGN : found == 0 ? KUBE_NOTHING : KUBE_FOUND;
}
