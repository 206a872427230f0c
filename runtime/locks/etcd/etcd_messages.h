/* etcd's messages (etcd.proto) as bytes and back, by protobuf-c.
 * Not what is said in them. Used by the etcd lock. */
#pragma once

#include "base/buf.h"
#include "locks/etcd/etcd.pb-c.h"

/* Appends the message. */
void etcd_pack(struct buf *out, const ProtobufCMessage *message);

/* NULL: these bytes are no such message, or one that would need many times its length in memory. etcd_drop frees it. */
void *etcd_unpack(const ProtobufCMessageDescriptor *kind, const void *bytes, size_t len);
void etcd_drop(void *message); /* NULL: nothing */

/* Borrowed text as bytes. */
ProtobufCBinaryData etcd_bytes(const char *text, size_t len);
