# SPDX-License-Identifier: Apache-2.0
"""The everyday expressions of arrays, each evaluated on a DeviceTensor and compared with NumPy, or with torch's result
where only torch has the expression."""

from __future__ import annotations

import copy
import io
import operator
import pickle
from collections import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import pyminidnn as dnn


@dataclass
class Operands:
    """New arrays for each expression: a and b are 2x3, `one` has one element, `scalar` has no dimensions."""

    a: Any
    b: Any
    one: Any
    scalar: Any
    host: np.ndarray  # a NumPy array, also if the other arrays are tensors of a GPU


def operands(convert: Callable[[np.ndarray], Any]) -> Operands:
    a = np.arange(6, dtype="float32").reshape(2, 3)
    made = (a, a + 2, np.array([2.5], "float32"), np.array(7.0, "float32"))
    return Operands(*map(convert, made), host=a * 10)


def assigned(x: Any, key: Any, value: Any) -> Any:
    x[key] = value
    return x


def saved(x: Any) -> Any:
    file = io.BytesIO()
    np.save(file, x)
    file.seek(0)
    return np.load(file)


# Expressions that arrays of NumPy support. The result for a DeviceTensor must equal NumPy's result.
AS_NUMPY: dict[str, Callable[[Operands], Any]] = {
    "a[0]": lambda o: o.a[0],
    "a[0, 1]": lambda o: o.a[0, 1],
    "a[:, 1:]": lambda o: o.a[:, 1:],
    "a[..., None]": lambda o: o.a[..., None],
    "a[[1, 0]]": lambda o: o.a[[1, 0]],
    "a[a > 2]": lambda o: o.a[o.a > 2],
    "a[0] = 1": lambda o: assigned(o.a, 0, 1),
    "a[a > 2] = 0": lambda o: assigned(o.a, o.a > 2, 0),
    "a + b": lambda o: o.a + o.b,
    "a - b": lambda o: o.a - o.b,
    "a / b": lambda o: o.a / o.b,
    "a // b": lambda o: o.a // o.b,
    "a % b": lambda o: o.a % o.b,
    "a ** 2": lambda o: o.a**2,
    "a * 2": lambda o: o.a * 2,
    "2 * a": lambda o: 2 * o.a,
    "1 - a": lambda o: 1 - o.a,
    "a @ b.T": lambda o: o.a @ o.b.T,
    "-a": lambda o: -o.a,
    "abs(a)": lambda o: abs(-o.a),
    "a == b": lambda o: o.a == o.b,
    "a != b": lambda o: o.a != o.b,
    "a < b": lambda o: o.a < o.b,
    "a >= b": lambda o: o.a >= o.b,
    "a += b": lambda o: operator.iadd(o.a, o.b),
    "a *= 2": lambda o: operator.imul(o.a, 2),
    "a.sum()": lambda o: o.a.sum(),
    "a.sum(axis=1)": lambda o: o.a.sum(axis=1),
    "a.mean()": lambda o: o.a.mean(),
    "a.max()": lambda o: o.a.max(),
    "a.min(axis=0)": lambda o: o.a.min(axis=0),
    "a.argmax()": lambda o: o.a.argmax(),
    "a.T": lambda o: o.a.T,
    "a.transpose()": lambda o: o.a.transpose(),
    "a.transpose(1, 0)": lambda o: o.a.transpose(1, 0),
    "a.reshape(3, 2)": lambda o: o.a.reshape(3, 2),
    "a.reshape((3, 2))": lambda o: o.a.reshape((3, 2)),
    "a.reshape(-1)": lambda o: o.a.reshape(-1),
    "a.flatten()": lambda o: o.a.flatten(),
    "a.ravel()": lambda o: o.a.ravel(),
    "one.item()": lambda o: o.one.item(),
    "a.tolist()": lambda o: o.a.tolist(),
    "float(one[0])": lambda o: float(o.one[0]),
    "int(one[0])": lambda o: int(o.one[0]),
    "bool(scalar)": lambda o: bool(o.scalar),
    "len(a)": lambda o: len(o.a),
    "list(a)": lambda o: [row.tolist() for row in o.a],
    "5 in a": lambda o: (5 in o.a, 6 in o.a),
    "a.copy()": lambda o: o.a.copy(),
    "copy.copy(a)": lambda o: copy.copy(o.a),
    "copy.deepcopy(a)": lambda o: copy.deepcopy(o.a),
    "pickle": lambda o: pickle.loads(pickle.dumps(o.a)),
    "array + tensor": lambda o: o.host + o.a,
    "array * tensor": lambda o: o.host * o.a,
    "tensor - array": lambda o: o.a - o.host,
    "a.dtype == np.float32": lambda o: o.a.dtype == np.float32,
    "np.dtype(a.dtype)": lambda o: np.dtype(o.a.dtype),
    "a.astype('f8')": lambda o: o.a.astype("f8"),
    "a.astype(int)": lambda o: o.a.astype(int),
    "isinstance of Sized, Iterable, Container, Sequence": lambda o: [
        isinstance(o.a, kind) for kind in (abc.Sized, abc.Iterable, abc.Container, abc.Sequence)
    ],
    "a.shape, ndim, size, nbytes, itemsize": lambda o: (o.a.shape, o.a.ndim, o.a.size, o.a.nbytes, o.a.itemsize),
    "f'{scalar:.2f}'": lambda o: f"{o.scalar:.2f}",
}

