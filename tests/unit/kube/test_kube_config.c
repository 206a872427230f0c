/* Kubeconfig files as kubectl reads them, a pod's service account, and what is wrong with either, said without secrets.
 * The numbers T.. are those of the cases in tests/cluster/kubernetes/README.md. */
#include "base/buf.h"
#include "base/mem.h"
#include "kube/kube_config.h"
#include "kube/kube_exec.h"
#include "kube/yaml_json.h"
#include "tap.h"

#include <jansson.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char dir[64];

/* The path of a file in the directory with that text, till the next call but two. */
static const char *file(const char *name, const char *text)
{
	static char paths[3][128];
	static int n;
	char *path = paths[n++ % 3];

	snprintf(path, sizeof paths[0], "%s/%s", dir, name);
	FILE *f = fopen(path, "w");
	fputs(text, f);
	fclose(f);
	return path;
}

static const char *const HOME_CONFIG = "apiVersion: v1\n"
				       "kind: Config\n"
				       "current-context: prod\n"
				       "contexts:\n"
				       "- name: prod\n"
				       "  context: {cluster: east, user: ann, namespace: shop}\n"
				       "- name: bare\n"
				       "  context:\n"
				       "    cluster: west\n"
				       "clusters:\n"
				       "- name: east\n"
				       "  cluster:\n"
				       "    server: https://east.example:6443/k8s/clusters/c-1/\n"
				       "    certificate-authority: pki/ca.crt\n"
				       "    tls-server-name: kubernetes.default\n"
				       "    proxy-url: socks5://127.0.0.1:1080\n"
				       "- name: west\n"
				       "  cluster:\n"
				       "    server: \"https://[fd00::1]:6443\"\n"
				       "    insecure-skip-tls-verify: true\n"
				       "users:\n"
				       "- name: ann\n"
				       "  user:\n"
				       "    token: 12345\n"
				       "    client-certificate-data: Q0VSVA==\n"
				       "    client-certificate: ignored.crt\n"
				       "    client-key: /abs/ann.key\n"
				       "    as: boss\n"
				       "    as-uid: u7\n"
				       "    as-groups: [a, b]\n"
				       "    as-user-extra: {\"x/y\": [one, two]}\n";

static void test_whole(void)
{
	struct kube_config c;
	struct err err = { 0 };
	char want[128];

	if (!is_int(kube_config_from_files(&c, file("config", HOME_CONFIG), NULL, &err), 0, "a kubeconfig is read"))
		printf("# %s\n", err.text);
	is_str(c.server, "https://east.example:6443/k8s/clusters/c-1", "the server, with its path");
	is_str(c.ns, "shop", "the namespace");
	snprintf(want, sizeof want, "%s/pki/ca.crt", dir);
	is_str(c.ca_file, want, "a relative path is relative to the file");
	is_str(c.server_name, "kubernetes.default", "tls-server-name");
	is_str(c.proxy, "socks5://127.0.0.1:1080", "proxy-url");
	is_str(c.token, "12345", "a token that looks like a number");
	ok(c.cert_pem && strcmp(c.cert_pem, "CERT") == 0 && !c.cert_file, "data beats the file");
	is_str(c.key_file, "/abs/ann.key", "an absolute path stays");
	is_str(c.headers[0], "Impersonate-User: boss", "as");
	is_str(c.headers[1], "Impersonate-Uid: u7", "as-uid");
	is_str(c.headers[3], "Impersonate-Group: b", "as-groups");
	is_str(c.headers[5], "Impersonate-Extra-x%2Fy: two", "as-user-extra, its key escaped");
	ok(!c.headers[6], "and no more");
	kube_config_fini(&c);

	is_int(kube_config_from_files(&c, file("config", HOME_CONFIG), "bare", &err), 0,
	       "another context, without a user");
	ok(strcmp(c.ns, "default") == 0 && c.insecure && !c.token, "namespace default, insecure, no credentials");
	kube_config_fini(&c);
}

