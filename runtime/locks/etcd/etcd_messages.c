#include "locks/etcd/etcd_messages.h"

#include <stdint.h>
#include <stdlib.h>

/* An element of two bytes becomes a struct of a hundred. What etcd sends has content in its elements. */
#define MEMORY_TIMES 8
#define MEMORY_LEAST ((size_t)64 * 1024)

struct unpack_budget {
	size_t left;
};

static void *unpack_alloc(void *data, size_t size)
{
	struct unpack_budget *b = data;

	if (size > b->left)
		return NULL;
	b->left -= size;
	return malloc(size);
}

static void unpack_free(void *, void *p)
{
	free(p);
}

void *etcd_unpack(const ProtobufCMessageDescriptor *kind, const void *bytes, size_t len)
{
	struct unpack_budget budget = { MEMORY_LEAST + MEMORY_TIMES * len };
	ProtobufCAllocator by = { .alloc = unpack_alloc, .free = unpack_free, .allocator_data = &budget };

	return protobuf_c_message_unpack(kind, &by, len, bytes);
}

void etcd_drop(void *message)
{
	protobuf_c_message_free_unpacked(message, NULL);
}

void etcd_pack(struct buf *out, const ProtobufCMessage *message)
{
	protobuf_c_message_pack(message, (uint8_t *)buf_more(out, protobuf_c_message_get_packed_size(message)));
}

ProtobufCBinaryData etcd_bytes(const char *text, size_t len)
{
	return (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)text, .len = len };
}
