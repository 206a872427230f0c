#include "locks/lock_link.h"

#include "loop/dial.h"

#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#define AGED_S 0.05      /* between two looks whether nobody waits for an answer on a connection that is too old */
#define AGED_MOST 20     /* at most so many of these looks */
#define DIAL_SLACK_S 0.1 /* dialing ends by itself, and says more than a timer can */

void lock_link_enter(struct lock_link *k)
{
	k->busy++;
}

static void link_destroy(struct lock_link *k)
{
	const struct lock_link_events *events = k->events;
	void *arg = k->arg;

	lock_pipeline_fini(&k->queue);
	if (k->ops->free)
		k->ops->free(k);
	else
		free(k);
	if (events->freed)
		events->freed(arg);
}

void lock_link_leave(struct lock_link *k)
{
	if (--k->busy == 0 && k->dead)
		link_destroy(k);
}

bool lock_link_ended(const struct lock_link *k, uint64_t number)
{
	return k->dead || k->number != number;
}

static void link_start_timer(struct lock_link *k, ev_timer *timer, double after_s)
{
	ev_now_update(k->env->loop);
	ev_timer_stop(k->env->loop, timer);
	ev_timer_set(timer, after_s, 0.);
	ev_timer_start(k->env->loop, timer);
}

/* ---- going down ---- */

/* Last what is the backend's: its library may call those who asked, and they may ask again. */
static void link_hang_up(struct lock_link *k)
{
	ev_timer_stop(k->env->loop, &k->timer);
	ev_timer_stop(k->env->loop, &k->ticker);
	ev_timer_stop(k->env->loop, &k->sender);
	ev_timer_stop(k->env->loop, &k->ager);
	ev_io_stop(k->env->loop, &k->io);
	dial_cancel(k->dial);
	k->dial = NULL;
	k->state = LOCK_LINK_DOWN;
	k->ending = false;
	k->number++;
	if (k->ops->close)
		k->ops->close(k);
	if (k->fd >= 0)
		close(k->fd);
	k->fd = -1;
}

static void link_tell_all(struct lock_link *k, bool was_up, enum lock_outcome outcome, const struct err *why)
{
	lock_link_enter(k);
	lock_pipeline_lose(&k->queue, !was_up, outcome, why);
	if (!k->dead && k->events->down)
		k->events->down(k->arg, outcome, why);
	if (!k->dead && k->queue.first)
		lock_link_raise(k);
	lock_link_leave(k);
}

static void link_try_host(struct lock_link *k);

static void link_lose(struct lock_link *k, enum lock_outcome outcome, const struct err *why)
{
	bool was_up = k->state == LOCK_LINK_UP;

	k->outcome = outcome;
	k->why = *why;
	link_hang_up(k);
	k->failed += !was_up;
	if (k->url && (!was_up || k->ops->moves_on))
		k->host = (k->host + 1) % k->url->hosts;
	if (!was_up && k->url && ++k->tried < k->url->hosts) {
		link_try_host(k);
		return;
	}
	if (!was_up && outcome == LOCK_REFUSED && k->ops->rest) {
		k->resting = true;
		k->until = instant_add(clock_now(), k->ops->rest);
	}
	link_tell_all(k, was_up, outcome, why);
}

void lock_link_lose(struct lock_link *k, enum lock_outcome outcome, enum err_code code, const char *fmt, ...)
{
	struct err why;
	va_list ap;

	va_start(ap, fmt);
	err_vset(&why, code, fmt, ap);
	va_end(ap);
	if (*k->peer)
		err_wrap(&why, "%s", k->peer);
	link_lose(k, outcome, &why);
}

/* ---- going up ---- */

void lock_link_dialed(struct lock_link *k)
{
	k->state = LOCK_LINK_GREETING;
	k->heard = clock_now();
	k->ops->greet(k);
}

static void link_on_dialed(void *arg, int fd, const struct err *err)
{
	struct lock_link *k = arg;

	k->dial = NULL;
	k->fd = fd;
	lock_link_enter(k);
	if (fd < 0)
		link_lose(k, LOCK_FAILED, err); /* which names host and port */
	else
		lock_link_dialed(k);
	lock_link_leave(k);
}

static void link_try_host(struct lock_link *k)
{
	double attempt_s = (double)k->ops->attempt / NSEC_PER_SEC;

	k->state = LOCK_LINK_DIALING;
	link_start_timer(k, &k->timer, attempt_s + (k->ops->dial ? 0. : DIAL_SLACK_S));
	if (k->url)
		lock_url_print_host(k->url, k->host, k->peer);
	if (k->ops->dial)
		k->ops->dial(k);
	else // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): without an url there is ops->dial
		k->dial = dial_start(k->env->loop, lock_lookups(k->env), k->url->host[k->host].name,
		                     k->url->host[k->host].port, k->failed / (unsigned)k->url->hosts,
		                     instant_add(clock_now(), k->ops->attempt), link_on_dialed, k);
}

