# The fuzzers (tests/fuzz): in build/fuzz, of the runtime's own objects as clang builds them. Included by the Makefile; used
# through tests/fuzz/fuzz.py, which is `make fuzz` and the suite fuzz: of the queue.
FUZZ_TARGETS := $(sort $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/*.c)))
FUZZ_BUILD := build/fuzz
FUZZ_CFLAGS := -O1 -gline-tables-only -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
FUZZ_QUEUE := $(FUZZ_TARGETS:%=fuzz:%)

# TARGET=name: that one; PLANTED=FILE: one with a changed source, FILE.c, beside it; else all.
fuzz-programs:
	@$(MAKE) -j $$(nproc) BUILD=$(FUZZ_BUILD) CC=clang WARN=-w WERROR= CFLAGS='$(FUZZ_CFLAGS)' \
	  $(or $(PLANTED),$(addprefix $(FUZZ_BUILD)/targets/,$(or $(TARGET),$(FUZZ_TARGETS))))

fuzz-deps:
	@scripts/deps.sh fuzz

MINUTES ?= 1
fuzz: fuzz-deps fuzz-programs ## the fuzzers, each for MINUTES=n; TARGET=name: that one
	@tests/fuzz/fuzz.py run --minutes $(MINUTES) $(TARGET)

fuzz-planted: fuzz-deps fuzz-programs ## whether each target finds the bug that tests/fuzz/planted.txt plants for it
	@tests/fuzz/fuzz.py planted $(TARGET)

fuzz-merge: fuzz-deps fuzz-programs ## the corpora in the tree, of what they have and what `make fuzz` found: the fewest that reach the same edges
	@tests/fuzz/fuzz.py merge $(TARGET)

# As an archive, so that a target can have functions of its own in the place of a whole file's. lunarch_module, which each module
# has, must be the right one's.
FUZZ_OWN_redis := locks/redis/lock_redis
FUZZ_OWN_zookeeper := locks/zookeeper/lock_zookeeper locks/zookeeper/zk_seen
FUZZ_LINK_zookeeper := $(patsubst %,-Wl$(COMMA)--wrap=zoo_%,async aget aget_children aget_children2 acreate awexists amulti)
FUZZ_OUT := commands/% client/% simulation/% script/driver/% script/api/lua_mysql script/api/lua_hash script/api/lua_http net/tls/%
FUZZ_OBJ := $(patsubst %,$(BUILD)/obj/%.o,$(filter-out $(FUZZ_OUT),$(SRC:runtime/%.c=%) $(MODULE_SRC:runtime/%.c=%) $(call room,locks/etcd)) prelude page)
$(BUILD)/fuzz.a: $(FUZZ_OBJ)
	@rm -f $@
	$(Q)ar rcs $@ $(sort $^)

$(BUILD)/targets/%: tests/fuzz/%.c tests/fuzz/fuzz.h $(BUILD)/fuzz.a
	@mkdir -p $(@D)
	@echo "  FUZZ  $*"
	$(Q)$(CC) $(ALL_CFLAGS) -fsanitize=fuzzer,address,undefined $(FUZZ_LINK_$*) -Wl,--as-needed -Wl,--export-dynamic -o $@ $< \
	  $(addprefix $(BUILD)/obj/,$(addsuffix .o,$(FUZZ_OWN_$*))) $(BUILD)/fuzz.a $(MODULE_LIBS) $(LDLIBS)

# The changed source comes first, so that the archive's object is not looked for. PLANTED_IN: its name.
$(BUILD)/planted/%: tests/fuzz/%.c $(BUILD)/planted/%.c $(BUILD)/fuzz.a
	$(Q)$(CC) $(ALL_CFLAGS) -fsanitize=fuzzer,address,undefined $(FUZZ_LINK_$*) -Wl,--as-needed -Wl,--export-dynamic -o $@ $< $(BUILD)/planted/$*.c \
	  $(addprefix $(BUILD)/obj/,$(addsuffix .o,$(filter-out %/$(PLANTED_IN),$(FUZZ_OWN_$*)))) $(BUILD)/fuzz.a $(MODULE_LIBS) $(LDLIBS)

.PHONY: fuzz fuzz-programs fuzz-deps fuzz-planted fuzz-merge
