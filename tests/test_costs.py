# SPDX-License-Identifier: Apache-2.0
"""Cost factors: how they change the choice of engines, files that are ignored, and what `pyminidnn calibrate` writes."""

from __future__ import annotations

import math
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import test_cli
from support import calibrated
from test_tuning import KEY, run

import pyminidnn as dnn
from pyminidnn import _C, calibrate

KIND = "softmax forward"
FAST, SLOW = "cpu.softmax.vectorized", "cpu.softmax.reference"
REVISIONS = {e["name"]: e["revision"] for family in _C.families() for e in _C.engines(family, False)}
CALL = "dnn.softmax_forward, np.ones((3, 1000), 'float32')"
SHOW = f"(r,) = dnn.explain({CALL}); print(r.chosen, *(f'{{e.cost_factor:.6g}}' for e in r.engines))"
# Problems of a calibration that takes less than a second.
TINY = """
import pyminidnn as dnn, pyminidnn.calibrate as c
x = dnn.empty((30, {}))
c.problems = lambda: [lambda: dnn.softmax_forward(x), lambda: dnn.{}]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


def line(engine: str, factor: object, kind: str = KIND, device: str = KEY, revision: object = None) -> str:
    return f"{device}\t{kind}\t{engine}\t{REVISIONS.get(engine, 1) if revision is None else revision}\t{factor}"


def write(folder: Path, *lines: str) -> None:
    (folder / "costs.txt").write_text("".join(f"{text}\n" for text in lines))


def factors(folder: Path) -> dict[tuple[str, str, str], float]:
    """The factors in the file, by device, kind and engine."""
    rows = [text.split("\t") for text in (folder / "costs.txt").read_text().splitlines()]
    return {(device, kind, engine): float(factor) for device, kind, engine, _, factor in rows}


# ---- what a factor does


def test_factors_change_the_chosen_engine_and_the_estimates(folder: Path) -> None:
    code = f"(r,) = dnn.explain({CALL}); print(r.chosen, *(e.estimate_us for e in r.engines))"
    chosen, *before = run(code, folder).split()
    assert chosen == FAST
    write(folder, line(FAST, 4000), line(SLOW, 0.5))
    chosen, *after = run(code, folder).split()
    assert chosen == SLOW
    assert float(after[0]) == pytest.approx(4000 * float(before[0]), rel=1e-12)
    assert float(after[1]) == pytest.approx(0.5 * float(before[1]), rel=1e-12)


def test_an_engine_without_a_factor_has_the_mean_of_the_others(folder: Path) -> None:
    assert run(SHOW, folder) == f"{FAST} 1 1\n"
    write(folder, line(FAST, 4))
    assert run(SHOW, folder) == f"{FAST} 4 4\n"
    write(folder, line(FAST, 4), line("cpu.softmax.former", 9))
    assert run(SHOW, folder) == f"{FAST} 4 6\n"  # the geometric mean of 4 and 9


@pytest.mark.parametrize(
    "other", [{"kind": "softmax backward"}, {"kind": "softmax"}, {"device": KEY + "0"}, {"device": "GPU B"}], ids=str
)
def test_factors_of_other_kinds_and_devices_do_not_apply(other: dict[str, str], folder: Path) -> None:
    write(folder, line(FAST, 4000, **other))
    assert run(SHOW, folder) == f"{FAST} 1 1\n"


def test_a_factor_of_another_revision_is_ignored(folder: Path) -> None:
    write(folder, line(FAST, 4000, revision=99), line(SLOW, 2))
    assert run(SHOW, folder) == f"{FAST} 2 2\n"


def test_factors_reach_engines_that_consist_of_others(folder: Path) -> None:
    """The estimate of batch_norm.dense_copies contains that of batch_norm.vectorized."""
    code = """
x, p = dnn.slice(dnn.empty((8, 16, 16, 19)), [0] * 4, (8, 16, 16, 16)), dnn.empty(16)
(r,) = dnn.explain(dnn.batch_norm_forward_inference, x, p, p, p, p)
print(*(e.estimate_us for e in r.engines if e.name.endswith('dense_copies')))"""
    before = float(run(code, folder))
    engines = {"vectorized": 100, "dense_copies": 1, "reference": 100}
    write(folder, *(line(f"cpu.batch_norm.{e}", f, "batch_norm inference") for e, f in engines.items()))
    assert float(run(code, folder)) > 10 * before


def test_plans_of_a_handle_follow_new_factors(folder: Path) -> None:
    out = run(f"""