void lock_link_up(struct lock_link *k)
{
	ev_timer_stop(k->env->loop, &k->timer);
	k->state = LOCK_LINK_UP;
	k->resting = false;
	k->aged = 0;
	if (k->age_s)
		link_start_timer(k, &k->ager, k->age_s);
	lock_link_enter(k);
	if (k->events->up)
		k->events->up(k->arg);
	while (!k->dead && lock_link_is_up(k) && k->queue.first) {
		struct lock_call *c = lock_pipeline_next(&k->queue);
		c->ready(c);
	}
	lock_link_leave(k);
}

static void link_begin(struct lock_link *k)
{
	k->tried = 0;
	if (k->resting && !instant_passed(k->until, clock_now())) {
		struct err why = k->why;
		link_tell_all(k, false, k->outcome, &why);
		return;
	}
	k->resting = false;
	link_try_host(k);
}

void lock_link_raise(struct lock_link *k)
{
	if (!k->dead && k->state == LOCK_LINK_DOWN && !ev_is_active(&k->timer))
		link_start_timer(k, &k->timer, 0.);
}

void lock_link_want(struct lock_link *k, struct lock_call *c)
{
	if (lock_link_is_up(k)) {
		c->ready(c);
		return;
	}
	lock_pipeline_wait(&k->queue, c);
	lock_link_raise(k);
}

/* ---- events ---- */

static void link_on_timer(struct ev_loop *, ev_timer *w, int)
{
	struct lock_link *k = w->data;

	lock_link_enter(k);
	if (k->state == LOCK_LINK_DOWN)
		link_begin(k);
	else
		k->ops->overdue(k);
	lock_link_leave(k);
}

static void link_on_tick(struct ev_loop *, ev_timer *w, int)
{
	struct lock_link *k = w->data;

	lock_link_enter(k);
	k->ops->tick(k);
	lock_link_leave(k);
}

static void link_on_sender(struct ev_loop *, ev_timer *w, int)
{
	struct lock_link *k = w->data;

	lock_link_enter(k);
	k->ops->send(k);
	lock_link_leave(k);
}

static void link_on_age(struct ev_loop *, ev_timer *w, int)
{
	struct lock_link *k = w->data;

	lock_link_enter(k);
	if (k->queue.count && k->aged++ < AGED_MOST) {
		link_start_timer(k, &k->ager, AGED_S);
	} else {
		lock_link_lose(k, LOCK_FAILED, ERR_UNREACHABLE, "the connection was as old as ?max_age= allows");
		lock_link_raise(k);
	}
	lock_link_leave(k);
}

static void link_on_io(struct ev_loop *, ev_io *w, int revents)
{
	struct lock_link *k = w->data;
	uint64_t number = k->number;

	lock_link_enter(k);
	if (revents & EV_WRITE)
		k->ops->send(k);
	if (revents & EV_READ && !lock_link_ended(k, number)) {
		k->heard = clock_now();
		k->ops->parse(k);
	}
	lock_link_leave(k);
}

void lock_link_wait(struct lock_link *k, int fd, int events)
{
	if (ev_is_active(&k->io) && k->io.fd == fd && (k->io.events & (EV_READ | EV_WRITE)) == events)
		return;
	ev_io_stop(k->env->loop, &k->io);
	if (!events)
		return;
	ev_io_set(&k->io, fd, events);
	ev_io_start(k->env->loop, &k->io);
}

void lock_link_poke(struct lock_link *k)
{
	ev_feed_event(k->env->loop, &k->io, EV_READ);
}

void lock_link_send_soon(struct lock_link *k)
{
	ev_feed_event(k->env->loop, &k->sender, EV_TIMER);
}

void lock_link_tick(struct lock_link *k, double after_s)
{
	link_start_timer(k, &k->ticker, after_s);
}

/* ---- who asked ---- */

void lock_link_late(struct lock_link *k, struct instant sent_at)
{
	if (lock_link_is_up(k) && elapsed_standby(k->heard, sent_at) >= 0)
		lock_link_lose(k, LOCK_FAILED, ERR_TIMEOUT, "the server does not answer");
}

void lock_link_forget(struct lock_link *k, struct lock_call *c, bool late)
{
	if (lock_pipeline_forget(&k->queue, c) && late)
		lock_link_late(k, c->sent_at);
}

bool lock_link_is_up(const struct lock_link *k)
{
	return k->state == LOCK_LINK_UP && !k->ending;
}

/* ---- the whole ---- */

void lock_link_init(struct lock_link *k, struct lock_env *env, const struct lock_url *url,
                    const struct lock_link_ops *ops, const struct lock_link_events *events, void *arg)
{
	*k = (struct lock_link){ .env = env, .url = url, .ops = ops, .events = events, .arg = arg, .fd = -1 };
	ev_init(&k->io, link_on_io);
	ev_init(&k->timer, link_on_timer);
	ev_init(&k->ticker, link_on_tick);
	ev_init(&k->sender, link_on_sender);
	ev_init(&k->ager, link_on_age);
	ev_set_priority(&k->sender, EV_MINPRI);
	k->io.data = k->timer.data = k->ticker.data = k->sender.data = k->ager.data = k;
}

void lock_link_limit_age(struct lock_link *k, int seconds)
{
	k->age_s = seconds;
}

void lock_link_free(struct lock_link *k)
{
	if (!k)
		return;
	k->dead = k->queue.stopped = true;
	link_hang_up(k);
	if (k->busy == 0)
		link_destroy(k);
}
