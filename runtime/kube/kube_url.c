#include "kube/kube_url.h"

#include "base/buf.h"
#include "base/mem.h"
#include "locks/lock_url.h"

#include <ctype.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	int kinds;
	enum kube_kind kind[2];
} resources[] = {
	{ "leases", 1, { KUBE_LEASE } },
	{ "configmaps", 1, { KUBE_CONFIGMAP } },
	{ "endpoints", 1, { KUBE_ENDPOINTS } },
	{ "configmapsleases", 2, { KUBE_CONFIGMAP, KUBE_LEASE } },
	{ "endpointsleases", 2, { KUBE_ENDPOINTS, KUBE_LEASE } },
};

/* What is no escape stays as it is. */
static char *decode(const char *s, size_t len)
{
	char *out = lock_url_decode(s, len);

	return out ? out : mem_dupn(s, len);
}

/* RFC 1123 names as Kubernetes wants them: a label, or (dots) a subdomain. */
static bool is_name(const char *s, size_t most, bool dots)
{
	size_t len = strlen(s);

	for (size_t i = 0; i < len; i++) {
		bool inner = i > 0 && i + 1 < len && (s[i] == '-' || (dots && s[i] == '.'));
		if (!islower((unsigned char)s[i]) && !isdigit((unsigned char)s[i]) && !inner)
			return false;
	}
	return len > 0 && len <= most;
}

static int take_resource(struct kube_url *u, const char *value, struct err *err)
{
	for (size_t i = 0; i < sizeof resources / sizeof *resources; i++)
		if (strcmp(resources[i].name, value) == 0) {
			mem_replace(&u->resource, value);
			u->kinds = resources[i].kinds;
			memcpy(u->kind, resources[i].kind, sizeof u->kind);
			return 0;
		}
	return err_set(err, ERR_USAGE,
	               "resource=%.60s: expected leases, configmaps, endpoints, configmapsleases or endpointsleases",
	               value);
}

static int take_label(struct kube_url *u, const char *value, struct err *err)
{
	const char *equals = strchr(value, '=');

	if (!equals || equals == value)
		return err_set(err, ERR_USAGE, "label=%.100s: expected label=NAME=VALUE", value);
	if (!u->labels)
		u->labels = json_object();
	char *name = mem_dupn(value, (size_t)(equals - value));
	json_object_set_new(u->labels, name, json_string(equals + 1));
	free(name);
	return 0;
}

/* From the right: an apiVersion may have a slash in it. */
static int take_owner(struct kube_url *u, const char *value, struct err *err)
{
	char *text = mem_dup(value), *uid = strrchr(text, '/'), *name = NULL, *kind = NULL;

	if (uid)
		*uid++ = '\0';
	if (uid && (name = strrchr(text, '/')))
		*name++ = '\0';
	if (name && (kind = strrchr(text, '/')))
		*kind++ = '\0';
	bool good = kind && *kind && *name && *uid && *text;
	if (good) {
		json_decref(u->owner);
		u->owner =
			json_pack("{s:s, s:s, s:s, s:s}", "apiVersion", text, "kind", kind, "name", name, "uid", uid);
	}
	free(text);
	return good ? 0
	            : err_set(err, ERR_USAGE,
	                      "owner=%.200s: expected owner=APIVERSION/KIND/NAME/UID, as apps/v1/Deployment/web/6ba7...",
	                      value);
}

static int take_option(struct kube_url *u, const char *name, const char *value, struct err *err)
{
	if (strcmp(name, "resource") == 0)
		return take_resource(u, value, err);
	if (strcmp(name, "label") == 0)
		return take_label(u, value, err);
	if (strcmp(name, "owner") == 0)
		return take_owner(u, value, err);
	mem_replace(strcmp(name, "context") == 0 ? &u->context : &u->kubeconfig, value);
	return 0;
}

static int take(struct kube_url *u, const char *text, const struct lock_url *options, struct err *err)
{
	size_t len = strcspn(text, "?");
	const char *slash = strncmp(text, "//", 2) == 0 ? strchr(text + 2, '/') : NULL;

	if (!slash || slash >= text + len)
		return err_set(
			err, ERR_USAGE,
			"expected kube://NAMESPACE/NAME (kube:///NAME: the namespace of the context, or the pod's)");
	u->ns = decode(text + 2, (size_t)(slash - text - 2));
	u->name = decode(slash + 1, (size_t)(text + len - slash - 1));
	if (*u->ns && !is_name(u->ns, 63, false))
		return err_set(err, ERR_USAGE,
		               "\"%.80s\" is no name of a namespace: expected at most 63 of a-z, 0-9 and '-'", u->ns);
	if (!is_name(u->name, 253, true))
		return err_set(err, ERR_USAGE,
		               "\"%.80s\" is no name of an object: expected at most 253 of a-z, 0-9, '-' and '.'",
		               u->name);
	for (int i = 0; i < options->options; i++)
		if (take_option(u, options->option[i].name, options->option[i].value, err) < 0)
			return -1;
	return 0;
}

int kube_url_parse(struct kube_url *u, const char *text, struct err *err)
{
	static const char *const known[] = { "resource", "context", "kubeconfig", "label", "owner", NULL };
	char *lock = mem_printf("kube:%.300s", text);
	const char *query = strchr(text, '?');
	struct lock_url options;
	int done = lock_url_parse_options(&options, lock, query ? query + 1 : "", known, err);

	*u = (struct kube_url){ .resource = mem_dup("leases"),
		                .context = mem_dup(""),
		                .kubeconfig = mem_dup(""),
		                .kind = { KUBE_LEASE },
		                .kinds = 1 };
	if (done == 0 && take(u, text, &options, err) < 0)
		done = err_wrap(err, "lock \"%s\"", lock);
	lock_url_fini(&options);
	if (done < 0)
		kube_url_fini(u);
	free(lock);
	return done;
}

void kube_url_fini(struct kube_url *u)
{
	free(u->ns);
	free(u->name);
	free(u->resource);
	free(u->context);
	free(u->kubeconfig);
	json_decref(u->labels);
	json_decref(u->owner);
	*u = (struct kube_url){ 0 };
}

static void put_option(struct buf *b, bool *first, const char *name, const char *value)
{
	buf_printf(b, "%c%s=", *first ? '?' : '&', name);
	*first = false;
	lock_url_encode(b, value, "/:@,");
}

char *kube_url_print(const struct kube_url *u)
{
	struct buf b = { 0 };
	bool first = true;

	buf_printf(&b, "kube://%s/%s", u->ns, u->name);
	if (strcmp(u->resource, "leases") != 0)
		put_option(&b, &first, "resource", u->resource);
	if (*u->context)
		put_option(&b, &first, "context", u->context);
	if (*u->kubeconfig)
		put_option(&b, &first, "kubeconfig", u->kubeconfig);
	return b.data;
}
