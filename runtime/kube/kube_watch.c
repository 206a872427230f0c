#include "kube/kube_watch.h"

#include "base/json_bound.h"
#include "base/log.h"
#include "base/mem.h"
#include "kube/kube_meta.h"
#include "locks/lock_url.h"
#include "loop/timer_after.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define SERVER_S 480 /* the server keeps a watch open for this time, and up to a quarter more */
#define OPEN_WITHIN (10 * NSEC_PER_SEC)
#define BEGIN_AFTER (20 * NSEC_PER_MS) /* a handshake beside it would make a candidate's first write wait */
#define SHOW_WITHIN (5 * NSEC_PER_SEC) /* until an expected version must have been shown */
#define BACKOFF_MOST 30.
#define REFUSED_S 300.
#define REFUSALS 2
#define GONE 410

static void watch_open(struct kube_watch *w);

/* [0, 1): so that a thousand watches of a restarted server do not come back in one moment. */
static double watch_noise(void)
{
	uint16_t n = 0;

	if (getrandom(&n, sizeof n, 0) != (ssize_t)sizeof n)
		return 0.5;
	return n / 65536.;
}

static void watch_arm(struct kube_watch *w, nsec after)
{
	timer_after(kube_api_loop(w->api), &w->timer, after);
}

/* ---- what comes ---- */

static void watch_on_object(struct kube_watch *w, json_t *object)
{
	int64_t number;

	if (kube_meta_number(object, &number, NULL) < 0 || number <= w->revision)
		return;
	w->revision = number;
	w->news(w->arg, KUBE_CHANGED, object);
}

static void watch_on_bookmark(struct kube_watch *w, const json_t *object)
{
	int64_t number;

	if (kube_meta_number(object, &number, NULL) == 0 && number > w->revision)
		w->revision = number;
}

/* An error inside the stream: 410 when the version to go on from is too old. The server ends the stream after it. */
static void watch_on_error(struct kube_watch *w, const json_t *status)
{
	if (json_integer_value(json_object_get(status, "code")) == GONE)
		w->revision = 0;
	w->erred = true;
	w->news(w->arg, KUBE_LOOK, NULL);
}

static void watch_on_event(struct kube_watch *w, const char *line, size_t len)
{
	json_t *event = json_bound_load(line, len, 0, KUBE_OBJECT_VALUES, NULL),
	       *object = json_object_get(event, "object");
	const char *type = kube_text(event, "type");

	if (!*type || !object) {
		w->news(w->arg, KUBE_LOOK, NULL);
	} else if (strcmp(type, "BOOKMARK") == 0) {
		watch_on_bookmark(w, object);
	} else if (strcmp(type, "ERROR") == 0) {
		watch_on_error(w, object);
	} else if (strcmp(type, "DELETED") == 0) {
		watch_on_bookmark(w, object);
		w->news(w->arg, KUBE_LOOK, NULL);
	} else {
		watch_on_object(w, object);
	}
	if (w->state == KUBE_WATCH_LIVE && w->revision >= w->expected)
		ev_timer_stop(kube_api_loop(w->api), &w->timer);
	json_decref(event);
}

static void watch_on_data(void *arg, const char *bytes, size_t len)
{
	struct kube_watch *w = arg;

	while (len && w->state == KUBE_WATCH_LIVE) {
		const char *end = memchr(bytes, '\n', len);
		size_t part = end ? (size_t)(end - bytes) : len;
		bool whole = end && w->line.len == 0;
		if (!whole)
			buf_add(&w->line, bytes, part);
		if (end) {
			struct buf line = w->line;
			w->line = (struct buf){ 0 };
			watch_on_event(w, whole ? bytes : line.data ? line.data : "", whole ? part : line.len);
			buf_fini(&line);
		}
		part += end != NULL;
		bytes += part;
		len -= part;
	}
	if (w->line.len > KUBE_OBJECT_BYTES)
		kube_api_cancel(&w->call);
}

static void watch_on_opened(void *arg)
{
	struct kube_watch *w = arg;
	bool was_down = w->down;

	w->state = KUBE_WATCH_LIVE;
	w->opened_at = clock_now();
	w->erred = false;
	w->down = w->refused = false;
	if (w->revision < w->expected)
		watch_arm(w, SHOW_WITHIN);
	else
		ev_timer_stop(kube_api_loop(w->api), &w->timer);
	if (was_down)
		w->news(w->arg, KUBE_LOOK, NULL);
}

/* ---- how it ends, and begins again ---- */

/* A server that has just been started knows no roles for a moment, and refuses everybody: only the third refusal in a
 * row is reported. */
static void watch_say_refused(struct kube_watch *w, const struct kube_answer *a)
{
	if (w->refused || w->failures < REFUSALS)
		return;
	w->refused = true;
	log_event(
		LOG_WARN, &(struct log_about){ .lock = w->lock }, "watch_refused",
		"watching is refused, so this polls instead: %.300s (the role lacks the verb watch, and list for older servers)",
		a->message);
}

