# SPDX-License-Identifier: Apache-2.0
"""python -m pyminidnn cache: show, clean, export and import, with files of others, broken files and full disks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from test_cli import run

HEAD = "pyminidnn tuning records 1\n"
RECORDS = ["CPU A\tsoftmax forward f32 4x1000 axis=1\tcpu.softmax.vectorized\t1\t\t3.5",
           "CPU A\tsoftmax forward f32 5x1000 axis=1\tcpu.softmax.vectorized\t1\ttile=2\t4",
           "GPU B\tmatmul f32 8x8\tcuda.matmul.simt\t2\t\t0.25"]  # fmt: skip
FACTORS = ["CPU A\tmatmul forward\tcpu.matmul.packed\t1\t0.5", "CPU A\tsoftmax forward\tcpu.softmax.vectorized\t1\t2",
           "CPU C\tgraph\tcpu.graph.unfused\t3\t1.25"]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    return folder


def write(folder: Path, *records: str) -> None:
    (folder / "tuning.txt").write_text("".join(r + "\n" for r in records))
    (folder / "tuning.txt").chmod(0o600)


def records(folder: Path, name: str = "tuning.txt") -> list[str]:
    return sorted((folder / name).read_text().splitlines())


def write_factors(folder: Path, *factors: str) -> None:
    (folder / "costs.txt").write_text("".join(f + "\n" for f in factors))
    (folder / "costs.txt").chmod(0o600)


def cache(folder: Path, *arguments: str) -> tuple[int, str, str]:
    return run("cache", *arguments, PYMINIDNN_CACHE_DIR=str(folder))


def kernels(folder: Path) -> None:
    for name, size in (
        ("sm_80-nvrtc13.0/a.cubin", 1000),
        ("sm_90a-nvrtc13.0/b.cubin", 2000),
        ("sm_90a-nvrtc13.0/c.cubin", 500),
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"x" * size)


def test_show(folder: Path) -> None:
    code, out, err = cache(folder, "show")
    assert (
        (code, err) == (0, "")
        and f"folder      {folder}\n" in out
        and "no kernels, no tuning records and no cost factors" in out
    )
    kernels(folder)
    write(folder, *RECORDS)
    write_factors(folder, *FACTORS)
    assert cache(folder, "show") == (
        0,
        f"folder      {folder}\nkernels     sm_80-nvrtc13.0: 1, 1.0 kB\nkernels     sm_90a-nvrtc13.0: 2, 2.5 kB\n"
        "tuning      CPU A: 2 records\ntuning      GPU B: 1 records\n"
        "costs       CPU A: 2 cost factors\ncosts       CPU C: 1 cost factors\n",
        "",
    )


def test_show_without_a_cache_folder() -> None:
    code, out, _ = cache(Path(os.devnull), "show")
    assert code == 0 and "folder      none: kernels and results of find() are kept in memory only\n" in out


def test_clean_keeps_tuning_records_and_other_files(folder: Path) -> None:
    kernels(folder)
    write(folder, *RECORDS)
    (folder / "sm_80-nvrtc13.0/notes.txt").touch()
    (folder / "sm_80-nvrtc13.0/left.tmp").touch()
    (folder / "mine").mkdir()
    (folder / "mine/d.cubin").touch()
    assert cache(folder, "clean") == (0, "deleted 4 kernels\n", "")
    left = sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))
    assert left == ["mine", "mine/d.cubin", "sm_80-nvrtc13.0", "sm_80-nvrtc13.0/notes.txt", "tuning.txt"]
    assert cache(folder, "clean", "--tuning") == (0, "deleted 0 kernels\ndeleted 3 tuning records\n", "")
    assert not (folder / "tuning.txt").exists()
    assert cache(folder, "clean", "--tuning") == (0, "deleted 0 kernels\ndeleted 0 tuning records\n", "")


def test_clean_deletes_cost_factors_only_if_told_to(folder: Path) -> None:
    write(folder, *RECORDS)
    write_factors(folder, "no factor", *FACTORS)
    cache(folder, "clean")
    assert records(folder, "costs.txt") == sorted(["no factor", *FACTORS])
    assert cache(folder, "clean", "--costs") == (0, "deleted 0 kernels\ndeleted 3 cost factors\n", "")
    assert not (folder / "costs.txt").exists() and records(folder) == RECORDS


def test_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "precious.cubin").write_text("x")
    (folder / "sm_80").mkdir()
    (folder / "sm_80/link.cubin").symlink_to(tmp_path / "precious.cubin")
    assert cache(folder, "clean") == (0, "deleted 0 kernels\n", "")
    assert (tmp_path / "precious.cubin").exists()


def test_export_and_import(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "records"
    write(folder, "not a record", *reversed(RECORDS))
    assert cache(folder, "export", str(file)) == (0, f"3 tuning records in {file}\n", "")
    assert file.read_text() == HEAD + "".join(r + "\n" for r in RECORDS)
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    assert cache(other, "import", str(file)) == (0, "added 3 tuning records\n", "")
    assert records(other) == RECORDS
    again = cache(other, "import", str(file))
    assert again == (0, "added 0 tuning records; 3 exist already, --replace replaces them\n", "")
    assert records(other) == RECORDS


def test_export_and_import_of_cost_factors(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "records"
    write(folder, *RECORDS)
    write_factors(folder, *FACTORS)
    assert cache(folder, "export", str(file)) == (0, f"3 tuning records and 3 cost factors in {file}\n", "")
    assert file.read_text() == HEAD + "".join(r + "\n" for r in (*RECORDS, *FACTORS))
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    mine = FACTORS[0].replace("0.5", "4")
    write_factors(other, mine)
    added = "added 3 tuning records and 2 cost factors; 1 exist already, --replace replaces them\n"
    assert cache(other, "import", str(file)) == (0, added, "")
    assert records(other) == RECORDS and records(other, "costs.txt") == sorted([mine, *FACTORS[1:]])
    assert cache(other, "import", "--replace", str(file))[1] == "added 3 tuning records and 3 cost factors\n"
    assert records(other, "costs.txt") == FACTORS


@pytest.mark.parametrize("factor", ["nan", "0", "-2", "1e9", "x"])
def test_a_wrong_cost_factor_is_refused_and_nothing_is_added(factor: str, folder: Path, tmp_path: Path) -> None:
    write(folder, RECORDS[2])
    wrong = FACTORS[0].replace("0.5", factor)
    (tmp_path / "r").write_text(HEAD + "".join(r + "\n" for r in (*RECORDS, FACTORS[1], wrong)))
    code, out, err = cache(folder, "import", str(tmp_path / "r"))
    assert (code, out) == (1, "")
    assert err == f"ShapeError: cache import: {tmp_path}/r: record 2 is not valid: '{wrong}'\n"
    assert records(folder) == [RECORDS[2]] and not (folder / "costs.txt").exists()


def test_imported_records_are_used(folder: Path, tmp_path: Path) -> None:
    code = ("import numpy as np, pyminidnn as dnn; X = np.ones((3, 1000), 'float32'); "
            "e = [r for r in dnn.explain(dnn.softmax_forward, X)[0].engines if r.measured_us]; print(e); ")  # fmt: skip
    measure = "import numpy as np, pyminidnn as dnn; dnn.find(dnn.softmax_forward, np.ones((3, 1000), 'float32')); "
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    assert run("cache", "export", str(tmp_path / "r"), code=measure, PYMINIDNN_CACHE_DIR=str(folder))[0] == 0
    assert run("cache", "show", code=code, PYMINIDNN_CACHE_DIR=str(other))[1].startswith("[]\n")
    assert cache(other, "import", str(tmp_path / "r"))[1] == "added 1 tuning records\n"
    assert "EngineReport" in run("cache", "show", code=code, PYMINIDNN_CACHE_DIR=str(other))[1].splitlines()[0]


def test_records_of_this_machine_stay_unless_replaced(folder: Path, tmp_path: Path) -> None:
    mine = RECORDS[0].replace("3.5", "2")
    write(folder, mine)
    (tmp_path / "r").write_text(HEAD + "".join(r + "\n" for r in RECORDS))
    assert cache(folder, "import", str(tmp_path / "r"))[1].startswith("added 2 tuning records; 1 exist already")
    assert records(folder) == sorted([mine, *RECORDS[1:]])
    assert cache(folder, "import", "--replace", str(tmp_path / "r")) == (0, "added 3 tuning records\n", "")
    assert records(folder) == RECORDS


@pytest.mark.parametrize(
    "content, why",
    [
        (b"", "is no file of 'pyminidnn cache export': its first line must be 'pyminidnn tuning records 1'"),
        (b"\x7fELF\x02\x01\0\0", "is no file of 'pyminidnn cache export'"),
        (HEAD.replace("1", "2").encode(), "is no file of 'pyminidnn cache export'"),
        ("\n".join(RECORDS).encode() + b"\n", "is no file of 'pyminidnn cache export'"),
        (f"{HEAD}{RECORDS[0]}\nhello\n".encode(), "record 2 is not valid: 'hello'"),
        (f"{HEAD}{RECORDS[0]}\n{RECORDS[1]}\n\n".encode(), "record 3 is not valid: ''"),
        (f"{HEAD}{RECORDS[0]}\n{RECORDS[1].replace('4', '-4')}\n".encode(), "record 2 is not valid: 'CPU A"),
        (f"{HEAD}{RECORDS[0]}\n{RECORDS[1].removesuffix('4')}nan\n".encode(), "record 2 is not valid: 'CPU A"),
        (f"{HEAD}{RECORDS[1]}\n{RECORDS[0][:-1]}".encode(), "is incomplete: its last line has no end"),
        (HEAD.encode() + b"\xff\xfe\n", "is not text in UTF-8: invalid start byte"),
    ],
)
def test_a_broken_or_foreign_file_is_refused_and_nothing_is_lost(
    content: bytes, why: str, folder: Path, tmp_path: Path
) -> None:
    write(folder, RECORDS[2])
    (tmp_path / "r").write_bytes(content)
    for options in ([], ["--replace"]):
        code, out, err = cache(folder, "import", *options, str(tmp_path / "r"))
        assert (code, out) == (1, "")
        assert err.startswith(f"ShapeError: cache import: {tmp_path}/r") and why in err
        assert records(folder) == [RECORDS[2]]


def test_files_that_cannot_be_used(folder: Path, tmp_path: Path) -> None:
    write(folder, *RECORDS)
    for arguments in (["import", f"{tmp_path}/none"], ["import", str(tmp_path)], ["export", f"{tmp_path}/no/file"]):
        code, out, err = cache(folder, *arguments)
        assert (code, out) == (1, "") and err.startswith("pyminidnn: [Errno ") and err.count("\n") == 1
    assert cache(folder, "import", "")[0] == 2
    (tmp_path / "taken").mkdir()
    assert cache(folder, "export", str(tmp_path / "taken"))[0] == 1
    assert records(folder) == RECORDS and list(tmp_path.glob(".pyminidnn*")) == []


def test_an_exported_file_is_private_and_a_link_to_it_stays(folder: Path, tmp_path: Path) -> None:
    write(folder, *RECORDS)
    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(0o644)
    (tmp_path / "link").symlink_to("file")
    assert cache(folder, "export", str(tmp_path / "link"))[0] == 0
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text().startswith(HEAD)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_import_without_a_place_for_records(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "r").write_text(HEAD + RECORDS[0] + "\n")
    code, _, err = cache(Path(os.devnull), "import", str(tmp_path / "r"))
    assert code == 1 and "the records cannot be kept: there is no cache folder" in err
    write(folder, RECORDS[1])
    (folder / "tuning.txt").chmod(0o666)
    code, _, err = cache(folder, "import", str(tmp_path / "r"))
    assert code == 1 and err.startswith("DeviceError: ") and "other users may write to it" in err
    assert records(folder) == [RECORDS[1]]
