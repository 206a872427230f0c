#include "service/service.h"

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/module.h"
#include "locks/lock.h"
#include "loop/timer_after.h"

#include <ev.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TRY_WITHIN (4 * NSEC_PER_SEC)   /* one attempt, of three requests at most */
#define KEEP_EVERY (15 * NSEC_PER_SEC)  /* whether what was published is still so */
#define PAUSE_LEAST (NSEC_PER_SEC / 10) /* after a failure; twice as long after each */
#define PAUSE_MOST (10 * NSEC_PER_SEC)
#define WITHDRAW_FOR (60 * NSEC_PER_SEC)  /* then the next leader's address takes its place at the latest */
#define SAY_AGAIN (5 * 60 * NSEC_PER_SEC) /* the same trouble */

struct service {
	const struct service_ops *ops;
	struct service_store *store;
	struct ev_loop *loop;
	char *name;               /* "NAMESPACE/NAME" */
	struct service_wish wish; /* its host is `host` */
	char host[SERVICE_HOST_SIZE];
	bool busy;    /* an attempt is under way */
	bool stale;   /* that attempt is for another wish than the present one */
	bool tried;   /* an attempt was made for the wish */
	bool settled; /* the wish was carried out at least once */
	bool published;
	unsigned tries; /* that failed, in a row */
	uint64_t failures;
	char *trouble; /* NULL: none */
	struct instant told_at;
	struct instant since; /* of the wish */
	ev_timer again, bound;
	void (*done)(void *arg); /* of service_withdraw; NULL: nobody waits */
	void *arg;

	struct log_about about; /* its texts are these */
	char *lock, *identity, *election;
};

static void service_try(struct service *s);

static void service_answer(struct service *s)
{
	void (*done)(void *) = s->done;

	ev_timer_stop(s->loop, &s->bound);
	s->done = NULL;
	if (done)
		done(s->arg);
}

/* ---- what came of an attempt ---- */

static void service_give_up(struct service *s)
{
	s->wish.aim = SERVICE_NOTHING;
	service_answer(s);
}

static void service_try_later(struct service *s)
{
	nsec pause = PAUSE_LEAST << (s->tries < 8 ? s->tries : 8);

	s->tries++;
	timer_after(s->loop, &s->again, pause < PAUSE_MOST ? pause : PAUSE_MOST);
}

static void service_on_good(struct service *s, bool wrote)
{
	bool publishes = s->wish.aim == SERVICE_PUBLISH;

	s->tries = 0;
	mem_replace(&s->trouble, NULL);
	if (publishes && !s->settled)
		log_event(LOG_INFO, &s->about, "service_published", "the Service %s leads to %s", s->name, s->host);
	else if (publishes && wrote)
		log_event(LOG_WARN, &s->about, "service_repaired",
		          "somebody else had changed where the Service %s leads to: it leads to %s again", s->name,
		          s->host);
	else if (s->wish.aim == SERVICE_WITHDRAW && wrote)
		log_event(LOG_INFO, &s->about, "service_withdrawn", "the Service %s leads to nobody", s->name);
	s->settled = s->published = publishes;
	if (publishes)
		timer_after(s->loop, &s->again, KEEP_EVERY);
	else
		service_give_up(s);
}

/* The same trouble is said once, and now and then again. */
static void service_complain(struct service *s, enum service_outcome outcome, const char *text)
{
	static const struct {
		enum log_level level;
		const char *event;
	} how[] = {
		[SERVICE_FENCED] = { LOG_WARN, "service_fenced" },
		[SERVICE_REFUSED] = { LOG_ERROR, "service_refused" },
		[SERVICE_FAILED] = { LOG_WARN, "service_failed" },
	};
	bool known = s->trouble && strcmp(s->trouble, text) == 0;

	s->failures++;
	if (known && elapsed_standby(s->told_at, clock_now()) < SAY_AGAIN)
		return;
	mem_replace(&s->trouble, text);
	s->told_at = clock_now();
	log_event(how[outcome].level, &s->about, how[outcome].event, "the Service %s: %s", s->name, text);
}

/* A larger token is a newer leader's, or one of another lock that this election had before: what it wrote is not ours
 * to withdraw. */
static void service_on_bad(struct service *s, const struct service_result *r)
{
	bool withdraws = s->wish.aim == SERVICE_WITHDRAW, fenced = r->outcome == SERVICE_FENCED;
	bool late = elapsed_standby(s->since, clock_now()) > WITHDRAW_FOR;

	s->published = s->published && !fenced;
	if (!fenced || !withdraws)
		service_complain(s, r->outcome, r->err.text);
	if (withdraws && (r->outcome != SERVICE_FAILED || late))
		service_give_up(s);
	else
		service_try_later(s);
}

static void service_on_done(void *arg, const struct service_result *r)
{
	struct service *s = arg;

	s->busy = false;
	if (s->stale)
		service_try(s);
	else if (r->outcome == SERVICE_DONE)
		service_on_good(s, r->wrote);
	else if (r->outcome == SERVICE_CONFLICT)
		service_try_later(s);
	else
		service_on_bad(s, r);
}

/* ---- attempts ---- */

static void service_try(struct service *s)
{
	ev_timer_stop(s->loop, &s->again);
	s->stale = false;
	if (s->wish.aim == SERVICE_NOTHING)
		return;
	s->busy = s->tried = true;
	s->ops->apply(s->store, &s->wish, instant_add(clock_now(), TRY_WITHIN), service_on_done, s);
}

