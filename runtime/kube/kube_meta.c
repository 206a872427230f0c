#include "kube/kube_meta.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

const char *kube_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

const char *kube_meta_uid(const json_t *object)
{
	return kube_text(json_object_get(object, "metadata"), "uid");
}

const char *kube_meta_revision(const json_t *object)
{
	return kube_text(json_object_get(object, "metadata"), "resourceVersion");
}

int kube_meta_number(const json_t *object, int64_t *number, struct err *err)
{
	const char *text = kube_meta_revision(object);
	size_t len = strlen(text);

	if (len == 0 || len > 18 || strspn(text, "0123456789") != len)
		return err_set(err, ERR_INVALID,
		               "metadata.resourceVersion is \"%.40s\", expected a number of at most 18 digits", text);
	*number = strtoll(text, NULL, 10);
	return 0;
}

json_t *kube_child(json_t *object, const char *key)
{
	json_t *value = json_object_get(object, key);

	if (json_is_object(value))
		return value;
	json_object_set_new(object, key, json_object());
	return json_object_get(object, key);
}

void kube_meta_own(json_t *object, const json_t *owner)
{
	json_t *metadata = kube_child(object, "metadata");
	json_t *list = json_object_get(metadata, "ownerReferences"), *each;
	size_t i;

	json_array_foreach(list, i, each)
	{
		if (json_equal(json_object_get(each, "uid"), json_object_get(owner, "uid")))
			return;
	}
	if (!list) {
		list = json_array();
		json_object_set_new(metadata, "ownerReferences", list);
	}
	json_array_append_new(list, json_deep_copy(owner));
}
