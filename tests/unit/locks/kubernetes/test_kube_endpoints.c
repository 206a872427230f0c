/* Services and EndpointSlices as JSON: which Service may have a slice of ours, which slice is ours to write, what is
 * sent. */
#include "base/mem.h"
#include "locks/kubernetes/kube_endpoints.h"
#include "tap.h"

#include <jansson.h>
#include <stdlib.h>

static json_t *parse(const char *text)
{
	json_t *made = json_loads(text, 0, NULL);

	if (!made)
		printf("# no JSON: %s\n", text);
	return made;
}

static json_t *service(const char *spec)
{
	char *text = mem_printf("{\"metadata\":{\"name\":\"web\",\"uid\":\"u-9\"},\"spec\":%s}", spec);
	json_t *made = parse(text);

	free(text);
	return made;
}

static void ports(const char *spec, int port, const char *expected)
{
	json_t *s = service(spec);
	struct err err = { 0 };
	json_t *found = endpoints_ports(s, port, &err);
	char *text = found ? json_dumps(found, JSON_COMPACT | JSON_SORT_KEYS) : NULL;

	if (text)
		is_str(text, expected, spec);
	else
		ok(strstr(err.text, expected) != NULL, "%s: %s (%s)", spec, expected, err.text);
	free(text);
	json_decref(found);
	json_decref(s);
}

static void the_service(void)
{
	ports("{\"ports\":[{\"name\":\"h\",\"port\":80,\"targetPort\":8080}]}", 0,
	      "[{\"name\":\"h\",\"port\":8080,\"protocol\":\"TCP\"}]");
	ports("{\"ports\":[{\"port\":80}]}", 0, "[{\"name\":\"\",\"port\":80,\"protocol\":\"TCP\"}]");
	ports("{\"ports\":[{\"port\":53,\"protocol\":\"UDP\",\"appProtocol\":\"x/y\",\"targetPort\":\"dns\"}]}", 5353,
	      "[{\"appProtocol\":\"x/y\",\"name\":\"\",\"port\":5353,\"protocol\":\"UDP\"}]");
	ports("{\"ports\":[{\"name\":\"a\",\"port\":1},{\"name\":\"b\",\"port\":2}]}", 0,
	      "[{\"name\":\"a\",\"port\":1,\"protocol\":\"TCP\"},{\"name\":\"b\",\"port\":2,\"protocol\":\"TCP\"}]");
	ports("{}", 0, "[]");
	ports("{\"ports\":[{\"name\":\"a\",\"port\":1},{\"name\":\"b\",\"port\":2}]}", 80, "it has 2 ports");
	ports("{\"ports\":[{\"port\":80,\"targetPort\":\"http\"}]}", 0, "targetPort \"http\"");
	ports("{\"ports\":[{\"port\":80,\"targetPort\":70000}]}", 0, "targetPort");
	ports("{\"selector\":{\"app\":\"web\"},\"ports\":[{\"port\":80}]}", 0, "selector {\"app\":\"web\"}");
	ports("{\"selector\":{},\"ports\":[]}", 0, "[]");
	ports("{\"type\":\"ExternalName\"}", 0, "ExternalName");
}

static void the_family(void)
{
	json_t *both = service("{\"ipFamilies\":[\"IPv6\",\"IPv4\"]}"), *four = service("{\"ipFamilies\":[\"IPv4\"]}"),
	       *none = service("{}");
	struct err err;

	ok(endpoints_check_family(both, "10.0.0.1", &err) == 0 && endpoints_check_family(both, "fd00::1", &err) == 0 &&
	           endpoints_check_family(none, "fd00::1", &err) == 0,
	   "addresses of the Service's families, and of a Service that names none");
	ok(endpoints_check_family(four, "fd00::1", &err) < 0, "and no others");
	json_decref(both);
	json_decref(four);
	json_decref(none);
}

