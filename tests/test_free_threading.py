# SPDX-License-Identifier: Apache-2.0
"""Calls on many threads at once, without locks around them. On a free-threaded Python they run in parallel."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable

import numpy as np
import pytest

import pyminidnn as dnn

THREADS = 8


def together(work: Callable[[int], None]) -> None:
    """Calls work(i) on all threads, which begin at the same time. Raises the first error."""
    barrier, errors = threading.Barrier(THREADS), []

    def run(i: int) -> None:
        barrier.wait()
        try:
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python has a GIL")
def test_the_import_leaves_the_gil_off() -> None:
    code = "import sys, pyminidnn; sys.exit(sys._is_gil_enabled())"
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")


def test_calls_with_shared_operands(device: str) -> None:
    x, w = np.ones((2, 3, 9, 9), "float32"), np.ones((4, 3, 3, 3), "float32")
    shared = dnn.asarray(x, device=device), dnn.asarray(w, device=device)
    want = dnn.conv_forward(*shared).numpy()

    def work(i: int) -> None:
        for n in range(20):
            y = dnn.conv_forward(*shared, padding=n % 2)
            z = (y[:, :2] * 2 + i).sum(axis=1)
            assert z.shape == (2, *y.shape[2:])
            if n % 2 == 0:
                np.testing.assert_array_equal(y.numpy(), want)

    together(work)


def test_handles_and_plans(device: str) -> None:
    """The threads share a handle, whose plan cache is full all the time."""
    handle = dnn.Handle(device, max_plans=3)

    def work(i: int) -> None:
        for n in range(2, 30):
            with handle, dnn.Handle(device):
                pass
            x = dnn.full((n, 3), i, device=device)
            np.testing.assert_array_equal(dnn.sum(x, axis=0, handle=handle).numpy(), np.full(3, n * i))
        for _ in range(3):
            dnn.explain(dnn.exp, x)

    together(work)


def test_one_tensor_is_read_exported_and_destroyed() -> None:
    def work(_: int) -> None:
        for n in range(50):
            a, b = tensors[n].numpy(), np.from_dlpack(tensors[n])
            np.testing.assert_array_equal(a, b)
            assert dnn.from_dlpack(tensors[n])[1].item() == n and len(repr(tensors[n])) > 0

    tensors = [dnn.full(4, n) for n in range(50)]
    together(work)


def test_errors_are_those_of_the_own_thread() -> None:
    def work(i: int) -> None:
        for _ in range(50):
            with pytest.raises(dnn.ShapeError, match=rf"add: .*{i + 2}"):
                dnn.add(np.ones(i + 2), np.ones(i + 20))

    together(work)


def test_log_and_find() -> None:
    x = np.ones((3, 4), "float32")

    def work(i: int) -> None:
        for _ in range(10):
            dnn.set_log_level(("off", "nvtx")[i % 2])
            dnn.softmax_forward(x)
        if i < 2:
            dnn.find(dnn.softmax_forward, x)
        dnn.memory_stats("cpu"), dnn.engines("conv")

    try:
        together(work)
    finally:
        dnn.set_log_level("off")
