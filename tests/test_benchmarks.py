# SPDX-License-Identifier: Apache-2.0
"""The benchmarks run on a CPU with few samples, and write a table and a picture. Also tests what determines their
figures."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import draw
import numpy as np
import pytest
import runner
from case_line import parse
from report import Record, Target, summary_lines
from runner import Row, settled

import pyminidnn as dnn

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables})  # fmt: skip


@pytest.mark.torch
@pytest.mark.parametrize(
    "what, words, line",
    [
        ("conv", "one-channel", "| conv forward f32 x=1x1x1024x2048 w=1x1x3x3 pad=1 math=ieee |"),
        ("matmul", "matmul tf32 a=64x", "| matmul forward f32 a=64x512 b=512x512 |"),
    ],
)
def test_table_and_picture_are_written(what: str, words: str, line: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    arguments = ["--device", "cpu", "--seconds", "0", "--out", str(tmp_path), "--picture", *words.split()]
    done = run(str(BENCHMARKS / f"bench_{what}.py"), *arguments)
    assert done.returncode == 0, done.stderr
    assert "| list | rows | geometric mean of torch/ours |" in done.stdout and "1 rows in" in done.stdout
    assert f"`python benchmarks/bench_{what}.py --device cpu " in done.stdout
    (table,) = tmp_path.glob(f"{what}_*.md")
    (picture,) = tmp_path.glob(f"{what}_*.png")
    assert line in table.read_text() and picture.name in table.read_text()


@pytest.mark.gpu
@pytest.mark.parametrize(
    "what, words, rows",
    [
        ("conv", "one-channel", 1),  # for this case, cuDNN searches for its fastest algorithm
        ("conv", "backward_bias f64 dy=64x256x14x14", 2),
        ("conv", "forward_statistics x=64x64x56x56:nhwc w=64x64x1x1", 1),
        ("batch_norm", "batch_norm backward float32 x=64x2048x7x7", 2),
        ("matmul", "f64 a=1024x1024", 1),
    ],
)
@pytest.mark.torch
def test_rows_agree_with_torch_on_a_gpu(what: str, words: str, rows: int) -> None:
    """The results equal torch's, whichever variant of torch is the fastest."""
    done = run(str(BENCHMARKS / f"bench_{what}.py"), "--seconds", "0.02", *words.split())
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{rows} rows in" in done.stdout


QUIET = [(10.0, 20.0), (10.1, 20.0), (10.2, 20.3), (10.3, 20.0)]
DISTURBED = [(10.0, 20.0), (10.1, 20.0), (10.2, 81.0), (10.3, 20.0)]


@pytest.mark.parametrize("side", [0, 1], ids=["ours", "the peer"])
def test_a_row_is_measured_again_if_its_turns_disagree(side: int) -> None:
    quiet, disturbed = ([(a, b) if side else (b, a) for a, b in turns] for turns in (QUIET, DISTURBED))
    attempts = iter([disturbed, disturbed, quiet])
    timing = settled(lambda: next(attempts))
    assert sorted([timing.us, timing.peer_us]) == pytest.approx([10.15, 20.0])
    assert timing.spread == pytest.approx(0.03) and timing.spread <= runner.DISAGREEMENT
    assert next(attempts, None) is None


def test_a_row_that_settles_is_measured_once() -> None:
    attempts = iter([QUIET])
    assert settled(lambda: next(attempts)).spread <= runner.DISAGREEMENT


def test_a_row_that_never_settles_keeps_its_best_attempt() -> None:
    worse = [(10.0, 20.0), (10.0, 400.0)]
    attempts = iter([worse, DISTURBED, worse, QUIET])
    timing = settled(lambda: next(attempts))
    assert timing.spread == pytest.approx(81 / 20 - 1)
    assert timing.peer_us == 20.0
    assert next(attempts) == QUIET  # after three attempts, no fourth one was made


def test_a_microsecond_of_a_short_launch_is_no_disagreement() -> None:
    assert settled(lambda: [(7.0, 7.9), (7.9, 7.0)], slack_us=1).spread == 0
    assert settled(lambda: [(7.0, 7.0), (9.1, 7.0)], slack_us=1).spread > runner.DISAGREEMENT
    assert settled(lambda: [(7.0, 7.9), (7.9, 7.0)]).spread > runner.DISAGREEMENT


def result(values: object, dtype: str = "float32") -> object:
    """A row's call, which returns these values."""
    return lambda: dnn.asarray(np.asarray(values), dtype=dtype)


ONES = np.ones((8, 16))
LAST = ONES + 1e-6 * (np.arange(128).reshape(8, 16) == 127)


