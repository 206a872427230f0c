# Lunarch, the build. `make demo` and `make test` do everything on a fresh Debian 12; `make help` lists the rest.
.DEFAULT_GOAL := all
MAKEFLAGS += --no-print-directory
# CROSS=aarch64-linux-gnu builds for another machine with Debian's compiler of that name. SYSROOT=DIRECTORY has the libraries to build
# with (`make sysroot` makes one); without it they are this machine's own (dpkg --add-architecture).
# ARCH=arm64 is another name for that, Debian's.
CROSS   ?= $(if $(ARCH),$(shell dpkg-architecture -f -a $(ARCH) -q DEB_HOST_GNU_TYPE 2>/dev/null))
BUILD   ?= build$(CROSS:%=/%)
SYSROOT ?= $(if $(CROSS),$(wildcard $(BUILD)/sysroot))
PREFIX  ?= /usr/local
Q       := $(if $(filter-out 0,$(V)),,@) # V=1 shows the commands

# The version stands in CHANGELOG.md, and there alone. What is no release has its commit behind that.
RELEASE := $(shell sed -n 's/^\#\# \([0-9.]*\).*/\1/p' CHANGELOG.md | head -n 1)
COMMIT  := $(shell scripts/git.sh describe --always --dirty --exclude '*' 2>/dev/null)
VERSION := $(RELEASE)$(if $(COMMIT),$(if $(shell scripts/git.sh tag --points-at HEAD v$(RELEASE) 2>/dev/null),,+$(COMMIT)))
PKGS    := lua5.4 jansson
HEADERS := lua.h jansson.h ev.h # without them nothing can be built
CFLAGS  ?= -O2 -g
WARN    := -Wall -Wextra -Wshadow -Wswitch-enum -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wpointer-arith -Wno-missing-field-initializers -Wno-format-truncation -Wno-c2x-extensions
WERROR  ?= $(if $(CI),-Werror,)
ifneq ($(CROSS),)
CC      := $(CROSS)-gcc$(SYSROOT:%= --sysroot=%)
AR      := $(CROSS)-ar
PKG_CONFIG := PKG_CONFIG_LIBDIR=$(SYSROOT)/usr/lib/$(CROSS)/pkgconfig PKG_CONFIG_SYSROOT_DIR=$(SYSROOT) pkg-config
endif
PKG_CONFIG ?= pkg-config
MACHINE  := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null)))
# Against those who find a mistake in memory before we do. HARDEN= leaves it out (instrumented builds). _FORTIFY_SOURCE needs
# optimization; -U: a distribution's own flags may set it, too. tests/cli/security_elf.py reads from the files what came of it.
HARDEN  ?= -fPIE -fstack-protector-strong -fstack-clash-protection $(if $(filter x86_64,$(MACHINE)),-fcf-protection) \
           $(if $(filter aarch64,$(MACHINE)),-mbranch-protection=standard) \
           $(if $(filter -O1 -O2 -O3 -Os,$(CFLAGS)),-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
HARDEN_LINK ?= $(if $(strip $(HARDEN)),-Wl$(COMMA)-z$(COMMA)relro -Wl$(COMMA)-z$(COMMA)now -Wl$(COMMA)-z$(COMMA)noexecstack)
COMMA   := ,
# libev's headers do not keep to strict aliasing. A checkout's path is in nothing that is built, or two would not build the same bytes.
ALL_CFLAGS = -std=gnu11 -D_GNU_SOURCE $(WARN) $(WERROR) $(HARDEN) $(CFLAGS) -pthread \
             -fno-strict-aliasing -fdebug-prefix-map=$(CURDIR)=. $(shell $(PKG_CONFIG) --cflags $(PKGS) 2>/dev/null) -Iruntime -I$(BUILD)
# Lua, jansson and libev are linked in, since each shared library delays each start of a process. Modules (our own, and those
# in C that scripts load) find these libraries, and the runtime, in the program. So all of each library is linked in, not only what
# the program calls. SHARED=1, for distributions, links the shared libraries.
LIBRARIES = $(shell $(PKG_CONFIG) --libs $(PKGS) 2>/dev/null) -lev
LDLIBS   = $(if $(SHARED),$(LIBRARIES),-Wl,-Bstatic,--whole-archive $(LIBRARIES) -Wl,--no-whole-archive,-Bdynamic) -lm -pthread
ALL_LDFLAGS = $(if $(strip $(HARDEN)),-pie) $(HARDEN_LINK) $(LDFLAGS) -Wl,--as-needed -Wl,--export-dynamic

# Modules: those whose library's headers are here. The columns of runtime/modules.txt are the arguments of `module`.
MODULES :=
MODULE_SRC :=
# All sources of a folder of runtime/, without their ".c"; and what protoc-c makes of its NAME.proto: NAME.pb-c.c, in $(BUILD).
room = $(patsubst runtime/%.c,%,$(sort $(wildcard runtime/$(1)/*.c))) $(patsubst runtime/%.proto,%.pb-c,$(wildcard runtime/$(1)/*.proto))
sources = $(foreach s,$(1),$(if $(wildcard runtime/$(s).c),$(s),$(call room,$(s))))
# Where a header of runtime/modules.txt can be. What is a program (../bin) runs here.
header = $(if $(filter ../%,$(1)),/usr/include/$(1),$(SYSROOT)/usr/include/$(1) $(SYSROOT)/usr/include/$(or $(CROSS),*)/$(1))
define module
MODULE_SRC += $(addprefix runtime/,$(addsuffix .c,$(filter-out %.pb-c,$(2))))
ifeq ($(strip $(foreach h,$(3),$(if $(wildcard $(call header,$(h))),,missing))),)
MODULES += $(BUILD)/modules/$(1).so
MODULE_LIBS += $(4)
MODULE_OBJ += $(patsubst %,$(BUILD)/obj/%.o,$(2))
$(patsubst %,$(BUILD)/obj/%.o,$(2)): | $(patsubst %,$(BUILD)/%.h,$(filter %.pb-c,$(2)))
$(BUILD)/modules/$(1).so $(BUILD)/bundled/$(1).so: $(patsubst %,$(BUILD)/obj/%.o,$(2))
$(BUILD)/modules/$(1).so $(BUILD)/bundled/$(1).so: LIBS = $(4)
endif
endef
# Of a line, which is one word here: its spaces are ~.
column = $(subst ~, ,$(word $(1),$(subst |, ,$(line))))
$(foreach line,$(shell sed '/^[a-z]/!d; s/ *| */|/g; s/ /~/g' runtime/modules.txt),\
  $(eval $(call module,$(call column,1),$(call sources,$(call column,2)),$(call column,3),$(call column,4))))
MODULE_SRC := $(sort $(MODULE_SRC))

SRC     := $(filter-out $(MODULE_SRC),$(wildcard runtime/*/*.c runtime/*/*/*.c))
OBJ     := $(SRC:runtime/%.c=$(BUILD)/obj/%.o) $(BUILD)/obj/prelude.o $(BUILD)/obj/page.o
LIBOBJ  := $(filter-out $(BUILD)/obj/commands/main.o,$(OBJ))
# What `lunarch new` writes, and `lunarch help` and `COMMAND --help` show.
CARRIED := examples/starter.lua examples/starter_test.lua examples/mystore.lua examples/mystore_test.lua examples/.luacheckrc docs/api.md runtime/commands/help.txt
PRELUDE := $(shell find lua -name '*.lua' -not -path 'lua/meta/*' 2>/dev/null | sort) $(CARRIED)

all: $(BUILD)/lunarch $(MODULES) ## the program and its modules, in build/

$(BUILD)/lunarch: $(OBJ)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD)/obj/%.o: runtime/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	@echo "  CC    $(<:runtime/%=%)"
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# The same modules for the tarball, where their libraries are in deps/ beside them. The old tag (DT_RPATH) holds for what those
# libraries need, too (ld.so(8)), and for nothing that others load.
BUNDLED := $(MODULES:$(BUILD)/modules/%=$(BUILD)/bundled/%)
$(BUNDLED): BESIDE = -Wl,--disable-new-dtags -Wl,-rpath,'$$ORIGIN/deps'

$(MODULES) $(BUNDLED):
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(HARDEN_LINK) $(LDFLAGS) $(BESIDE) -shared -Wl,--as-needed -Wl,-z,now -o $@ $^ $(LIBS)

$(sort $(MODULE_OBJ)): ALL_CFLAGS += -fPIC

# What is C only here: messages in protobuf, which are not held to our warnings; lua/; the admin endpoint's page.
$(BUILD)/obj/%.o: $(BUILD)/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/obj/%.pb-c.o: WARN := -w
$(BUILD)/%.pb-c.c $(BUILD)/%.pb-c.h: runtime/%.proto
	@mkdir -p $(@D)
	@echo "  PROTO $<"
	$(Q)protoc-c --proto_path=runtime --c_out=$(BUILD) $<

# As bytecode, which loads in half of the time. But a shared Lua may be another one when the program runs: then as text.
# As is a Lua for another machine, if its bytecode is not the same.
NATIVE  := $(BUILD)$(CROSS:%=/native)
ifneq ($(CROSS),)
bytecode = $(shell printf '\043include <lua.h>\nLUA_RELEASE __BYTE_ORDER__ __SIZEOF_POINTER__' | $(1) -E -P - 2>/dev/null | tail -n 1)
OTHER_LUA := $(if $(filter-out $(call bytecode,$(CC) $(ALL_CFLAGS)),$(call bytecode,cc -I/usr/include/lua5.4)),other)
endif
COMPILE_LUA := $(if $(SHARED)$(OTHER_LUA),,$(NATIVE)/compile-lua)
$(BUILD)/prelude.c: scripts/embed-lua.sh $(PRELUDE) $(COMPILE_LUA) $(BUILD)/flags
	@mkdir -p $(@D)
	@echo "  EMBED lua/"
	$(Q)scripts/embed-lua.sh $(or $(COMPILE_LUA),-) $(PRELUDE) > $@.new && mv $@.new $@

ifeq ($(CROSS),)
$(BUILD)/compile-lua: scripts/compile-lua.c runtime/script/prelude.h $(BUILD)/flags
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $< $(LDLIBS)
else
# What runs while it is built is built for this machine.
$(BUILD)/native/lunarch: | $(BUILD)/native/compile-lua # one at a time
$(BUILD)/native/lunarch $(BUILD)/native/compile-lua: FORCE
	@$(MAKE) CROSS= SYSROOT= CC=cc AR=ar CFLAGS='-O2 -g' LDFLAGS= BUILD=$(BUILD)/native $@
endif

$(BUILD)/page.c: runtime/program/page.html
	@mkdir -p $(@D)
	@echo "  EMBED $<"
	$(Q){ echo 'extern const char admin_page_html[];'; echo 'const char admin_page_html[] = {'; \
	  od -An -v -tx1 $< | sed 's/ \(..\)/0x\1,/g'; echo '0 };'; } >$@.new && mv $@.new $@

# What the compiler says against its flags; whether what everything needs can be included.
refused = $(shell $(CC) $(ALL_CFLAGS) -E -x c /dev/null 2>&1 >/dev/null | head -n 1)
headers_found = $(shell printf '\043include <%s>\n' $(HEADERS) | $(CC) $(ALL_CFLAGS) -E - >/dev/null 2>&1 && echo found)

# A change of flags or of the version rebuilds what has them; anything else does not.
$(BUILD)/flags: $(BUILD)/version.h FORCE
	$(if $(wildcard $@),,$(if $(refused),$(error $(firstword $(CC)) cannot be used: $(refused)))$(if $(headers_found),,$(error packages to build with are missing: $(if $(CROSS),`make sysroot CROSS=$(CROSS)` fetches,`make deps` installs) them)))
	@echo '$(CC) $(ALL_CFLAGS)$(SHARED:%= shared)' | cmp -s - $@ || echo '$(CC) $(ALL_CFLAGS)$(SHARED:%= shared)' > $@

$(BUILD)/version.h: FORCE
	@mkdir -p $(@D)
	@echo '#define LUNARCH_VERSION "$(VERSION)"' | cmp -s - $@ || echo '#define LUNARCH_VERSION "$(VERSION)"' > $@

# What of a module the program knows without it: its name, Debian's packages to run it, the package that it is in.
# Libraries have other names in Debian 13 than in 12 (and in Ubuntu 22.04, which came before that).
$(BUILD)/modules.h: OLD = $(filter 12 22.04,$(shell . /etc/os-release 2>/dev/null && echo $$VERSION_ID))
$(BUILD)/modules.h: runtime/modules.txt
	@mkdir -p $(@D)
	$(Q)sed -n 's/^\([a-z][^ ]*\) .* | \(.*\) | \(.*\)$$/{ "\1", "\2", "\3" },/p' $< | sed 's#$(if $(OLD),/[^ "]*,[^ "]*/)##g' >$@.new && mv $@.new $@

$(BUILD)/obj/base/module.o: $(BUILD)/modules.h

include packaging/packaging.mk
include tests/fuzz/fuzz.mk
include tests/tests.mk

sysroot: ## what to build with for CROSS=aarch64-linux-gnu: its compiler, installed, and the libraries, in a directory of build/
	@scripts/deps.sh cross $(CROSS)
	@scripts/sysroot.sh $(CROSS) $(BUILD)/sysroot

deps: ## installs the Debian packages to build with
	@scripts/deps.sh

demo: deps ## three candidates, one leader at a time, in your terminal
	@$(MAKE) all
	@scripts/demo.py

api: ## docs/api.md and the luacheck options, made of the annotations in lua/meta/
	@lua5.4 scripts/api.lua
	@lua5.4 scripts/options.lua

format: ## writes C and Python in the form that make lint checks
	@scripts/deps.sh lint
	@files=$$(scripts/git.sh ls-files '*.[ch]') && clang-format -i $$files
	@black --quiet tests scripts packaging

lint: ## all that can be said without running the program
	@scripts/deps.sh lint
	@scripts/lint.sh

COMPILED := $(SRC) $(MODULE_SRC) $(wildcard scripts/*.c) $(shell find tests -name '*.c' | sort)
compile_commands.json: $(BUILD)/version.h $(BUILD)/modules.h FORCE ## how each C file is compiled, for editors (clangd)
	@{ sep='['; for f in $(COMPILED); do \
	  printf '%s{ "directory": "%s", "file": "%s", "command": "%s" }\n' "$$sep" '$(CURDIR)' "$$f" \
	    '$(CC) $(ALL_CFLAGS) -Itests/lib -Itests/sim -c '"$$f"; sep=','; \
	done; echo ']'; } > $@

# clang-tidy on each file (.clang-tidy), again when its object was built again.
TIDIED  := $(patsubst runtime/%.c,$(BUILD)/tidy/%,$(SRC) $(MODULE_SRC))
tidy: $(TIDIED) ## the part of make lint that clang-tidy is
$(BUILD)/tidy/%: $(BUILD)/obj/%.o .clang-tidy | compile_commands.json
	@mkdir -p $(@D)
	$(Q)clang-tidy --quiet -p . runtime/$*.c 2>$@.log && touch $@ || { cat $@.log; exit 1; }

help: ## this list
	@sed -n 's/^\([a-z][a-z_.-]*\):[^#]*## \(.*\)/make \1\t\2/p' Makefile packaging/packaging.mk tests/tests.mk tests/fuzz/fuzz.mk | expand -t 28

clean: ## removes what was built
	rm -rf $(BUILD) compile_commands.json

-include $(wildcard $(BUILD)/obj/*/*.d $(BUILD)/obj/*/*/*.d $(BUILD)/hasty/*.d $(M)/obj/*/*/*.d $(M)/obj/*/*/*/*.d)

.PHONY: all sysroot deps demo api format lint tidy help clean FORCE