static void test_several(void)
{
	char paths[400];
	struct kube_config c;
	struct err err = { 0 };
	const char *first =
		file("first", "current-context: a\ncontexts: [{name: a, context: {cluster: one, user: me}}]\n"
	                      "clusters: [{name: one, cluster: {server: https://first}}]\n");
	const char *second =
		file("second", "current-context: b\nclusters: [{name: one, cluster: {server: https://second}}]\n"
	                       "users: [{name: me, user: {token: t}}]\n");

	snprintf(paths, sizeof paths, "%s:%s/missing:%s", first, dir, second);
	is_int(kube_config_from_files(&c, paths, NULL, &err), 0, "several files are one, missing ones are skipped");
	is_str(c.server, "https://first", "the first file that has an entry wins");
	is_str(c.token, "t", "the others complete it");
	kube_config_fini(&c);
	snprintf(paths, sizeof paths, "%s:%s", first, file("b\xff", HOME_CONFIG));
	ok(kube_config_from_files(&c, paths, NULL, &err) < 0 && strstr(err.text, "not UTF-8"),
	   "a path that is not UTF-8 is refused: %s", err.text);
}

static void test_exec(void)
{
	struct kube_config c;
	struct err err = { 0 };
	char want[128];
	const char *text =
		"current-context: a\ncontexts: [{name: a, context: {cluster: one, user: me}}]\n"
		"clusters: [{name: one, cluster: {server: https://one, certificate-authority-data: Q0VSVA==, "
		"extensions: [{name: client.authentication.k8s.io/exec, extension: {audience: x}}]}}]\n"
		"users: [{name: me, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: ./bin/login, args: [--n, 5], "
		"env: [{name: A, value: b}], interactiveMode: IfAvailable, provideClusterInfo: true}}}]\n";

	is_int(kube_config_from_files(&c, file("exec", text), NULL, &err), 0, "an exec plugin");
	snprintf(want, sizeof want, "%s/./bin/login", dir);
	is_str(c.exec.command, want, "its command, relative to the file");
	ok(c.exec.argv && strcmp(c.exec.argv[1], "--n") == 0 && strcmp(c.exec.argv[2], "5") == 0 && !c.exec.argv[3],
	   "its arguments");
	is_str(c.exec.env[0], "A=b", "its environment");
	char *cluster = json_dumps(c.exec.cluster, JSON_COMPACT | JSON_SORT_KEYS);
	is_str(cluster,
	       "{\"certificate-authority-data\":\"Q0VSVA==\",\"config\":{\"audience\":\"x\"},\"server\":\"https://one\"}",
	       "what it is told of the cluster");
	free(cluster);
	kube_config_fini(&c);
}

static const char *const FRAME = "current-context: a\ncontexts: [{name: a, context: {cluster: one, user: me}}]\n"
				 "clusters: [{name: one, cluster: {%s}}]\nusers: [{name: me, user: {%s}}]\n";

static void check_bad(const char *cluster, const char *user, const char *expected)
{
	char *text = mem_printf(FRAME, cluster, user);
	struct kube_config c;
	struct err err = { 0 };
	int done = kube_config_from_files(&c, file("bad", text), NULL, &err);

	if (!ok(done < 0 && strstr(err.text, expected) && !strstr(err.text, "s3cret"),
	        "refused, and said why without secrets: %s", expected))
		printf("# %d %s\n", done, err.text);
	if (done == 0)
		kube_config_fini(&c);
	free(text);
}

