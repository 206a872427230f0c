/* A watch stream of Kubernetes, in pieces as the network cuts it: versions only grow, and nothing comes of a watch that
 * was stopped. kube_api.c's three functions stand here, in the place of a server. */
#include "fuzz.h"

#include "locks/kubernetes/kube_object.h"
#include "kube/kube_watch.h"
#include "kube/kube_meta.h"

#include <jansson.h>

static struct ev_loop *loop;

struct ev_loop *kube_api_loop(const struct kube_api *a)
{
	(void)a;
	return loop;
}

void kube_api_start(struct kube_api *a, struct kube_call *c, const struct kube_request *r)
{
	(void)a;
	must(!c->busy);
	c->r = *r;
	c->busy = true;
}

static void call_ends(struct kube_call *c, int status, enum err_code code)
{
	struct kube_answer answer = { .status = status, .message = "", .err = { .code = code } };

	if (!c->busy)
		return;
	c->busy = false;
	c->r.done(c->r.arg, &answer);
}

void kube_api_cancel(struct kube_call *c)
{
	call_ends(c, 0, ERR_CANCELLED);
}

static int64_t newest;
static bool stopped, stop;

static void on_news(void *arg, enum kube_news what, struct json_t *object)
{
	int64_t number;

	must(!stopped);
	if (what == KUBE_CHANGED) {
		must(kube_meta_number(object, &number, NULL) == 0 && number > newest);
		newest = number;
	} else {
		newest = 0; /* it may begin anew from what the server has */
	}
	if (stop) {
		stopped = true;
		kube_watch_stop(arg);
	}
}

/* Lets a timer fire as the loop would. */
static void timer_is_due(struct kube_watch *w)
{
	if (ev_is_active(&w->timer)) {
		ev_timer_stop(loop, &w->timer);
		ev_invoke(loop, &w->timer, EV_TIMER);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	struct kube_watch w = { .news = on_news, .arg = &w };
	uint8_t how = input_byte(&in), piece = input_byte(&in);

	if (!loop) {
		loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
		fuzz_silence();
	}
	newest = 0;
	stopped = false;
	stop = how & 1;
	kube_watch_start(&w, NULL, "/base", "name", how & 2 ? 5 : 0, "lock");
	timer_is_due(&w);
	if (how & 4)
		kube_watch_expect(&w, 100);
	if (w.call.busy && w.call.r.opened && !(how & 8))
		w.call.r.opened(&w);
	while (in.left && w.call.busy && w.state == KUBE_WATCH_LIVE) {
		size_t n = piece && piece < in.left ? piece : in.left;
		char *bytes = input_copy(in.at, n);
		w.call.r.data(&w, bytes, n);
		free(bytes);
		in.at += n;
		in.left -= n;
	}
	if (how & 16)
		timer_is_due(&w);
	call_ends(&w.call, how & 32 ? 410 : how & 64 ? 403 : 200, how & 128 ? ERR_UNREACHABLE : ERR_NONE);
	kube_watch_delivers(&w);
	stopped = true;
	kube_watch_stop(&w);
	return 0;
}
