/* YAML, and a kubeconfig file of it. What YAML becomes is JSON that can be printed and read. */
#include "fuzz.h"

#include "kube/kube_config.h"
#include "kube/yaml_json.h"

#include <jansson.h>
#include <sys/mman.h>
#include <unistd.h>

static void config_of(const uint8_t *data, size_t size)
{
	static int fd = -1;
	char path[40];
	struct kube_config c;
	struct err err = { 0 };

	if (fd < 0)
		fd = memfd_create("kubeconfig", MFD_CLOEXEC);
	if (ftruncate(fd, 0) < 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
		abort();
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (kube_config_from_files(&c, path, NULL, &err) == 0)
		must(c.server && c.ns && c.origin);
	else
		must(*err.text && !c.server);
	kube_config_fini(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = input_copy(data, size);
	struct err err = { 0 };
	json_t *value = yaml_json(text, size, &err);

	must(value || err.code == ERR_INVALID);
	if (value) {
		char *print = json_dumps(value, JSON_ENCODE_ANY);
		json_t *again = print ? json_loads(print, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
		must(again && json_equal(value, again));
		json_decref(again);
		free(print);
	}
	json_decref(value);
	free(text);
	config_of(data, size);
	return 0;
}
