/* Services and EndpointSlices as JSON: which Service may have a slice of ours, which slice is ours to write, what is
 * sent. */
#include "base/mem.h"
#include "kube/kube_endpoints.h"
#include "service/service_store.h"
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

/* What becomes of the slice; NULL: *why has it. */
static json_t *make(const char *slice, const char *spec, struct endpoints_wish w, struct service_result *why)
{
	json_t *old = slice ? parse(slice) : NULL, *web = spec ? service(spec) : NULL;

	*why = (struct service_result){ .outcome = SERVICE_DONE };
	w.name = "web";
	w.service = web;
	json_t *made = endpoints_make(old, &w, why);
	json_decref(old);
	json_decref(web);
	return made;
}

static void ports(const char *spec, int port, const char *expected)
{
	struct service_result why;
	json_t *made = make(NULL, spec, (struct endpoints_wish){ .port = port }, &why);
	char *text = made ? json_dumps(json_object_get(made, "ports"), JSON_COMPACT | JSON_SORT_KEYS) : NULL;

	if (text)
		is_str(text, expected, spec);
	else
		ok(why.outcome == SERVICE_REFUSED && strstr(why.err.text, expected) != NULL, "%s: %s (%s)", spec,
		   expected, why.err.text);
	free(text);
	json_decref(made);
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

#define LABELS \
	"\"labels\":{\"kubernetes.io/service-name\":\"web\",\"endpointslice.kubernetes.io/managed-by\":\"lunarch.dev\"}"
#define SLICE(META, MORE) \
	"{\"metadata\":{\"name\":\"web-lunarch\",\"resourceVersion\":\"7\"," META "},\"addressType\":\"IPv4\"" MORE "}"
#define TOKEN(N) ",\"annotations\":{\"lunarch.dev/token\":\"" N "\"}"

static void family(const char *slice, const char *spec, const char *host, bool expected, const char *sentence)
{
	struct service_result why;
	json_t *made = make(slice, spec, (struct endpoints_wish){ .published = true, .host = host, .token = 5 }, &why);

	ok((made != NULL) == expected && (expected || why.outcome == SERVICE_REFUSED), "%s", sentence);
	json_decref(made);
}

static void the_family(void)
{
	family(NULL, "{\"ipFamilies\":[\"IPv6\",\"IPv4\"]}", "10.0.0.1", true, "an address of the Service's families");
	family(NULL, "{\"ipFamilies\":[\"IPv6\",\"IPv4\"]}", "fd00::1", true, "or of the other one");
	family(NULL, "{}", "fd00::1", true, "or of a Service that names none");
	family(NULL, "{\"ipFamilies\":[\"IPv4\"]}", "fd00::1", false, "and no others");
	family(SLICE(LABELS TOKEN("5"), ""), "{}", "10.0.0.1", true, "an address of the slice's type");
	family(SLICE(LABELS TOKEN("5"), ""), "{}", "fd00::1", false, "and no other");
}

static void judge(const char *slice, int64_t token, enum service_outcome expected, const char *sentence)
{
	struct service_result why;
	json_t *made = make(slice, NULL, (struct endpoints_wish){ .token = token }, &why);

	is_int(why.outcome, expected, sentence);
	ok((expected == SERVICE_DONE) == !*why.err.text && (expected == SERVICE_DONE) == (made != NULL),
	   "with a reason where it is not to be written");
	json_decref(made);
}

static void the_slice(void)
{
	judge(SLICE(LABELS TOKEN("5"), ""), 5, SERVICE_DONE, "a slice of this term");
	judge(SLICE(LABELS TOKEN("4"), ""), 5, SERVICE_DONE, "of an earlier one");
	judge(SLICE(LABELS TOKEN("6"), ""), 5, SERVICE_FENCED, "of a later one");
	judge(SLICE(LABELS TOKEN("9223372036854775807"), ""), 5, SERVICE_FENCED, "of the largest token");
	judge(SLICE(LABELS TOKEN("9223372036854775808"), ""), 5, SERVICE_REFUSED, "a token that is none");
	judge(SLICE(LABELS TOKEN("-1"), ""), 5, SERVICE_REFUSED, "a negative one");
	judge(SLICE(LABELS TOKEN("5x"), ""), 5, SERVICE_REFUSED, "a number with a letter");
	judge(SLICE(LABELS, ""), 5, SERVICE_REFUSED, "no token");
	judge(SLICE("\"labels\":{\"kubernetes.io/service-name\":\"web\"}" TOKEN("4"), ""), 5, SERVICE_REFUSED,
	      "managed by nobody");
	judge(SLICE("\"labels\":{\"kubernetes.io/service-name\":\"web\",\"endpointslice.kubernetes.io/"
	            "managed-by\":\"endpointslice-controller.k8s.io\"}" TOKEN("4"),
	            ""),
	      5, SERVICE_REFUSED, "managed by Kubernetes");
	judge(SLICE("\"labels\":{\"kubernetes.io/service-name\":\"shop\",\"endpointslice.kubernetes.io/"
	            "managed-by\":\"lunarch.dev\"}" TOKEN("4"),
	            ""),
	      5, SERVICE_REFUSED, "of another Service");
	judge("{}", 5, SERVICE_REFUSED, "nothing");
}

/* host NULL: it is withdrawn. */
static void same(const char *slice, const char *host, bool expected, const char *sentence)
{
	struct service_result why;
	json_t *old = parse(slice);
	json_t *made = make(slice, host ? "{\"ports\":[{\"name\":\"h\",\"port\":80}]}" : NULL,
	                    (struct endpoints_wish){ .published = host != NULL, .host = host, .token = 5 }, &why);

	is_int(json_equal(old, made), expected, sentence);
	json_decref(made);
	json_decref(old);
}

#define OWNER ",\"ownerReferences\":[{\"apiVersion\":\"v1\",\"kind\":\"Service\",\"name\":\"web\",\"uid\":\"u-9\"}]"
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
	same(SLICE(LABELS TOKEN("5"), AT("10.0.0.1", "true") PORTS), NULL, false, "not withdrawn");
	same(SLICE(LABELS TOKEN("4"), ",\"endpoints\":[]"), NULL, false, "withdrawn by an earlier term");
}

