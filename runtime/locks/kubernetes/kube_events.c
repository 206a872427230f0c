#include "locks/kubernetes/kube_events.h"

#include "base/log.h"
#include "base/mem.h"
#include "kube/kube_api.h"
#include "kube/kube_meta.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 8 /* kept for one lock; more are dropped */
#define WITHIN (5 * NSEC_PER_SEC)

struct kube_event {
	struct kube_event *next;
	struct kube_events *all;
	char *path, *body;
	bool ripe;
	struct kube_call call; /* busy: it is under way */
};

static void event_free(struct kube_event *e)
{
	for (struct kube_event **at = &e->all->list; *at; at = &(*at)->next)
		if (*at == e) {
			*at = e->next;
			e->all->count--;
			break;
		}
	free(e->path);
	free(e->body);
	free(e);
}

static bool events_are_under_way(const struct kube_events *all)
{
	for (const struct kube_event *e = all->list; e; e = e->next)
		if (e->call.busy)
			return true;
	return false;
}

static void event_on_done(void *arg, const struct kube_answer *a)
{
	struct kube_event *e = arg;
	struct kube_events *all = e->all;

	if (a->err.code != ERR_NONE || a->status >= 300)
		log_event(LOG_DEBUG, NULL, "event_not_sent", "%d %.200s", a->status,
		          a->err.code != ERR_NONE ? a->err.text : a->message);
	event_free(e);
	if (all->ended && !events_are_under_way(all))
		all->ended(all->arg);
}

/* What an event is about: name, kind, namespace, uid and version of the object. */
static json_t *event_about(enum kube_kind kind, const json_t *object, const char *ns, const char *name)
{
	const struct kube_resource *k = &kube_resources[kind];

	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "apiVersion", k->api_version, "kind", k->kind, "namespace",
	                 ns, "name", name, "uid", kube_meta_uid(object), "resourceVersion", kube_meta_revision(object));
}

static char *event_print(enum kube_kind kind, const json_t *object, const char *ns, const char *name,
                         const char *identity, bool leads)
{
	int64_t now = clock_wall_us();
	char when[32], unique[300];
	char *message = mem_printf("%s %s", identity, leads ? "became leader" : "stopped leading");

	record_time_print(now, when, sizeof when);
	strcpy(when + strlen(when) - strlen(".000000Z"), "Z"); /* metav1.Time: whole seconds */
	snprintf(unique, sizeof unique, "%.230s.%" PRIx64, name, (uint64_t)now * 1000);
	json_t *event = json_pack("{s:s, s:s, s:{s:s, s:s}, s:o, s:s, s:s, s:s, s:s, s:s, s:i, s:{s:s}, s:s, s:s}",
	                          "apiVersion", "v1", "kind", "Event", "metadata", "name", unique, "namespace", ns,
	                          "involvedObject", event_about(kind, object, ns, name), "type", "Normal", "reason",
	                          "LeaderElection", "message", message, "firstTimestamp", when, "lastTimestamp", when,
	                          "count", 1, "source", "component", "lunarch", "reportingComponent", "lunarch",
	                          "reportingInstance", identity);
	char *text = event ? json_dumps(event, JSON_COMPACT) : NULL;
	json_decref(event);
	free(message);
	return text;
}

void kube_events_add(struct kube_events *all, enum kube_kind kind, const json_t *object, const char *ns,
                     const char *name, const char *identity, bool leads)
{
	char *body = object && all->count < MOST ? event_print(kind, object, ns, name, identity, leads) : NULL;
	struct kube_event **end = &all->list;

	if (!body)
		return;
	struct kube_event *e = mem_zero(sizeof *e);
	e->all = all;
	e->path = mem_printf("/api/v1/namespaces/%s/events", ns);
	e->body = body;
	while (*end)
		end = &(*end)->next;
	*end = e;
	all->count++;
}

void kube_events_ripen(struct kube_events *all)
{
	for (struct kube_event *e = all->list; e; e = e->next)
		e->ripe = true;
}

bool kube_events_send(struct kube_events *all, struct kube_api *api)
{
	for (struct kube_event *e = all->list; e; e = e->next) {
		if (!e->ripe || e->call.busy)
			continue;
		kube_api_start(api, &e->call,
		               &(struct kube_request){
				       .client = KUBE_EVENTS,
				       .method = "POST",
				       .path = e->path,
				       .body = e->body,
				       .by = instant_add(clock_now(), WITHIN),
				       .done = event_on_done,
				       .arg = e,
			       });
		e->body = NULL;
	}
	return events_are_under_way(all);
}

void kube_events_fini(struct kube_events *all)
{
	all->ended = NULL;
	while (all->list) {
		struct kube_event *e = all->list;
		if (e->call.busy)
			kube_api_cancel(&e->call);
		else
			event_free(e);
	}
}
