#include "locks/kubernetes/kube_endpoints.h"

#include "base/mem.h"
#include "locks/kubernetes/kube_object.h"

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

static const char *text_in(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

static const char *name_of(const json_t *object)
{
	return text_in(json_object_get(object, "metadata"), "name");
}

/* The endpoint-slice controller keeps the slices of a Service that has a selector. */
static int check_unselected(const json_t *service, struct err *err)
{
	const json_t *selector = json_object_get(spec_of(service), "selector");
	const char *type = text_in(spec_of(service), "type");

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
	const char *protocol = text_in(port, "protocol");
	json_int_t number = given                     ? given
	                    : json_is_integer(target) ? json_integer_value(target)
	                    : target                  ? 0
	                                              : json_integer_value(json_object_get(port, "port"));

	if (number < 1 || number > 65535) {
		err_set(err, ERR_USAGE,
		        "its port \"%.63s\" has the targetPort \"%.63s\", which only a pod's container can say: give it a number, "
		        "or name the Service as NAME:PORT",
		        text_in(port, "name"), json_string_value(target) ? json_string_value(target) : "?");
		return NULL;
	}
	json_t *made = json_pack("{s:s, s:I, s:s}", "name", text_in(port, "name"), "port", number, "protocol",
	                         *protocol ? protocol : "TCP");
	if (json_is_string(app))
		json_object_set(made, "appProtocol", (json_t *)app);
	return made;
}

json_t *endpoints_ports(const json_t *service, int port, struct err *err)
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

int endpoints_check_family(const json_t *service, const char *host, struct err *err)
{
	const json_t *families = json_object_get(spec_of(service), "ipFamilies");
	size_t count = json_array_size(families);
	bool found = count == 0;

	for (size_t i = 0; i < count && !found; i++) {
		const char *family = json_string_value(json_array_get(families, i));
		found = family && strcmp(family, family_of(host)) == 0;
	}
	if (found)
		return 0;
	return err_set(err, ERR_USAGE, "its ipFamilies have no %s, and this candidate's address is %s", family_of(host),
	               host);
}

int endpoints_check_type(const json_t *slice, const char *host, struct err *err)
{
	const char *type = text_in(slice, "addressType");

	if (strcmp(type, family_of(host)) == 0)
		return 0;
	return err_set(
		err, ERR_USAGE,
		"the EndpointSlice %s is for %.20s addresses, and this candidate's is %s: give all candidates addresses of "
		"one kind, and delete the EndpointSlice if it has the wrong one (its type cannot be changed)",
		name_of(slice), type, host);
}

/* ---- the slice ---- */

static const json_t *metadata_of(const json_t *object)
{
	return json_object_get(object, "metadata");
}

/* The annotation; -1: it is no token. */
static int64_t token_of(const json_t *slice)
{
	const char *text = text_in(json_object_get(metadata_of(slice), "annotations"), ENDPOINTS_TOKEN);
	char *end;

	errno = 0;
	long long token = strtoll(text, &end, 10);
	return *text >= '0' && *text <= '9' && !*end && errno == 0 ? token : -1;
}

enum endpoints_found endpoints_judge(const json_t *slice, const char *service, int64_t token, struct err *err)
{
	const json_t *labels = json_object_get(metadata_of(slice), "labels");
	const char *name = name_of(slice);
	const struct {
		const char *label, *expected;
	} ours[] = { { SERVICE_LABEL, service }, { MANAGER_LABEL, ENDPOINTS_MANAGER } };

	for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
		if (strcmp(text_in(labels, ours[i].label), ours[i].expected) == 0)
			continue;
		err_set(err, ERR_FOREIGN,
		        "the EndpointSlice %s has the label %s \"%.100s\", not \"%s\": it is somebody else's, and stays as it is",
		        name, ours[i].label, text_in(labels, ours[i].label), ours[i].expected);
		return ENDPOINTS_FOREIGN;
	}
	int64_t last = token_of(slice);
	if (last < 0) {
		err_set(err, ERR_FOREIGN,
		        "the EndpointSlice %s has no token in its annotation " ENDPOINTS_TOKEN ", so it stays as it is",
		        name);
		return ENDPOINTS_FOREIGN;
	}
	if (last <= token)
		return ENDPOINTS_OURS;
	err_set(err, ERR_FOREIGN,
	        "token %" PRId64 " has written the EndpointSlice %s, and ours is %" PRId64
	        ": a newer leader has, or this election had another lock before; if so, delete the EndpointSlice",
	        last, name, token);
	return ENDPOINTS_NEWER;
}

