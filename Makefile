# Lunarch. `make demo` and `make test` do everything on a fresh Debian 12; `make help` lists the rest.
.DEFAULT_GOAL := all
BUILD   ?= build
PREFIX  ?= /usr/local
DESTDIR ?=
CC      ?= cc
V       ?= 0
Q       := $(if $(filter 0,$(V)),@,)

# The version stands in CHANGELOG.md, and there alone. What is no release has its commit behind that.
RELEASE := $(shell sed -n 's/^\#\# \([0-9.]*\).*/\1/p' CHANGELOG.md | head -n 1)
COMMIT  := $(shell scripts/git.sh describe --always --dirty --exclude '*' 2>/dev/null)
VERSION := $(RELEASE)$(if $(COMMIT),$(if $(shell scripts/git.sh tag --points-at HEAD v$(RELEASE) 2>/dev/null),,+$(COMMIT)))
PKGS    := lua5.4 jansson
HEADERS := lua.h jansson.h ev.h # without them nothing can be built
CFLAGS  ?= -O2 -g
WARN    := -Wall -Wextra -Wshadow -Wswitch-enum -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wpointer-arith -Wno-missing-field-initializers -Wno-format-truncation -Wno-c2x-extensions
WERROR  ?= $(if $(CI),-Werror,)
# Against those who find a mistake in memory before we do. HARDEN= leaves it out (instrumented builds). _FORTIFY_SOURCE needs
# optimization; -U: a distribution's own flags may set it, too. tests/cli/security_elf.py reads from the files what came of it.
HARDEN  ?= -fPIE -fstack-protector-strong -fstack-clash-protection $(if $(filter x86_64,$(shell uname -m)),-fcf-protection) \
           $(if $(filter -O1 -O2 -O3 -Os,$(CFLAGS)),-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
HARDEN_LINK ?= $(if $(strip $(HARDEN)),-Wl$(COMMA)-z$(COMMA)relro -Wl$(COMMA)-z$(COMMA)now -Wl$(COMMA)-z$(COMMA)noexecstack)
COMMA   := ,
# libev's headers predate strict aliasing warnings; -isystem keeps them quiet.
ALL_CFLAGS = -std=gnu11 -D_GNU_SOURCE $(WARN) $(WERROR) $(HARDEN) $(CFLAGS) -pthread \
             -fno-strict-aliasing $(shell pkg-config --cflags $(PKGS) 2>/dev/null) -Iruntime -I$(BUILD)
# Lua, jansson and libev are linked in, since each shared library delays each start of a process. Modules (our own, and those
# in C that scripts load) find these libraries, and the runtime, in the program. So all of each library is linked in, not only what
# the program calls. SHARED=1, for distributions, links the shared libraries.
SHARED  ?=
LIBRARIES = $(shell pkg-config --libs $(PKGS) 2>/dev/null) -lev
LDLIBS   = $(if $(SHARED),$(LIBRARIES),-Wl,-Bstatic,--whole-archive $(LIBRARIES) -Wl,--no-whole-archive,-Bdynamic) -lm -pthread
LDFLAGS ?=
ALL_LDFLAGS = $(if $(strip $(HARDEN)),-pie) $(HARDEN_LINK) $(LDFLAGS) -Wl,--as-needed -Wl,--export-dynamic

# Loadable modules: what needs a library of its own (runtime/base/module.h). Built where the library's headers are; a module's line:
# its name, those headers (and programs, seen from /usr/include), its sources, how to link the library.
MODULES :=
MODULE_SRC :=
# All sources of a folder of runtime/, without their ".c"; and what protoc-c makes of its NAME.proto: NAME.pb-c.c, in $(BUILD).
room = $(patsubst runtime/%.c,%,$(sort $(wildcard runtime/$(1)/*.c))) $(patsubst runtime/%.proto,%.pb-c,$(wildcard runtime/$(1)/*.proto))
define module
MODULE_SRC += $(addprefix runtime/,$(addsuffix .c,$(filter-out %.pb-c,$(3))))
ifeq ($(strip $(foreach h,$(2),$(if $(wildcard /usr/include/$(h) /usr/include/*/$(h)),,missing))),)
MODULES += $(BUILD)/modules/$(1).so
MODULE_LIBS += $(4)
MODULE_OBJ += $(patsubst %,$(BUILD)/obj/%.o,$(3))
$(patsubst %,$(BUILD)/obj/%.o,$(3)): | $(patsubst %,$(BUILD)/%.h,$(filter %.pb-c,$(3)))
$(BUILD)/modules/$(1).so: $(patsubst %,$(BUILD)/obj/%.o,$(3))
$(BUILD)/modules/$(1).so: LIBS = $(4)
endif
endef
# The HTTP client, a part of every module that speaks HTTP.
HTTP := $(call room,http)
# gRPC, a part of the module of a lock that speaks it.
GRPC := $(call room,grpc)
$(eval $(call module,etcd,nghttp2/nghttp2.h protobuf-c/protobuf-c.h ../bin/protoc-c,$(call room,locks/etcd) $(GRPC),-lnghttp2 -lprotobuf-c))
$(eval $(call module,hash,openssl/evp.h,api/lua_hash,-lcrypto))
$(eval $(call module,http,curl/curl.h,api/lua_http $(HTTP),-lcurl))
$(eval $(call module,kube,yaml.h,$(call room,locks/kubernetes) $(HTTP),-lcurl -lyaml))
$(eval $(call module,mysql,mariadb/mysql.h openssl/err.h,api/lua_mysql,-lmariadb -lssl -lcrypto))
$(eval $(call module,redis,hiredis/hiredis.h,$(call room,locks/redis),-lhiredis))
$(eval $(call module,postgres,postgresql/libpq-fe.h,$(call room,locks/postgres),-lpq))
$(eval $(call module,tls,openssl/ssl.h,$(call room,tls),-lssl -lcrypto))
$(eval $(call module,zookeeper,zookeeper/zookeeper.h,$(call room,locks/zookeeper),-lzookeeper_st))
MODULE_SRC := $(sort $(MODULE_SRC))

