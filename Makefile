# Lunarch. `make demo` and `make test` do everything on a fresh Debian 12; `make help` lists the rest.
BUILD   ?= build
PREFIX  ?= /usr/local
DESTDIR ?=
CC      ?= cc
V       ?= 0
Q       := $(if $(filter 0,$(V)),@,)

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
PKGS    := lua5.4 jansson
CFLAGS  ?= -O2 -g
WARN    := -Wall -Wextra -Wshadow -Wswitch-enum -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wpointer-arith -Wno-missing-field-initializers -Wno-format-truncation
WERROR  ?= $(if $(CI),-Werror,)
# libev's headers predate strict aliasing warnings; -isystem keeps them quiet.
ALL_CFLAGS = -std=gnu11 -D_GNU_SOURCE -DLUNARCH_VERSION='"$(VERSION)"' $(WARN) $(WERROR) $(CFLAGS) -pthread \
             -fno-strict-aliasing $(shell pkg-config --cflags $(PKGS)) -Iruntime
LDLIBS   = $(shell pkg-config --libs $(PKGS)) -lev -lm -pthread
LDFLAGS ?=
# C modules that scripts load resolve Lua's symbols in the shared liblua, which must therefore stay linked.
ALL_LDFLAGS = $(LDFLAGS) -Wl,--as-needed -Wl,-z,relro

SRC     := $(wildcard runtime/*.c)
OBJ     := $(SRC:runtime/%.c=$(BUILD)/obj/%.o) $(BUILD)/obj/prelude.o
LIBOBJ  := $(filter-out $(BUILD)/obj/main.o,$(OBJ))
PRELUDE := $(shell find lua -name '*.lua' -not -path 'lua/meta/*' 2>/dev/null | sort)
UNIT    := $(patsubst tests/unit/%.c,$(BUILD)/tests/unit/%,$(wildcard tests/unit/*.c))

all: $(BUILD)/lunarch

$(BUILD)/lunarch: $(OBJ)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD)/obj/%.o: runtime/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/prelude.c: scripts/embed-lua.sh $(PRELUDE)
	@mkdir -p $(@D)
	@echo "  EMBED lua/"
	$(Q)scripts/embed-lua.sh $(PRELUDE) > $@.new && mv $@.new $@

$(BUILD)/obj/prelude.o: $(BUILD)/prelude.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -c -o $@ $<

# A change of flags rebuilds; anything else does not.
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(CC) $(ALL_CFLAGS)' | cmp -s - $@ || echo '$(CC) $(ALL_CFLAGS)' > $@

$(BUILD)/tests/unit/%: tests/unit/%.c tests/tap.h $(LIBOBJ)
	@mkdir -p $(@D)
	@echo "  TEST  $<"
	$(Q)$(CC) $(ALL_CFLAGS) -Itests $(ALL_LDFLAGS) -o $@ $< $(LIBOBJ) $(LDLIBS)

unit: $(UNIT)
	prove --failures $(UNIT)

clean:
	rm -rf $(BUILD)

-include $(wildcard $(BUILD)/obj/*.d)

.PHONY: all unit clean FORCE