@pytest.mark.parametrize(
    "ours, options, right",
    [
        (ONES, {}, True),
        # A difference of one float32 rounding is accepted.
        (ONES * (1 + 2e-7), {}, True),
        (ONES * (1 + 1e-5), {}, False),
        # This difference is accepted: a sum of 10^4 terms has more roundings.
        (ONES * (1 + 1e-5), {"terms": 10**4}, True),
        (ONES * (1 + 1e-3), {"terms": 10**4}, False),
        (ONES * (1 + 1e-3), {"dtype": "tf32"}, True),
        (ONES * (1 + 1e-2), {"dtype": "tf32"}, False),
        (ONES * (1 + 1e-2), {"dtype": "bfloat16"}, True),
        (ONES * (1 + 1e-1), {"dtype": "bfloat16"}, False),
        (ONES * (1 + 1e-1), {"tolerance": 0.2}, True),
        (LAST, {}, True),
        # This result is refused: one element differs, and terms=0 allows no difference.
        (LAST, {"terms": 0}, False),
        (np.where(LAST > 1, np.nan, ONES), {}, False),
        (ONES[:4], {}, False),
        # This result is refused: it has another shape, and must not be broadcast.
        (ONES[0], {}, False),
    ],
)
@pytest.mark.torch
def test_a_wrong_result_is_refused(ours: np.ndarray, options: dict[str, object], right: bool) -> None:
    import torch

    row = Row("row", result(ours), lambda: torch.ones(8, 16), **options)
    if right:
        runner.Clock("cpu", 0).compare(row, row.peer)
    else:
        with pytest.raises(ArithmeticError, match="result 0 (differs from|is )"):
            runner.Clock("cpu", 0).compare(row, row.peer)


@pytest.mark.torch
def test_integers_are_equal_and_all_results_are_compared() -> None:
    import torch

    clock, both = runner.Clock("cpu", 0), lambda: (torch.ones(3), torch.tensor([1, 2, 3]))
    for index in ([1, 2, 3], [1, 2, 4]):
        row = Row("row", lambda index=index: (result(np.ones(3))(), result(index, "int64")()), both)
        if index == [1, 2, 3]:
            clock.compare(row, both)
        else:
            with pytest.raises(ArithmeticError, match="result 1 differs"):
                clock.compare(row, both)


@pytest.mark.torch
def test_a_benchmark_with_a_wrong_row_fails() -> None:
    program = """
import torch, pyminidnn as dnn
from runner import Row, main
x = torch.rand(64, 64) + 1
t = dnn.from_dlpack(x)
rows = [Row("right row", lambda: dnn.mul(t, 2), lambda: x * 2), Row("wrong row", lambda: dnn.mul(t, 2), lambda: x * 2.01)]
main(lambda device: rows, "two rows")
"""
    done = run("-c", program, "--device", "cpu", "--seconds", "0")
    assert done.returncode == 1 and done.stderr.strip() == "1 rows failed: wrong row"
    assert "wrong row: ArithmeticError: result 0 differs from torch's by" in done.stdout
    assert "1 rows in" in done.stdout and "| wrong row" not in done.stdout


@pytest.mark.torch
def test_the_fastest_way_of_the_peer_counts() -> None:
    import torch

    one = torch.ones(3)
    ways = {
        "slow": lambda: (time.sleep(0.01), one)[1:],
        "fast": lambda: one,
        "slower": lambda: (time.sleep(0.02), one)[1:],
    }
    x = dnn.asarray(np.ones(3, "float32"))
    record = runner.Clock("cpu", 0).measure(Row("a row", lambda: dnn.mul(x, 1), ways), 1.0)
    assert record.way == "fast" and record.peer_us < 5000
    assert "; torch: fast" in record.notes


@pytest.mark.torch
def test_a_poor_choice_of_cudnn_does_not_count() -> None:
    """cuDNN times each algorithm once, and each thread keeps the one that seemed the fastest. Here the first choice is
    slow."""
    import torch

    here, choices, one = threading.local(), iter([0.02, 0.0]), torch.ones(3)

    def peer() -> object:
        if not hasattr(here, "pause"):
            here.pause = next(choices)
        time.sleep(here.pause)
        return one

    clock = runner.Clock("cpu", 0)
    clock.cuda, clock.flush, clock.synchronize, clock.device_turn = True, one, lambda: None, clock.cpu_turn
    x = dnn.asarray(np.ones(3, "float32"))
    row = Row("a row", lambda: dnn.mul(x, 1), peer, searched=True)
    assert clock.measure(row, 1.0).peer_us < 10_000


def record(name: str, list: str, us: float, peer_us: float, floor_us: float = 0, **more: object) -> Record:
    return Record(list, name, name, "float32", 0, 0, us, peer_us, floor_us, "engine", **more)


