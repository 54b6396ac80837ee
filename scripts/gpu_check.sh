#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# For a machine with a GPU: builds the library, runs the gpu tests, then the steps that options select.
# It needs no network, but installed pip, scikit-build-core, pybind11, ninja, NumPy, torch and pytest.
#
#   scripts/gpu_check.sh [--tests "PYTEST ARGUMENTS"] [--drawn N] [--sanitize "PYTEST ARGUMENTS"] [--bench "FILE WORDS"]...
#                        [--demo] [--cpp]
#
# Without options, all gpu tests run. --tests none skips the gpu tests. --drawn N: tests/test_drawn.py runs N random
# problems for each family and seed, instead of running for a fixed time. All output is written to log.txt in the folder
# $OUT (default: build/gpu_check). The last lines of each step and its failures also appear on the terminal. Each
# benchmark writes a file with its table to $OUT. --cpp runs scripts/cpp_package_check.sh.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
out=${OUT:-build/gpu_check}
mkdir -p "$out" && out=$(realpath "$out")
export PYTHONUNBUFFERED=1 PYMINIDNN_CACHE_DIR=${PYMINIDNN_CACHE_DIR:-$PWD/build/gpu_cache}
mkdir -p "$PYMINIDNN_CACHE_DIR"
chmod 700 "$PYMINIDNN_CACHE_DIR"
tests="-m gpu" sanitize="" demo=0 cpp=0 benches=() drawn=()
while [ $# -gt 0 ]; do
  case $1 in
    --tests) tests=$2; shift 2 ;;
    --drawn) drawn=(--drawn-problems "$2"); shift 2 ;;
    --sanitize) sanitize=$2; shift 2 ;;
    --bench) benches+=("$2"); shift 2 ;;
    --demo) demo=1; shift ;;
    --cpp) cpp=1; shift ;;
    *) echo "unknown option $1" >&2; exit 2 ;;
  esac
done
failed=
step() {  # step NAME COMMAND...: runs the command, prints its time, records a failure
  local name=$1 start=$SECONDS; shift
  echo "== $name" | tee -a "$out/log.txt"
  "$@" 2>&1 | tee -a "$out/log.txt" | tail -n "${LINES_SHOWN:-15}"
  local rc=${PIPESTATUS[0]}
  [ "$rc" = 0 ] || failed="$failed $name"
  echo "== $name gave $rc in $((SECONDS - start)) s" | tee -a "$out/log.txt"
}

step build python3 -m pip install --quiet --no-build-isolation --no-deps --target "$PWD/build/site" --upgrade .
export PYTHONPATH="$PWD/build/site"
# The scripts run in tests/, because the checkout's own folder pyminidnn has no compiled extension. In tests/, Python
# does not find that folder first.
cd tests || exit
step info python3 -m pyminidnn info
[ "$tests" = none ] || step compile python3 -m pyminidnn compile --arch "${ARCH:-sm_90a}"
# Splits the value of an option into words, as a shell does. Quotes keep words together: --tests "-m gpu -k 'conv and
# not big'"
words_of() { xargs -r printf '%s\0' <<< "$1"; }
mapfile -d '' -t test_options < <(words_of "$tests")
mapfile -d '' -t sanitize_options < <(words_of "$sanitize")
# Runs the tests in twelve processes, because each process mostly waits for the compilation of kernels. Afterwards, it
# runs the tests that fill the GPU's memory, one at a time.
in_processes() {
  local pytest=(python3 -m pytest -c ../pyproject.toml --rootdir ..) folder chunk pid pids=() rc=0
  folder=$(mktemp -d)
  "${pytest[@]}" --collect-only -q "$@" | sed -n 's|^tests/\(.*::\)|\1|p' > "$folder/ids"
  [ -s "$folder/ids" ] || { echo "no tests"; return 1; }
  grep -v '^test_big' "$folder/ids" | split -n r/12 - "$folder/chunk."
  for chunk in "$folder"/chunk.*; do timeout 400 "${pytest[@]}" -q "${drawn[@]}" "@$chunk" > "$chunk.log" 2>&1 & pids+=($!); done
  for pid in "${pids[@]}"; do wait "$pid" || rc=1; done
  grep '^test_big' "$folder/ids" > "$folder/big" && { "${pytest[@]}" -q "@$folder/big" > "$folder/chunk.big.log" 2>&1 || rc=1; }
  cat "$folder"/chunk.*.log >> "$out/log.txt"
  grep -h -E "^(FAILED|ERROR|E  )|passed|failed|Fatal" "$folder"/chunk.*.log
  return $rc
}
[ "$tests" = none ] || LINES_SHOWN=40 step tests in_processes "${test_options[@]}"
if [ -n "$sanitize" ]; then
  # With --racecheck-indirect-barrier-dependency, racecheck also accepts data that passes between warps through several
  # barriers.
  for tool in memcheck "racecheck --racecheck-indirect-barrier-dependency"; do
    # Errors of the CUDA API are not reported: to count the parameters of a kernel, the library queries parameters until
    # a query fails.
    step "${tool%% *}" compute-sanitizer --tool $tool --report-api-errors no --error-exitcode 9 --launch-timeout 120 \
      python3 -m pytest -c ../pyproject.toml --rootdir .. -m gpu -q "${sanitize_options[@]}"
  done
fi
for bench in "${benches[@]:-}"; do
  # shellcheck disable=SC2086
  [ -z "$bench" ] || LINES_SHOWN=80 step "bench_${bench%% *}" python3 ../benchmarks/bench_${bench%% *}.py --out "$out" ${bench#* }
done
[ $demo = 0 ] || step demo python3 -m pyminidnn demo --out "$out"
[ $cpp = 0 ] || step cpp ../scripts/cpp_package_check.sh ../build/cpp
echo "== failed:${failed:- nothing}"
[ -z "$failed" ]
