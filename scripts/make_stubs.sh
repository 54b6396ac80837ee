#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes pyminidnn/_C.pyi from the installed extension. tests/test_stubs.py says when it is due.
#   scripts/make_stubs.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
python3 -m pybind11_stubgen pyminidnn._C --output-dir "$out" --numpy-array-use-type-var >&2
ruff format -q --line-length 120 "$out/pyminidnn/_C.pyi" 2>/dev/null || true
cp "$out/pyminidnn/_C.pyi" "${1:-pyminidnn}/_C.pyi"
