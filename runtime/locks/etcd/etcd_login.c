#include "locks/etcd/etcd_client.h"

#include "base/buf.h"
#include "base/mem.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define LOGIN_TIMEOUT (10 * NSEC_PER_SEC)
#define NOT_ENABLED 9 /* FailedPrecondition: "authentication is not enabled" */

bool etcd_has_token(const struct etcd_client *c)
{
	return c->token || !*c->url.user;
}

char *etcd_token_header(const struct etcd_client *c)
{
	return c->token && *c->token ? mem_printf("Authorization: %s", c->token) : NULL;
}

static void client_set_token(struct etcd_client *c, const char *token)
{
	if (c->token)
		explicit_bzero(c->token, strlen(c->token));
	mem_replace(&c->token, token);
	c->generation += token != NULL;
}

void etcd_drop_token(struct etcd_client *c, unsigned generation)
{
	if (generation == c->generation)
		client_set_token(c, NULL);
}

/* Each goes on or fails; who waits anew from its callback waits for the next token. */
static void client_tell_waiters(struct etcd_client *c, const struct err *err)
{
	unsigned round = c->waiting_round++;

	while (c->waiters && c->waiters->round == round) {
		struct etcd_waiter *w = c->waiters;
		etcd_stop_waiting(c, w);
		w->ready(w->arg, err);
	}
}

static void client_on_login(void *arg, const struct etcd_answer *a)
{
	struct etcd_client *c = arg;
	struct err err = a->err;
	const char *token = a->json ? json_string_value(json_object_get(a->json, "token")) : NULL;

	if (a->outcome == LOCK_OK && token) {
		client_set_token(c, token);
		client_tell_waiters(c, NULL);
		return;
	}
	if (a->code == NOT_ENABLED) {
		client_set_token(c, "");
		client_tell_waiters(c, NULL);
		return;
	}
	if (a->outcome == LOCK_OK)
		err_set(&err, ERR_INVALID, "the answer has no token");
	else if (a->outcome == LOCK_INVALID || a->outcome == LOCK_REFUSED)
		err.code = ERR_DENIED;
	err_wrap(&err, "logging in as %s", c->url.user);
	client_tell_waiters(c, &err);
}

static void print_login(struct buf *b, const struct lock_url *u)
{
	buf_adds(b, "{\"name\":");
	buf_json(b, u->user);
	buf_adds(b, ",\"password\":");
	buf_json(b, u->password ? u->password : "");
	buf_adds(b, "}");
}

void etcd_wait_for_token(struct etcd_client *c, struct etcd_waiter *w)
{
	struct buf body = { 0 };

	w->next = NULL;
	w->waiting = true;
	w->round = c->waiting_round;
	*c->waiters_end = w;
	c->waiters_end = &w->next;
	if (c->login.active)
		return;
	print_login(&body, &c->url);
	c->login.bare = true;
	etcd_call_start(c, &c->login, "auth/authenticate", body.data, instant_add(clock_now(), LOGIN_TIMEOUT),
	                client_on_login, c);
}

void etcd_stop_waiting(struct etcd_client *c, struct etcd_waiter *w)
{
	struct etcd_waiter **p = &c->waiters;

	if (!w->waiting)
		return;
	w->waiting = false;
	while (*p != w)
		p = &(*p)->next;
	*p = w->next;
	if (!*p)
		c->waiters_end = p;
}