/* From the next turn of the loop on. An attempt that is under way is not broken off, but its result does not count:
 * what it writes may still be done, and the next attempt is to see that. */
static void service_want(struct service *s, enum service_aim aim)
{
	s->wish.aim = aim;
	s->tried = s->settled = false;
	s->tries = 0;
	s->since = clock_now();
	s->stale = s->busy;
	ev_timer_stop(s->loop, &s->again);
	if (!s->busy && aim != SERVICE_NOTHING)
		timer_after(s->loop, &s->again, 0);
}

static void service_on_again(struct ev_loop *, ev_timer *w, int)
{
	service_try(w->data);
}

static void service_on_bound(struct ev_loop *, ev_timer *w, int)
{
	struct service *s = w->data;

	log_event(
		LOG_WARN, &s->about, "service_late",
		"the Service %s may still lead here: the term ends all the same, and the next leader takes its place%s%s",
		s->name, s->trouble ? ": " : "", s->trouble ? s->trouble : "");
	service_answer(s);
}

/* ---- orders ---- */

void service_look(struct service *s)
{
	service_want(s, SERVICE_LOOK);
}

void service_publish(struct service *s, const struct service_term *t)
{
	struct err err;

	service_answer(s);
	mem_replace(&s->lock, t->lock);
	mem_replace(&s->identity, t->identity);
	s->about = (struct log_about){
		.lock = s->lock, .identity = s->identity, .election = s->election, .term = t->term, .token = t->token
	};
	s->wish.token = t->token;
	if (service_host(t->address, s->host, &err) == 0) {
		service_want(s, SERVICE_PUBLISH);
		return;
	}
	service_want(s, SERVICE_NOTHING);
	service_complain(s, SERVICE_REFUSED, err.text);
}

bool service_withdraw(struct service *s, nsec within, void (*done)(void *arg), void *arg)
{
	if (s->wish.aim != SERVICE_PUBLISH)
		return false;
	if (!s->tried && !s->busy && !s->published) { /* the term was over before anything was sent */
		service_want(s, SERVICE_NOTHING);
		return false;
	}
	service_want(s, SERVICE_WITHDRAW);
	if (!done || within <= 0)
		return false;
	s->done = done;
	s->arg = arg;
	timer_after(s->loop, &s->bound, within);
	return true;
}

/* ---- what is shown ---- */

void service_status(const struct service *s, struct service_status *out)
{
	*out = (struct service_status){
		.name = s->name,
		.host = s->published ? s->host : "",
		.trouble = s->trouble ? s->trouble : "",
		.published = s->published,
		.failures = s->failures,
	};
}

void service_tell(const struct service *s, struct buf *out)
{
	struct service_status st;

	service_status(s, &st);
	if (st.published)
		buf_printf(out, "the Service %s leads to %s", st.name, st.host);
	else
		buf_printf(out, "the Service %s does not lead here", st.name);
	if (*st.trouble)
		buf_printf(out, ": %s", st.trouble);
}

/* ---- life ---- */

static const struct service_ops *service_find_ops(struct err *err)
{
	const struct module *m = module_open("kube", err);

	if (m)
		return m->service;
	err_wrap(err, "--service");
	return NULL;
}

struct service *service_open(const struct service_config *c, struct err *err)
{
	const struct service_ops *ops = c->ops ? c->ops : service_find_ops(err);
	char host[SERVICE_HOST_SIZE];
	struct service_target t;

	if (!ops || service_target_parse(&t, c->target, err) < 0)
		return NULL;
	struct service_store *store = NULL;
	if (strncmp(c->lock, "none:", strlen("none:")) == 0)
		err_set(err, ERR_USAGE,
		        "without an election (--leader-elect=no, the lock none:) every replica leads, and a Service has one "
		        "leader's address: leave it out, or name a lock");
	else if (c->address_later || service_host(c->address, host, err) == 0)
		store = ops->open(c->env, &t, c->lock, err);
	if (!store) {
		err_wrap(err, "--service %.200s", c->target);
		return NULL;
	}
	struct service *s = mem_zero(sizeof *s);
	s->ops = ops;
	s->store = store;
	s->name = mem_printf("%s/%s", t.ns, t.name);
	s->wish.host = s->host;
	s->loop = c->env->loop;
	s->election = mem_dup(c->name);
	s->about.election = s->election;
	ev_timer_init(&s->again, service_on_again, 0., 0.);
	ev_timer_init(&s->bound, service_on_bound, 0., 0.);
	s->again.data = s->bound.data = s;
	return s;
}

void service_free(struct service *s)
{
	if (!s)
		return;
	ev_timer_stop(s->loop, &s->again);
	ev_timer_stop(s->loop, &s->bound);
	s->ops->close(s->store);
	free(s->name);
	free(s->trouble);
	free(s->lock);
	free(s->identity);
	free(s->election);
	free(s);
}

/* ---- once ---- */

struct service_once {
	bool over;
	struct service_result result;
};

static void service_on_checked(void *arg, const struct service_result *r)
{
	struct service_once *once = arg;

	once->over = true;
	once->result = *r;
}

int service_check(struct service *s, nsec within, struct err *err)
{
	struct service_once once = { 0 };

	s->ops->apply(s->store, &(struct service_wish){ .aim = SERVICE_LOOK }, instant_add(clock_now(), within),
	              service_on_checked, &once);
	while (!once.over)
		ev_run(s->loop, EVRUN_ONCE);
	*err = once.result.err;
	return once.result.outcome == SERVICE_DONE ? 0 : -1;
}