SRC     := $(filter-out $(MODULE_SRC),$(wildcard runtime/*/*.c runtime/*/*/*.c))
OBJ     := $(SRC:runtime/%.c=$(BUILD)/obj/%.o) $(BUILD)/obj/prelude.o $(BUILD)/obj/page.o
LIBOBJ  := $(filter-out $(BUILD)/obj/commands/main.o,$(OBJ))
# What `lunarch new` writes, and `lunarch help api` shows.
CARRIED := examples/starter.lua examples/starter_test.lua examples/mystore.lua examples/mystore_test.lua examples/.luacheckrc docs/api.md
PRELUDE := $(shell find lua -name '*.lua' -not -path 'lua/meta/*' 2>/dev/null | sort) $(CARRIED)
# Annotations for editors.
META    := $(patsubst lua/meta/%,%,$(wildcard lua/meta/*.lua lua/meta/lunarch/*.lua))
UNIT    := $(patsubst tests/unit/%.c,$(BUILD)/tests/unit/%,$(shell find tests/unit -name "*.c" | sort))

all: $(BUILD)/lunarch $(MODULES)

$(BUILD)/lunarch: $(OBJ)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LDLIBS)

# The same program, but what follows a worker's death waits 20 ms where the program waits 1 s, and 1.2 s where it waits 60
# (tests/cluster/sequences).
$(BUILD)/hasty/lunarch: $(filter-out %/life/term_hooks.o,$(OBJ)) $(BUILD)/hasty/term_hooks.o | $(MODULES)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LDLIBS) && ln -sfn ../modules $(@D)/modules

$(BUILD)/hasty/term_hooks.o: runtime/life/term_hooks.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -DTERM_BACK_OFF_FIRST_MS=20 -MMD -MP -c -o $@ $<

$(BUILD)/obj/%.o: runtime/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	@echo "  CC    $(<:runtime/%=%)"
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

$(MODULES):
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(HARDEN_LINK) $(LDFLAGS) -shared -Wl,--as-needed -Wl,-z,now -o $@ $^ $(LIBS)

$(sort $(MODULE_OBJ)): ALL_CFLAGS += -fPIC

# Messages in protobuf: C that protoc-c writes, which is not held to our warnings.
$(BUILD)/%.pb-c.c $(BUILD)/%.pb-c.h: runtime/%.proto
	@mkdir -p $(@D)
	@echo "  PROTO $<"
	$(Q)protoc-c --proto_path=runtime --c_out=$(BUILD) $<

$(BUILD)/obj/%.pb-c.o: $(BUILD)/%.pb-c.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -w -MMD -MP -c -o $@ $<

# As bytecode, which loads in half of the time. But a shared Lua may be another one when the program runs: then as text.
COMPILE_LUA := $(if $(SHARED),,$(BUILD)/compile-lua)
$(BUILD)/prelude.c: scripts/embed-lua.sh $(PRELUDE) $(COMPILE_LUA) $(BUILD)/flags
	@mkdir -p $(@D)
	@echo "  EMBED lua/"
	$(Q)scripts/embed-lua.sh $(or $(COMPILE_LUA),-) $(PRELUDE) > $@.new && mv $@.new $@

$(BUILD)/compile-lua: scripts/compile-lua.c runtime/script/prelude.h $(BUILD)/flags
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $< $(LDLIBS)

$(BUILD)/obj/prelude.o: $(BUILD)/prelude.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -c -o $@ $<

# The admin endpoint's page, as it is.
$(BUILD)/page.c: runtime/admin/page.html
	@mkdir -p $(@D)
	@echo "  EMBED $<"
	$(Q){ echo 'extern const char admin_page_html[];'; echo 'const char admin_page_html[] = {'; \
	  od -An -v -tx1 $< | sed 's/ \(..\)/0x\1,/g'; echo '0 };'; } >$@.new && mv $@.new $@

$(BUILD)/obj/page.o: $(BUILD)/page.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -c -o $@ $<

# A change of flags or of the version rebuilds what has them; anything else does not.
$(BUILD)/flags: $(BUILD)/version.h FORCE
	$(if $(or $(wildcard $@),$(shell printf '\043include <%s>\n' $(HEADERS) | $(CC) $(ALL_CFLAGS) -E - >/dev/null 2>&1 && echo found)),,$(error packages to build with are missing: `make deps` installs them))
	@echo '$(CC) $(ALL_CFLAGS)$(SHARED:%= shared)' | cmp -s - $@ || echo '$(CC) $(ALL_CFLAGS)$(SHARED:%= shared)' > $@

$(BUILD)/version.h: FORCE
	@mkdir -p $(@D)
	@echo '#define LUNARCH_VERSION "$(VERSION)"' | cmp -s - $@ || echo '#define LUNARCH_VERSION "$(VERSION)"' > $@

# The modules' objects come from an archive, so that a test links only the libraries of what it uses.
$(BUILD)/modules.a: $(sort $(MODULE_OBJ))
	@rm -f $@
	$(Q)ar rcs $@ $^

$(BUILD)/tests/unit/%: tests/unit/%.c tests/lib/tap.h $(LIBOBJ) $(BUILD)/modules.a
	@mkdir -p $(@D)
	@echo "  TEST  $<"
	$(Q)$(CC) $(ALL_CFLAGS) -Wno-unused-result -Itests/lib $(ALL_LDFLAGS) -o $@ $< $(BUILD)/modules.a $(LIBOBJ) $(MODULE_LIBS) $(LDLIBS)

SIM_SRC := $(patsubst %,tests/sim/%.c,sim sim_next main) $(patsubst %,runtime/lease/%.c,lease lease_times lease_waits successor) runtime/locks/lock_failover.c $(patsubst %,runtime/base/%.c,clock err)
$(BUILD)/sim: $(SIM_SRC) $(wildcard tests/sim/*.h) $(patsubst %,runtime/lease/%.h,lease lease_internal successor) runtime/locks/lock_failover.h
	@mkdir -p $(@D)
	@echo "  TEST  $@"
	$(Q)$(CC) $(ALL_CFLAGS) -Wno-unused-result -Itests/sim -o $@ $(SIM_SRC)

# Programs that have every mutant of their sources in them (tests/sim/mutants.py, which writes those sources, says which these are in
# MUTATED, and asks for the programs). What has no mutant is the plain program's. A mutant is waited for less than the program as it is.
M := $(BUILD)/mutants
MUTATED_OBJ = $(MUTATED:%=$(M)/obj/%.o) $(M)/obj/chosen.o
M_CFLAGS = $(ALL_CFLAGS) -w -O1 -g0 -Itests/lib -Itests/sim '-DPATIENCE_S=({ extern int mutant_chosen; mutant_chosen ? 10. : 60.; })'
$(M)/obj/%.o: $(M)/src/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(Q)$(CC) $(M_CFLAGS) -MMD -MP -c -o $@ $<

$(M)/obj/chosen.o: tests/lib/mutant_chosen.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(Q)$(CC) $(M_CFLAGS) -c -o $@ $<

$(M)/tests/%: tests/unit/%.c tests/lib/tap.h $(MUTATED_OBJ) $(LIBOBJ) $(BUILD)/modules.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(M_CFLAGS) $(ALL_LDFLAGS) -o $@ $< $(filter-out $(M)/obj/tests/%,$(MUTATED_OBJ)) $(BUILD)/modules.a $(filter-out $(MUTATED:runtime/%=$(BUILD)/obj/%.o),$(LIBOBJ)) $(MODULE_LIBS) $(LDLIBS)

$(M)/sim: $(SIM_SRC) $(MUTATED_OBJ)
	$(Q)$(CC) $(M_CFLAGS) -o $@ $(filter-out $(MUTATED:%=%.c),$(SIM_SRC)) $(filter $(SIM_SRC:%.c=$(M)/obj/%.o),$(MUTATED_OBJ)) $(M)/obj/chosen.o

$(M)/lua/%/program: $(M)/lua/%/prelude.c $(M)/obj/chosen.o $(LIBOBJ) $(BUILD)/modules.a
	$(Q)$(CC) $(M_CFLAGS) $(ALL_LDFLAGS) -o $@ $(LUA_TEST) $< $(M)/obj/chosen.o $(BUILD)/modules.a $(filter-out $(BUILD)/obj/prelude.o,$(LIBOBJ)) $(MODULE_LIBS) $(LDLIBS)

# The conformance program (tests/locks/conform): beside the program, so that it finds the modules.
$(BUILD)/conform: $(wildcard tests/locks/conform/*.c) tests/locks/conform/conform.h $(LIBOBJ)
	@echo "  TEST  $@"
	$(Q)$(CC) $(ALL_CFLAGS) -Wno-unused-result $(ALL_LDFLAGS) -o $@ $(filter %.c,$^) $(LIBOBJ) $(LDLIBS)

include tests/fuzz/fuzz.mk

# What is tested is a queue of entries, SUITE:PROGRAM. tests/lib/job.sh runs one of them, as its suite wants it run; tests/lib/queue.sh
# runs many, JOBS at a time: most of them wait, for leases and servers. TAP=1 prints every sentence (for counting); else prove's summary.
JOBS    ?= $(shell expr 4 '*' $$(nproc))
SEEDS   ?= 20000
QUEUE    = JOBS='$(JOBS)' TAP='$(TAP)' BUILD='$(BUILD)' SEEDS='$(SEEDS)' tests/lib/queue.sh
# What needs a server that is neither Debian's nor the tests' own: a store's name, in any of these files that is there.
STORES  := s3 consul
STORE_FILES := locks/test_% locks/addresses_% locks/test_%_servers cluster/faults/% cluster/faults/driver_% examples/%
STORE_TESTS := $(wildcard $(foreach s,$(STORES),$(patsubst %,tests/%.py,$(subst %,$(s),$(STORE_FILES)))))
GALERA_TESTS := tests/locks/test_galera.py tests/cluster/faults/galera.py
SYSTEM  := $(filter-out $(STORE_TESTS),$(wildcard tests/stop/*.py tests/cli/*.py tests/locks/*.py tests/script/test_*.py tests/cluster/faults/*.py tests/cluster/sequences/sequences.py tests/cluster/compare/smoke.py tests/examples/*.py tests/install/*.py tests/failures/*.py))
# The protocol as a model for spin: its states, its mutants, and its runs replayed against lease.c.
MODEL   := tests/model/check.py tests/model/broken.py tests/model/replay.py
MUTANTS := mutants:tests/sim/mutants.py
# Without what preloads a library, traces, or locks memory (none of which goes with a sanitizer), without clusters whose terms must not end while all is
# slow, without the locks in Lua that have no C of their own (Box's shows what they share), and without what reads the plain program's files or
# runs nothing of ours; without what is about a browser and other languages; and without what only waits longer there: the manual
# pages, the days of Debian's cron (test_cron.c and the fuzzers read crontabs), readiness, doctor on every store.
ASAN_SYSTEM := $(filter-out $(STORE_TESTS) $(patsubst %,tests/cli/%.py,pages cron ready doctor_full) tests/cli/page.py tests/cli/any_language.py tests/cli/alerts.py tests/locks/test_mysql.py $(GALERA_TESTS) tests/locks/test_etcd_own.py tests/stop/memory.py tests/stop/oom.py tests/cli/fences.py tests/cli/security_elf.py,$(wildcard tests/script/test_*.py tests/cli/*.py tests/stop/*.py \
               tests/locks/race.py tests/locks/kube_faults.py tests/locks/test_*.py))
ETCD_VERSIONS = v3.5 v3.6
ETCD_TESTS = tests/locks/test_etcd.py tests/locks/test_etcd_own.py tests/locks/etcd_faults.py tests/cluster/faults/etcd.py

PLAIN_QUEUE := $(UNIT:%=plain:%) sim:$(BUILD)/sim $(MUTANTS) $(MODEL:%=plain:%) $(SYSTEM:%=plain:%)
ASAN_QUEUE  := $(UNIT:$(BUILD)/%=asan:build/asan/%) $(ASAN_SYSTEM:%=asan:%)
# What has threads, with every access watched by ThreadSanitizer: look-ups of names, the file lock on a disk, the proof of a death.
TSAN_UNITS  := loop/test_offload loop/test_resolve locks/file/test_lock_file election/test_death_watch
TSAN_QUEUE  := $(TSAN_UNITS:%=tsan:build/tsan/tests/unit/%)
KUBE_QUEUE  := $(patsubst %,kube:tests/cluster/kubernetes/%.py,conform election faults restored example service doctor charts tls addresses kubeconfigs)
# Another ZooKeeper than Debian's 3.8.0, which can lose writes (docs/locks.md#zookeeper-loss).
ZOOKEEPER_VERSION = $(or $(ZOOKEEPER),3.9.5)
ZOOKEEPER_TESTS = tests/locks/test_zookeeper.py $(patsubst %,tests/cluster/faults/%.py,zookeeper next_zookeeper restored_zookeeper)
ETCD_QUEUE  := $(foreach v,$(ETCD_VERSIONS),$(ETCD_TESTS:%=etcd-$(v):%))
STORE_QUEUE := $(STORE_TESTS:%=store:%)
# The version before this one is built from its commit: from the history, which an export of the sources has not.
PREVIOUS := 0a6d862
PREVIOUS_QUEUE := $(if $(wildcard .git),previous:tests/cluster/previous/beside.py)
# What `make test` runs: all pure machines and unit tests, and each promise once with real processes, on the file lock and on Redis.
# script, ctl, look, cron_*: what README shows; stop: the tree is dead before the next one leads (P1), and nothing is left (P2);
# locks/test_*: compare-and-swap, tokens that grow (P4), nothing of others overwritten (P7); faults/redis: deaths, freezes and cuts
# (P1, P3, P5, P6); history, reload, handover: what a term leaves, and yielding.
TEST_SYSTEM := $(patsubst %,plain:tests/%.py,\
    cli/exec cli/ctl cli/look cli/reload cli/handover cli/history cli/release cli/completion cli/docs cli/cron_runs cli/next_record \
    script/test_scripts script/test_hooks script/test_life script/test_checkpoint script/test_stop script/test_load script/test_next \
    stop/run stop/leftover stop/gap stop/own locks/test_file locks/test_redis locks/race locks/shared locks/tls \
    cluster/faults/redis cluster/faults/checkpoint cluster/faults/mended examples/heartbeat examples/report examples/redis install/demo)
TEST_QUEUE := $(UNIT:%=plain:%) sim:$(BUILD)/sim $(filter $(TEST_SYSTEM),$(PLAIN_QUEUE))
EVERY_QUEUE := $(PLAIN_QUEUE) $(ASAN_QUEUE) $(TSAN_QUEUE) $(FUZZ_QUEUE) $(KUBE_QUEUE) $(ETCD_QUEUE) $(STORE_QUEUE) $(PREVIOUS_QUEUE)

deps:
	@scripts/deps.sh

test-deps:
	@scripts/deps.sh test

# From a fresh clone, with what it installs and builds: 8 minutes on two processors.
test: test-deps
	@$(submake) -j $$(nproc) built-plain
	@$(QUEUE) $(TEST_QUEUE)
	@echo "make test-every runs everything (CONTRIBUTING.md says what else there is)."

# Everything, as one queue. The servers that come as Go modules are built meanwhile; who needs them waits for them.
# Not by the name of $(MAKE): make -n would run the queue.
submake = $(MAKE) --no-print-directory
test-every: RUN = $(EVERY_QUEUE)
# Without what `make test` has run: .ci/run runs both.
test-rest: RUN = $(filter-out $(TEST_QUEUE),$(EVERY_QUEUE))
test-every test-rest: test-deps go-deps fuzz-deps
	@nice $(submake) servers & servers=$$!; \
	$(submake) -j $$(nproc) built-plain || exit 1; \
	exec 9>$(BUILD)/built-rest.lock; flock 9; nice $(submake) built-rest & rest=$$!; exec 9>&-; \
	$(QUEUE) $(RUN); status=$$?; wait $$rest || status=1; wait $$servers; exit $$status

# The programs of the other suites, beside a queue whose entries mostly wait; it waits for them (tests/lib/job.sh) by the lock that this
# holds. One after the other: each builds with all processors.
built-rest: fuzz-deps
	@$(submake) built-asan && $(submake) built-tsan && $(submake) fuzz-programs$(if $(PREVIOUS_QUEUE), && $(submake) built-previous)

# What is built of Go modules, once for all clones of a user.
servers: go-deps
	@$(submake) s3-servers consul-server kube-server etcd-servers

# The entries of test-every, one a line.
test-entries:
	@printf '%s\n' $(EVERY_QUEUE)

built-plain: all $(BUILD)/hasty/lunarch man $(UNIT) $(BUILD)/sim $(BUILD)/conform
built-asan:
	@$(MAKE) --no-print-directory -j $$(nproc) BUILD=build/asan WERROR= HARDEN= CFLAGS='$(ASAN)' LDFLAGS='-fsanitize=address,undefined' asan-programs
asan-programs: all $(BUILD)/conform $(UNIT)
built-tsan:
	@$(MAKE) --no-print-directory -j $$(nproc) BUILD=build/tsan WERROR= HARDEN= CFLAGS='$(TSAN)' LDFLAGS='-fsanitize=thread' tsan-programs
tsan-programs: $(TSAN_UNITS:%=$(BUILD)/tests/unit/%)
built-previous: $(BUILD)/previous/$(PREVIOUS)

# Entries again and again, alone and beside a load: make test-again N=20 ENTRIES='plain:tests/cli/page.py asan:*/test_redis.py'. What was
# built last is run. Those that fail leave what they wrote in build/again.
N ?= 20
test-again:
	@$(submake) test-entries | BUILD='$(BUILD)' SEEDS='$(SEEDS)' tests/lib/again.sh $(N) $(BUILD)/again $(foreach e,$(ENTRIES),'$(e)')

# How long each entry takes, for the order of the next run (tests/lib/durations.txt).
test-durations: export RESULTS = $(CURDIR)/$(BUILD)/results
test-durations:
	@rm -rf $(RESULTS) && mkdir -p $(RESULTS)
	@$(submake) test-every
	@tests/lib/durations.py write $(RESULTS) >$(BUILD)/durations.txt && mv $(BUILD)/durations.txt tests/lib/durations.txt

# With every round and run of the conformance suite, where the others do fewer to be done in time.
test-full: export FULL=1
test-full: test-deps built-plain
	@$(QUEUE) $(PLAIN_QUEUE)

# The larger configurations of the model, with their figures: minutes, and up to 8 GB of memory.
model-full: test-deps
	@tests/model/check.py --full

# Against the real API server and real client-go, which are built from their Go modules the first time (tests/lib/go_build.sh).
test-kube: kube-server
	@$(MAKE) --no-print-directory all $(BUILD)/conform $(BUILD)/tests/unit/locks/kubernetes/test_kube_config
	@$(QUEUE) $(KUBE_QUEUE)

# The packages of make deb, in a Debian 12 of its own: needs root, debootstrap and a Debian mirror.
test-deb: export LIMIT=7200
test-deb: deb s3-servers consul-server kube-server
	@$(QUEUE) $(patsubst %,plain:tests/cluster/debian/%.py,packages five_commands booted)

# The version before this one beside it on one lock.
test-previous: test-deps built-previous
	@$(MAKE) --no-print-directory all
	@$(QUEUE) $(PREVIOUS_QUEUE)

# Not with $(MAKE): make -n would run that.
$(BUILD)/previous/$(PREVIOUS):
	rm -rf $(BUILD)/previous && mkdir -p $(BUILD)/previous
	scripts/git.sh archive $(PREVIOUS) | tar -x -C $(BUILD)/previous
	MAKEFLAGS= make -j2 -C $(BUILD)/previous BUILD=build VERSION=$(PREVIOUS) all >/dev/null
	@touch $@

# The file lock between clients of a real NFS server, in a virtual machine (no KVM, no network, nothing installed but QEMU).
test-nfs:
	@scripts/deps.sh nfs
	@tests/cluster/nfs/fetch.sh
	@$(MAKE) --no-print-directory all $(BUILD)/conform
	prove $(if $(TAP),--verbose,--failures) --exec 'timeout --kill-after=10 1800' tests/cluster/nfs/machine.py :: lock.py

# The etcd lock on the servers that are newer than Debian's, built likewise.
test-etcd: etcd-servers
	@$(MAKE) --no-print-directory all $(BUILD)/conform
	@$(QUEUE) $(ETCD_QUEUE)

# The ZooKeeper lock on a newer server than Debian's, which comes as Maven artifacts: ZOOKEEPER=version.
test-zookeeper: zookeeper-$(ZOOKEEPER_VERSION)-server
	@$(MAKE) --no-print-directory all $(BUILD)/conform
	@$(QUEUE) $(ZOOKEEPER_TESTS:%=zookeeper-$(ZOOKEEPER_VERSION):%)

zookeeper-%-server: test-deps
	@scripts/deps.sh zookeeper
	@mkdir -p $(GO_BUILT) && flock $(GO_BUILT)/zookeeper.lock tests/lib/zookeeper_fetch.sh $*

# Each allocation and each system call fails once, on every lock, where `make test` draws some: half an hour with AT_ONCE=16.
test-failures: export FULL=1 LIMIT=14400
test-failures: test-deps consul-server s3-servers
	@$(MAKE) --no-print-directory all
	@$(QUEUE) $(patsubst %,plain:%,$(wildcard tests/failures/*.py))

# Those of `make test` that need a cluster of MariaDB: two nodes and an arbitrator (Galera).
test-galera: test-deps
	@$(MAKE) --no-print-directory all $(BUILD)/conform
	@$(QUEUE) $(GALERA_TESTS:%=plain:%)

# The MariaDB lock on MySQL's own server, which comes as a Maven artifact.
test-mysql: test-deps
	@scripts/deps.sh mysql
	@mkdir -p $(GO_BUILT) && flock $(GO_BUILT)/mysql.lock tests/lib/mysql_fetch.sh
	@$(MAKE) --no-print-directory all $(BUILD)/conform
	@$(QUEUE) $(patsubst %,mysql:tests/%.py,locks/test_mysql cluster/faults/mysql cluster/faults/driver_mysql)

# The locks of stores whose servers come as Python packages and as Go modules.
test-stores: s3-servers consul-server
	@$(MAKE) --no-print-directory all $(BUILD)/conform
	@$(QUEUE) $(STORE_QUEUE)

go-deps:
	@scripts/deps.sh go

# One at a time: who comes meanwhile waits, and finds it built.
GO_BUILT = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/lunarch-tests
GO_BUILD = mkdir -p $(GO_BUILT) && flock $(GO_BUILT)/lock tests/lib/go_build.sh $(1)

PIP_BUILD = mkdir -p $(GO_BUILT) && flock $(GO_BUILT)/pip.lock tests/lib/pip_build.sh $(1)

# SeaweedFS and moto, for the S3 lock.
s3-servers: test-deps
	@$(call PIP_BUILD,s3) tests/lib/s3_requirements.txt

kube-server: go-deps
	@$(call GO_BUILD,kube) tests/cluster/kubernetes k8s.io/kubernetes/cmd/kube-apiserver ./contender
	@$(call GO_BUILD,charts) tests/cluster/charts helm.sh/helm/v3/cmd/helm sigs.k8s.io/kustomize/kustomize/v5

consul-server: go-deps
	@$(call GO_BUILD,consul) tests/cluster/consul github.com/hashicorp/consul

etcd-servers: $(ETCD_VERSIONS:%=etcd-%-server)
$(ETCD_VERSIONS:%=etcd-%-server): etcd-%-server: go-deps
	@$(call GO_BUILD,etcd-$*) tests/cluster/etcd/$* go.etcd.io/etcd/server/v3

# The rows of make bench that need the API server, which is built first.
bench-kube: kube-server
	@$(MAKE) --no-print-directory all $(BUILD)/bench/floor_kube
	@tests/bench/bench.py kube kube_requests kube_many $(BENCH)

unit: $(UNIT)
	@$(QUEUE) $(UNIT:%=plain:%)

# The unit, Lua and command tests again, with every access and every leak watched. Warnings are no errors here: instrumented
# code makes gcc see accesses that are not there (the plain build is checked).
ASAN := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
asan: test-deps built-asan
	@$(QUEUE) $(ASAN_QUEUE)

# What has threads, with ThreadSanitizer.
TSAN := -O1 -g -fsanitize=thread -Wno-tsan
tsan: test-deps built-tsan
	@$(QUEUE) $(TSAN_QUEUE)

demo: deps
	@$(MAKE) --no-print-directory all
	@scripts/demo.py

bench:
	@scripts/deps.sh bench
	@$(MAKE) --no-print-directory all $(BUILD)/bench/floor $(BUILD)/bench/floor_file $(BUILD)/bench/floor_tree $(BUILD)/bench/floor_script $(BUILD)/bench/floor_store $(BUILD)/bench/floor_kube
	@tests/bench/bench.py $(BENCH)

# The failures of docs/compare.md, done to Lunarch and to other electors: RUNS=n of each; COMPARE='--peers go --faults frozen' for some of
# them; every run goes to $(BUILD)/compare.json.
compare: kube-server consul-server
	@scripts/deps.sh bench
	@$(call GO_BUILD,compare) tests/cluster/compare/peers ./etcdelection ./clientgo
	@$(MAKE) --no-print-directory all
	@RUNS='$(RUNS)' tests/cluster/compare/compare.py --json $(BUILD)/compare.json $(COMPARE)

# The pictures of the admin endpoint's page, as docs/operations.md shows them.
pictures: test-deps
	@$(MAKE) --no-print-directory all
	@tests/cli/page.py --pictures docs

# Storms of faults on five electors and their store: STORE=NAME... (file redis etcd postgres zookeeper kubernetes), MINUTES=n, SEED=s for faults
# that were drawn before, BEYOND=1 for those that docs/safety.md does not cover too. Timelines are written to $(BUILD)/chaos.
STORE   ?= file redis etcd postgres zookeeper
# ZOOKEEPER=version: on another ZooKeeper than Debian's.
chaos: test-deps all $(if $(filter kubernetes,$(STORE)),kube-server) $(ZOOKEEPER:%=zookeeper-%-server)
	@tests/cluster/faults/chaos.py --stores $(STORE) --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(BEYOND),--beyond)

# Random sequences of operations on two or three electors, then calm: MINUTES=n (an hour), SEED=s for the first of them, LOCK=file or etcd;
# SHRINK=1: what fails is made as short as possible.
sequences: test-deps all $(BUILD)/hasty/lunarch
	@tests/cluster/sequences/sequences.py --minutes $(or $(MINUTES),60) $(if $(SEED),--seed $(SEED)) $(if $(LOCK),--lock $(LOCK)) $(if $(SHRINK),--shrink)

# What is made of the annotations in lua/meta/ (and checked to be current by make lint).
api:
	@lua5.4 scripts/api.lua

# With shared libraries, as programs commonly have them.
$(BUILD)/bench/floor_store: STORE_LIBS = -lpq -lzookeeper_st -lnghttp2
$(BUILD)/bench/floor_kube: STORE_LIBS = -lcurl
$(BUILD)/bench/floor_store: $(patsubst %,$(BUILD)/obj/%.o,$(GRPC) base/buf base/err base/mem)
$(BUILD)/bench/%: tests/bench/%.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -Wno-unused-result $(ALL_LDFLAGS) -o $@ $^ $(LIBRARIES) $(STORE_LIBS) -lm -pthread

# The manual pages: made of what the program's --help says, and of the docs (scripts/man.lua). Of the commit's date, so that the same
# sources make the same pages (https://reproducible-builds.org/docs/source-date-epoch/).
MAN_DATE := $(or $(SOURCE_DATE_EPOCH),$(shell scripts/git.sh log -1 --format=%ct 2>/dev/null),0)
COMMANDS := $(shell sed -n 's/^	C([A-Z]*, \([a-z]*\)).*/\1/p' runtime/config/options.h)
UNITS := lunarch@.service lunarch-exec@.service lunarch-cron@.service
MAN := $(COMMANDS:%=man1/lunarch-%.1) man1/lunarch.1 man7/lunarch.7 man7/lunarch-script.7
man: $(BUILD)/man/made
$(BUILD)/man/made: scripts/man.lua README.md docs/operations.md docs/glossary.md docs/api.md $(BUILD)/lunarch
	@rm -rf $(@D) && mkdir -p $(@D)/man1 $(@D)/man7
	@echo "  MAN   $(@D)"
	$(Q)SOURCE_DATE_EPOCH=$(MAN_DATE) lua5.4 scripts/man.lua $(BUILD)/lunarch $(@D) && touch $@

# How each C file is compiled, for editors (clangd) and clang-tidy. Not in git.
COMPILED := $(SRC) $(MODULE_SRC) $(wildcard scripts/*.c) $(shell find tests -name '*.c' | sort)
compile_commands.json: $(BUILD)/version.h FORCE
	@{ sep='['; for f in $(COMPILED); do \
	  printf '%s{ "directory": "%s", "file": "%s", "command": "%s" }\n' "$$sep" '$(CURDIR)' "$$f" \
	    '$(CC) $(ALL_CFLAGS) -Itests/lib -Itests/sim -c '"$$f"; sep=','; \
	done; echo ']'; } > $@

# clang-tidy on each file (.clang-tidy), again when its object was built again. A part of make lint.
TIDIED  := $(patsubst runtime/%.c,$(BUILD)/tidy/%,$(SRC) $(MODULE_SRC))
tidy: $(TIDIED)
$(BUILD)/tidy/%: $(BUILD)/obj/%.o .clang-tidy | compile_commands.json
	@mkdir -p $(@D)
	$(Q)clang-tidy --quiet -p . runtime/$*.c 2>$@.log && touch $@ || { cat $@.log; exit 1; }

# Which lines and branches of runtime/ the tests run: instrumented, in build/coverage. The unit tests and the simulator, which run all that
# scripts/coverage.txt has a bound for; WHOLE=1: the system tests, too. A process that dies by SIGKILL writes no figures, so
# workers count less than they run.
COVERED := $(if $(WHOLE),$(SYSTEM))
# Without gcc's own execvp, which would end the counting of a guard: between vfork and exec they share its memory.
COVERAGE := -O0 -g --coverage -fno-builtin-execvp
coverage: $(if $(WHOLE),test-deps)
	@$(MAKE) --no-print-directory -j $$(nproc) BUILD=build/coverage HARDEN= CFLAGS='$(COVERAGE)' LDFLAGS=--coverage coverage-programs
	@find build/coverage -name '*.gcda' -delete
	@$(MAKE) --no-print-directory BUILD=build/coverage SEEDS=1500 coverage-run
	@scripts/coverage.py build/coverage
coverage-programs: all $(BUILD)/conform $(BUILD)/sim $(UNIT)
coverage-run:
	-LUNARCH=$(CURDIR)/build/coverage/lunarch $(QUEUE) $(UNIT:%=plain:%) sim:$(BUILD)/sim $(COVERED:%=plain:%)

# Writes the form that make lint checks.
format:
	@scripts/deps.sh lint
	@files=$$(scripts/git.sh ls-files '*.[ch]') && clang-format -i $$files
	@black --quiet tests scripts

lint:
	@scripts/deps.sh lint
	@scripts/lint.sh

install: all man
	install -D -m 755 $(BUILD)/lunarch $(DESTDIR)$(PREFIX)/bin/lunarch
	for m in $(MODULES); do install -D -m 755 $$m $(DESTDIR)$(PREFIX)/lib/lunarch/$${m##*/}; done
	for m in $(META); do install -D -m 644 lua/meta/$$m $(DESTDIR)$(PREFIX)/share/lunarch/meta/$$m; done
	install -D -m 644 scripts/completion.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/lunarch
	install -D -m 644 scripts/completion.zsh $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_lunarch
	install -D -m 644 scripts/completion.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/lunarch.fish
	for m in $(MAN); do install -D -m 644 $(BUILD)/man/$$m $(DESTDIR)$(PREFIX)/share/man/$$m; done
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	for u in $(UNITS); do sed 's|@BIN@|$(PREFIX)/bin|' scripts/units/$$u >$(DESTDIR)$(PREFIX)/lib/systemd/system/$$u; done
	install -D -m 644 scripts/units/lunarch.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/lunarch.conf

# An OCI image, in $(BUILD)/image/oci: the program, its modules and what they need of this Debian, for a user who is not root.
image: all
	@scripts/deps.sh image
	@scripts/image.sh $(BUILD) $(BUILD)/image '$(VERSION)'

# Debian's packages, in $(BUILD)/deb: the program, and one for each store's library, so that nobody gets a library that he does not use.
deb:
	@scripts/deps.sh deb
	@scripts/deb.sh $(BUILD)/deb
	@ls -l $(BUILD)/deb/*.deb | awk '{ printf "%8d %s\n", $$5, $$NF }'

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/lib/lunarch/*.so
	[ ! -d $(DESTDIR)$(PREFIX)/lib/lunarch ] || rmdir --ignore-fail-on-non-empty $(DESTDIR)$(PREFIX)/lib/lunarch
	for m in $(META); do rm -f $(DESTDIR)$(PREFIX)/share/lunarch/meta/$$m; done
	for d in lunarch/meta/lunarch lunarch/meta lunarch; do [ ! -d $(DESTDIR)$(PREFIX)/share/$$d ] || rmdir --ignore-fail-on-non-empty $(DESTDIR)$(PREFIX)/share/$$d; done
	rm -f $(DESTDIR)$(PREFIX)/bin/lunarch $(addprefix $(DESTDIR)$(PREFIX)/share/,bash-completion/completions/lunarch zsh/site-functions/_lunarch fish/vendor_completions.d/lunarch.fish $(MAN:%=man/%)) $(addprefix $(DESTDIR)$(PREFIX)/lib/,$(UNITS:%=systemd/system/%) sysusers.d/lunarch.conf)

help:
	@echo "make deps    installs the packages to build with      make   builds"
	@echo "make demo    three candidates, one leader at a time, in your terminal"
	@echo "make test    every test      make asan   again under the sanitizers   make tsan   what has threads   make lint   the sources' own rules"
	@echo "make test-kube   the Kubernetes lock on a real API server, beside real client-go      make test-etcd   newer etcds"
	@echo "make model-full   all states of the protocol's model, for three candidates"
	@echo "make test-galera   those of make test that need a cluster of MariaDB: two nodes and an arbitrator"
	@echo "make test-failures   each allocation and each system call fails once, on every lock"
	@echo "make test-mysql   the MariaDB lock on MySQL itself, which is fetched the first time"
	@echo "make test-stores   the locks on S3 and Consul, on real servers, which are fetched or built the first time"
	@echo "make test-previous   the version before this one beside it on one lock"
	@echo "make test-deb    the packages of make deb, in a Debian of their own; README.md's installation on two machines; the units under systemd"
	@echo "make test-nfs    the file lock between clients of a Linux NFS server, in a virtual machine"
	@echo "make fuzz MINUTES=n   the fuzzers       make fuzz-planted   whether each finds the bug that is planted for it"
	@echo "make pictures   the pictures of the page that --listen serves, for the docs"
	@echo "make coverage   which lines and branches the tests run     make format   the form that make lint checks     make api   docs/api.md      make man   the manual pages      make deb   packages for Debian      make image   an OCI image"
	@echo "make chaos MINUTES=n STORE=name   storms of faults on five electors and their store"
	@echo "make sequences MINUTES=n   random sequences of reloads, signals, orders and faults, then calm"
	@echo "make compile_commands.json   for editors      (CONTRIBUTING.md says more)"
	@echo "make bench   figures         make compare   the same failures done to other electors      make install PREFIX=/usr/local   make uninstall   make clean"

clean:
	rm -rf $(BUILD) compile_commands.json

-include $(wildcard $(BUILD)/obj/*/*.d $(BUILD)/obj/*/*/*.d $(BUILD)/hasty/*.d $(M)/obj/*/*/*.d $(M)/obj/*/*/*/*.d)

.PHONY: all deps test-deps go-deps kube-server s3-servers consul-server etcd-servers $(ETCD_VERSIONS:%=etcd-%-server) built-plain built-asan asan-programs built-previous test test-every test-rest test-again test-durations servers built-rest test-entries test-full test-kube test-etcd test-stores test-galera test-previous test-nfs test-deb bench-kube unit asan demo bench compare api pictures man deb tidy coverage format lint install uninstall test-mysql test-zookeeper model-full built-tsan tsan-programs tsan coverage-programs coverage-run test-failures chaos sequences image help clean FORCE