def test_the_summary_names_means_losers_and_what_is_not_counted() -> None:
    records = [
        record("conv forward a", "one", 10, 40, 5),
        record("conv forward b", "one", 10, 10, 9),
        record("conv backward c", "one", 10, 5, 1),
        record("conv forward d", "one", 10, 404, spread=3, unsettled=True),
        record("host: e", "", 4, 3),
        record("f", "all disturbed", 1, 100, spread=1, unsettled=True),
    ]
    assert summary_lines(records, {"one": Target(1.5, 0.5, 0.2), "all disturbed": Target(200)}) == [
        "| list | rows | geometric mean of torch/ours | by direction | worst | at | least of floor | at |",
        "|---|---|---|---|---|---|---|---|",
        "| one | 3 | 1.26 | forward 2.00, backward 0.50 | 0.50 | conv backward c | 0.10 | conv backward c |",
        "| rows | 1 | 0.75 |  | 0.75 | host: e |  |  |",
        "",
        "Targets missed: one: mean 1.26, target 1.5; one: least of floor 0.10, target 0.2.",
        "",
        "Slower than torch: conv backward c 0.50; host: e 0.75.",
        "",
        "Turns never agreed, not counted above: conv forward d; f.",
    ]


@pytest.mark.torch
def test_results_of_the_users_find_are_not_read(tmp_path: Path) -> None:
    """The tuning file chooses the slow engine: a plain call uses it, a benchmark does not."""
    tmp_path.chmod(0o700)
    cache = {"PYMINIDNN_CACHE_DIR": str(tmp_path)}
    ask = "import numpy, pyminidnn as dnn; x = numpy.zeros((64, 64), 'float32'); "
    assert run("-c", ask + "dnn.find(dnn.activation_forward, x, 'relu')", **cache).returncode == 0
    tuning = tmp_path / "tuning.txt"
    tuning.write_text(tuning.read_text().replace("activation.vectorized", "activation.reference"))
    kernel = tmp_path / "sm_80-nvrtc13.0" / "0123.cubin"
    kernel.parent.mkdir()
    kernel.write_text("code")
    chosen = ask + "print(dnn.explain(dnn.activation_forward, x, 'relu')[0].chosen, dnn._C.cache_folder())"
    assert run("-c", chosen, **cache).stdout.split() == ["cpu.activation.reference", str(tmp_path)]
    for _ in range(2):
        done = run("-c", "import runner; runner.use_own_cache(); " + chosen, **cache)
        assert done.stdout.split() == ["cpu.activation.vectorized", str(tmp_path / "benchmarks")], done.stderr
        assert (tmp_path / "benchmarks" / "sm_80-nvrtc13.0" / "0123.cubin").read_text() == "code"
        # Writes the file to which a find() in a benchmark would write its results.
        (tmp_path / "benchmarks" / "tuning.txt").write_text(tuning.read_text())
    assert "activation.reference" in tuning.read_text()
    done = run("-c", "import runner; runner.use_own_cache(); " + chosen, PYMINIDNN_CACHE_DIR=os.devnull)
    assert done.stdout.split() == ["cpu.activation.vectorized"]


