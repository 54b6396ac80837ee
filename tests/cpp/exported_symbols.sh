#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The shared library exports exactly the functions of its C header, all with this symbol version.
#
#   exported_symbols.sh LIBRARY HEADER VERSION
set -eu
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
nm -D --defined-only "$1" | awk '$2 != "A" {print $3}' | sort > "$work/exported"
tr '\n' ' ' < "$2" | grep -o 'MINIDNN_API [^(;]*(' | grep -o 'minidnn[A-Z][A-Za-z]*(' \
  | sed "s/(\$/@@$3/" | sort > "$work/declared"
[ "$(wc -l < "$work/declared")" -gt 40 ]
diff "$work/declared" "$work/exported"
