# SPDX-License-Identifier: Apache-2.0
"""python -m pyminidnn bench, and progress bars."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import termios
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from cases import FAMILIES as CALLED
from test_cli import needs_nvrtc, run, start

from pyminidnn import _C
from pyminidnn.bench import FAMILIES, _Bench

FAST = ("bench", "--size", "small", "--seconds", "0.001", "--device", "cpu")
# A module that hides packages from the commands, as if they were not installed.
HIDE = "sys.modules.update(dict.fromkeys({!r}))\nimport importlib.util as u; f = u.find_spec\nu.find_spec = lambda n, *a: None if n in {!r} else f(n, *a)"


def test_every_family_has_rows() -> None:
    assert set(FAMILIES) == set(CALLED)
    bench = _Bench("cpu", "small", 0.001)
    assert all(list(bench.rows(family)) for family in FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_peers_compute_the_same(family: str, device: str) -> None:
    """Other than random numbers, and the order of NumPy's dimensions for NHWC."""
    bench = _Bench(device, "small", 0.001)
    for row in bench.rows(family):
        if family == "random":
            continue
        ours = row.ours()
        ours = (ours[0] if isinstance(ours, tuple) else ours).numpy()
        for name, call in row.peers.items():
            want = call()
            want = want.cpu().numpy() if name == "torch" else want
            want = want.transpose(0, 3, 1, 2) if name == "numpy" and "NHWC" in row.name else want
            if family == "lrn":  # torch's window lies differently for even sizes only
                assert row.name == "lrn, 5 channels"
            np.testing.assert_allclose(ours, want, rtol=2e-2, atol=2e-2, err_msg=f"{row.name} {name}")


def test_table_and_picture(tmp_path: Path) -> None:
    code, out, err = run(*FAST, "softmax", "activation", "--out", str(tmp_path / "new"))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].endswith(f"numpy {np.__version__}" if not find_spec("torch") else lines[0][-5:])
    assert re.match(r"call +us +rate +numpy/ours", lines[1])
    assert [line.split()[0] for line in lines[2:5]] == ["softmax", "activation", "activation"]
    assert "geometric mean of numpy/ours: " in out
    table = (tmp_path / "new/bench.md").read_text()
    assert table.count("\n| softmax ") == 1 and table.count("\n| activation ") == 2
    assert (tmp_path / "new/bench.png").exists() == bool(find_spec("matplotlib"))


def test_numpy_is_the_only_peer_where_nothing_else_is_installed(tmp_path: Path) -> None:
    hidden = ["torch", "matplotlib", "tqdm"]
    code, out, err = run(*FAST, "reduce", "loss", "--out", str(tmp_path), code=HIDE.format(hidden, hidden))
    assert (code, err) == (0, "") and "torch" not in out and "numpy/ours" in out
    assert [p.name for p in tmp_path.iterdir()] == ["bench.md"]


@pytest.mark.parametrize(
    "arguments, why",
    [
        (["convolution"], "argument FAMILY: 'convolution' is none of conv, matmul, "),
        (["--size", "huge"], "argument --size: invalid choice: 'huge'"),
        (["--seconds", "0"], "argument --seconds: '0' is not a number of seconds above 0 and up to 3600"),
        (["--seconds", "nan"], "argument --seconds: 'nan' is not a number of seconds"),
        (["--out", ""], "argument --out: '' is not the name of a folder in UTF-8"),
    ],
)
def test_bad_options(arguments: list[str], why: str) -> None:
    code, out, err = run("bench", *arguments)
    assert (code, out) == (2, "") and why in err


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, out, err = run(*FAST, "reduce", "--out", str(tmp_path / "file" / "below"))
    assert (code, out) == (1, "") and err.startswith("pyminidnn: [Errno ")


FIND = (
    "import numpy as np, pyminidnn as dnn; dnn.find(dnn.matmul, np.ones((700, 700)), np.ones((700, 700))); sys.exit()"
)
COMMANDS = {
    "bench": ((*FAST, "reduce"), ""),
    "compile": (("compile", "--arch", "sm_80", "--out"), "from pyminidnn import _C; _C.manifest = lambda m=_C.manifest()[:1]: m"),
    "find": ((), FIND),
}  # fmt: skip


def on_a_terminal(arguments: tuple[str, ...], code: str) -> tuple[int, bytes]:
    """Exit code, and what a terminal on stderr receives."""
    here, there = os.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    process = start(*arguments, code=code, stderr=there)
    os.close(there)
    shown = b""
    try:
        while block := os.read(here, 4096):
            shown += block
    except OSError:  # the process has closed its terminal
        pass
    os.close(here)
    process.communicate(timeout=60)
    return process.returncode, shown


@pytest.mark.parametrize("command", COMMANDS)
def test_progress_bars(command: str, tmp_path: Path) -> None:
    pytest.importorskip("tqdm")
    if command == "compile" and _C.why_no_nvrtc():
        pytest.skip(_C.why_no_nvrtc())
    arguments, code = COMMANDS[command]
    arguments = (*arguments, str(tmp_path / "out")) if command == "compile" else arguments
    unit = {"bench": b"family", "compile": b"kernel", "find": b"config"}[command]
    if command == "find":  # a bar appears after half a second
        code = (
            "import pyminidnn.progress as p; t = p.Progress.__init__\np.Progress.__init__ = lambda s, n, u, x='', delay=0: t(s, n, u, x)\n"
            + code
        )
    code_, shown = on_a_terminal(arguments, code)
    # A bar is not redrawn within a tenth of a second, so its last state may be missing.
    assert code_ == 0 and b"%|" in shown and unit in shown
    hidden = ["tqdm"]
    assert on_a_terminal(arguments, HIDE.format(hidden, hidden) + "\n" + code) == (0, b"")
    done, _, err = run(*arguments, code=code)
    assert (done, err) == (0, "")


def test_every_call_of_find_ends_its_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyminidnn import progress

    bars: list[list[object]] = []

    class Bar:
        def __init__(self, *_: object, **__: object) -> None:
            bars.append([])

        def step(self, count: int = 1) -> None:
            bars[-1].append("step")

        def close(self) -> None:
            bars[-1].append("close")

    monkeypatch.setattr(progress, "Progress", Bar)
    import pyminidnn as dnn

    x = np.ones((3, 5), "float32")
    (report,) = dnn.find(dnn.softmax_forward, x)
    measured = sum(len(e.configs) for e in report.engines if not e.why_not)
    assert bars[-1].count("step") == measured and bars[-1][-1] == "close"


@needs_nvrtc
def test_compile_writes_no_bar_to_a_pipe(tmp_path: Path) -> None:
    code, out, err = run("compile", "--arch", "sm_80", "--out", str(tmp_path), code=COMMANDS["compile"][1])
    assert (code, err) == (0, "") and out.startswith("sm_80: 1 of 1 kernels in ")
