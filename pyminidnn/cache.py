# SPDX-License-Identifier: Apache-2.0
"""python -m pyminidnn cache: what the cache folder holds, and tuning records from and to files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyminidnn as dnn

from . import _C
from .files import replaced

# The first line of a file of exported records, with the number of the format.
HEAD = "pyminidnn tuning records 1\n"


def show() -> int:
    """Prints the folder, the number and size of kernels by architecture and compiler, and of records by device."""
    folder = _C.cache_folder()
    print(f"folder      {folder or 'none: kernels and results of find() are kept in memory only'}")
    if why := _C.why_no_tuning():
        print(f"tuning      results of find() are kept in memory only: {why}")
    sizes: dict[str, list[int]] = {}
    for file in _kernels():
        sizes.setdefault(file.parent.name, []).append(file.stat().st_size)
    for name, bytes_ in sorted(sizes.items()):
        print(f"kernels     {name}: {len(bytes_)}, {_C.bytes_text(sum(bytes_))}")
    records = Counter(line.partition("\t")[0] for line in _C.tuning_text().splitlines())
    for device, count in sorted(records.items()):
        print(f"tuning      {device}: {count} records")
    if not sizes and not records:
        print("            no kernels and no tuning records")
    return 0


def clean(tuning: bool) -> int:
    """Deletes all compiled kernels, and with `tuning` also the tuning records."""
    count = 0
    for file in _kernels():
        file.unlink(missing_ok=True)
        count += 1
        with suppress(OSError):  # other files are in the folder
            file.parent.rmdir()
    print(f"deleted {count} kernels")
    if tuning:
        records = len(_C.tuning_text().splitlines())
        _C.clear_tuning()
        print(f"deleted {records} tuning records")
    return 0


def export(path: Path) -> int:
    """Writes all tuning records to a file. An existing file is replaced when the new one is complete.

    Only the user may read the new file, because the records tell what the user has run.
    """
    text = _C.tuning_text()
    with replaced(path, private=True) as file:
        file.write((HEAD + text).encode())
    print(f"{len(text.splitlines())} tuning records in {path}")
    return 0


def import_(path: Path, replace: bool) -> int:
    """Adds the records of an exported file. Records that exist already stay, or are replaced with `replace`.

    Raises ShapeError if the file is not an exported file or has an invalid line; nothing is added then.
    """
    content = path.read_bytes()
    if not content.startswith(HEAD.encode()):
        raise dnn.ShapeError(
            f"cache import: {path} is no file of 'pyminidnn cache export': its first line must be {HEAD.strip()!r}"
        )
    try:
        text = content.decode().removeprefix(HEAD)
    except UnicodeDecodeError as error:
        raise dnn.ShapeError(f"cache import: {path} is not text in UTF-8: {error.reason}") from None
    if text and not text.endswith("\n"):
        raise dnn.ShapeError(f"cache import: {path} is incomplete: its last line has no end")
    try:
        count = _C.import_tuning(text, replace)
    except dnn.Error as error:
        raise type(error)(f"cache import: {path}{str(error).removeprefix('import_tuning')}") from None
    kept = len(text.splitlines()) - count
    print(f"added {count} tuning records" + (f"; {kept} exist already, --replace replaces them" if kept else ""))
    return 0


def _kernels() -> Iterator[Path]:
    """The files of compiled kernels, and what interrupted processes left of such files."""
    folder = _C.cache_folder()
    files = list(Path(folder).glob("sm_*/*")) if folder else []
    yield from (f for f in files if f.suffix in (".cubin", ".tmp") and f.is_file() and not f.is_symlink())