#define LABELS \
	"\"labels\":{\"kubernetes.io/service-name\":\"web\",\"endpointslice.kubernetes.io/managed-by\":\"lunarch.dev\"}"
#define SLICE(META, MORE) \
	"{\"metadata\":{\"name\":\"web-lunarch\",\"resourceVersion\":\"7\"," META "},\"addressType\":\"IPv4\"" MORE "}"
#define TOKEN(N) ",\"annotations\":{\"lunarch.dev/token\":\"" N "\"}"

static void judge(const char *slice, int64_t token, enum endpoints_found expected, const char *sentence)
{
	struct err err = { 0 };
	json_t *s = parse(slice);

	is_int(endpoints_judge(s, "web", token, &err), expected, sentence);
	ok((expected == ENDPOINTS_OURS) == !*err.text, "with a reason where it is not ours");
	json_decref(s);
}

static void the_slice(void)
{
	judge(SLICE(LABELS TOKEN("5"), ""), 5, ENDPOINTS_OURS, "a slice of this term");
	judge(SLICE(LABELS TOKEN("4"), ""), 5, ENDPOINTS_OURS, "of an earlier one");
	judge(SLICE(LABELS TOKEN("6"), ""), 5, ENDPOINTS_NEWER, "of a later one");
	judge(SLICE(LABELS TOKEN("9223372036854775807"), ""), 5, ENDPOINTS_NEWER, "of the largest token");
	judge(SLICE(LABELS TOKEN("9223372036854775808"), ""), 5, ENDPOINTS_FOREIGN, "a token that is none");
	judge(SLICE(LABELS TOKEN("-1"), ""), 5, ENDPOINTS_FOREIGN, "a negative one");
	judge(SLICE(LABELS TOKEN("5x"), ""), 5, ENDPOINTS_FOREIGN, "a number with a letter");
	judge(SLICE(LABELS, ""), 5, ENDPOINTS_FOREIGN, "no token");
	judge(SLICE("\"labels\":{\"kubernetes.io/service-name\":\"web\"}" TOKEN("4"), ""), 5, ENDPOINTS_FOREIGN,
	      "managed by nobody");
	judge(SLICE("\"labels\":{\"kubernetes.io/service-name\":\"web\",\"endpointslice.kubernetes.io/"
	            "managed-by\":\"endpointslice-controller.k8s.io\"}" TOKEN("4"),
	            ""),
	      5, ENDPOINTS_FOREIGN, "managed by Kubernetes");
	judge(SLICE("\"labels\":{\"kubernetes.io/service-name\":\"shop\",\"endpointslice.kubernetes.io/"
	            "managed-by\":\"lunarch.dev\"}" TOKEN("4"),
	            ""),
	      5, ENDPOINTS_FOREIGN, "of another Service");
	judge("{}", 5, ENDPOINTS_FOREIGN, "nothing");
}

static void same(const char *slice, const char *host, bool expected, const char *sentence)
{
	json_t *s = parse(slice), *web = service("{}"),
	       *p = parse("[{\"name\":\"h\",\"port\":80,\"protocol\":\"TCP\"}]");

	is_int(endpoints_same(s, web, host, p, 5), expected, sentence);
	json_decref(s);
	json_decref(web);
	json_decref(p);
}

#define OWNER ",\"ownerReferences\":[{\"kind\":\"Service\",\"uid\":\"u-9\"}]"
#define PORTS ",\"ports\":[{\"name\":\"h\",\"port\":80,\"protocol\":\"TCP\"}]"
#define AT(IP, READY) ",\"endpoints\":[{\"addresses\":[\"" IP "\"],\"conditions\":{\"ready\":" READY "}}]"

