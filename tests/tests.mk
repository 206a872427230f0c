# What is tested and measured, and how the programs of the tests are built. Included by the Makefile.
UNIT    := $(patsubst tests/unit/%.c,$(BUILD)/tests/unit/%,$(shell find tests/unit -name "*.c" | sort))

# The modules' objects come from an archive, so that a test links only the libraries of what it uses.
$(BUILD)/modules.a: $(sort $(MODULE_OBJ))
	@rm -f $@
	$(Q)$(AR) rcs $@ $^

$(BUILD)/tests/unit/%: tests/unit/%.c tests/lib/tap.h $(LIBOBJ) $(BUILD)/modules.a
	@mkdir -p $(@D)
	@echo "  TEST  $<"
	$(Q)$(CC) $(ALL_CFLAGS) -Wno-unused-result -Itests/lib $(ALL_LDFLAGS) -o $@ $< $(BUILD)/modules.a $(LIBOBJ) $(MODULE_LIBS) $(LDLIBS)

# The same program, but what follows a worker's death waits 20 ms where the program waits 1 s, and 1.2 s where it waits 60
# (tests/cluster/sequences).
$(BUILD)/hasty/lunarch: $(filter-out %/term/term_hooks.o,$(OBJ)) $(BUILD)/hasty/term_hooks.o | $(MODULES)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LDLIBS) && ln -sfn ../modules $(@D)/modules

$(BUILD)/hasty/term_hooks.o: runtime/term/term_hooks.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -DTERM_BACK_OFF_FIRST_MS=20 -MMD -MP -c -o $@ $<

SIM_SRC := $(patsubst %,tests/sim/%.c,sim sim_fence sim_next main) $(patsubst %,runtime/lease/%.c,lease lease_times lease_waits next poke debt debt_record record record_time advice past) \
           runtime/locks/lock_failover.c $(patsubst %,runtime/base/%.c,clock err buf mem json_bound json_out)