# Expressions that only torch supports, or that NumPy spells differently, each with its expected result.
AS_TORCH: dict[str, tuple[Callable[[Operands], Any], Callable[[Operands], Any]]] = {
    "a.permute(1, 0)": (lambda o: o.a.permute(1, 0), lambda o: o.a.T),
    "a.permute((1, 0))": (lambda o: o.a.permute((1, 0)), lambda o: o.a.T),
    "a.to(dtype='f8')": (lambda o: o.a.to(dtype="f8"), lambda o: o.a.astype("f8")),
    "a.to('float64')": (lambda o: o.a.to("float64"), lambda o: o.a.astype("f8")),
    "a.to(np.float16)": (lambda o: o.a.to(np.float16), lambda o: o.a.astype("f2")),
    "a.to('cpu')": (lambda o: o.a.to("cpu"), lambda o: o.a),
    "a.cpu()": (lambda o: o.a.cpu(), lambda o: o.a),
    "a.numpy()": (lambda o: o.a.numpy(), lambda o: o.a),
    "float(one)": (lambda o: float(o.one), lambda o: 2.5),
    "int(one)": (lambda o: int(o.one), lambda o: 2),
    "a.is_contiguous()": (lambda o: (o.a.is_contiguous(), o.a.T.is_contiguous()), lambda o: (True, False)),
    "a.T.contiguous()": (lambda o: o.a.T.contiguous(), lambda o: o.a.T),
    "a.fill_(0)": (lambda o: o.a.fill_(0), lambda o: o.a * 0),
    "a.clone()": (lambda o: o.a.clone(), lambda o: o.a),
    "a.strides, a.layout": (lambda o: (o.a.strides, o.a.layout), lambda o: ((3, 1), "contiguous")),
    "a.unsqueeze(0).squeeze()": (lambda o: o.a.unsqueeze(0).squeeze(), lambda o: o.a),
    "hash(a)": (lambda o: hash(o.a) == hash(o.a) and {o.a: 1}[o.a], lambda o: 1),
    "a == None": (lambda o: o.a == None, lambda o: False),  # noqa: E711
    "print(a)": (lambda o: str(o.a).startswith("DeviceTensor([[0., 1., 2.],\n"), lambda o: True),
    "repr(a)": (lambda o: repr(o.a).startswith("DeviceTensor([[0., 1., 2.],\n"), lambda o: True),
    "f'{a}'": (lambda o: f"{o.a}" == str(o.a), lambda o: True),
    "dnn.add(a, b)": (lambda o: dnn.add(o.a, o.b), lambda o: o.a + o.b),
    "dnn.sum(a)": (lambda o: dnn.sum(o.a), lambda o: o.a.sum()),
    "dnn.mean(a, axis=0)": (lambda o: dnn.mean(o.a, axis=0), lambda o: o.a.mean(axis=0)),
    "dnn.reduce(a, 'sum')": (lambda o: dnn.reduce(o.a, "sum"), lambda o: o.a.sum()),
    "dnn.zeros_like(a)": (lambda o: dnn.zeros_like(o.a), lambda o: o.a * 0),
    "dnn.empty_like(a)": (lambda o: dnn.empty_like(o.a).shape, lambda o: o.a.shape),
    "dnn.relu(-a)": (lambda o: dnn.relu(-o.a), lambda o: np.maximum(-o.a, 0)),
    "dnn.softmax(a)": (lambda o: dnn.softmax(o.a), lambda o: np.exp(o.a) / np.exp(o.a).sum(1, keepdims=True)),
    "dnn.softmax(a, 0)": (lambda o: dnn.softmax(o.a, 0), lambda o: np.exp(o.a) / np.exp(o.a).sum(0)),
    "dnn.slice(a, ...)": (lambda o: dnn.slice(o.a, (0, 1), (2, 3)), lambda o: o.a[:, 1:]),
    "dnn.stack([a, b])": (lambda o: dnn.stack([o.a, o.b]), lambda o: np.stack([o.a, o.b])),
    "dnn.concat([a, b], 0)": (lambda o: dnn.concat([o.a, o.b], 0), lambda o: np.concatenate([o.a, o.b])),
    "dnn.synchronize()": (lambda o: dnn.synchronize(), lambda o: None),
    "dnn.synchronize(a.device)": (lambda o: dnn.synchronize(o.a.device), lambda o: None),
}

