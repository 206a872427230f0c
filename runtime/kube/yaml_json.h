/* YAML, and JSON as a part of it, as JSON values.
 * Not a writer, and not for hostile giants: a document has bounds.
 * Used for kubeconfig files. */
#pragma once

#include "base/err.h"

#include <stddef.h>

struct json_t;

/* The first document of the text. Plain truth values (as YAML 1.1 has them: True, yes, off), null, ~ and whole numbers
 * as people write them are what they look like, all other scalars strings; !!binary is decoded. NULL with ERR_INVALID
 * that names line and column; an empty document is json_null. Values that aliases repeat are shared. At most 64
 * levels, and, each as often as it is named, 100,000 values and 8 MB of texts. */
struct json_t *yaml_json(const char *text, size_t len, struct err *err);
