#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the kernels of two checkouts: they are the same machine code if a change only renamed or moved things.

    scripts/compare_cubins.py OLD NEW [--arch sm_90a] [--without-globals]

OLD and NEW are checkouts with a built extension, or folders that `pyminidnn compile --out` has written. Two kernels are
equal if they have the same code, initial values of constant banks, and numbers of registers and bytes of shared memory
and stack. Names do not count. Each kernel of OLD is paired with an equal one of NEW. Kernels without a pair are listed
by name, and the exit code is 1. Needs NVRTC, but no GPU.

--without-globals does not compare constants at namespace scope and their addresses (constant bank 4). Each file has
all of those that its headers define, whether a kernel reads them or not.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import struct
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

NOBITS = 8  # ELF type of a section without contents in the file, such as static shared memory


def kernels(cubin: bytes, without_globals: bool = False) -> list[tuple[str, str]]:
    """Name and fingerprint of each kernel in a file of the kernel cache: two lines of text, then a 64-bit ELF file."""
    cubin = cubin[cubin.index(b"\x7fELF\x02\x01") :]
    (offset,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, offset + i * size) for i in range(count)]

    def name(header: tuple[int, ...]) -> str:
        begin = headers[names][4] + header[0]
        return cubin[begin : cubin.index(b"\0", begin)].decode()

    sections = {name(h): h for h in headers}

    def contents(section: str) -> bytes:
        _, kind, _, _, begin, length, *_ = sections.get(section, (0,) * 10)
        return struct.pack("<Q", length) + (b"" if kind == NOBITS else cubin[begin : begin + length])

    # Matches the attributes of functions in the section .nv.info: the format (a byte 4), the attribute's number, the
    # length 8 of the remaining bytes, the index of the function's symbol, and a value.
    attributes = defaultdict(list)
    for match in re.finditer(rb"\x04(.)\x08\x00(....)(....)", contents(".nv.info")[8:], re.DOTALL):
        attributes[struct.unpack("<I", match[2])[0]].append(match[1] + match[3])
    symbols, symbol_names = contents(".symtab")[8:], contents(".strtab")[8:]
    index_of = {}
    for index in range(len(symbols) // 24):
        (begin,) = struct.unpack_from("<I", symbols, index * 24)
        index_of[symbol_names[begin : symbol_names.index(b"\0", begin)].decode()] = index
    found = []
    for kernel in (s.removeprefix(".text.") for s in sections if s.startswith(".text.")):
        parts = [f".text.{kernel}", f".nv.shared.{kernel}"]
        if not without_globals:
            parts += [".nv.global.init", *(f".nv.constant{i}" for i in range(8))]
        parts += [f".nv.constant{i}.{kernel}" for i in range(8)]
        all_parts = [contents(part) for part in parts] + sorted(attributes[index_of[kernel]])
        found.append((kernel, hashlib.sha256(b"".join(all_parts)).hexdigest()))
    return found


def compile_all(checkout: Path, arch: str, out: str) -> Path:
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve())}
    command = [sys.executable, "-m", "pyminidnn", "compile", "--arch", arch, "--out", out]
    subprocess.run(command, env=environment, cwd="/", check=True)
    return Path(out)


def fingerprints(folder: Path, arch: str, without_globals: bool) -> dict[str, list[str]]:
    """Names of kernels by fingerprint, for all cubins below a folder."""
    with tempfile.TemporaryDirectory() as out:
        if (folder / "pyminidnn").is_dir():
            folder = compile_all(folder, arch, out)
        files = sorted(folder.rglob("*.cubin"))
        if not files:
            raise SystemExit(f"{folder} has no cubins")
        found = defaultdict(list)
        for file in files:
            for name, fingerprint in kernels(file.read_bytes(), without_globals):
                found[fingerprint].append(name)
        return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--without-globals", action="store_true")
    options = parser.parse_args()
    old, new = (fingerprints(folder, options.arch, options.without_globals) for folder in (options.old, options.new))
    equal, left = 0, {"old": [], "new": []}
    for fingerprint in old.keys() | new.keys():
        ours, theirs = sorted(old.get(fingerprint, [])), sorted(new.get(fingerprint, []))
        common = min(len(ours), len(theirs))
        equal += common
        left["old"] += ours[common:]
        left["new"] += theirs[common:]
    for side, names in left.items():
        for name in sorted(names):
            print(f"{side} alone: {name}")
    print(f"{equal} kernels are equal, {len(left['old'])} of old and {len(left['new'])} of new are left over")
    return 1 if left["old"] or left["new"] else 0


if __name__ == "__main__":
    sys.exit(main())
