#include "kube/kube_endpoints.h"

#include "base/mem.h"
#include "kube/kube_meta.h"
#include "service/service_store.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SERVICE_LABEL "kubernetes.io/service-name"
#define MANAGER_LABEL "endpointslice.kubernetes.io/managed-by"

/* ---- the Service ---- */

static const json_t *spec_of(const json_t *object)
{
	return json_object_get(object, "spec");
}

static const char *item_text(const json_t *list, size_t i)
{
	const char *text = json_string_value(json_array_get(list, i));

	return text ? text : "";
}

static const json_t *metadata_of(const json_t *object)
{
	return json_object_get(object, "metadata");
}

static const char *name_of(const json_t *object)
{
	return kube_text(metadata_of(object), "name");
}

/* The endpoint-slice controller keeps the slices of a Service that has a selector. */
static int check_unselected(const json_t *service, struct err *err)
{
	const json_t *selector = json_object_get(spec_of(service), "selector");
	const char *type = kube_text(spec_of(service), "type");

	if (json_object_size(selector) > 0) {
		char *text = json_dumps(selector, JSON_COMPACT);
		err_set(err, ERR_USAGE,
		        "it has the selector %.200s, so Kubernetes itself keeps its addresses: take the selector away, or name a "
		        "Service without one",
		        text);
		free(text);
		return -1;
	}
	if (strcmp(type, "ExternalName") == 0)
		return err_set(
			err, ERR_USAGE,
			"it is of the type ExternalName, which has no addresses: name a ClusterIP Service without a selector");
	return 0;
}

/* One port of the slice; NULL with *err: it is not known which. */
static json_t *slice_port(const json_t *port, int given, struct err *err)
{
	const json_t *target = json_object_get(port, "targetPort"), *app = json_object_get(port, "appProtocol");
	const char *protocol = kube_text(port, "protocol");
	json_int_t number = given                     ? given
	                    : json_is_integer(target) ? json_integer_value(target)
	                    : target                  ? 0
	                                              : json_integer_value(json_object_get(port, "port"));

	if (number < 1 || number > 65535) {
		err_set(err, ERR_USAGE,
		        "its port \"%.63s\" has the targetPort \"%.63s\", which only a pod's container can say: give it a number, "
		        "or name the Service as NAME:PORT",
		        kube_text(port, "name"), json_string_value(target) ? json_string_value(target) : "?");
		return NULL;
	}
	json_t *made = json_pack("{s:s, s:I, s:s}", "name", kube_text(port, "name"), "port", number, "protocol",
	                         *protocol ? protocol : "TCP");
	if (json_is_string(app))
		json_object_set(made, "appProtocol", (json_t *)app);
	return made;
}

/* The ports for the slice, which have the names of the Service's, since that is how they are matched. NULL with *err:
 * this Service must not have a slice of ours. */
static json_t *ports_of(const json_t *service, int port, struct err *err)
{
	const json_t *ports = json_object_get(spec_of(service), "ports");
	size_t count = json_array_size(ports);

	if (check_unselected(service, err) < 0)
		return NULL;
	if (port && count > 1) {
		err_set(err, ERR_USAGE,
		        "it has %zu ports, and NAME:%d is for a Service with one: leave the port out, and give each of them a "
		        "targetPort",
		        count, port);
		return NULL;
	}
	json_t *made = json_array();
	for (size_t i = 0; i < count; i++) {
		json_t *one = slice_port(json_array_get(ports, i), port, err);
		if (!one) {
			json_decref(made);
			return NULL;
		}
		json_array_append_new(made, one);
	}
	return made;
}

static const char *family_of(const char *host)
{
	return strchr(host, ':') ? "IPv6" : "IPv4";
}

/* Whether the Service has addresses of this family at all, and the slice is for them, which cannot be changed. */
static int check_family(const json_t *service, const json_t *slice, const char *host, struct err *err)
{
	const json_t *families = json_object_get(spec_of(service), "ipFamilies");
	const char *type = kube_text(slice, "addressType"), *family = family_of(host);
	size_t count = json_array_size(families), i = 0;

	while (i < count && strcmp(item_text(families, i), family) != 0)
		i++;
	if (count > 0 && i == count)
		return err_set(err, ERR_USAGE, "its ipFamilies have no %s, and this candidate's address is %s", family,
		               host);
	if (!slice || strcmp(type, family) == 0)
		return 0;
	return err_set(
		err, ERR_USAGE,
		"the EndpointSlice %s is for %.20s addresses, and this candidate's is %s: give all candidates addresses of "
		"one kind, and delete the EndpointSlice if it has the wrong one (its type cannot be changed)",
		name_of(slice), type, host);
}