static void test_bad(void)
{
	const char *good = "server: https://one";
	struct kube_config c;
	struct err err = { 0 };
	char path[128];

	check_bad("x: 1", "token: s3cret", "server: expected https://HOST:PORT");
	check_bad("server: ftp://x", "token: s3cret", "server: expected https://HOST:PORT");
	check_bad("server: https://one, insecure-skip-tls-verify: true, certificate-authority: x", "token: s3cret",
	          "insecure-skip-tls-verify: expected no");
	check_bad("server: https://one, insecure-skip-tls-verify: maybe", "",
	          "insecure-skip-tls-verify: expected true or false");
	check_bad("server: https://one, certificate-authority-data: '%%%'", "",
	          "certificate-authority-data: expected PEM in base64");
	check_bad("server: https://one, proxy-url: foo", "", "proxy-url: expected");
	check_bad("server: https://one, insecure-skip-tls-verify: 'true'", "",
	          "insecure-skip-tls-verify: expected true");
	check_bad(good, "token: [s3cret]", "token: expected a text");
	check_bad(good, "token: yes", "token: expected a text, in quotes");
	check_bad("server: one/k8s", "", "server: expected https://HOST:PORT");
	check_bad(good, "token: s3cret, username: x, password: s3cret", "no token beside it");
	check_bad(good, "client-certificate: x", "client-key: expected");
	check_bad(good, "client-key-data: '!'", "client-key-data: expected PEM in base64");
	check_bad(good, "auth-provider: {name: gcp}", "auth-provider: expected exec in its place");
	check_bad(good, "exec: {command: x}", "exec.apiVersion: expected");
	check_bad(good, "exec: {command: x, apiVersion: client.authentication.k8s.io/v1alpha1}",
	          "exec.apiVersion: expected");
	check_bad(good, "exec: {apiVersion: client.authentication.k8s.io/v1}", "exec.command: expected a program");
	check_bad(good, "exec: {command: x, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Always}",
	          "nobody is there");
	check_bad(good, "as-groups: [x]", "a user to act as");
	check_bad(good, "as: []", "a list of texts");
	check_bad(good, "as: boss, as-groups: x", "a list of texts");
	check_bad(good, "as: \"x\\ny\"", "no line breaks");
	check_bad("server: https://one]", "token: s3cret", "no YAML");

	ok(kube_config_from_files(&c, file("config", HOME_CONFIG), "nope", &err) < 0 &&
	           strstr(err.text, "no context \"nope\"") && strstr(err.text, "prod, bare"),
	   "an unknown context names those there are");
	snprintf(path, sizeof path, "%s/nowhere", dir);
	ok(kube_config_from_files(&c, path, NULL, &err) < 0 && strstr(err.text, path) && err.code == ERR_MISSING,
	   "a missing kubeconfig is named");
	ok(kube_config_from_files(&c, file("empty", ""), NULL, &err) < 0 && strstr(err.text, "no current-context"),
	   "an empty one has no context");
	ok(kube_config_from_files(&c, file("list", "[1]"), NULL, &err) < 0 && strstr(err.text, "no map"),
	   "a list is none");
	ok(kube_config_from_files(&c,
	                          file("binary", "\x7f"
	                                         "ELF\x01\x02"),
	                          NULL, &err) < 0 &&
	           err.code == ERR_INVALID,
	   "and neither is a program");
}

/* What YAML allows, and client-go's reader. tests/cluster/kubernetes/kubeconfigs.py asks that one. */
static void test_as_client_go(void)
{
	struct kube_config c;
	struct err err = { 0 };

	int done = kube_config_from_files(&c,
	                                  file("wild", "current-context: a\n"
	                                               "contexts: [{name: a, context: {cluster: one, user: me}}]\n"
	                                               "clusters:\n- name: one\n  cluster:\n"
	                                               "    server: HTTPS://one\n"
	                                               "    certificate-authority-data: |\n      Q0VS\n      VA==\n"
	                                               "users:\n- name: me\n  user:\n"
	                                               "    client-certificate-data: !!binary UTBWU1ZBPT0=\n"
	                                               "    client-key-data: Q0VSVA==\n"),
	                                  NULL, &err);
	if (is_int(done, 0, "base64 on several lines, !!binary and HTTPS:// are read")) {
		is_str(c.server, "https://one", "the scheme in small letters, as everything looks for it");
		is_str(c.ca_pem, "CERT", "base64 of several lines");
		is_str(c.cert_pem, "CERT", "!!binary, which is base64 of base64");
		kube_config_fini(&c);
	} else {
		printf("# %s\n", err.text);
	}
}

static void test_plain_http(void)
{
	char *text = mem_printf(FRAME, "server: 'one:8080', proxy-url: HTTP://p", "token: s3cret");
	struct kube_config c;

	is_int(kube_config_from_files(&c, file("http", text), NULL, NULL), 0, "a server without a scheme");
	is_str(c.server, "http://one:8080", "is one of plain http");
	is_str(c.proxy, "http://p", "also a proxy may have its scheme in capitals");
	ok(!c.token, "it is not told the token");
	kube_config_fini(&c);
	free(text);
}