$(BUILD)/sim: $(SIM_SRC) $(wildcard tests/sim/*.h) $(patsubst %,runtime/lease/%.h,lease lease_internal next poke debt debt_record record) runtime/locks/lock_failover.h
	@mkdir -p $(@D)
	@echo "  TEST  $@"
	$(Q)$(CC) $(ALL_CFLAGS) -Wno-unused-result -Itests/sim $(ALL_LDFLAGS) -o $@ $(SIM_SRC) $(LDLIBS)

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
	$(Q)$(CC) $(M_CFLAGS) $(ALL_LDFLAGS) -o $@ $(filter-out $(MUTATED:%=%.c),$(SIM_SRC)) $(filter $(SIM_SRC:%.c=$(M)/obj/%.o),$(MUTATED_OBJ)) $(M)/obj/chosen.o $(LDLIBS)

$(M)/lua/%/program: $(M)/lua/%/prelude.c $(M)/obj/chosen.o $(LIBOBJ) $(BUILD)/modules.a
	$(Q)$(CC) $(M_CFLAGS) $(ALL_LDFLAGS) -o $@ $(LUA_TEST) $< $(M)/obj/chosen.o $(BUILD)/modules.a $(filter-out $(BUILD)/obj/prelude.o,$(LIBOBJ)) $(MODULE_LIBS) $(LDLIBS)

# The conformance program (tests/locks/conform): beside the program, so that it finds the modules.
$(BUILD)/conform: $(wildcard tests/locks/conform/*.c) tests/locks/conform/conform.h $(LIBOBJ)
	@echo "  TEST  $@"
	$(Q)$(CC) $(ALL_CFLAGS) -Wno-unused-result $(ALL_LDFLAGS) -o $@ $(filter %.c,$^) $(LIBOBJ) $(LDLIBS)

# What is tested is a queue of entries, SUITE:PROGRAM. tests/lib/job.sh runs one of them, as its suite wants it run; tests/lib/queue.sh
# runs many, JOBS at a time: most of them wait, for leases and servers. TAP=1 prints every sentence (for counting); else prove's summary.
JOBS    ?= $(shell expr 4 '*' $$(nproc))
SEEDS   ?= 20000
QUEUE    = JOBS='$(JOBS)' TAP='$(TAP)' BUILD='$(BUILD)' SEEDS='$(SEEDS)' tests/lib/queue.sh
# What needs a server that is neither Debian's nor the tests' own: a store's name, in any of these files that is there.
STORES  := s3 consul gs azblob dynamodb nats
STORE_FILES := locks/test_% locks/addresses_% locks/test_%_servers cluster/faults/% cluster/faults/driver_% cluster/faults/poke_% examples/%
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
ASAN_SYSTEM := $(filter-out $(STORE_TESTS) $(patsubst %,tests/cli/%.py,pages cron ready doctor_full) tests/cli/page.py tests/cli/any_language.py tests/cli/alerts.py tests/locks/test_mysql.py $(GALERA_TESTS) tests/locks/test_etcd_own.py tests/stop/memory.py tests/stop/oom.py tests/cli/fences.py tests/cli/slots.py tests/cli/security_elf.py,$(wildcard tests/script/test_*.py tests/cli/*.py tests/stop/*.py \
               tests/locks/race.py tests/locks/kube_faults.py tests/locks/test_*.py))
ETCD_VERSIONS = v3.5 v3.6
ETCD_TESTS = tests/locks/test_etcd.py tests/locks/test_etcd_own.py tests/locks/etcd_faults.py tests/cluster/faults/etcd.py

PLAIN_QUEUE := $(UNIT:%=plain:%) sim:$(BUILD)/sim $(MUTANTS) $(MODEL:%=plain:%) $(SYSTEM:%=plain:%)
ASAN_QUEUE  := $(UNIT:$(BUILD)/%=asan:build/asan/%) $(ASAN_SYSTEM:%=asan:%)
# What has threads, with every access watched by ThreadSanitizer: look-ups of names, the file lock on a disk, the proof of a death.
TSAN_UNITS  := loop/test_offload loop/test_resolve locks/file/test_lock_file election/test_death_watch
TSAN_QUEUE  := $(TSAN_UNITS:%=tsan:build/tsan/tests/unit/%)
# Cross-built, by an emulator of one process (qemu-user): the rules of the lease, and what lies in memory or a file between processes.
ARM64       := build/aarch64-linux-gnu
ARM64_UNITS := $(patsubst %,$(ARM64)/tests/unit/%,$(patsubst tests/unit/%.c,%,$(sort $(wildcard tests/unit/lease/*.c tests/unit/locks/file/*.c))) process/test_deadline_page)
ARM64_QUEUE := $(patsubst %,arm64:%,$(ARM64)/sim $(ARM64_UNITS))
# Another ZooKeeper than Debian's 3.8.0, which can lose writes (docs/stores/zookeeper.md#versions-that-lose-writes).
KUBE_QUEUE  := $(patsubst %,kube:tests/cluster/kubernetes/%.py,conform election faults restored slots example service doctor charts tls addresses kubeconfigs)
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
# Another Debian, in a directory: the unit tests here, and before a release make test-trixie.
TRIXIE_QUEUE := trixie:tests/cluster/debian/trixie.py
EVERY_QUEUE := $(PLAIN_QUEUE) $(ASAN_QUEUE) $(TSAN_QUEUE) $(ARM64_QUEUE) $(FUZZ_QUEUE) $(KUBE_QUEUE) $(ETCD_QUEUE) $(STORE_QUEUE) $(PREVIOUS_QUEUE) $(TRIXIE_QUEUE)

test-deps: ## installs the servers that the tests start for themselves
	@scripts/deps.sh test

test: test-deps ## each promise once and all unit tests: 8 minutes on two processors, from a fresh clone
	@$(submake) -j $$(nproc) built-plain
	@$(QUEUE) $(TEST_QUEUE)
	@echo "make test-every runs everything (CONTRIBUTING.md says what else there is)."

# One queue. The servers that come as Go modules are built meanwhile; who needs them waits for them. With the name of $(MAKE) in the
# recipe, make -n would run the queue: hence $(submake).
submake = $(MAKE)
test-every: ## every test but those that need a virtual machine, or hours
test-every: RUN = $(EVERY_QUEUE)
test-rest: ## those of test-every that make test does not run (.ci/run runs both)
test-rest: RUN = $(filter-out $(TEST_QUEUE),$(EVERY_QUEUE))
test-every test-rest: test-deps go-deps fuzz-deps trixie-deps
	@nice $(submake) servers & servers=$$!; \
	$(submake) -j $$(nproc) built-plain || exit 1; \
	exec 9>$(BUILD)/built-rest.lock; flock 9; nice $(submake) built-rest & rest=$$!; exec 9>&-; \
	$(QUEUE) $(RUN); status=$$?; wait $$rest || status=1; wait $$servers; exit $$status

# The programs of the other suites, beside a queue whose entries mostly wait; it waits for them (tests/lib/job.sh) by the lock that this
# holds. One after the other: each builds with all processors. arm64 is the last, since its libraries come from a mirror.
built-rest: fuzz-deps
	@$(submake) built-asan && $(submake) built-tsan && $(submake) fuzz-programs$(if $(PREVIOUS_QUEUE), && $(submake) built-previous) && $(submake) built-arm64

servers: go-deps ## builds the servers that come as Go modules, once for all clones of a user
	@$(submake) s3-servers dynamodb-servers consul-server gcs-server nats-server azurite kube-server etcd-servers

test-entries: ## prints the entries of test-every, one a line
	@printf '%s\n' $(EVERY_QUEUE)

built-plain: all $(BUNDLED) $(BUILD)/hasty/lunarch man $(UNIT) $(BUILD)/sim $(BUILD)/conform
built-asan:
	@$(MAKE) -j $$(nproc) BUILD=build/asan WERROR= HARDEN= CFLAGS='$(ASAN)' LDFLAGS='-fsanitize=address,undefined' asan-programs
asan-programs: all $(BUILD)/conform $(UNIT)
built-tsan:
	@$(MAKE) -j $$(nproc) BUILD=build/tsan WERROR= HARDEN= CFLAGS='$(TSAN)' LDFLAGS='-fsanitize=thread' tsan-programs
tsan-programs: $(TSAN_UNITS:%=$(BUILD)/tests/unit/%)
built-arm64:
	@$(MAKE) CROSS=aarch64-linux-gnu BUILD=$(ARM64) sysroot
	@$(MAKE) -j $$(nproc) CROSS=aarch64-linux-gnu BUILD=$(ARM64) arm64-programs
arm64-programs: all $(ARM64)/sim $(ARM64_UNITS)
built-previous: $(BUILD)/previous/$(PREVIOUS)

# What was built last is run. Those that fail leave what they wrote in build/again.
N ?= 20
test-again: ## entries N times alone and N times beside a load: ENTRIES='plain:tests/cli/page.py asan:*/test_redis.py'
	@$(submake) test-entries | BUILD='$(BUILD)' SEEDS='$(SEEDS)' tests/lib/again.sh $(N) $(BUILD)/again $(foreach e,$(ENTRIES),'$(e)')

test-durations: export RESULTS = $(CURDIR)/$(BUILD)/results
test-durations: ## test-every, and writes down how long each entry took, for the order of the next run
	@rm -rf $(RESULTS) && mkdir -p $(RESULTS)
	@$(submake) test-every
	@tests/lib/durations.py write $(RESULTS) >$(BUILD)/durations.txt && mv $(BUILD)/durations.txt tests/lib/durations.txt

test-full: export FULL=1
test-full: test-deps built-plain ## those of the queue plain: with every round of the conformance suite, where the others do fewer
	@$(QUEUE) $(PLAIN_QUEUE)

unit-programs: $(UNIT)
unit: unit-programs ## the unit tests
	@$(QUEUE) $(UNIT:%=plain:%)

# Warnings are no errors here: instrumented code makes gcc see accesses that are not there (the plain build is checked).
ASAN := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
asan: test-deps built-asan ## most tests again with AddressSanitizer and UBSan
	@$(QUEUE) $(ASAN_QUEUE)

TSAN := -O1 -g -fsanitize=thread -Wno-tsan
tsan: test-deps built-tsan ## what has threads, with ThreadSanitizer
	@$(QUEUE) $(TSAN_QUEUE)

arm64: test-deps built-arm64 ## built for arm64: the simulator, and the tests of the lease and of the file lock, emulated
	@$(QUEUE) $(ARM64_QUEUE)

model-full: test-deps ## the larger configurations of the protocol's model: minutes, and up to 8 GB of memory
	@tests/model/check.py --full

test-kube: kube-server ## the Kubernetes lock on a real API server, beside real client-go
	@$(MAKE) all $(BUILD)/conform $(BUILD)/tests/unit/kube/test_kube_config
	@$(QUEUE) $(KUBE_QUEUE)

test-deb: export LIMIT=7200
test-deb: deb s3-servers consul-server kube-server ## the packages of make deb, in a Debian 12 of its own: needs root, debootstrap and a Debian mirror
	@$(QUEUE) $(patsubst %,plain:tests/cluster/debian/%.py,packages five_commands booted)

test-arm64: export LIMIT=7200
test-arm64: test-deps ## packages, archive and image of ARCH=arm64, emulated; the unit tests on a kernel of arm64: needs a Debian mirror
	@scripts/deps.sh arm64
	@$(submake) deb ARCH=arm64 && $(submake) -j $$(nproc) tarball unit-programs ARCH=arm64 && $(submake) image ARCH=arm64
	@$(QUEUE) $(patsubst %,plain:tests/cluster/debian/%.py,arm64 arm64_kernel)

test-kernel: export LIMIT=7200
test-kernel: test-deps built-plain ## what stops and watches processes, on a kernel whose cgroups are all of version 2: needs root and a Debian mirror
	@scripts/deps.sh nfs
	@$(QUEUE) plain:tests/cluster/kernel.py

test-tarball: export LIMIT=3600
test-tarball: test-deps tarball ## the archive of make tarball in a Debian 13 of its own: needs root, debootstrap and a Debian mirror
	@scripts/deps.sh deb && scripts/deps.sh image
	@$(call PIP_BUILD,sbom) tests/cluster/debian/sbom_requirements.txt
	@$(QUEUE) $(patsubst %,plain:tests/%.py,install/tarball cluster/debian/tarball)

test-release: export LIMIT=7200
test-release: ## make release twice, in two directories: the same bytes. Needs root
	@scripts/deps.sh deb && scripts/deps.sh image
	@$(QUEUE) plain:tests/cluster/debian/release.py

test-compose: export LIMIT=1800
test-compose: test-deps all ## examples/compose by podman-compose, as its README has it: needs root
	@scripts/deps.sh compose
	@$(call PIP_BUILD,compose) tests/cluster/compose_requirements.txt
	@$(QUEUE) plain:tests/cluster/compose.py

# What is run there: all locks on its servers, commands, scripts, stops, examples, the installation, and its packages.
TRIXIE_TESTS = $(filter $(foreach d,locks cli script stop examples install,plain:tests/$(d)/%),$(PLAIN_QUEUE))
test-trixie: trixie-deps ## system tests and packages in a Debian 13 of its own: needs root and a Debian mirror; an hour
	@tests/cluster/debian/trixie.py make test-there ENTRIES='$(ENTRIES)' TAP='$(TAP)'
test-there: test-deps built-plain
	@$(QUEUE) $(or $(ENTRIES),$(TRIXIE_TESTS))
	@$(submake) deb
trixie-deps:
	@scripts/deps.sh trixie
test-previous: test-deps built-previous ## the version before this one beside it on one lock
	@$(MAKE) all
	@$(QUEUE) $(PREVIOUS_QUEUE)

# Not with $(MAKE): make -n would run that.
$(BUILD)/previous/$(PREVIOUS):
	rm -rf $(BUILD)/previous && mkdir -p $(BUILD)/previous
	scripts/git.sh archive $(PREVIOUS) | tar -x -C $(BUILD)/previous
	MAKEFLAGS= make -j2 -C $(BUILD)/previous BUILD=build VERSION=$(PREVIOUS) all >/dev/null
	@touch $@

test-nfs: ## the file lock between clients of a Linux NFS server, in a virtual machine
	@scripts/deps.sh nfs
	@tests/cluster/nfs/fetch.sh
	@$(MAKE) all $(BUILD)/conform
	prove $(if $(TAP),--verbose,--failures) --exec 'timeout --kill-after=10 1800' tests/cluster/nfs/machine.py :: lock.py

test-etcd: etcd-servers ## the etcd lock on servers newer than Debian's
	@$(MAKE) all $(BUILD)/conform
	@$(QUEUE) $(ETCD_QUEUE)

test-zookeeper: zookeeper-$(ZOOKEEPER_VERSION)-server ## the ZooKeeper lock on a server newer than Debian's: ZOOKEEPER=version
	@$(MAKE) all $(BUILD)/conform
	@$(QUEUE) $(ZOOKEEPER_TESTS:%=zookeeper-$(ZOOKEEPER_VERSION):%)

zookeeper-%-server: test-deps
	@scripts/deps.sh zookeeper
	@mkdir -p $(GO_BUILT) && flock $(GO_BUILT)/zookeeper.lock tests/lib/zookeeper_fetch.sh $*

test-failures: export FULL=1 LIMIT=14400
test-failures: test-deps consul-server s3-servers ## each allocation and each system call fails once, on every lock: half an hour with AT_ONCE=16
	@$(MAKE) all
	@$(QUEUE) $(patsubst %,plain:%,$(wildcard tests/failures/*.py))

test-galera: test-deps ## those of make test-every that need a cluster of MariaDB: two nodes and an arbitrator
	@$(MAKE) all $(BUILD)/conform
	@$(QUEUE) $(GALERA_TESTS:%=plain:%)

test-mysql: test-deps ## the MariaDB lock on MySQL's own server, which is fetched the first time
	@scripts/deps.sh mysql
	@mkdir -p $(GO_BUILT) && flock $(GO_BUILT)/mysql.lock tests/lib/mysql_fetch.sh
	@$(MAKE) all $(BUILD)/conform
	@$(QUEUE) $(patsubst %,mysql:tests/%.py,locks/test_mysql cluster/faults/mysql cluster/faults/driver_mysql)

test-stores: dynamodb-servers consul-server gcs-server nats-server azurite ## the locks on S3, DynamoDB, Consul, Google Cloud Storage, Azure and NATS, on real servers and stand-ins, which are fetched or built the first time
	@$(MAKE) all $(BUILD)/conform
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

# For the lock in Azure Blob Storage.
azurite: test-deps
	@mkdir -p $(GO_BUILT) && flock $(GO_BUILT)/npm.lock tests/lib/npm_build.sh azurite tests/lib/azurite.json

# Dynalite, for the lock in DynamoDB; moto is S3's.
dynamodb-servers: s3-servers
	@mkdir -p $(GO_BUILT) && flock $(GO_BUILT)/npm.lock tests/lib/npm_build.sh dynamodb tests/lib/dynalite.json

kube-server: go-deps
	@$(call GO_BUILD,kube) tests/cluster/kubernetes k8s.io/kubernetes/cmd/kube-apiserver ./contender
	@$(call GO_BUILD,charts) tests/cluster/charts helm.sh/helm/v3/cmd/helm sigs.k8s.io/kustomize/kustomize/v5

gcs-server: go-deps
	@$(call GO_BUILD,gcs) tests/cluster/gcs github.com/fsouza/fake-gcs-server

nats-server: go-deps
	@$(call GO_BUILD,nats) tests/cluster/nats github.com/nats-io/nats-server/v2

consul-server: go-deps
	@$(call GO_BUILD,consul) tests/cluster/consul github.com/hashicorp/consul

etcd-servers: $(ETCD_VERSIONS:%=etcd-%-server)
$(ETCD_VERSIONS:%=etcd-%-server): etcd-%-server: go-deps
	@$(call GO_BUILD,etcd-$*) tests/cluster/etcd/$* go.etcd.io/etcd/server/v3

bench: ## figures, beside those of other programs
	@scripts/deps.sh bench
	@$(MAKE) all $(BUILD)/bench/floor $(BUILD)/bench/floor_file $(BUILD)/bench/floor_tree $(BUILD)/bench/floor_script $(BUILD)/bench/floor_store $(BUILD)/bench/floor_kube $(BUILD)/bench/floor_http
	@tests/bench/bench.py $(BENCH)

bench-kube: kube-server ## the rows of make bench that need a Kubernetes API server
	@$(MAKE) all $(BUILD)/bench/floor_kube
	@tests/bench/bench.py kube kube_requests kube_many $(BENCH)

# With shared libraries, as programs commonly have them.
$(BUILD)/bench/floor_store: STORE_LIBS = -lpq -lzookeeper_st -lnghttp2
$(BUILD)/bench/floor_kube $(BUILD)/bench/floor_http: STORE_LIBS = -lcurl
$(BUILD)/bench/floor_store: $(patsubst %,$(BUILD)/obj/%.o,$(call room,net/grpc) base/buf base/err base/mem)
$(BUILD)/bench/%: tests/bench/%.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -Wno-unused-result $(ALL_LDFLAGS) -o $@ $^ $(LIBRARIES) $(STORE_LIBS) -lm -pthread

# RUNS=n of each; COMPARE='--peers go --faults frozen' for some of them; every run goes to $(BUILD)/compare.json.
compare: kube-server consul-server ## the failures of docs/compare.md, done to Lunarch and to other electors
	@scripts/deps.sh bench
	@$(call GO_BUILD,compare) tests/cluster/compare/peers ./etcdelection ./clientgo
	@$(MAKE) all
	@RUNS='$(RUNS)' tests/cluster/compare/compare.py --json $(BUILD)/compare.json $(COMPARE)

pictures: test-deps ## the pictures of the page that --listen serves, for the docs
	@$(MAKE) all
	@tests/cli/page.py --pictures docs

# STORE=NAME... (file redis etcd postgres zookeeper kubernetes nats), MINUTES=n, SEED=s for faults that were drawn before,
# BEYOND=1 for those that docs/safety.md does not cover too. Timelines are written to $(BUILD)/chaos.
STORE   ?= file redis etcd postgres zookeeper
# ZOOKEEPER=version: on another ZooKeeper than Debian's.
chaos: test-deps all $(if $(filter kubernetes,$(STORE)),kube-server) $(if $(filter nats,$(STORE)),nats-server) $(ZOOKEEPER:%=zookeeper-%-server) ## storms of faults on five electors and their store
	@tests/cluster/faults/chaos.py --stores $(STORE) --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(BEYOND),--beyond)

# MINUTES=n (ten), SEED=s for faults that were drawn before.
test-shards: test-deps all ## 64 shards over five candidates that join, leave, are killed and are cut off: ten minutes
	@MINUTES=$(or $(MINUTES),10) SEED=$(SEED) tests/cluster/faults/shards.py

# MINUTES=n (an hour), SEED=s for the first of them, LOCK=file or etcd; SHRINK=1: what fails is made as short as possible.
sequences: test-deps all $(BUILD)/hasty/lunarch ## random sequences of reloads, signals, orders and faults on real electors, then calm
	@tests/cluster/sequences/sequences.py --minutes $(or $(MINUTES),60) $(if $(SEED),--seed $(SEED)) $(if $(LOCK),--lock $(LOCK)) $(if $(SHRINK),--shrink)

# Instrumented, in build/coverage: the unit tests and the simulator, which run all that scripts/coverage.txt has a bound for.
# WHOLE=1: the system tests, too. A process that dies by SIGKILL writes no figures, so workers count less than they run.
COVERED := $(if $(WHOLE),$(SYSTEM))
# Without gcc's own execvp, which would end the counting of a guard: between vfork and exec they share its memory.
COVERAGE := -O0 -g --coverage -fno-builtin-execvp
coverage: $(if $(WHOLE),test-deps) ## which lines and branches of runtime/ the unit tests and the simulator run
	@$(MAKE) -j $$(nproc) BUILD=build/coverage HARDEN= CFLAGS='$(COVERAGE)' LDFLAGS=--coverage coverage-programs
	@find build/coverage -name '*.gcda' -delete
	@$(MAKE) BUILD=build/coverage SEEDS=1500 coverage-run
	@scripts/coverage.py build/coverage
coverage-programs: all $(BUILD)/conform $(BUILD)/sim $(UNIT)
coverage-run:
	-LUNARCH=$(CURDIR)/build/coverage/lunarch $(QUEUE) $(UNIT:%=plain:%) sim:$(BUILD)/sim $(COVERED:%=plain:%)

.PHONY: test-deps test test-every test-rest built-rest servers test-entries built-plain built-asan asan-programs built-tsan tsan-programs arm64 built-arm64 arm64-programs built-previous test-again test-durations test-full unit asan tsan model-full test-kube test-deb test-arm64 test-kernel test-trixie test-there trixie-deps unit-programs test-tarball test-release test-compose test-previous test-nfs test-etcd test-zookeeper test-failures test-galera test-mysql test-stores test-shards go-deps s3-servers dynamodb-servers kube-server consul-server gcs-server nats-server azurite etcd-servers bench bench-kube compare pictures chaos sequences coverage coverage-programs coverage-run $(ETCD_VERSIONS:%=etcd-%-server)
