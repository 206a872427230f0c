#include "kube/kube_config.h"

#include "base/buf.h"
#include "base/mem.h"
#include "kube/yaml_json.h"
#include "locks/lock_url.h"
#include "net/http/http.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define FILE_MAX_BYTES (4 * 1024 * 1024)

void kube_wipe(char *secret)
{
	if (secret)
		explicit_bzero(secret, strlen(secret));
	free(secret);
}

static void free_list(char **list)
{
	for (char **s = list; s && *s; s++)
		kube_wipe(*s);
	free(list);
}

void kube_config_fini(struct kube_config *c)
{
	char *const plain[] = { c->origin,           c->server,       c->ns,
		                c->server_name,      c->proxy,        c->ca_file,
		                c->ca_pem,           c->cert_file,    c->cert_pem,
		                c->key_file,         c->token_file,   c->user,
		                c->exec.api_version, c->exec.command, c->exec.hint };

	for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
		free(plain[i]);
	kube_wipe(c->key_pem);
	kube_wipe(c->token);
	kube_wipe(c->password);
	for (char **h = c->headers; *h; h++)
		free(*h);
	free_list(c->exec.argv);
	free_list(c->exec.env);
	json_decref(c->exec.cluster);
	*c = (struct kube_config){ 0 };
}

/* A file's whole text, at most 4 MB, terminated. NULL with *err. */
static char *read_whole(const char *path, size_t *len, struct err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct buf b = { 0 };
	char part[8192];
	ssize_t n = -1;

	while (fd >= 0 && (n = read(fd, part, sizeof part)) > 0 && b.len <= FILE_MAX_BYTES)
		buf_add(&b, part, (size_t)n);
	if (fd < 0 || n < 0)
		err_sys(err, "cannot read %s", path);
	else if (b.len > FILE_MAX_BYTES)
		n = err_set(err, ERR_INVALID, "%s is larger than %d MB", path, FILE_MAX_BYTES >> 20);
	explicit_bzero(part, sizeof part);
	if (fd >= 0)
		close(fd);
	if (n < 0) {
		buf_fini(&b);
		return NULL;
	}
	*len = b.len;
	buf_adds(&b, "");
	return b.data ? b.data : mem_dup("");
}

/* ---- looking into the files ---- */

/* An entry of clusters, users or contexts, and the file it is in. */
struct kube_config_entry {
	const json_t *value;
	const char *path, *part, *name;
};

