/* etcd's messages, as bytes of protobuf: the first byte says which. What is read can be written and read again; and
 * what a status and its text mean. */
#include "fuzz.h"

#include "locks/etcd/etcd_answer.h"
#include "locks/etcd/etcd_messages.h"

static const ProtobufCMessageDescriptor *const kinds[] = {
	&etcd__range_response__descriptor,        &etcd__txn_response__descriptor,    &etcd__watch_response__descriptor,
	&etcd__authenticate_response__descriptor, &etcd__status_response__descriptor,
};

static void status(struct input *in)
{
	uint8_t how = input_byte(in);
	struct grpc_end end = { .status = input_byte(in) % 18 - 1, .unseen = how & 1, .replied = how & 2 };
	char *text = input_text(in, NULL);

	end.text = text;
	struct etcd_meaning m = etcd_understand(&end, "host:1", how & 4 ? "user" : "", NULL);
	if (end.status == 0)
		must(m.verdict == ETCD_ANSWERED);
	else
		must(m.verdict != ETCD_ANSWERED && m.outcome != LOCK_OK && *m.err.text);
	if (end.unseen && !end.replied)
		must(!m.maybe);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	uint8_t which = input_byte(&in);
	struct buf out = { 0 }, twice = { 0 };

	if (which % 8 > 4) {
		status(&in);
		return 0;
	}
	void *bytes = input_copy(in.at, in.left);
	ProtobufCMessage *m = etcd_unpack(kinds[which % 8], bytes, in.left), *again;
	free(bytes);
	if (!m)
		return 0;
	etcd_pack(&out, m);
	again = etcd_unpack(kinds[which % 8], out.data, out.len);
	if (again) { /* else: the budget of memory is by the length, and what was unknown may have been shorter */
		etcd_pack(&twice, again);
		must(out.len == twice.len && (out.len == 0 || memcmp(out.data, twice.data, out.len) == 0));
	}
	etcd_drop(m);
	etcd_drop(again);
	buf_fini(&out);
	buf_fini(&twice);
	return 0;
}