static void what_is_so(void)
{
	same(SLICE(LABELS TOKEN("5") OWNER, AT("10.0.0.1", "true") PORTS), "10.0.0.1", true, "it is as it is to be");
	same(SLICE(LABELS TOKEN("4") OWNER, AT("10.0.0.1", "true") PORTS), "10.0.0.1", false, "another token");
	same(SLICE(LABELS TOKEN("5") OWNER, AT("10.0.0.2", "true") PORTS), "10.0.0.1", false, "another address");
	same(SLICE(LABELS TOKEN("5") OWNER, AT("10.0.0.1", "false") PORTS), "10.0.0.1", false, "not ready");
	same(SLICE(LABELS TOKEN("5") OWNER, AT("10.0.0.1", "true")), "10.0.0.1", false, "no ports");
	same(SLICE(LABELS TOKEN("5"), AT("10.0.0.1", "true") PORTS), "10.0.0.1", false, "no owner");
	same(SLICE(LABELS TOKEN("5") OWNER, ",\"endpoints\":[]" PORTS), "10.0.0.1", false, "no address");
	same(SLICE(LABELS TOKEN("5"), ",\"endpoints\":[]"), NULL, true, "withdrawn");
	same(SLICE(LABELS TOKEN("5"), ",\"endpoints\":null"), NULL, true, "and as the server prints an empty list");
	same(SLICE(LABELS TOKEN("4"), ",\"endpoints\":[]"), NULL, false, "withdrawn by an earlier term");
}

static void what_is_sent(void)
{
	json_t *web = service("{\"ipFamilies\":[\"IPv6\"]}"), *p = parse("[]");
	json_t *old = parse(SLICE(LABELS TOKEN("4") ",\"ownerReferences\":[{\"kind\":\"Service\",\"uid\":\"u-8\"},"
	                                            "{\"kind\":\"Other\",\"uid\":\"o-1\"}]",
	                          ""));
	json_t *patch = endpoints_patch(old, web, "10.0.0.1", p, 5);
	char *text = json_dumps(patch, JSON_COMPACT | JSON_SORT_KEYS);

	is_str(text,
	       "{\"endpoints\":[{\"addresses\":[\"10.0.0.1\"],\"conditions\":{\"ready\":true}}],\"metadata\":{\"annotations\":{"
	       "\"lunarch.dev/token\":\"5\"},\"ownerReferences\":[{\"kind\":\"Other\",\"uid\":\"o-1\"},{\"apiVersion\":\"v1\",\"kind\":"
	       "\"Service\",\"name\":\"web\",\"uid\":\"u-9\"}],\"resourceVersion\":\"7\"},\"ports\":[]}",
	       "a patch is for one version, and keeps the owners that are no Service");
	free(text);
	json_decref(patch);
	patch = endpoints_patch(old, NULL, NULL, NULL, 5);
	text = json_dumps(patch, JSON_COMPACT | JSON_SORT_KEYS);
	is_str(text,
	       "{\"endpoints\":[],\"metadata\":{\"annotations\":{\"lunarch.dev/token\":\"5\"},\"resourceVersion\":\"7\"}}",
	       "one that withdraws leaves all else");
	free(text);
	json_decref(patch);
	json_t *made = endpoints_create(web, "10.0.0.1", true, p, 5);
	struct err err;
	is_int(endpoints_judge(made, "web", 5, &err), ENDPOINTS_OURS, "a new one is ours");
	ok(endpoints_same(made, web, "10.0.0.1", p, 5) && endpoints_check_type(made, "10.0.0.2", &err) == 0 &&
	           endpoints_check_type(made, "fd00::1", &err) < 0,
	   "and as it is to be, for addresses of one family");
	json_decref(made);
	made = endpoints_create(web, NULL, false, NULL, 5);
	ok(endpoints_same(made, web, NULL, NULL, 5) && endpoints_check_type(made, "fd00::1", &err) == 0,
	   "one without an address is of the Service's first family");
	json_decref(made);
	json_decref(old);
	json_decref(web);
	json_decref(p);
}

int main(void)
{
	the_service();
	the_family();
	the_slice();
	what_is_so();
	what_is_sent();
	return tap_done();
}