/* ---- the slice ---- */

/* The annotation; -1: it is no token. */
static int64_t token_of(const json_t *slice)
{
	const char *text = kube_text(json_object_get(metadata_of(slice), "annotations"), ENDPOINTS_TOKEN);
	char *end;

	errno = 0;
	long long token = strtoll(text, &end, 10);
	return *text >= '0' && *text <= '9' && !*end && errno == 0 ? token : -1;
}

/* Whether it may be written: SERVICE_DONE, SERVICE_FENCED or SERVICE_REFUSED. */
static enum service_outcome judge(const json_t *slice, const struct endpoints_wish *w, struct err *err)
{
	const json_t *labels = json_object_get(metadata_of(slice), "labels");
	const char *name = name_of(slice);
	const struct {
		const char *label, *expected;
	} ours[] = { { SERVICE_LABEL, w->name }, { MANAGER_LABEL, ENDPOINTS_MANAGER } };

	for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
		if (strcmp(kube_text(labels, ours[i].label), ours[i].expected) == 0)
			continue;
		err_set(err, ERR_FOREIGN,
		        "the EndpointSlice %s has the label %s \"%.100s\", not \"%s\": it is somebody else's, and stays as it is",
		        name, ours[i].label, kube_text(labels, ours[i].label), ours[i].expected);
		return SERVICE_REFUSED;
	}
	int64_t last = token_of(slice);
	if (last < 0) {
		err_set(err, ERR_FOREIGN,
		        "the EndpointSlice %s has no token in its annotation " ENDPOINTS_TOKEN ", so it stays as it is",
		        name);
		return SERVICE_REFUSED;
	}
	if (last <= w->token)
		return SERVICE_DONE;
	err_set(err, ERR_FOREIGN,
	        "token %" PRId64 " has written the EndpointSlice %s, and ours is %" PRId64
	        ": a newer leader has, or this election had another lock before; if so, delete the EndpointSlice",
	        last, name, w->token);
	return SERVICE_FENCED;
}

static json_t *new_slice(const struct endpoints_wish *w)
{
	const char *first = item_text(json_object_get(spec_of(w->service), "ipFamilies"), 0);
	char *name = mem_printf("%s-lunarch", w->name);
	json_t *made = json_pack("{s:s, s:s, s:s, s:{s:s, s:{s:s, s:s}, s:{}}, s:[]}", "apiVersion",
	                         "discovery.k8s.io/v1", "kind", "EndpointSlice", "addressType",
	                         w->host  ? family_of(w->host)
	                         : *first ? first
	                                  : "IPv4",
	                         "metadata", "name", name, "labels", SERVICE_LABEL, w->name, MANAGER_LABEL,
	                         ENDPOINTS_MANAGER, "annotations", "endpoints");

	free(name);
	return made;
}

static void put_owner(json_t *slice, const json_t *service)
{
	json_t *owner = json_pack("{s:s, s:s, s:s, s:s}", "apiVersion", "v1", "kind", "Service", "name",
	                          name_of(service), "uid", kube_meta_uid(service));

	kube_meta_own(slice, owner);
	json_decref(owner);
}

/* The server prints an empty list as null, which stays so. */
static void put_endpoints(json_t *slice, const struct endpoints_wish *w)
{
	char token[32];

	snprintf(token, sizeof token, "%" PRId64, w->token);
	json_object_set_new(json_object_get(metadata_of(slice), "annotations"), ENDPOINTS_TOKEN, json_string(token));
	if (w->published)
		json_object_set_new(slice, "endpoints",
		                    json_pack("[{s:[s], s:{s:b}}]", "addresses", w->host, "conditions", "ready", 1));
	else if (json_array_size(json_object_get(slice, "endpoints")) > 0)
		json_object_set_new(slice, "endpoints", json_array());
}

json_t *endpoints_make(const json_t *slice, const struct endpoints_wish *w, struct service_result *r)
{
	json_t *ports = NULL;

	r->outcome = slice ? judge(slice, w, &r->err) : SERVICE_DONE;
	if (r->outcome != SERVICE_DONE)
		return NULL;
	if ((w->service && !(ports = ports_of(w->service, w->port, &r->err))) ||
	    (w->published && check_family(w->service, slice, w->host, &r->err) < 0)) {
		r->outcome = SERVICE_REFUSED;
		json_decref(ports);
		return NULL;
	}
	json_t *made = slice ? json_deep_copy(slice) : new_slice(w);
	put_endpoints(made, w);
	if (w->service) {
		json_object_set_new(made, "ports", ports);
		put_owner(made, w->service);
	}
	return made;
}