static json_t *owner_of(const json_t *service)
{
	return json_pack("{s:s, s:s, s:s, s:s}", "apiVersion", "v1", "kind", "Service", "name", name_of(service), "uid",
	                 kube_object_uid(service));
}

static bool is_owned(const json_t *slice, const json_t *service)
{
	const json_t *owners = json_object_get(metadata_of(slice), "ownerReferences");
	size_t count = json_array_size(owners);

	for (size_t i = 0; i < count; i++)
		if (strcmp(text_in(json_array_get(owners, i), "uid"), kube_object_uid(service)) == 0)
			return true;
	return false;
}

bool endpoints_same(const json_t *slice, const json_t *service, const char *host, const json_t *ports, int64_t token)
{
	const json_t *endpoints = json_object_get(slice, "endpoints"), *first = json_array_get(endpoints, 0);
	const json_t *addresses = json_object_get(first, "addresses");
	const char *address = json_string_value(json_array_get(addresses, 0));
	size_t count = json_array_size(endpoints);

	if (token_of(slice) != token)
		return false;
	if (!host)
		return count == 0;
	return count == 1 && json_array_size(addresses) == 1 && address && strcmp(address, host) == 0 &&
	       json_is_true(json_object_get(json_object_get(first, "conditions"), "ready")) &&
	       json_equal((json_t *)json_object_get(slice, "ports"), (json_t *)ports) && is_owned(slice, service);
}

/* ---- what is sent ---- */

static json_t *endpoints_of(const char *host)
{
	return host ? json_pack("[{s:[s], s:{s:b}}]", "addresses", host, "conditions", "ready", 1) : json_array();
}

static json_t *annotations_of(int64_t token)
{
	char text[32];

	snprintf(text, sizeof text, "%" PRId64, token);
	return json_pack("{s:s}", ENDPOINTS_TOKEN, text);
}

/* A merge patch replaces a whole list, so those that are there already are in it: but not other Services, as one that
 * was deleted, which had this name before. */
static json_t *owners_of(const json_t *slice, const json_t *service)
{
	const json_t *owners = json_object_get(metadata_of(slice), "ownerReferences");
	size_t count = json_array_size(owners);
	json_t *all = json_array();

	for (size_t i = 0; i < count; i++)
		if (strcmp(text_in(json_array_get(owners, i), "kind"), "Service") != 0)
			json_array_append(all, json_array_get(owners, i));
	json_array_append_new(all, owner_of(service));
	return all;
}

json_t *endpoints_patch(const json_t *slice, const json_t *service, const char *host, const json_t *ports,
                        int64_t token)
{
	json_t *patch = json_pack("{s:{s:s, s:o}, s:o}", "metadata", "resourceVersion", kube_object_revision(slice),
	                          "annotations", annotations_of(token), "endpoints", endpoints_of(host));

	if (host) {
		json_object_set_new(json_object_get(patch, "metadata"), "ownerReferences", owners_of(slice, service));
		json_object_set(patch, "ports", (json_t *)ports);
	}
	return patch;
}

json_t *endpoints_create(const json_t *service, const char *host, bool published, const json_t *ports, int64_t token)
{
	char *name = mem_printf("%s-lunarch", name_of(service));
	const char *first = json_string_value(json_array_get(json_object_get(spec_of(service), "ipFamilies"), 0));
	const char *family = host ? family_of(host) : first ? first : "IPv4";
	json_t *made =
		json_pack("{s:s, s:s, s:s, s:{s:s, s:{s:s, s:s}, s:o}, s:o}", "apiVersion", "discovery.k8s.io/v1",
	                  "kind", "EndpointSlice", "addressType", family, "metadata", "name", name, "labels",
	                  SERVICE_LABEL, name_of(service), MANAGER_LABEL, ENDPOINTS_MANAGER, "annotations",
	                  annotations_of(token), "endpoints", endpoints_of(published ? host : NULL));

	if (*kube_object_uid(service))
		json_object_set_new(json_object_get(made, "metadata"), "ownerReferences",
		                    json_pack("[o]", owner_of(service)));
	if (ports)
		json_object_set(made, "ports", (json_t *)ports);
	free(name);
	return made;
}
