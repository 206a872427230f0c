/* The names of a listing, and the URLs that are made of a prefix and a name. */
#include "locks/lock_listing.h"

#include "locks/lock.h"
#include "loop/offload.h"
#include "tap.h"

#include <ev.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void names(void)
{
	struct lock_listing l = { 0 }, other = { 0 };

	ok(lock_listing_add(&l, "b", "") && lock_listing_add(&l, "c", "") && lock_listing_add(&l, "a", ""),
	   "names are added");
	ok(l.count == 3 && strcmp(l.name[0], "a") == 0 && strcmp(l.name[1], "b") == 0 && strcmp(l.name[2], "c") == 0,
	   "and are sorted");
	ok(lock_listing_add(&l, "b", "") && l.count == 3, "one that is there is not added again");
	ok(lock_listing_add(&l, "", "") && l.count == 4 && !*l.name[0], "the prefix itself is a name without letters");
	lock_listing_add(&l, "x/y ?", "/");
	ok(strcmp(l.name[4], "x/y%20%3F") == 0, "names are encoded as the backend's URLs are");
	lock_listing_add(&l, "x y", NULL);
	ok(strcmp(l.name[4], "x y") == 0, "or not at all");
	lock_listing_move(&other, &l);
	ok(l.count == 0 && other.count == 6, "a listing is moved");
	lock_listing_fini(&other);
	ok(other.count == 0 && !other.name, "and ended");
}

static void bound(void)
{
	struct lock_listing l = { 0 };
	bool room = true;
	char name[16];

	for (int i = 0; i < LOCK_LISTING_MOST; i++) {
		snprintf(name, sizeof name, "%04d", i * 7 % LOCK_LISTING_MOST);
		room &= lock_listing_add(&l, name, "");
	}
	ok(room && l.count == LOCK_LISTING_MOST && !l.more, "there is room for so many");
	ok(lock_listing_add(&l, "0007", "") && !l.more, "one that is there needs none");
	ok(!lock_listing_add(&l, "one more", "") && l.more && l.count == LOCK_LISTING_MOST,
	   "of more the listing says that there are more");
	lock_listing_fini(&l);
}

static void check_prefix(struct lock_env *env, const char *url, const char *prefix, const char *beside)
{
	char *given = NULL;
	struct err err = { 0 };
	struct lock *l = lock_open_prefix(env, url, &given, &err);
	char *made = l ? lock_url_beside(l, given, "name") : NULL;

	ok(l && strcmp(given, prefix) == 0 && strcmp(made, beside) == 0, "'%s' and a name: %s", url,
	   made ? made : err.text);
	if (l)
		l->ops->close(l);
	free(given);
	free(made);
}

static void prefixes(void)
{
	struct lock_env env = { .loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOENV) };
	struct err err;
	char *prefix;

	env.offload = offload_new(env.loop, 1, NULL);
	check_prefix(&env, "/tmp/", "/tmp/", "/tmp/name");
	check_prefix(&env, "/tmp/we", "/tmp/we", "/tmp/wename");
	check_prefix(&env, "file:/tmp/?shared=link", "file:/tmp/?shared=link", "file:/tmp/name?shared=link");
	check_prefix(&env, "none:", "none:", "none:name");
	check_prefix(&env, "none://host", "none://host/", "none://host/name");
	check_prefix(&env, "none://host?a=b/c", "none://host/?a=b/c", "none://host/name?a=b/c");
	ok(!lock_open_prefix(&env, "nosuch://x", &prefix, &err) && !prefix && err.code == ERR_USAGE,
	   "of a kind that there is not, nothing is opened");
	lock_env_fini(&env);
	offload_free(env.offload);
	ev_loop_destroy(env.loop);
}

int main(void)
{
	names();
	bound();
	prefixes();
	return tap_done();
}
