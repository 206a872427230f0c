/* Lock URLs: every part, every spelling of the same lock one name, and no password in any text. */
#include "locks/lock_url.h"

#include "tap.h"

#include <stdlib.h>
#include <unistd.h>

static const char *const known[] = { "replicas", "ca", NULL };

static void is_canonical(const char *text, const char *want)
{
	struct lock_url u;
	struct err err = { 0 };

	if (!ok(lock_url_parse(&u, "redis", text, 6379, known, &err) == 0, "%s is a lock URL: %s", text, err.text))
		return;
	char *got = lock_url_print(&u, "redis");
	is_str(got, want, "and that is what people see of it");
	free(got);
	lock_url_fini(&u);
}

static void is_refused(const char *text, const char *why)
{
	struct lock_url u;
	struct err err = { 0 };

	ok(lock_url_parse(&u, "redis", text, 6379, known, &err) < 0 && strstr(err.text, why) &&
	           !strstr(err.text, "geheim"),
	   "refused, without secrets: %s", err.text);
}

static void test_password(void)
{
	struct lock_url u;
	struct err err;
	char path[] = "/tmp/lunarch-test-password-XXXXXX", text[200];
	int fd = mkstemp(path);

	lock_url_parse(&u, "redis", "//a:ge%3aheim@h/k", 6379, known, &err);
	is_str(u.password, "ge:heim", "a password is percent-decoded");
	lock_url_fini(&u);
	ok(fd >= 0 && write(fd, "from file\nsecond", 16) == 16, "a password file is there");
	snprintf(text, sizeof text, "//h/k?password_file=%s", path);
	lock_url_parse(&u, "redis", text, 6379, known, &err);
	is_str(u.password, "from file", "its first line is the password");
	lock_url_fini(&u);
	unlink(path);
	close(fd);
	ok(lock_url_parse(&u, "redis", text, 6379, known, &err) < 0 && strstr(err.text, path),
	   "one that is missing is named: %s", err.text);
	setenv(LOCK_URL_PASSWORD, "from outside", 1);
	lock_url_parse(&u, "redis", "//h/k", 6379, known, &err);
	is_str(u.password, "from outside", "else the environment has it");
	lock_url_fini(&u);
	unsetenv(LOCK_URL_PASSWORD);
}

static void is_checked(const char *url, bool fine)
{
	struct err err = { .text = "" };

	ok((lock_url_check(url, &err) == 0) == fine && !strstr(err.text, "heim"), "%s %s", url,
	   fine ? "passes" : err.text);
}

static void is_shown(const char *text, const char *want)
{
	char *shown = lock_url_redact(text), argument[200], *kept = argument;

	is_str(shown, want, "no password is shown");
	snprintf(argument, sizeof argument, "%s", text);
	lock_url_hide(&kept);
	is_str(kept, text, "a command line's argument is kept as it was,");
	ok(strncmp(argument, want, strlen(argument)) == 0 && !strstr(argument, "geheim"), "and nobody else sees it: %s",
	   argument);
	free(kept);
	free(shown);
}

static bool same_host(const struct lock_url *a, const struct lock_url *b)
{
	return b->hosts == 2 && strcmp(a->host[0].name, b->host[0].name) == 0 && a->host[0].port == b->host[0].port &&
	       strcmp(a->user, b->user) == 0 && strcmp(a->path, b->path) == 0;
}

/* What is printed is parsed again as the same lock, whatever bytes its names have. */
static void test_round_trip(void)
{
	static const char *const hosts[] = { "h",     "[::1]:80", "[fe80::1%25eth0]", "a%2Cb",      "a%40b",
		                             "a%3Ab", "%5B",      "a%5Db:1",          "%2Frun%2Fx", "a%3Fx=1",
		                             "a%23",  "a%25b",    "%C3%BC",           "a%20b",      "%01%7F%FF" };
	struct err err = { 0 };

	for (size_t i = 0; i < 2 * sizeof hosts / sizeof *hosts; i++) {
		struct lock_url u, again;
		char text[1100], name[1024];
		snprintf(name, sizeof name, "%s", hosts[i / 2]);
		if (i % 2 && *name != '[') /* one that is long */
			snprintf(name, sizeof name, "%0400d%s", 0, hosts[i / 2]);
		snprintf(text, sizeof text, "//u%%40v@%s,other:7/k%%3F?ca=a%%26b", name);
		if (lock_url_parse(&u, "redis", text, 6379, known, &err) < 0) {
			ok(0, "%s is a lock URL: %s", text, err.text);
			continue;
		}
		char *printed = lock_url_print(&u, "redis");
		bool good = lock_url_parse(&again, "redis", printed + strlen("redis:"), 6379, known, &err) == 0;
		ok(good && same_host(&u, &again), "%s comes back as it was", i % 2 ? "a long one" : printed);
		lock_url_fini(&again);
		lock_url_fini(&u);
		free(printed);
	}
}