@pytest.mark.torch
def test_benchmarks_use_their_own_cache(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    program = "import runner, pyminidnn; runner.main(lambda device: [], ''); print(pyminidnn._C.cache_folder())"
    done = run("-c", program, "--device", "cpu", "--seconds", "0", PYMINIDNN_CACHE_DIR=str(tmp_path))
    assert done.stdout.splitlines()[-1] == str(tmp_path / "benchmarks"), done.stderr


# ---- Drawn problems

CONV = "conv forward f32 x=2x8x9x9:nhwc w=16x8x3x3 pad=1 math=ieee"
LCN = "lrn lcn_forward f32 x=2x3x9x9 size=3"


@pytest.mark.torch
def test_drawn_problems_have_ratios_and_regrets(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (cache := tmp_path / "cache").mkdir(mode=0o700)
    arguments = ["--device", "cpu", "--seconds", "0", "--out", str(tmp_path), "--line", CONV, "--line", LCN]
    done = run(str(BENCHMARKS / "bench_drawn.py"), *arguments, PYMINIDNN_CACHE_DIR=str(cache))
    assert done.returncode == 0, done.stderr
    rows = {line: next(row for row in done.stdout.splitlines() if row.startswith(f"| {line} ")) for line in (CONV, LCN)}
    (ours, theirs, ratio, _, regret), engine = rows[CONV].split(" | ")[1:6], rows[CONV].split(" | ")[6]
    assert float(theirs) / float(ours) == pytest.approx(float(ratio), abs=0.02, rel=0.02)
    assert float(regret) >= 1 and engine
    assert "not in torch" in rows[LCN]
    assert all(f"| {name} | 1 |" in done.stdout for name in ("conv forward", "lrn lcn_forward", "channels last"))
    (table,), (picture,) = tmp_path.glob("drawn_*_lines.md"), tmp_path.glob("drawn_*_lines.png")
    assert all(row in table.read_text() for row in rows.values()) and picture.name in table.read_text()
    assert picture.stat().st_size < 100_000
    assert not list(cache.rglob("tuning.txt")), "results of find() were kept"


@pytest.mark.gpu
@pytest.mark.torch
def test_drawn_problems_on_a_gpu() -> None:
    done = run(str(BENCHMARKS / "bench_drawn.py"), "--seconds", "0.02", "--line", CONV, "--line", LCN)
    assert done.returncode == 0 and "2 problems in" in done.stdout, done.stdout + done.stderr


@pytest.mark.torch
def test_threads_alone_and_in_alternation() -> None:
    done = run(str(BENCHMARKS / "bench_threads.py"), "--threads", "1", "--seconds", "0", "--line", CONV)
    assert done.returncode == 0, done.stderr
    (row,) = (line for line in done.stdout.splitlines() if line.startswith(f"| {CONV} | 1 | "))
    ours, theirs, ratio, *_, speedup = (float(cell) for cell in row.strip("| ").split(" | ")[2:])
    assert theirs / ours == pytest.approx(ratio, abs=0.02, rel=0.02) and speedup == 1


@pytest.mark.torch
@pytest.mark.parametrize("family", draw.FAMILIES)
def test_a_line_is_our_problem_and_torchs(family: str) -> None:
    """Our call has the problem of the line, and torch's results are ours. The dtypes of indices and lengths, and layouts
    that are equal in memory, may be written in another way."""
    from bench_drawn import row_of
    from problems import Problem

    rng, compared = draw.rng_of(family, 20261127), 0
    for _ in range(12):
        line = draw.draw(family, rng)
        problem = Problem(line, "cpu")
        (report, *_) = dnn.explain(problem.ours)
        assert report.problem.split(" ")[:3] == line.split(" ")[:3]
        words = [w for w in line.split(" ") if "=" not in w or not w.partition("=")[2][:1].isdigit()]
        assert not set(words) - set(report.problem.split(" ")), report.problem
        row, why = row_of(runner.Clock("cpu", 0), problem)
        assert row is not None or why, line
        compared += row is not None
    assert compared, "no problem was compared with torch"


@pytest.mark.torch
def test_a_drawn_problem_with_a_wrong_result_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    import bench_drawn
    import problems

    right = problems.torch_call
    monkeypatch.setattr(problems, "torch_call", lambda case, t: lambda: [y * 1.01 for y in right(case, t)()])
    with pytest.raises(ArithmeticError, match="result 0 differs"):
        bench_drawn.row_of(runner.Clock("cpu", 0), problems.Problem(CONV, "cpu"))


@pytest.mark.torch
def test_the_tables_of_drawn_problems() -> None:
    from bench_drawn import Drawn, summary_lines

    times = [(10, 20, 1.0), (10, 5, 1.5), (10, 0, 2.0)]
    drawn = [Drawn(f"softmax forward f32 x=4x{n} axis=1", *t[:2], "", "a", t[2], "b") for n, t in enumerate(times)]
    drawn.append(Drawn("loss forward bf16 x=4x5x6:ncw axis=1", 10, 1000, "", "a", 1.0, "a", spread=3))
    lines = summary_lines(drawn)
    # Means of 2 and 0.5, and of 1, 1.5 and 2; the ratio that did not settle is not counted.
    worst = "`softmax forward f32 x=4x1 axis=1`", "`softmax forward f32 x=4x2 axis=1` (b)"
    assert f"| softmax forward | 3 | 1.00 | 0.57 | 0.50 | {worst[0]} | 1.442 | 1.95 | 2.00 | {worst[1]} |" in lines
    assert f"| all | 4 | 1.00 | 0.57 | 0.50 | {worst[0]} | 1.316 | 1.92 | 2.00 | {worst[1]} |" in lines
    assert "- 0.50, regret 1.50 `softmax forward f32 x=4x1 axis=1` a" in lines


@pytest.mark.parametrize("limits", [draw.ORACLE, *draw.NETWORKS.values()], ids=["oracle", *draw.NETWORKS])
def test_a_seed_draws_the_same_problems(limits: draw.Limits) -> None:
    first, second = ([draw.draw(f, draw.rng_of(f, 3), limits) for f in draw.FAMILIES] for _ in range(2))
    assert first == second
    for family, line in zip(draw.FAMILIES, first, strict=True):
        assert parse(line).family == family