static void test_pod(void)
{
	struct kube_config c;
	struct err err = { 0 };
	char want[128];

	unsetenv("KUBERNETES_SERVICE_HOST");
	ok(kube_config_from_pod(&c, dir, &err) < 0 && strstr(err.text, "no pod"), "outside a pod: said");
	setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
	setenv("KUBERNETES_SERVICE_PORT", "443", 1);
	file("namespace", "shop\n");
	is_int(kube_config_from_pod(&c, dir, &err), 0, "in a pod");
	is_str(c.server, "https://[fd00::1]:443", "IPv6 in brackets (T79)");
	is_str(c.ns, "shop", "the namespace's file (T80)");
	snprintf(want, sizeof want, "%s/token", dir);
	is_str(c.token_file, want, "the token's file");
	kube_config_fini(&c);
	unsetenv("KUBERNETES_SERVICE_HOST");
}

/* What a plugin prints is counted before it is parsed. */
static void test_printed(void)
{
	const struct kube_exec x = { .api_version = "client.authentication.k8s.io/v1" };
	struct kube_exec_result r;
	struct buf b = { 0 };
	json_t *keep = NULL;

	kube_exec_parse(
		&x,
		"{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{\"token\":\"t\"}}",
		&r, &keep);
	ok(r.err.code == ERR_NONE && strcmp(r.token, "t") == 0, "what a plugin prints is read");
	json_decref(keep);
	buf_adds(&b, "{\"status\":{\"token\":\"t\"},\"x\":[{}");
	for (int i = 0; i < 300000; i++)
		buf_adds(&b, ",{}");
	buf_adds(&b, "]}");
	kube_exec_parse(&x, b.data, &r, &keep);
	ok(!keep && r.err.code == ERR_INVALID && strstr(r.err.text, "no ExecCredential") &&
	           strstr(r.err.text, "at most 1000"),
	   "and 900 KB of empty values are not: %s", r.err.text);
	buf_fini(&b);
}

static void check_yaml(const char *text, const char *want)
{
	struct err err = { 0 };
	json_t *value = yaml_json(text, strlen(text), &err);
	char *got = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : mem_dup(err.text);

	is_str(got, want, want);
	free(got);
	json_decref(value);
}

static void test_yaml(void)
{
	struct err err = { 0 };
	const char *laughs =
		"a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
		"d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\n";

	check_yaml("[1, -5, 0, 007, 1.5, '1', true, \"true\", no, ~, null, '']",
	           "[1,-5,0,\"007\",\"1.5\",\"1\",true,\"true\",false,null,null,\"\"]");
	check_yaml("[True, OFF, y, 'yes', YeS, Null, !!binary aGk=, !!binary \"aG\\\n k=\"]",
	           "[true,false,true,\"yes\",\"YeS\",null,\"hi\",\"hi\"]");
	check_yaml("a: !!binary '%'", "line 1, column 4: !!binary: expected base64");
	check_yaml("!!binary /w==", "line 1, column 1: the text is not UTF-8");
	check_yaml("a: {b: [c, {d: e}]}", "{\"a\":{\"b\":[\"c\",{\"d\":\"e\"}]}}");
	check_yaml("{\"a\": [1, {\"b\": null}]}", "{\"a\":[1,{\"b\":null}]}");
	check_yaml("x: &n [1]\ny: *n", "{\"x\":[1],\"y\":[1]}");
	check_yaml("x: &n 1\ny: &n [*n]\nz: *n", "{\"x\":1,\"y\":[1],\"z\":[1]}");
	check_yaml("a: 1\na: 2", "line 2, column 1: the key is there twice");
	check_yaml("a: &a {b: 1}\nc:\n  <<: *a", "line 3, column 3: maps are not merged here (<<)");
	check_yaml("", "null");
	check_yaml("# nothing", "null");
	ok(!yaml_json(laughs, strlen(laughs), &err) && strstr(err.text, "more than 100000 values"),
	   "aliases cannot make a giant out of a few lines");
	char deep[400];
	memset(deep, '[', 200);
	memset(deep + 200, ']', 200);
	ok(!yaml_json(deep, sizeof deep, &err) && strstr(err.text, "too deeply"), "nor exhaust the stack");
	check_yaml("a: &a [*a]", "line 1, column 8: an alias of nothing that stands before it");
}