# NumPy's functions read host memory. They raise an error of this library for a tensor of a GPU.
ON_THE_HOST: dict[str, Callable[[Operands], Any]] = {
    "np.asarray(a)": lambda o: np.asarray(o.a),
    "np.array(a) + b": lambda o: np.array(o.a) + np.asarray(o.b),
    "np.add(a, b)": lambda o: np.add(o.a, o.b),
    "np.sum(a)": lambda o: np.sum(np.asarray(o.a)),
    "np.exp(a)": lambda o: np.exp(o.a),
    "np.save": lambda o: saved(o.a),
    "memoryview(a)": lambda o: np.asarray(memoryview(o.a)),
}

# Expressions for which NumPy raises an error. A DeviceTensor must raise an error of this library.
REFUSED: dict[str, Callable[[Operands], Any]] = {
    "bool(a)": lambda o: bool(o.a),
    "float(a)": lambda o: float(o.a),
    "int(a)": lambda o: int(o.a),
    "a.item()": lambda o: o.a.item(),
    "a[2]": lambda o: o.a[2],
    "a[0, 0, 0]": lambda o: o.a[0, 0, 0],
    "a['x']": lambda o: o.a["x"],
    "a + (2, 2)": lambda o: o.a + np.ones((2, 2), "float32"),
    "a @ b": lambda o: o.a @ o.b,
    "a += a wider one": lambda o: operator.iadd(o.a, np.ones((2, 2, 3), "float32")),
    "a.reshape(4, 2)": lambda o: o.a.reshape(4, 2),
    "a.transpose(0, 0)": lambda o: o.a.transpose(0, 0),
    "a.sum(axis=2)": lambda o: o.a.sum(axis=2),
    "iter(scalar)": lambda o: iter(o.scalar),
    "len(scalar)": lambda o: len(o.scalar),
    "a.astype('f5')": lambda o: o.a.astype("f5"),
    "f'{a:.2f}'": lambda o: f"{o.a:.2f}",
}


def check(got: Any, want: Any) -> None:
    if isinstance(got, dnn.DeviceTensor):
        want = np.asarray(want)
        assert got.shape == want.shape and got.dtype == want.dtype
        got = got.numpy()
    if isinstance(want, (np.ndarray, np.generic)):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    else:
        assert got == want


@pytest.mark.parametrize("expression", AS_NUMPY)
def test_as_in_numpy(expression: str, device: str) -> None:
    f = AS_NUMPY[expression]
    check(f(operands(lambda x: dnn.tensor(x, device=device))), f(operands(np.copy)))


@pytest.mark.parametrize("expression", AS_TORCH)
def test_as_in_torch(expression: str, device: str) -> None:
    f, want = AS_TORCH[expression]
    check(f(operands(lambda x: dnn.tensor(x, device=device))), want(operands(np.copy)))