x = np.ones((3, 1000), "float32")
dnn.softmax_forward(x)
_C.import_costs({line(FAST, 4000) + chr(10) + line(SLOW, 1) + chr(10)!r}, True)
dnn.softmax_forward(x)
_C.clear_costs()
dnn.softmax_forward(x)
""", folder, PYMINIDNN_LOG="info")  # fmt: skip
    assert re.findall(r"cpu\.softmax\.\w+", out) == [FAST, SLOW, FAST]


def test_a_record_of_find_comes_before_factors(folder: Path) -> None:
    (folder / "tuning.txt").write_text(f"{KEY}\tsoftmax forward f32 x=3x1000 axis=1\t{FAST}\t{REVISIONS[FAST]}\t\t1\n")
    write(folder, line(FAST, 4000), line(SLOW, 1))
    assert run(SHOW, folder).split()[0] == FAST


# ---- files and lines that are ignored


@pytest.mark.parametrize("factor", ["nan", "inf", "-1", "0", "1e9", "1e-9", "2 us", "", "2\t3"])
def test_a_line_without_a_factor_is_ignored(factor: str, folder: Path) -> None:
    write(folder, line(FAST, factor), line(FAST, 3, revision="one"), line(SLOW, 2))
    assert run(SHOW, folder) == f"{FAST} 2 2\n"


@pytest.mark.parametrize("content", [b"\0" * 100_000, b"\t" * 100_000, os.urandom(100_000), b"x\n" * 50_000])
def test_garbage_is_ignored(content: bytes, folder: Path) -> None:
    (folder / "costs.txt").write_bytes(content)
    assert run(SHOW, folder) == f"{FAST} 1 1\n"


@pytest.mark.parametrize(
    "spoil, why",
    [
        (lambda f: (f.unlink(), os.mkfifo(f)), "it is not a regular file"),
        (lambda f: f.chmod(0o666), "other users may write to it; run chmod 600 on it"),
    ],
)
def test_an_untrusted_file_is_refused_by_name(spoil: Any, why: str, folder: Path) -> None:
    write(folder, line(FAST, 4))
    spoil(folder / "costs.txt")
    assert run(SHOW, folder) == f"{FAST} 1 1\n"
    code, out, err = test_cli.run("calibrate", code=TINY.format(5, "exp(x)"), PYMINIDNN_CACHE_DIR=str(folder))
    assert (code, out) == (1, "")
    assert err == f"DeviceError: calibrate: cost factors cannot be kept: {folder}/costs.txt is not used: {why}\n"


# ---- the command


def test_calibrate_writes_factors_that_the_next_process_uses(folder: Path) -> None:
    other = line(FAST, 7, device="CPU of another model")
    write(folder, other, line("cpu.exotic.engine", 3), line(SLOW, 9999))
    where = {"PYMINIDNN_CACHE_DIR": str(folder)}
    code, out, err = test_cli.run("calibrate", code=TINY.format(500, "exp(x)"), **where)
    assert (code, err) == (0, "") and re.fullmatch(
        r"measured 4 cost factors of CPU engines on 2 problems in \d+ s; GPUs are not calibrated\n", out
    )
    found = factors(folder)
    kept = {("CPU of another model", KIND, FAST): 7, (KEY, KIND, "cpu.exotic.engine"): 3}
    assert {k: v for k, v in found.items() if k in kept} == kept
    new = {(KEY, KIND, FAST), (KEY, KIND, SLOW),
           (KEY, "pointwise", "cpu.pointwise.vectorized"), (KEY, "pointwise", "cpu.pointwise.reference")}  # fmt: skip
    assert found.keys() == kept.keys() | new
    assert all(1e-3 < found[k] < 1e3 for k in new)
    assert not (folder / "tuning.txt").exists() and (folder / "costs.txt").stat().st_mode & 0o777 == 0o600
    # The estimate is now that of the calibration, so it is near what find() measures. Other programs run at the time.
    code = "(r,) = dnn.find(dnn.softmax_forward, np.ones((30, 500), 'f')); print(*(e.estimate_us / e.measured_us for e in r.engines))"
    assert all(0.05 < float(ratio) < 20 for ratio in run(code, folder).split())
    assert "calibrated  yes, 5 cost factors" in test_cli.run("info", **where)[1]


def test_calibrate_needs_a_cache_folder() -> None:
    code, out, err = test_cli.run("calibrate", PYMINIDNN_CACHE_DIR=os.devnull)
    assert (code, out) == (1, "")
    assert err == "DeviceError: calibrate: cost factors cannot be kept: there is no cache folder\n"
    assert "calibrated  no: " in test_cli.run("info", PYMINIDNN_CACHE_DIR=os.devnull)[1]


def test_two_processes_calibrate_at_once(folder: Path) -> None:
    calls = ("exp(x)", "sum(x, 1)", "activation_forward(x, 'relu')", "layer_norm_forward(x)")
    with ThreadPoolExecutor(4) as pool:
        codes = pool.map(
            lambda call: test_cli.run("calibrate", code=TINY.format(64, call), PYMINIDNN_CACHE_DIR=str(folder))[0],
            calls,
        )
        assert list(codes) == [0] * 4
    kinds = {kind for _, kind, _ in factors(folder)}
    assert kinds == {KIND, "pointwise", "reduce", "activation forward", "layer_norm layer_forward"}


def test_the_factor_is_the_median_of_measured_over_estimated_time() -> None:
    def report(*engines: tuple[float, float, float]) -> list[Any]:
        rows = [
            SimpleNamespace(
                name=f"cpu.softmax.{i}", revision=2, why_not="", measured_us=us, estimate_us=e, cost_factor=f
            )
            for i, (us, e, f) in enumerate(engines)
        ]
        return [SimpleNamespace(problem="softmax forward f32 x=3x4 axis=1", engines=rows)]

    # The estimates without their factors are 10 and 20. The second engine was measured twice only.
    estimated = [report((0, 10, 1), (0, 40, 2))] * 3
    measured = [report((20, 0, 1), (10, 0, 1)), report((80, 0, 1), (40, 0, 1)), report((30, 0, 1), (0, 0, 1))]
    lines = calibrate._factors(measured, estimated)
    assert lines == [f"{KEY}\tsoftmax forward\tcpu.softmax.0\t2\t3", f"{KEY}\tsoftmax forward\tcpu.softmax.1\t2\t1"]


def test_problems_cover_every_engine_of_regions() -> None:
    """test_every_engine.py checks the other families."""
    assert calibrated() >= {("graph", name) for name in dnn.engines("graph", "cpu")}


def test_medians_are_of_logarithms() -> None:
    assert calibrate._median([1.0, 4.0]) == pytest.approx(2)
    assert math.isclose(calibrate._median([0.1, 10.0, 3.0]), 3)
    assert np.isfinite(calibrate._median([1e-4, 1e4]))


def test_factors_may_change_while_plans_are_chosen(folder: Path) -> None:
    """dense_copies needs workspace for the engine that it chooses. All threads get right results meanwhile."""
    one, other = (line(f"cpu.batch_norm.{e}", 1, "batch_norm inference")[:-1] for e in ("vectorized", "reference"))
    out = run(f"""
import threading
x = np.random.default_rng(0).normal(size=(2, 8, 9, 12)).astype("float32")[..., :9]
p, stop = np.full(8, 2, "float32"), threading.Event()
def change():
    try:
        for i in range(100):
            _C.import_costs(f"{one}{{100.0 ** (i % 3 - 1)}}\\n{other}1\\n", True)
    finally:
        stop.set()
def work():
    while not stop.is_set():
        with dnn.Handle("cpu"):
            y = dnn.batch_norm_forward_inference(x, p, p, p, p).numpy()
        assert np.allclose(y, (x - 2) / np.sqrt(2 + 1e-5) * 2 + 2, atol=1e-5)
threads = [threading.Thread(target=t) for t in (change, work, work)]
for t in threads: t.start()
for t in threads: t.join()
print("done")
""", folder)  # fmt: skip
    assert out == "done\n"
