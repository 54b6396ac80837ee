# SPDX-License-Identifier: Apache-2.0
"""Threads, forks, signals and the end of a process. Each test uses a separate process, since a failure ends or hangs
it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(code: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=seconds)


CALLS = {
    "activation": "dnn.activation_forward(x, 'gelu')",
    "conv": "dnn.conv_forward(x, w, padding=1)",
    "loss": "dnn.cross_entropy_forward(x, classes)",
    "matmul": "dnn.matmul(x, x)",
    "batch_norm": "dnn.batch_norm_forward_training(x, scale, scale)",
    "layer_norm": "dnn.layer_norm_forward(x)",
    "lrn": "dnn.lrn_forward(x, 5)",
    "pointwise": "dnn.add(x, x)",
    "pooling": "dnn.pool_forward(x, 2)",
    "pad": "dnn.pad(x, 1)",
    "gather": "dnn.gather(x, classes)",
    "random": "dnn.dropout_forward(x, 0.5, seed=1)",
    "reduce": "dnn.reduce(x, 'sum')",
    "softmax": "dnn.softmax_forward(x)",
    "transform": "dnn.transform(x, layout='NHWC')",
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_the_interpreter_ends_while_daemon_threads_compute(call: str) -> None:
    ended = run(f"""
import threading, time, numpy as np, pyminidnn as dnn
x = dnn.full((8, 16, 64, 64), 0.5)
w, scale, classes = dnn.full((16, 16, 3, 3), 0.5), dnn.full((16,), 0.5), dnn.zeros((8, 64, 64), dtype="int64")
def work():
    while True: {call}
for _ in range(4): threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
""")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_bindings_release_the_gil_by_the_class_that_may_outlive_the_interpreter() -> None:
    """pybind11's own class ends the process if a daemon thread takes the GIL after the interpreter has ended."""
    for path in (ROOT / "cpp").rglob("*_py.cpp"):
        assert not re.search(r"gil_scoped_release", path.read_text()), path


@pytest.mark.parametrize("handle", ["dnn.Handle()", "None"])
def test_forks_while_other_threads_choose_plans(handle: str) -> None:
    """A child process must not inherit a lock whose owner is a thread that does not exist in the child."""
    ended = run(f"""
import os, random, signal, threading, time, pyminidnn as dnn
handle, base = {handle}, dnn.zeros((600, 700))
def relu(rows, columns): dnn.activation_forward(base.as_strided((rows, columns), (700, 1)), "relu", handle=handle)
def work(r=random.Random(1)):
    while True: relu(r.randint(1, 300), r.randint(1, 300))
for _ in range(3): threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
hung = 0
for i in range(150):
    if not (child := os.fork()):
        signal.alarm(10)
        relu(301 + i, 350)
        os._exit(0)
    hung += os.waitpid(child, 0)[1] != 0
print(hung, flush=True)
os._exit(0)
""")
    assert ended.stdout == "0\n", ended.stderr


LONG = {
    "one call": "dnn.matmul(dnn.zeros((3000, 3000)), dnn.zeros((3000, 3000)), algo='reference')",
    "one call on one thread": "dnn.matmul(dnn.zeros((2500, 2500)), dnn.zeros((2500, 2500)), algo='reference', handle=dnn.Handle(threads=1))",
    "find": "dnn.find(dnn.conv_forward, dnn.zeros((64, 64, 56, 56)), dnn.zeros((64, 64, 3, 3)), padding=1)",
}


@pytest.mark.parametrize("call", LONG.values(), ids=LONG)
def test_ctrl_c_ends_a_long_call(call: str) -> None:
    code = f"import pyminidnn as dnn; dnn.zeros(1); print('go', flush=True); {call}; print('done')"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
        assert p.stdout is not None and p.stdout.readline() == "go\n"
        time.sleep(0.5)
        begin = time.monotonic()
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=60)
        took = time.monotonic() - begin
    assert "KeyboardInterrupt" in err and out == "", (out, err)
    assert took < 5


def test_a_call_after_an_interrupted_one() -> None:
    ended = run("""
import os, signal, threading, time, numpy as np, pyminidnn as dnn
a = dnn.full((2000, 2000), 1.0)
threading.Thread(target=lambda: (time.sleep(0.3), os.kill(os.getpid(), signal.SIGINT))).start()
try:
    dnn.matmul(a, a, algo="reference")
except KeyboardInterrupt:
    print("interrupted")
print(float(dnn.reduce(dnn.full((1 << 20,), 1.0), "sum").numpy()))
""")
    assert ended.stdout == "interrupted\n1048576.0\n", ended.stderr


def test_a_sub_interpreter_is_refused() -> None:
    ended = run("""
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
code = '''
try:
    import pyminidnn
except ImportError as error:
    print(error, flush=True)
'''
interpreters.run_string(interpreters.create(), code)
""")
    assert ended.stdout.startswith("pyminidnn works in the main interpreter of a process only"), ended.stderr