@pytest.mark.parametrize("expression", ON_THE_HOST)
def test_what_reads_host_memory(expression: str, device: str) -> None:
    f = ON_THE_HOST[expression]
    o = operands(lambda x: dnn.tensor(x, device=device))
    if device == "cpu":
        check(f(o), f(operands(np.copy)))
    else:
        with pytest.raises((dnn.DTypeError, BufferError, TypeError)) as caught:
            f(o)
        # pybind11's BufferError has our error as its cause.
        assert f"on {device}" in str(caught.value.__cause__ or caught.value)


@pytest.mark.parametrize("expression", REFUSED)
def test_what_numpy_refuses(expression: str, device: str) -> None:
    f = REFUSED[expression]
    with pytest.raises((TypeError, ValueError, IndexError)) as by_numpy:
        f(operands(np.copy))
    with pytest.raises(dnn.Error) as by_us:
        f(operands(lambda x: dnn.tensor(x, device=device)))
    assert isinstance(by_us.value, (TypeError, ValueError, IndexError)), (by_numpy.value, by_us.value)


def test_new_tensors(device: str) -> None:
    check(dnn.ones((2, 3), device=device), np.ones((2, 3), "f4"))
    check(dnn.ones(2, 3, device=device), np.ones((2, 3), "f4"))
    check(dnn.zeros(2, 3, dtype="i4", device=device), np.zeros((2, 3), "i4"))
    check(dnn.zeros(shape=(2, 3), device=device), np.zeros((2, 3), "f4"))
    check(dnn.zeros(4, device=device), np.zeros(4, "f4"))
    check(dnn.zeros((), device=device), np.zeros((), "f4"))
    assert dnn.empty(2, 3, 4, 5, layout="NHWC", device=device).strides == (60, 1, 15, 3)
    check(dnn.arange(5, device=device), np.arange(5))
    check(dnn.array([[1, 2], [3, 4]], device=device), np.array([[1, 2], [3, 4]]))
    check(dnn.tensor([[1, 2], [3, 4]], dtype=dnn.float32, device=device), np.array([[1, 2], [3, 4]], "f4"))
    check(dnn.tensor(2.5, dtype="f4", device=device), np.array(2.5, "f4"))
    host = np.ones(3, "f4")
    t = dnn.tensor(host, device=device)
    host[:] = 0
    assert t.tolist() == [1, 1, 1] and t.device == device
    assert dnn.device_count() >= (device != "cpu")
    if dnn.device_count():
        assert t.cuda().device == t.cuda(0).device == "cuda:0"
    with pytest.raises(dnn.DTypeError, match=r"^array: dtype must be one of float32, "):
        dnn.array(t, dtype=object)
    for wrong in (lambda: dnn.zeros((2, 3), 4), lambda: dnn.ones(2, "a"), lambda: dnn.empty(2, -3)):
        with pytest.raises(dnn.Error, match=r"^(zeros|ones|empty): shape"):
            wrong()
    with pytest.raises(dnn.DTypeError, match=r"^tensor: data must be an array or numbers"):
        dnn.tensor(["a"])


def test_synchronize_names_a_device_that_is_not_there() -> None:
    assert dnn.synchronize() is None and dnn.synchronize("cpu") is None
    for wrong in ("cuda:99", "gpu", 3):
        with pytest.raises((dnn.DeviceError, dnn.DTypeError), match="^synchronize: device"):
            dnn.synchronize(wrong)


@pytest.mark.gpu
@pytest.mark.torch
@pytest.mark.parametrize("device", [None, "cuda", "cuda:0"])
def test_synchronize_waits_for_every_stream(device: str | None) -> None:
    """A long chain of products runs on a stream of torch; its result is complete only after the wait."""
    import torch

    stream = torch.cuda.Stream()
    x = torch.ones((4096, 4096), device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream), dnn.Handle("cuda:0", stream=stream):
        y = dnn.asarray(x)
        for _ in range(50):
            y = dnn.matmul(y, x, alpha=1 / 4096)
    dnn.synchronize(device)
    assert stream.query()