static void is_made(const char *slice, const char *spec, struct endpoints_wish w, const char *expected,
                    const char *sentence)
{
	struct service_result why;
	json_t *made = make(slice, spec, w, &why);
	char *text = json_dumps(made, JSON_COMPACT | JSON_SORT_KEYS);

	is_str(text ? text : why.err.text, expected, sentence);
	free(text);
	json_decref(made);
}

#define OLD                                                                                     \
	SLICE(LABELS TOKEN("4") ",\"ownerReferences\":[{\"kind\":\"Service\",\"uid\":\"u-8\"}," \
	                        "{\"kind\":\"Other\",\"uid\":\"o-1\"}]",                        \
	      ",\"endpoints\":[{\"addresses\":[\"10.0.0.9\"]}],\"x\":1")
#define MADE_LABELS \
	"\"labels\":{\"endpointslice.kubernetes.io/managed-by\":\"lunarch.dev\",\"kubernetes.io/service-name\":\"web\"}"

static void what_is_sent(void)
{
	struct endpoints_wish published = { .published = true, .host = "10.0.0.1", .token = 5 }, looks = { .token = 5 };

	is_made(OLD, "{}", published,
	        "{\"addressType\":\"IPv4\",\"endpoints\":[{\"addresses\":[\"10.0.0.1\"],\"conditions\":{\"ready\":true}}],"
	        "\"metadata\":{\"annotations\":{\"lunarch.dev/token\":\"5\"}," MADE_LABELS ",\"name\":\"web-lunarch\","
	        "\"ownerReferences\":[{\"kind\":\"Service\",\"uid\":\"u-8\"},{\"kind\":\"Other\",\"uid\":\"o-1\"},{\"apiVersion\":\"v1\",\"kind\":\"Service\",\"name\":"
	        "\"web\",\"uid\":\"u-9\"}],\"resourceVersion\":\"7\"},\"ports\":[],\"x\":1}",
	        "a change is for one version, and keeps what is not ours, and the owners that there are");
	is_made(OLD, NULL, looks,
	        "{\"addressType\":\"IPv4\",\"endpoints\":[],\"metadata\":{\"annotations\":{\"lunarch.dev/token\":\"5\"}," MADE_LABELS
	        ",\"name\":\"web-lunarch\",\"ownerReferences\":[{\"kind\":\"Service\",\"uid\":\"u-8\"},{\"kind\":\"Other\",\"uid\":"
	        "\"o-1\"}],\"resourceVersion\":\"7\"},\"x\":1}",
	        "one that withdraws leaves all else");
	is_made(NULL, "{\"ipFamilies\":[\"IPv6\"]}", looks,
	        "{\"addressType\":\"IPv6\",\"apiVersion\":\"discovery.k8s.io/v1\",\"endpoints\":[],\"kind\":\"EndpointSlice\","
	        "\"metadata\":{\"annotations\":{\"lunarch.dev/token\":\"5\"}," MADE_LABELS ",\"name\":\"web-lunarch\","
	        "\"ownerReferences\":[{\"apiVersion\":\"v1\",\"kind\":\"Service\",\"name\":\"web\",\"uid\":\"u-9\"}]},\"ports\":[]}",
	        "a new one without an address is of the Service's first family");
	looks.host = "10.0.0.1";
	is_made(NULL, NULL, looks,
	        "{\"addressType\":\"IPv4\",\"apiVersion\":\"discovery.k8s.io/v1\",\"endpoints\":[],\"kind\":\"EndpointSlice\","
	        "\"metadata\":{\"annotations\":{\"lunarch.dev/token\":\"5\"}," MADE_LABELS
	        ",\"name\":\"web-lunarch\"}}",
	        "and where the Service was not looked at, of the address'");
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
