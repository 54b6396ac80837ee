# SPDX-License-Identifier: Apache-2.0
"""save() and load(): every dtype survives, other libraries read and write the same files, and a damaged file raises an
error of this library."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib import format as npy
from support import values_of

import pyminidnn as dnn
from pyminidnn import _C

SUFFIXES = (".npz", ".safetensors")


@pytest.fixture(params=SUFFIXES)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == ".safetensors":
        pytest.importorskip("safetensors")
    return tmp_path / f"weights{request.param}"


def sample(device: str = "cpu") -> dict[str, dnn.DeviceTensor]:
    values = np.array([[0, 1, 2.5], [-3, 100, 0.1]])
    tensors = {d: dnn.tensor(values, device=device).to(dtype=d) for d in _C.dtypes}
    return tensors | {
        "no dimensions": dnn.tensor(7.5, device=device),
        "no elements": dnn.zeros(0, 3, device=device),
        "layer/0.weight": dnn.ones(2, 3, 4, 5, layout="NHWC", dtype="bfloat16", device=device),
        "a view": dnn.arange(12, device=device).reshape(3, 4).T[::2],
        "é.npy": dnn.ones(2, device=device),
        "": dnn.ones(1, device=device),
        "file": dnn.ones(1, device=device),
    }


def same(a: dnn.DeviceTensor, b: dnn.DeviceTensor) -> None:
    assert (a.dtype, a.shape, a.device) == (b.dtype, b.shape, b.device)
    np.testing.assert_array_equal(values_of(a), values_of(b))


def test_tensors_survive(path: Path, device: str) -> None:
    tensors = sample(device)
    dnn.save(path, tensors)
    again = dnn.load(str(path), device=device)
    assert set(again) == set(tensors) and (path.suffix != ".npz" or list(again) == list(tensors))
    for name, t in tensors.items():
        same(again[name], t)
        again[name].fill_(1)  # a loaded tensor can be written
    assert os.listdir(path.parent) == [path.name]
    dnn.save(path, {})
    assert dnn.load(path) == {}


def test_a_handle_names_the_device(path: Path, device: str) -> None:
    dnn.save(path, {"x": np.ones(3)})
    with dnn.Handle(device):
        assert dnn.load(path)["x"].device == device


def test_numpy_reads_and_writes_npz(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    dnn.save(path, sample())
    with np.load(path, allow_pickle=False) as file:
        np.testing.assert_array_equal(file["float32"], sample()["float32"].numpy())
        np.testing.assert_array_equal(file["a view"], [[0, 4, 8], [2, 6, 10]])
        bits = file["bfloat16"]["bfloat16"]
        assert bits.dtype == np.uint16
        assert ((bits.astype("uint32") << 16).view("float32") == values_of(sample()["bfloat16"])).all()
    fortran = np.asfortranarray(np.arange(6, dtype="float32").reshape(2, 3))
    for write in (np.savez, np.savez_compressed):
        write(path, a=fortran, b=fortran.astype(">f8"), c=np.array(3), d=np.zeros((0, 2)), e=np.array([True]))
        again = dnn.load(path)
        np.testing.assert_array_equal(again["a"].numpy(), fortran)
        np.testing.assert_array_equal(again["b"].numpy(), fortran)
        assert again["c"].item() == 3 and again["d"].shape == (0, 2) and again["e"].tolist() == [True]
    for unsupported in (np.zeros(2, "u2"), np.zeros(2, "c8"), np.array(["a"]), np.zeros(2, "f4,f4"), np.array([None])):
        np.savez(path, x=unsupported)
        with pytest.raises(dnn.DTypeError, match=r"load: path holds 'x' with elements of .*; supported are float32, "):
            dnn.load(path)


def test_safetensors_reads_and_writes_safetensors(tmp_path: Path) -> None:
    theirs = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "a.safetensors"
    arrays = {d: values_of(t).astype(d) for d, t in sample().items() if d in _C.dtypes and d != "bfloat16"}
    dnn.save(path, arrays)
    for name, array in theirs.load_file(path).items():
        assert array.dtype == name
        np.testing.assert_array_equal(array, arrays[name])
    theirs.save_file(arrays | {"scalar": np.array(2.0)}, path)
    again = dnn.load(path)
    assert again["scalar"].shape == ()
    for name, array in arrays.items():
        assert again[name].dtype == name
        np.testing.assert_array_equal(again[name].numpy(), array)
    theirs.save_file({"x": np.zeros(2, "uint16")}, path)
    with pytest.raises(dnn.DTypeError, match=r"load: path holds 'x' with elements of U16; supported are float32, "):
        dnn.load(path)


def test_safetensors_keeps_bfloat16_for_ml_dtypes(tmp_path: Path) -> None:
    theirs = pytest.importorskip("safetensors.numpy")
    ml_dtypes = pytest.importorskip("ml_dtypes")
    path = tmp_path / "a.safetensors"
    theirs.save_file({"x": np.array([1.5, -2], ml_dtypes.bfloat16)}, path)
    x = dnn.load(path)["x"]
    assert x.dtype == dnn.bfloat16 and x.to(dtype="float32").tolist() == [1.5, -2]


@pytest.mark.torch
def test_safetensors_of_torch(tmp_path: Path) -> None:
    import torch

    theirs = pytest.importorskip("safetensors.torch")
    path = str(tmp_path / "a.safetensors")
    x = torch.tensor([[1.5, -2]], dtype=torch.bfloat16)
    theirs.save_file({"x": x}, path)
    dnn.save(path, dnn.load(path))
    assert torch.equal(theirs.load_file(path)["x"], x)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"")
    for call in (lambda: dnn.save(path, {}), lambda: dnn.load(path)):
        with pytest.raises(dnn.NotSupported, match="(save|load): path .*; pip install safetensors"):
            call()
    assert path.read_bytes() == b"" and os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("wrong", ["a.pt", "npz", "", ".npz/", "a\0.npz", "\ud800.npz", 3, None, b"a.npz", object()])
def test_wrong_paths(wrong: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for call in (lambda: dnn.save(wrong, {}), lambda: dnn.load(wrong)):
        with pytest.raises((dnn.ShapeError, dnn.DTypeError), match="^(save|load): path must be a "):
            call()
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    "tensors, text",
    [
        ([1], "tensors must be a dict of arrays"),
        ({3: 1.0}, "names of tensors must be str; got 3"),
        ({"a\0": 1.0}, "tensors has the name"),
        ({"\ud800": 1.0}, "tensors has the name"),
        ({"a": object()}, "tensors must be an array or numbers of"),
        ({"a": np.zeros(3, "c8")}, "tensors must be an array or numbers of"),
    ],
)
def test_wrong_tensors_leave_the_old_file(tensors: Any, text: str, path: Path) -> None:
    dnn.save(path, {"old": np.ones(2)})
    with pytest.raises(dnn.Error, match=f"^save: {text}"):
        dnn.save(path, tensors)
    assert list(dnn.load(path)) == ["old"] and os.listdir(path.parent) == [path.name]


def test_errors_of_the_file_system_are_passed_on(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        dnn.load(path)
    with pytest.raises(FileNotFoundError):
        dnn.save(path.parent / "nowhere" / path.name, {})
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        dnn.load(path)
    with pytest.raises(OSError):
        dnn.save(path, {"x": np.ones(2)})
    assert os.listdir(path.parent) == [path.name]


def test_a_symbolic_link_stays_and_modes_are_those_of_new_files(path: Path) -> None:
    real = path.with_name(f"real{path.suffix}")
    path.symlink_to(real)
    dnn.save(path, {"x": np.ones(2)})
    (new := path.with_name("new")).touch()
    assert path.is_symlink() and list(dnn.load(real)) == ["x"] and real.stat().st_mode == new.stat().st_mode


def test_damaged_files(path: Path) -> None:
    """Every truncation, and a changed byte at every position, gives an error of this library or tensors."""
    dnn.save(path, {"x": np.arange(6, dtype="float32"), "y": dnn.ones(2, dtype="bfloat16")})
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(dnn.ShapeError, match="load: path must be a complete file of its format"):
            dnn.load(path)
    refused = 0
    for i in range(len(whole)):
        for change in (1, 255):
            path.write_bytes(whole[:i] + bytes([whole[i] ^ change]) + whole[i + 1 :])
            try:
                dnn.load(path)
            except dnn.Error as error:
                assert str(error).startswith("load: path ")
                refused += 1
    assert refused > len(whole) // 4


@pytest.mark.parametrize("shape", [(3,), (2**40,), (-2, -2), (2**62, 4), (2, 2, 2, 2, 2, 2, 2, 2, 2)])
def test_headers_that_lie(shape: tuple[int, ...], tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive, archive.open("x.npy", "w") as file:
        npy.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
        file.write(b"\0" * (2048 if len(shape) == 9 else 16))
    with pytest.raises(dnn.ShapeError, match="^load: "):
        dnn.load(path)