static double watch_pause_after(struct kube_watch *w, bool worked, const struct kube_answer *a)
{
	double most = BACKOFF_MOST;

	if (a->status == 401 || a->status == 403) {
		watch_say_refused(w, a);
		most = REFUSED_S;
	}
	if (worked)
		return watch_noise() / 10;
	double pause = 0.25 * (1 << (w->failures < 11 ? w->failures : 11));
	return (pause < most ? pause : most) * (0.5 + watch_noise());
}

static void watch_on_done(void *arg, const struct kube_answer *a)
{
	struct kube_watch *w = arg;
	bool was_live = w->state == KUBE_WATCH_LIVE, was_down = w->down;
	bool worked = was_live && !w->erred && a->err.code == ERR_NONE &&
	              elapsed_standby(w->opened_at, clock_now()) > NSEC_PER_SEC;

	buf_fini(&w->line);
	if (w->state == KUBE_WATCH_OFF)
		return;
	w->state = KUBE_WATCH_WAITING;
	if (a->status == GONE)
		w->revision = 0;
	double pause = watch_pause_after(w, worked, a);
	w->failures = worked ? 0 : w->failures + 1;
	w->down = !was_live || w->revision == 0;
	watch_arm(w, (nsec)(pause * NSEC_PER_SEC));
	if (w->down && !was_down)
		w->news(w->arg, KUBE_LOOK, NULL);
}

static void watch_open(struct kube_watch *w)
{
	/* From 0: what the server has in its cache, which may be older than what was read: who listens compares
	 * versions. Bookmarks are not asked for then: together they mean "initial events, consistent", which servers
	 * over etcd 3.4 cannot do. */
	char *path = mem_printf("%s&timeoutSeconds=%d&resourceVersion=%" PRId64 "%s", w->path,
	                        (int)(SERVER_S * (1 + watch_noise() / 4)), w->revision,
	                        w->revision > 0 ? "&allowWatchBookmarks=true" : "");

	w->state = KUBE_WATCH_OPENING;
	watch_arm(w, OPEN_WITHIN);
	kube_api_start(w->api, &w->call,
	               &(struct kube_request){
			       .client = KUBE_WATCH,
			       .method = "GET",
			       .path = path,
			       .first_byte = OPEN_WITHIN,
			       .opened = watch_on_opened,
			       .data = watch_on_data,
			       .done = watch_on_done,
			       .arg = w,
		       });
	free(path);
}

/* It is not open in time: there are more watches than connections for them, or the server has asked it to wait. It goes
 * on waiting, but nobody may rely on it meanwhile. */
static void watch_is_opening(struct kube_watch *w)
{
	if (w->down)
		return;
	w->down = true;
	w->news(w->arg, KUBE_LOOK, NULL);
}

static void watch_on_timer(struct ev_loop *, ev_timer *t, int)
{
	struct kube_watch *w = t->data;

	if (w->state == KUBE_WATCH_WAITING)
		watch_open(w);
	else if (w->state == KUBE_WATCH_OPENING)
		watch_is_opening(w);
	else
		kube_api_cancel(&w->call); /* it has not shown a version that is known to be there */
}

void kube_watch_start(struct kube_watch *w, struct kube_api *api, const char *base, const char *name, int64_t revision,
                      const char *lock)
{
	struct buf path = { 0 };

	if (w->state != KUBE_WATCH_OFF)
		return;
	buf_adds(&path, base);
	buf_adds(&path, "?watch=1&fieldSelector=metadata.name%3D");
	lock_url_encode(&path, name, "");
	free(w->path);
	w->path = path.data;
	w->api = api;
	w->lock = lock;
	w->revision = w->expected = revision;
	w->failures = 0;
	w->down = false;
	ev_init(&w->timer, watch_on_timer);
	w->timer.data = w;
	w->state = KUBE_WATCH_WAITING;
	watch_arm(w, BEGIN_AFTER);
}

void kube_watch_stop(struct kube_watch *w)
{
	if (w->state == KUBE_WATCH_OFF)
		return;
	w->state = KUBE_WATCH_OFF;
	ev_timer_stop(kube_api_loop(w->api), &w->timer);
	kube_api_cancel(&w->call);
	buf_fini(&w->line);
	free(w->path);
	w->path = NULL;
}

void kube_watch_expect(struct kube_watch *w, int64_t revision)
{
	if (w->state == KUBE_WATCH_OFF || revision <= w->expected)
		return;
	w->expected = revision;
	if (w->state == KUBE_WATCH_LIVE && w->revision < revision && !ev_is_active(&w->timer))
		watch_arm(w, SHOW_WITHIN);
}

bool kube_watch_delivers(const struct kube_watch *w)
{
	return w->state != KUBE_WATCH_OFF && !w->down;
}
