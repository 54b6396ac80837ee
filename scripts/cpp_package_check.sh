#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the C and C++ package as its users see it. Builds and installs it without Python, moves the installation, and
# builds and runs examples/cpp against it: shared, static, through pkg-config, and with the checkout as a subdirectory.
# On a machine with a GPU, one example also runs there, with kernels that are compiled from the moved installation.
# Needs cmake, ninja, a C and C++ compiler, and CUDA's headers in CUDA_HOME.
#
#   scripts/cpp_package_check.sh FOLDER
set -euo pipefail
folder=$(realpath -m "$1")
cd "$(dirname "$0")/.."
configure() { cmake -G Ninja "$@" > "$folder/configure.log" || { cat "$folder/configure.log"; exit 1; }; }
examples() {  # NAME CMAKE_OPTIONS...: builds and runs the examples
  echo "== examples, $1"
  configure -S examples/cpp -B "$folder/$1" "${@:2}"
  cmake --build "$folder/$1" | tail -n 1
  ctest --test-dir "$folder/$1" --output-on-failure -R '^(conv_forward|train_step)$' | grep 'tests passed'
}
mkdir -p "$folder"

echo "== library"
configure -S . -B "$folder/library" -DMINIDNN_BUILD_TESTS=ON -DCMAKE_INSTALL_PREFIX="$folder/installed"
cmake --build "$folder/library" --target minidnn minidnn_static test_c_api | tail -n 1
if grep -iE '^(python|pybind11)' "$folder/library/CMakeCache.txt"; then echo "Python was searched for"; exit 1; fi
ctest --test-dir "$folder/library" --output-on-failure -R '^(test_c_api|exported_symbols)$' | grep 'tests passed'
cmake --install "$folder/library" > "$folder/install.log"
rm -rf "$folder/prefix" && mv "$folder/installed" "$folder/prefix"
(cd "$folder/prefix" && find . -type f -printf '%s %P\n' | sort -k2 | grep -vE 'share/minidnn/sources/.+/')

examples shared -DCMAKE_PREFIX_PATH="$folder/prefix"
examples static -DCMAKE_PREFIX_PATH="$folder/prefix" -DSTATIC=ON
examples subdirectory -DMINIDNN_SOURCE="$PWD"
if command -v pkg-config > /dev/null; then
  echo "== examples, pkg-config"
  export PKG_CONFIG_PATH=$folder/prefix/lib/pkgconfig
  # shellcheck disable=SC2046  # several options
  "${CC:-cc}" examples/cpp/conv_forward.c $(pkg-config --cflags --libs minidnn) -o "$folder/by_pkg_config"
  LD_LIBRARY_PATH=$folder/prefix/lib "$folder/by_pkg_config"
fi

echo "== the C++ of docs/cpp.md"
awk '/^```/ {on = /cpp/; next} on' docs/cpp.md > "$folder/docs.cpp"
"${CXX:-c++}" -std=c++20 -Wall -Wextra -Werror -fsyntax-only "$folder/docs.cpp" -I"$folder/prefix/include"

if nvidia-smi -L > /dev/null 2>&1; then
  echo "== examples, on the GPU"
  "$folder/shared/train_step" 0
fi

echo "== a program finds the kernel sources of the moved installation"
cat > "$folder/sources.c" << 'C'
#include <minidnn/minidnn.h>
#include <stdio.h>
int main(void) { return minidnnEmptyCache(MINIDNN_CPU) || puts(minidnnGetSourceFolder()) < 0; }
C
"${CC:-cc}" "$folder/sources.c" -I"$folder/prefix/include" -L"$folder/prefix/lib" -lminidnn -o "$folder/sources"
[ "$(LD_LIBRARY_PATH=$folder/prefix/lib "$folder/sources")" = "$folder/prefix/share/minidnn/sources" ]
