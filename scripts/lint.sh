#!/bin/sh
# Everything that can be said about the sources without running them. Silent when there is nothing to say.
set -eu
cd "$(dirname "$0")/.." || exit 1
scripts/git.sh rev-parse HEAD >/dev/null # who asks it for the files below would find none, and say nothing
lua5.4 scripts/rooms.lua --check
lua5.4 scripts/words.lua
scripts/git.sh ls-files '*.[ch]' | xargs clang-format --dry-run -Werror
black --quiet --check tests scripts packaging || { echo "the Python is not as black writes it: run make format"; exit 1; }
flake8 tests scripts packaging
scripts/git.sh ls-files '*.py' | xargs mypy --no-error-summary
# readdir, getpwuid: on the main thread only. mmap's -1 is what MAP_ANONYMOUS wants (mmap(2)).
mkdir -p build/lint/cppcheck
make -s -k -j "$(nproc)" --output-sync=target CI=1 BUILD=build/lint all tidy >build/lint/log 2>&1 || { grep -vE '^  [A-Z]+ ' build/lint/log; exit 1; }
lua5.4 scripts/rooms.lua --calls build/lint
cppcheck --quiet --cppcheck-build-dir=build/lint/cppcheck --error-exitcode=1 --std=c11 --enable=warning,portability --inline-suppr -Iruntime -Ibuild/lint \
  --suppress=readdirCalled --suppress=getpwuidCalled --suppress=getpwnamCalled --suppress=getgrgidCalled --suppress=getgrnamCalled --suppress=invalidFunctionArg:runtime/locks/file/file_op.c --suppress=memleak:runtime/locks/file/file_op.c \
  --suppress=missingIncludeSystem '--suppress=preprocessorErrorDirective:*.pb-c.h' --suppress=normalCheckLevelMaxBranches --suppress=nullPointerArithmeticRedundantCheck \
  --library=posix -D_GNU_SOURCE runtime
luacheck -q --no-color --config examples/.luacheckrc examples lua >build/lint/luacheck ||
  { cat build/lint/luacheck; exit 1; }
lua5.4 scripts/api.lua --check
lua5.4 scripts/options.lua --check
# Every example is in the table that shows them, and has a test that runs it for real.
for example in examples/[a-z]*.lua; do
  name=$(basename "$example" .lua)
  case $name in *_test | starter | mystore) continue ;; esac
  grep -qF "(../$example)" docs/cookbook.md || { echo "docs/cookbook.md: its table of examples has no row for $example"; exit 1; }
  grep -qF "$name.lua" tests/examples/*.py || { echo "$example: nothing in tests/examples runs it"; exit 1; }
done
shellcheck scripts/*.sh packaging/*.sh packaging/*/*.sh tests/lib/*.sh .ci/run
# What each mutant changes is there, once.
tests/sim/mutants.py --check
# What is said of an entry of the tests' queue is said of one that is there.
make --silent --no-print-directory test-entries >build/lint/entries
unknown=$(sed '/^#/d; s/ .*//' tests/lib/durations.txt | grep -vxFf build/lint/entries || true)
[ -z "$unknown" ] || { echo "tests/lib/durations.txt names what is no entry of make test-entries: $unknown"; exit 1; }
# What has an interpreter's name is started by it.
scripts/git.sh ls-files -s '*.py' '*.sh' | grep '^100644' | cut -f2 | while read -r file; do
  case $(head -n1 "$file") in '#!'*) echo "$file: not executable" && exit 1 ;; esac
done
# What is left over is said nowhere but in the issues.
words=$(grep -rnE 'TODO|FIXME|\bXXX\b' runtime lua scripts packaging tests examples Makefile --include='*.[ch]' --include='*.mk' --include='*.lua' --include='*.sh' \
  --include='*.py' --include=Makefile | grep -v 'scripts/lint.sh' || true)
[ -z "$words" ] || { echo "$words"; exit 1; }
long=$(find runtime -name '*.c' -exec awk '/^[a-z_].*\)$/ { name = $0; start = FNR } /^}/ { if (start && FNR - start > 70) print FILENAME ":" start ": " FNR - start " lines: " name; start = 0 }' {} +)
[ -z "$long" ] || { echo "functions over 70 lines:"; echo "$long"; exit 1; }
# The locks' common layer (runtime/locks/lock_link.h, lock_server.h, lock_op.h) keeps the time and counts who shares what: no backend on it does. Four have
# a time of their own.
kept=$(grep -nE 'ev_(timer|io|now_update)|dial_start|instant_passed|->(users|locks)(\+\+|--)|--[a-z]+->(users|locks)' runtime/locks/*/*.[ch] |
  grep -vE '/(lua/|file/(file_|kernel_)|etcd/etcd_watch|kubernetes/kube_)' || true)
[ -z "$kept" ] || { echo "$kept"; echo "this is for runtime/locks/lock_{op,link,server}.h"; exit 1; }
