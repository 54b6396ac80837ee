#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The shared library exports exactly the functions of its C header, all with the symbol version MINIDNN_0.1.
#
#   exported_symbols.sh LIBRARY HEADER
set -eu
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
nm -D --defined-only "$1" | awk '$2 != "A" {print $3}' | sort > "$work/exported"
tr '\n' ' ' < "$2" | grep -o 'MINIDNN_API [^(;]*(' | grep -o 'minidnn[A-Z][A-Za-z]*(' \
  | sed 's/($/@@MINIDNN_0.1/' | sort > "$work/declared"
[ "$(wc -l < "$work/declared")" -gt 40 ]
diff "$work/declared" "$work/exported"