/* Many times `part`, between `before` and `after`. */
static void check_flood(const char *before, const char *part, size_t count, const char *after, const char *says,
                        const char *what)
{
	struct buf b = { 0 };
	struct err err = { 0 };
	struct kube_config c;
	char path[128];
	struct timespec from, to;

	buf_adds(&b, before);
	for (size_t i = 0; i < count; i++)
		buf_printf(&b, part, (int)i);
	buf_adds(&b, after);
	file("flood", b.data);
	snprintf(path, sizeof path, "%s/flood", dir);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
	bool refused = kube_config_load(&c, path, "", &err) < 0;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
	double s = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9;
	if (!ok(refused && strstr(err.text, says) && strstr(err.text, path),
	        "%s: refused, with the file and what was found", what))
		printf("# %s\n", err.text);
	printf("# %zu bytes took %.3f s\n", b.len, s);
	if (!refused)
		kube_config_fini(&c);
	buf_fini(&b);
}

static void test_floods(void)
{
	struct rusage before, after;
	struct buf long_text = { 0 };

	getrusage(RUSAGE_SELF, &before);
	buf_adds(&long_text, "a: &a ");
	for (int i = 0; i < 150000; i++)
		buf_adds(&long_text, "x");
	buf_adds(&long_text, "\nb: [");
	check_flood(long_text.data, "*a,", 900, "]\n", "more than 8 MB", "a long text, named again and again");
	check_flood(long_text.data, "*a,", 5000, "]\n", "more than 8 MB", "and more often");
	check_flood("", "[", 40000, "", "line 1, column 65: nested too deeply", "40 KB of brackets");
	check_flood("", "- ", 40000, "", "nested too deeply", "40 KB of dashes");
	check_flood("[", "&a%d x,", 300000, "]", "more than 100000 values", "300,000 anchors");
	check_flood("[", "{},", 1300000, "]", "more than 100000 values", "4 MB of empty maps");
	getrusage(RUSAGE_SELF, &after);
	printf("# %ld KB more at most\n", after.ru_maxrss - before.ru_maxrss);
#ifndef __SANITIZE_ADDRESS__ /* which keeps what is freed */
	ok(after.ru_maxrss - before.ru_maxrss < 100000, "and with at most 100 MB more memory");
#endif
	buf_fini(&long_text);
}

static json_t *text_list(char **list)
{
	json_t *out = json_array();

	for (; list && *list; list++)
		json_array_append_new(out, json_string(*list));
	return out;
}

/* tests/cluster/kubernetes/kubeconfigs.py asks this program what it reads. */
static int print_config(const char *path)
{
	struct kube_config c;
	struct err err = { 0 };
	json_t *found = json_object();

	if (kube_config_from_files(&c, path, NULL, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	const struct {
		const char *name, *value;
	} texts[] = { { "server", c.server },
		      { "namespace", c.ns },
		      { "server_name", c.server_name },
		      { "ca_file", c.ca_file },
		      { "ca", c.ca_pem },
		      { "cert_file", c.cert_file },
		      { "cert", c.cert_pem },
		      { "key_file", c.key_file },
		      { "key", c.key_pem },
		      { "token", c.token },
		      { "token_file", c.token_file },
		      { "user", c.user },
		      { "password", c.password },
		      { "proxy", c.proxy },
		      { "command", c.exec.command } };
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		json_object_set_new(found, texts[i].name, json_string(texts[i].value ? texts[i].value : ""));
	json_object_set_new(found, "insecure", json_boolean(c.insecure));
	json_object_set_new(found, "args", text_list(c.exec.argv ? c.exec.argv + 1 : NULL));
	json_object_set_new(found, "env", text_list(c.exec.env));
	json_dumpf(found, stdout, 0);
	json_decref(found);
	kube_config_fini(&c);
	return 0;
}

int main(int argc, char **argv)
{
	char command[128];

	if (argc == 2)
		return print_config(argv[1]);
	strcpy(dir, "/tmp/lunarch-test-XXXXXX");
	if (!mkdtemp(dir))
		return 1;
	test_whole();
	test_several();
	test_exec();
	test_printed();
	test_bad();
	test_as_client_go();
	test_plain_http();
	test_pod();
	test_yaml();
	test_floods();
	snprintf(command, sizeof command, "rm -r %s", dir);
	return tap_done() | system(command);
}
