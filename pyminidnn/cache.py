# SPDX-License-Identifier: Apache-2.0
"""python -m pyminidnn cache: what the cache folder holds, and tuning records and cost factors from and to files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyminidnn as dnn

from . import _C
from .files import replaced

# The first line of a file of exported records, with the number of the format. Tuning records and cost factors follow.
# They differ in their number of fields.
HEAD = "pyminidnn tuning records 1\n"
COST_FIELDS = 5  # of a line with a cost factor (cpp/engine/costs.h)


def show() -> int:
    """Prints the folder, the kernels by architecture and compiler, and the records and factors by device."""
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
    factors = Counter(line.partition("\t")[0] for line in _C.costs_text().splitlines())
    for device, count in sorted(factors.items()):
        print(f"costs       {device}: {count} cost factors")
    if not sizes and not records and not factors:
        print("            no kernels, no tuning records and no cost factors")
    return 0


def clean(tuning: bool, costs: bool) -> int:
    """Deletes all compiled kernels, with `tuning` also the tuning records, with `costs` also the cost factors."""
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
    if costs:
        factors = len(_C.costs_text().splitlines())
        _C.clear_costs()
        print(f"deleted {factors} cost factors")
    return 0


def export(path: Path) -> int:
    """Writes all tuning records and cost factors to a file. An existing file is replaced when the new one is complete.

    Only the user may read the new file, because the records tell what the user has run.
    """
    tuning, costs = _C.tuning_text(), _C.costs_text()
    with replaced(path, private=True) as file:
        file.write((HEAD + tuning + costs).encode())
    print(f"{_counted(len(tuning.splitlines()), len(costs.splitlines()))} in {path}")
    return 0


def import_(path: Path, replace: bool) -> int:
    """Adds the records and factors of an exported file. Those that exist already stay, or are replaced with `replace`.

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
    lines = text.splitlines(keepends=True)
    costs = "".join(line for line in lines if line.count("\t") == COST_FIELDS - 1)
    tuning = "".join(line for line in lines if line.count("\t") != COST_FIELDS - 1)
    try:
        _C.check_costs(costs)
        records, factors = _C.import_tuning(tuning, replace), _C.import_costs(costs, replace)
    except dnn.Error as error:
        raise type(error)(f"cache import: {path}: {str(error).partition(': ')[2]}") from None
    kept = len(lines) - records - factors
    print(f"added {_counted(records, factors)}" + (f"; {kept} exist already, --replace replaces them" if kept else ""))
    return 0


def _counted(records: int, factors: int) -> str:
    return f"{records} tuning records" + (f" and {factors} cost factors" if factors else "")


def _kernels() -> Iterator[Path]:
    """The files of compiled kernels, and what interrupted processes left of such files."""
    folder = _C.cache_folder()
    files = list(Path(folder).glob("sm_*/*")) if folder else []
    yield from (f for f in files if f.suffix in (".cubin", ".tmp") and f.is_file() and not f.is_symlink())
