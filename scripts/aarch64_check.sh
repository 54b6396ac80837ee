#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles the library for aarch64, and runs its C++ tests in an emulator (qemu). Needs the packages
# g++-aarch64-linux-gnu and qemu-user-static, and everything that a build of the library needs. Leaves out the tests
# that need NVRTC, and the tests that start their own program again.
#
#   scripts/aarch64_check.sh [BUILD FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/aarch64}
cmake -S . -B "$build" -G Ninja -DMINIDNN_BUILD_TESTS=ON -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
  -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DPython_EXECUTABLE="$(command -v python)" \
  -Dpybind11_DIR="$(python -m pybind11 --cmakedir)" > /dev/null
tests=$(basename -s .cpp tests/cpp/test_*.cpp | grep -v '^test_runtime')
# shellcheck disable=SC2086
ninja -C "$build" $tests
for test in $tests; do
  echo "== $test"
  qemu-aarch64-static -L /usr/aarch64-linux-gnu "$build/$test" | tail -n 1
done