static const char *text_in(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

/* all: the files as kubectl merges them, with the first one's path; each entry has its own file's. */
static void merge_file(json_t *all, json_t *root, const char *path)
{
	static const char *const sections[] = { "clusters", "users", "contexts" };
	const char *current = text_in(root, "current-context");
	json_t *each;
	size_t n;

	for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
		json_array_foreach(json_object_get(root, sections[i]), n, each)
		{
			json_object_set_new(each, "path", json_string(path));
			json_array_append(json_object_get(all, sections[i]), each);
		}
	if (current && *current && !text_in(all, "current-context"))
		json_object_set_new(all, "current-context", json_string(current));
	if (!text_in(all, "path"))
		json_object_set_new(all, "path", json_string(path));
}

static int add_file(json_t *all, const char *path, bool may_miss, struct err *err)
{
	size_t len;
	struct err why = { 0 };
	char *text = read_whole(path, &len, &why);

	if (!text && why.code == ERR_MISSING && may_miss)
		return 0;
	if (!text) {
		*err = why;
		return err_wrap(err, "kubeconfig");
	}
	json_t *root = yaml_json(text, len, err);
	bool good = json_is_object(root) || json_is_null(root);
	json_t *name = json_string(path);
	kube_wipe(text);
	if (good && !name)
		good = false, err_set(err, ERR_INVALID, "its path is not UTF-8: give the file another name");
	else if (good)
		merge_file(all, root, path);
	else if (root)
		err_set(err, ERR_INVALID, "it is no map of clusters, contexts and users");
	json_decref(root);
	json_decref(name);
	return good ? 0 : err_wrap(err, "kubeconfig %s", path);
}

static int add_files(json_t *all, const char *paths, struct err *err)
{
	bool several = strchr(paths, ':') != NULL;

	for (const char *at = paths, *end; *at; at = *end ? end + 1 : end) {
		end = strchrnul(at, ':');
		char *path = mem_dupn(at, (size_t)(end - at));
		int done = *path ? add_file(all, path, several, err) : 0;
		free(path);
		if (done < 0)
			return -1;
	}
	if (!text_in(all, "path"))
		return err_set(err, ERR_MISSING, "kubeconfig: none of the files %s exists", paths);
	return 0;
}

/* The first one of that name, as kubectl has it. part: "cluster", "user" or "context". */
static int find_entry(const json_t *all, const char *part, const char *name, struct kube_config_entry *out,
                      struct err *err)
{
	struct buf known = { 0 };
	char section[16];
	json_t *each;
	size_t i;

	snprintf(section, sizeof section, "%ss", part);
	json_array_foreach(json_object_get(all, section), i, each)
	{
		const char *found = text_in(each, "name");
		if (found && strcmp(found, name) == 0) {
			*out = (struct kube_config_entry){ json_object_get(each, part), text_in(each, "path"), part,
				                           name };
			buf_fini(&known);
			return 0;
		}
		if (found)
			buf_printf(&known, "%s%s", known.len ? ", " : "", found);
	}
	err_set(err, ERR_MISSING, "kubeconfig %s: there is no %s \"%s\"; there are: %.300s", text_in(all, "path"), part,
	        name, known.len ? known.data : "none");
	buf_fini(&known);
	return -1;
}

/* ---- taking values ---- */

static int bad(const struct kube_config_entry *e, const char *key, const char *expected, struct err *err)
{
	return err_set(err, ERR_INVALID, "kubeconfig %s: %ss \"%s\": %s: expected %s", e->path, e->part, e->name, key,
	               expected);
}

static bool is_given(const json_t *value)
{
	return value && !json_is_null(value) && !(json_is_string(value) && json_string_length(value) == 0);
}

/* The value's text, which the caller frees. A number counts as the text that it was read from. What a truth value was
 * read from (yes without quotes) is not known. NULL: it is no text. */
static char *plain_text(const json_t *value)
{
	const char *text = json_string_value(value);

	if (text && strlen(text) == json_string_length(value))
		return mem_dup(text);
	return json_is_integer(value) ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
}

/* *out: the text; as it was if there is none, or an empty one. */
static int take_text(const struct kube_config_entry *e, const char *key, char **out, struct err *err)
{
	const json_t *value = json_object_get(e->value, key);
	char *text = plain_text(value);

	if (!is_given(value)) {
		free(text);
		return 0;
	}
	if (!text)
		return bad(e, key, json_is_boolean(value) ? "a text, in quotes" : "a text", err);
	free(*out);
	*out = text;
	return 0;
}

/* A relative path is relative to its kubeconfig's directory. */
static int take_path(const struct kube_config_entry *e, const char *key, char **out, struct err *err)
{
	const char *slash = strrchr(e->path, '/');

	if (take_text(e, key, out, err) < 0)
		return -1;
	if (*out && **out != '/' && slash) {
		char *path = mem_printf("%.*s/%s", (int)(slash - e->path), e->path, *out);
		free(*out);
		*out = path;
	}
	return 0;
}

static int take_base64(const struct kube_config_entry *e, const char *key, char **out, struct err *err)
{
	struct buf b = { 0 };
	char *text = NULL;

	if (take_text(e, key, &text, err) < 0)
		return -1;
	if (!text)
		return 0;
	if (http_unbase64(&b, text, strlen(text)) < 0 || b.len == 0 || strlen(b.data) != b.len) {
		kube_wipe(text);
		buf_fini(&b);
		return bad(e, key, "PEM in base64", err);
	}
	kube_wipe(text);
	kube_wipe(*out);
	*out = b.data;
	return 0;
}

static int take_flag(const struct kube_config_entry *e, const char *key, bool *out, struct err *err)
{
	const json_t *value = json_object_get(e->value, key);

	if (value && !json_is_null(value) && !json_is_boolean(value))
		return bad(e, key, "true or false", err);
	*out = json_is_true(value);
	return 0;
}

/* As kubectl does: what the file itself has (key-data) counts, not the file that it names (key). */
static int take_pem(const struct kube_config_entry *e, const char *key, char **file, char **pem, struct err *err)
{
	char data[64];

	snprintf(data, sizeof data, "%s-data", key);
	if (take_path(e, key, file, err) < 0 || take_base64(e, data, pem, err) < 0)
		return -1;
	if (*pem)
		mem_replace(file, NULL);
	return 0;
}

/* ---- cluster ---- */

/* true: it begins with one of the schemes, which it then has in small letters. */
static bool has_scheme(char *url, const char *const *schemes)
{
	for (; *schemes; schemes++)
		if (strncasecmp(url, *schemes, strlen(*schemes)) == 0) {
			memcpy(url, *schemes, strlen(*schemes));
			return true;
		}
	return false;
}

/* A server without a scheme is taken for http, as client-go does. */
static int take_server(const struct kube_config_entry *e, struct kube_config *c, struct err *err)
{
	static const char *const schemes[] = { "https://", "http://", NULL };

	if (take_text(e, "server", &c->server, err) < 0)
		return -1;
	if (c->server && !strchr(c->server, '/')) {
		char *bare = c->server;
		c->server = mem_printf("http://%s", bare);
		free(bare);
	}
	if (!c->server || !has_scheme(c->server, schemes))
		return bad(e, "server", "https://HOST:PORT", err);
	for (size_t len = strlen(c->server); len && c->server[len - 1] == '/';)
		c->server[--len] = '\0';
	return 0;
}

static int take_cluster(const struct kube_config_entry *e, struct kube_config *c, struct err *err)
{
	static const char *const proxies[] = { "http://", "https://", "socks5://", NULL };

	if (take_server(e, c, err) < 0 || take_pem(e, "certificate-authority", &c->ca_file, &c->ca_pem, err) < 0 ||
	    take_flag(e, "insecure-skip-tls-verify", &c->insecure, err) < 0 ||
	    take_text(e, "tls-server-name", &c->server_name, err) < 0 || take_text(e, "proxy-url", &c->proxy, err) < 0)
		return -1;
	if (c->insecure && (c->ca_file || c->ca_pem))
		return bad(e, "insecure-skip-tls-verify", "no certificate-authority beside it", err);
	if (c->proxy && !has_scheme(c->proxy, proxies))
		return bad(e, "proxy-url", "http://, https:// or socks5://", err);
	return 0;
}

/* ---- user ---- */

/* value: a text, or a list of them: a header each. */
static int add_headers(const struct kube_config_entry *e, struct kube_config *c, const char *name, const json_t *value,
                       struct err *err)
{
	json_t *each;
	size_t i, n = 0;

	json_array_foreach((json_t *)value, i, each)
	{
		if (add_headers(e, c, name, each, err) < 0)
			return -1;
	}
	if (json_is_array(value) || !is_given(value))
		return 0;
	char *text = plain_text(value);
	while (c->headers[n])
		n++;
	if (text && !strpbrk(text, "\r\n") && n < KUBE_HEADERS)
		c->headers[n] = mem_printf("%s: %s", name, text);
	free(text);
	return c->headers[n] ? 0 : bad(e, "as", "texts with no line breaks, and few of them", err);
}

static int take_impersonation(const struct kube_config_entry *e, struct kube_config *c, struct err *err)
{
	const json_t *user = json_object_get(e->value, "as"), *uid = json_object_get(e->value, "as-uid"),
		     *groups = json_object_get(e->value, "as-groups");
	json_t *extra = json_object_get(e->value, "as-user-extra"), *list;
	const char *key;

	if (json_is_array(user) || json_is_array(uid) || (is_given(groups) && !json_is_array(groups)))
		return bad(e, "as", "a text; as-uid, a text; as-groups, a list of texts", err);
	if (!is_given(user) && (is_given(uid) || json_array_size(groups) || json_object_size(extra)))
		return bad(e, "as", "a user to act as, since a uid, groups or extra values are given", err);
	if (add_headers(e, c, "Impersonate-User", user, err) < 0 ||
	    add_headers(e, c, "Impersonate-Uid", uid, err) < 0 ||
	    add_headers(e, c, "Impersonate-Group", groups, err) < 0)
		return -1;
	json_object_foreach(extra, key, list)
	{
		struct buf name = { 0 };
		buf_adds(&name, "Impersonate-Extra-");
		lock_url_encode(&name, key, "");
		int done = add_headers(e, c, name.data, list, err);
		buf_fini(&name);
		if (done < 0)
			return -1;
	}
	return 0;
}

static char **new_list(size_t count)
{
	return mem_zero(sizeof(char *) * (count + 1));
}

static int take_args(const struct kube_config_entry *e, const json_t *exec, struct kube_exec *x, struct err *err)
{
	json_t *args = json_object_get(exec, "args"), *each;
	size_t i;

	x->argv = new_list(1 + json_array_size(args));
	x->argv[0] = mem_dup(x->command);
	json_array_foreach(args, i, each)
	{
		x->argv[i + 1] = plain_text(each);
		if (!x->argv[i + 1])
			return bad(e, "exec.args", "texts", err);
	}
	return 0;
}

static int take_env(const struct kube_config_entry *e, const json_t *exec, struct kube_exec *x, struct err *err)
{
	json_t *env = json_object_get(exec, "env"), *each;
	size_t i;

	x->env = new_list(json_array_size(env));
	json_array_foreach(env, i, each)
	{
		const char *name = text_in(each, "name");
		const json_t *value = json_object_get(each, "value");
		char *text = is_given(value) ? plain_text(value) : mem_dup("");
		if (name && text)
			x->env[i] = mem_printf("%s=%s", name, text);
		free(text);
		if (!x->env[i])
			return bad(e, "exec.env", "names and values", err);
	}
	return 0;
}

/* A command with a slash in it is relative to the kubeconfig, one without is looked for in PATH (exec plugins'
 * documentation). */
static int take_exec(const struct kube_config_entry *e, struct kube_config *c, struct err *err)
{
	const json_t *exec = json_object_get(e->value, "exec");
	struct kube_config_entry inner = { exec, e->path, e->part, e->name };
	struct kube_exec *x = &c->exec;
	char *mode = NULL;

	if (!exec || json_is_null(exec))
		return 0;
	if (take_text(&inner, "command", &x->command, err) < 0 ||
	    take_text(&inner, "apiVersion", &x->api_version, err) < 0 ||
	    take_text(&inner, "installHint", &x->hint, err) < 0 || take_text(&inner, "interactiveMode", &mode, err) < 0)
		return -1;
	bool always = mode && strcmp(mode, "Always") == 0;
	free(mode);
	if (!x->command)
		return bad(e, "exec.command", "a program", err);
	if (strchr(x->command, '/') && take_path(&inner, "command", &x->command, err) < 0)
		return -1;
	if (!x->api_version || (strcmp(x->api_version, "client.authentication.k8s.io/v1") != 0 &&
	                        strcmp(x->api_version, "client.authentication.k8s.io/v1beta1") != 0))
		return bad(e, "exec.apiVersion", "client.authentication.k8s.io/v1 or /v1beta1", err);
	if (always)
		return bad(e, "exec.interactiveMode", "Never or IfAvailable: nobody is there to answer it", err);
	return take_args(e, exec, x, err) < 0 || take_env(e, exec, x, err) < 0 ? -1 : 0;
}

static int take_user(const struct kube_config_entry *e, struct kube_config *c, struct err *err)
{
	if (take_text(e, "token", &c->token, err) < 0 || take_path(e, "tokenFile", &c->token_file, err) < 0 ||
	    take_pem(e, "client-certificate", &c->cert_file, &c->cert_pem, err) < 0 ||
	    take_pem(e, "client-key", &c->key_file, &c->key_pem, err) < 0 ||
	    take_text(e, "username", &c->user, err) < 0 || take_text(e, "password", &c->password, err) < 0 ||
	    take_impersonation(e, c, err) < 0 || take_exec(e, c, err) < 0)
		return -1;
	if (c->user && (c->token || c->token_file))
		return bad(e, "username", "no token beside it", err);
	bool cert = c->cert_file || c->cert_pem, key = c->key_file || c->key_pem;
	if (cert != key)
		return bad(e, cert ? "client-key" : "client-certificate", "one beside the other", err);
	const json_t *provider = json_object_get(e->value, "auth-provider");
	if (provider && !json_is_null(provider))
		return bad(
			e, "auth-provider",
			"exec in its place: gcp and azure were removed from Kubernetes in 1.26, and oidc is not read here",
			err);
	return 0;
}

/* ---- a context ---- */

/* The authority's certificates, whichever way they are given: a plugin may have to speak to the cluster itself. */
static int describe_authority(const struct kube_config *c, json_t *about, struct err *err)
{
	struct buf text = { 0 };
	size_t len;
	char *pem = c->ca_pem ? mem_dup(c->ca_pem) : c->ca_file ? read_whole(c->ca_file, &len, err) : NULL;

	if (!pem)
		return c->ca_file ? err_wrap(err, "certificate-authority") : 0;
	http_base64(&text, pem, strlen(pem));
	json_object_set_new(about, "certificate-authority-data", json_string(text.data ? text.data : ""));
	buf_fini(&text);
	free(pem);
	return 0;
}

/* What the plugin is told of the cluster, if it asks for it. */
static int describe_cluster(const struct kube_config_entry *cluster, const json_t *exec, struct kube_config *c,
                            struct err *err)
{
	json_t *about = c->exec.cluster =
		json_is_true(json_object_get(exec, "provideClusterInfo")) ? json_object() : NULL;
	json_t *extensions = json_object_get(cluster->value, "extensions"), *each;
	size_t i;

	if (!about)
		return 0;
	json_object_set_new(about, "server", json_string(c->server));
	if (c->server_name)
		json_object_set_new(about, "tls-server-name", json_string(c->server_name));
	if (c->insecure)
		json_object_set_new(about, "insecure-skip-tls-verify", json_true());
	if (c->proxy)
		json_object_set_new(about, "proxy-url", json_string(c->proxy));
	json_array_foreach(extensions, i, each)
	{
		const char *name = text_in(each, "name");
		if (name && strcmp(name, "client.authentication.k8s.io/exec") == 0)
			json_object_set(about, "config", json_object_get(each, "extension"));
	}
	return describe_authority(c, about, err);
}

static void drop_secrets(struct kube_config *c)
{
	c->withheld = c->token || c->token_file || c->user || c->exec.command;
	kube_wipe(c->token);
	kube_wipe(c->password);
	c->token = c->password = NULL;
	mem_replace(&c->token_file, NULL);
	mem_replace(&c->user, NULL);
	mem_replace(&c->exec.command, NULL);
}

static int take_named(const json_t *all, const struct kube_config_entry *context, struct kube_config *c,
                      struct err *err)
{
	char *cluster = NULL, *user = NULL;
	struct kube_config_entry e = { 0 }, u = { 0 };
	int done = -1;

	if (take_text(context, "cluster", &cluster, err) < 0 || take_text(context, "user", &user, err) < 0 ||
	    take_text(context, "namespace", &c->ns, err) < 0 ||
	    find_entry(all, "cluster", cluster ? cluster : "", &e, err) < 0 ||
	    (user && find_entry(all, "user", user, &u, err) < 0) || take_cluster(&e, c, err) < 0 ||
	    (user && take_user(&u, c, err) < 0) || describe_cluster(&e, json_object_get(u.value, "exec"), c, err) < 0)
		goto out;
	if (strncmp(c->server, "http://", 7) == 0)
		drop_secrets(c); /* as client-go does: without TLS others could read them */
	done = 0;
out:
	free(cluster);
	free(user);
	return done;
}

static int take_context(const json_t *all, const char *wanted, struct kube_config *c, struct err *err)
{
	const char *name = wanted && *wanted ? wanted : text_in(all, "current-context");
	struct kube_config_entry e;

	if (!name)
		return err_set(err, ERR_USAGE, "kubeconfig %s: it has no current-context: say which with ?context=NAME",
		               text_in(all, "path"));
	if (find_entry(all, "context", name, &e, err) < 0 || take_named(all, &e, c, err) < 0)
		return -1;
	c->origin = mem_printf("the context %s of %s", name, e.path);
	if (!c->ns)
		c->ns = mem_dup("default");
	return 0;
}

int kube_config_from_files(struct kube_config *c, const char *paths, const char *context, struct err *err)
{
	json_t *all = json_pack("{s:[], s:[], s:[]}", "clusters", "users", "contexts");

	*c = (struct kube_config){ 0 };
	int done = add_files(all, paths, err) < 0 || take_context(all, context, c, err) < 0 ? -1 : 0;
	json_decref(all);
	if (done < 0)
		kube_config_fini(c);
	return done;
}

/* ---- the pod ---- */

int kube_config_from_pod(struct kube_config *c, const char *dir, struct err *err)
{
	const char *host = getenv("KUBERNETES_SERVICE_HOST"), *port = getenv("KUBERNETES_SERVICE_PORT");
	size_t len;

	*c = (struct kube_config){ 0 };
	if (!host || !*host || !port || !*port)
		return err_set(err, ERR_MISSING,
		               "this is no pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set");
	c->origin = mem_dup("the pod's service account");
	c->server = mem_printf(strchr(host, ':') ? "https://[%s]:%s" : "https://%s:%s", host, port);
	c->ca_file = mem_printf("%s/ca.crt", dir);
	c->token_file = mem_printf("%s/token", dir);
	char *path = mem_printf("%s/namespace", dir);
	c->ns = read_whole(path, &len, NULL);
	free(path);
	if (c->ns)
		c->ns[strcspn(c->ns, " \t\r\n")] = '\0';
	if (!c->ns || !*c->ns)
		mem_replace(&c->ns, "default");
	return 0;
}

static char *home_config(void)
{
	const char *home = getenv("HOME");
	struct passwd *pw = home && *home ? NULL : getpwuid(geteuid());

	return mem_printf("%s/.kube/config", home && *home ? home : pw && pw->pw_dir ? pw->pw_dir : "");
}

int kube_config_load(struct kube_config *c, const char *file, const char *context, struct err *err)
{
	const char *listed = getenv("KUBECONFIG"), *host = getenv("KUBERNETES_SERVICE_HOST");

	if (file && *file)
		return kube_config_from_files(c, file, context, err);
	if (listed && *listed)
		return kube_config_from_files(c, listed, context, err);
	if (host && *host && access(KUBE_POD_DIR "/token", F_OK) == 0 && !(context && *context))
		return kube_config_from_pod(c, KUBE_POD_DIR, err);
	char *path = home_config();
	int done = kube_config_from_files(c, path, context, err);
	free(path);
	return done;
}