static void is_host(const char *url, int which, const char *want)
{
	char *one = lock_url_with_host(url, which);

	ok(strcmp(one ? one : "none", want) == 0, "host %d of %s is %s", which, url, one ? one : "none");
	free(one);
}

int main(void)
{
	test_round_trip();
	is_host("etcd://u:g@a:1,[::1]:2,c/k,k?x=//e,f", 0, "etcd://u:g@a:1/k,k?x=//e,f");
	is_host("etcd://u:g@a:1,[::1]:2,c/k,k?x=//e,f", 1, "etcd://u:g@[::1]:2/k,k?x=//e,f");
	is_host("etcd://u:g@a:1,[::1]:2,c/k,k?x=//e,f", 2, "etcd://u:g@c/k,k?x=//e,f");
	is_host("etcd://a,b/k,k", 2, "none");
	is_host("file:/a,b", 0, "none");
	is_shown("redis:/u:geheim@h//x", "redis:***@h//x");
	is_shown("redis://u:geheim@h/k?x=1", "redis://u:***@h/k?x=1");
	is_shown("//u:geh/eim@h/k", "//u:***@h/k");
	is_shown("//h/d?user=u&password=geheim#x", "//h/d?user=u&password=***#x");
	is_shown("//h/d?sslpassword=geheim&PASSWORD=geheim&a=b", "//h/d?sslpassword=***&PASSWORD=***&a=b");
	is_shown("//u:a@h?password=b", "//u:***@h?password=***");
	is_shown("/var/lib/a@b:c", "/var/lib/a@b:c");
	is_shown("a:b@c", "a:***@c");
	is_shown("//h/d?password=geheim:geheim@x", "//h/d?password=***");
	is_shown("//u:@h/d?password=&a=b", "//u:***@h/d?password=***&a=b");
	is_shown("//u:geheim@h/d?password=a@geheim", "//u:***");
	is_shown("z:geheim?password=//e&k@g", "z:***@g");
	is_canonical("//h/k", "redis://h:6379/k");
	is_canonical("//u:geheim@h:1,[::1]:2,x/a/b%20c?replicas=1", "redis://u@h:1,[::1]:2,x:6379/a/b%20c?replicas=1");
	is_canonical("//u:p%40geheim@h/%7Ea", "redis://u@h:6379/~a");
	is_canonical("//h/%22quote's%22", "redis://h:6379/%22quote's%22");
	is_canonical("//h", "redis://h:6379/");
	is_refused("h/k", "expected //");
	is_refused("//u:geheim@/k", "a host is missing");
	is_refused("//u:geheim@h:0/k", "port");
	is_refused("//u:geheim@h:65536/k", "port");
	is_refused("//u:geheim@h:1a/k", "port");
	is_refused("//u:geheim@h,/k", "a host is missing");
	is_refused("//u:geheim@[::1/k", "bracket");
	is_refused("//u:geheim%@h/k", "percent");
	is_refused("//u:geheim@h/k%0", "percent");
	is_refused("//u:geheim@h/k%00", "percent");
	is_refused("//u:geheim@h/k?replica=1", "there is no option \"replica\"");
	is_refused("//u:geheim@h/k?replicas", "has no value");
	is_refused("//u:geheim@h/k#x", "#");
	is_refused("//u:ge/geheim@h/k", "");
	is_checked("redis://u:12/geheim@h/k", false);
	is_checked("mysql://u:ge#heim@h/d#k", false);
	is_checked("postgres://u:a@b?geheim@h/d#k", false);
	is_checked("s3://b/k?endpoint=http://u:1/geheim@h", false);
	is_checked("redis://u:geheim@h:1/a%40b", true);
	is_checked("kube://ns/name?context=a@b", true);
	test_password();
	return tap_done();
}
