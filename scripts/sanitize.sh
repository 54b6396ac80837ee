#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the library with sanitizers (CMakePresets.json) into build/asan or build/tsan, and runs its CPU tests.
# Fails if a test fails or a sanitizer reports anything.
# Needs g++, and an active virtual environment .venv with the packages that `./run tests` installs.
#
#   scripts/sanitize.sh asan|tsan [--part] [--seconds N] [PYTEST ARGUMENTS]
#
# asan is AddressSanitizer and UndefinedBehaviorSanitizer, tsan is ThreadSanitizer. Without arguments: the C++ tests, all
# CPU tests, N seconds (default: 600) of tests/fuzz_calls.py, about N seconds of tests/test_drawn.py. Pytest arguments
# select tests (paths are relative to tests/). Then the C++ tests do not run, and the fuzz runs only with --seconds.
#
# --part is for CI: the C++ tests, some CPU tests and a short fuzz run. Only the code of the machine's best instruction
# set is built with AddressSanitizer, so the build takes a minute.
set -euo pipefail
cd "$(dirname "$0")/.."
kind=${1:-}
[ "$kind" = asan ] || [ "$kind" = tsan ] || { sed -n 's/^# \{0,1\}//; 3,14p' "$0" >&2; exit 2; }
shift
part='' seconds=''
while [ $# -gt 0 ]; do
  case $1 in
    --part) part=1; shift ;;
    --seconds) seconds=$2; shift 2 ;;
    *) break ;;
  esac
done
build=$PWD/build/$kind
[ -z "$part" ] || build+=_part
failed=
step() {  # step NAME COMMAND...: runs the command, prints its time, records a failure
  local name=$1 start=$SECONDS rc=0; shift
  echo "== $name"
  "$@" || rc=$?
  [ "$rc" = 0 ] || failed="$failed $name"
  echo "== $name gave $rc in $((SECONDS - start)) s"
}

target=all
[ $# = 0 ] || target=_C
settings=(-DMINIDNN_BUILD_TESTS=ON -DPython_EXECUTABLE="$(command -v python)" -Dpybind11_DIR="$(python -m pybind11 --cmakedir)")
if [ -n "$part" ]; then
  isa=$(python -c "from pyminidnn import _C; print(_C.cpu_isa().removeprefix('x86-64-').removesuffix('-amx').removesuffix('-bf16'))")
  settings+=(-DMINIDNN_SANITIZED_ISA="$isa" -G Ninja -S . -B "$build")
else
  settings+=(--preset "$kind")
fi
start=$SECONDS
echo "== build"
cmake "${settings[@]}" > /dev/null
cmake --build "$build" --target "$target" | tail -n 1
echo "== build took $((SECONDS - start)) s"

# Makes a package folder with the checkout's Python files and the sanitized extension. The extension in the checkout
# itself stays unchanged.
mkdir -p "$build/package/pyminidnn"
ln -sf "$PWD"/pyminidnn/*.py "$PWD"/pyminidnn/py.typed "$build"/_C*.so "$build/package/pyminidnn"
for file in pyminidnn/*/__init__.py; do
  folder=${file%/__init__.py}
  ln -sfn "$PWD/$folder" "$build/package/$folder"
done

# Python itself is not instrumented, so the runtimes of the sanitizers are preloaded. Reports are written to files. Next
# to AddressSanitizer, UndefinedBehaviorSanitizer can only write to stderr, which --capture=sys does not redirect. Leaks
# are not reported, because Python and the fake CUDA driver keep memory until the process ends.
reports=$build/reports
rm -rf "$reports" && mkdir "$reports"
library() { "${CXX:-g++}" -print-file-name="lib$1.so"; }
if [ "$kind" = asan ]; then preload=$(library asan):$(library ubsan); else preload=$(library tsan); fi
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:log_path=$reports/asan
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=die_after_fork=0:ignore_noninstrumented_modules=1:allocator_may_return_null=1:log_path=$reports/tsan
export PYMINIDNN_TEST_ALLOCATIONS=exact PYTHONPATH=$build/package
sanitized() { LD_PRELOAD=$preload:$(library stdc++) "$@"; }

cd tests  # in tests/, sys.path does not begin with the checkout's own package
sanitized python -c "from pyminidnn import _C; assert _C.__file__.startswith('$build'), _C.__file__"
# test_fuzz.py is left out: it crashes a process on purpose, and AddressSanitizer would report that crash.
pytest=(sanitized python -m pytest -c ../pyproject.toml --rootdir .. -q --capture=sys -p no:cacheprovider -n "$(nproc)" --ignore test_fuzz.py
  -m "not gpu and not torch")
# The deselected tests count threads or memory, or call fork(). They would fail, because ThreadSanitizer starts a
# thread, keeps freed memory, and does not support fork() in processes with threads.
[ "$kind" = asan ] || pytest+=(--deselect tests/test_handle.py::test_threads_of_a_call
  --deselect tests/test_tuning.py::test_plans_take_bounded_memory
  --deselect tests/test_threads.py::test_forks_while_other_threads_choose_plans)
fuzz() { sanitized python fuzz_calls.py --seconds "$1" --workers "$(nproc)"; }
[ $# != 0 ] || step ctest ctest --test-dir "$build" --output-on-failure
if [ -n "$part" ]; then
  step tests "${pytest[@]}" test_every_engine.py test_drawn.py test_graph_files.py -k "find or drawn or hostile" --drawn-seconds 2 "$@"
  step fuzz fuzz "${seconds:-30}"
else
  drawn=$(( ${seconds:-600} / 20 ))  # seconds of random problems, for each family and seed
  step tests "${pytest[@]}" --drawn-seconds "$drawn" "$@"
  [ $# != 0 ] && [ -z "$seconds" ] || step fuzz fuzz "${seconds:-600}"
fi
# Warnings of AddressSanitizer about refused allocations are not counted.
mapfile -t found < <(grep -rlE 'ERROR: |FATAL: |runtime error: |WARNING: ThreadSanitizer: ' "$reports")
for report in "${found[@]}"; do
  failed="$failed $(basename "$report")"
  echo "== $report" && head -n 60 "$report"
done
echo "== failed:${failed:- nothing}"
[ -z "$failed" ]
