# SPDX-License-Identifier: Apache-2.0
"""What find() measures and how calls use it: records that do not apply, restrictions, the file, other threads, and the
plans that a handle keeps."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import pyminidnn as dnn
from pyminidnn import _C

X = np.random.default_rng(0).normal(size=(16, 8, 33, 33)).astype("float32")
W = np.random.default_rng(1).normal(size=(6, 8, 3, 3)).astype("float32")
PROBLEM = "conv forward f32 x=16x8x33x33 w=6x8x3x3"
GEMM = "cpu.conv.im2col_gemm"
KEY = _C.device_info("cpu")["model"]
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


def run(code: str, folder: Path, **environment: str) -> str:
    """Runs the code in a process with that cache folder, in which X and W are defined. Returns its output."""
    code = f"""
import numpy as np, pyminidnn as dnn
from pyminidnn import _C
X, W = np.ones({X.shape}, "float32"), np.ones({W.shape}, "float32")
def chosen(*args, **kwargs):
    (report,) = dnn.explain(dnn.conv_forward, X, W, *args, **kwargs)
    return next(e for e in report.engines if e.name == report.chosen)
{code}"""
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYMINIDNN_CACHE_DIR": str(folder)} | environment,
                          capture_output=True, text=True, timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def write(folder: Path, config: str, engine: str = GEMM, problem: str = PROBLEM, rest: str = "1") -> None:
    (folder / "tuning.txt").write_text(f"{KEY}\t{problem}\t{engine}\t1\t{config}\t{rest}\n")


def records(folder: Path) -> list[list[str]]:
    return [line.split("\t") for line in (folder / "tuning.txt").read_text().splitlines()]


# ---- lines of a tuning file that are ignored, because they do not apply to the problem


@pytest.mark.parametrize("config", ["images=0", "images=-1", "images=9223372036854775807", "images=17", "garbage", "",
                                    "images=99999999999999999999"])  # fmt: skip
def test_a_config_that_the_engine_does_not_offer_is_ignored(config: str, folder: Path) -> None:
    write(folder, config)
    out = run("print(chosen().name); dnn.conv_forward(X, W)", folder, PYMINIDNN_LOG="info")
    assert out.startswith(run("print(chosen().name)", folder / "none"))
    assert (
        f"the tuning record of {PROBLEM} -> {GEMM} revision 1 config '{config}' is ignored: the engine does not support"
        in out
    )


def test_a_config_that_is_offered_is_used(folder: Path) -> None:
    write(folder, "images=2")
    assert run("e = chosen(); print(e.name, e.config, e.measured_us)", folder) == f"{GEMM} images=2 1.0\n"


def test_a_record_with_the_former_name_of_an_engine_is_used(folder: Path) -> None:
    write(folder, "", "cpu.conv.tiles")
    assert run("e = chosen(); print(e.name, e.measured_us)", folder) == "cpu.conv.implicit_gemm 1.0\n"


def table(name: str) -> list[tuple[str, str]]:
    """The rows of a table of former and present names in tuning.cpp."""
    (rows,) = re.findall(rf"{name}\[\]\{{(.*?)\}};", (ROOT / "cpp/engine/tuning.cpp").read_text(), re.DOTALL)
    return re.findall(r'\{"(.*)", "(.*)"\},', rows)


@pytest.mark.parametrize(("former", "present"), table("kRenamedProblems"))
def test_a_record_with_the_former_text_of_a_problem_is_used(former: str, present: str, folder: Path) -> None:
    """A problem of the family as it is now, found by its former text."""
    family = present.split()[0]
    call = {
        "layer_norm layer_": "dnn.layer_norm_forward, x",
        "layer_norm rms_": "dnn.rms_norm_forward, x",
        "layer_norm group_": "dnn.group_norm_forward, x, 2",
        "lrn lrn_": "dnn.lrn_forward, x, 3",
        "lrn lcn_": "dnn.lcn_forward, x.reshape(1, 1, 2, 4), 3",
        "batch_norm ": "dnn.batch_norm_forward_training, x, x[0], x[0]",
        "pad forward ": "dnn.pad, x, 1",
        "gather forward ": "dnn.gather, x, i",
        "gather backward ": "dnn.gather_backward, x, i, (3, 4)",
    }[present]
    code = f"""
x, i = np.ones((2, 4), "float32"), np.zeros(2, "int64")
(report,) = dnn.explain({call})
print(report.problem, next(e.measured_us for e in report.engines if e.name == report.chosen), sep=";")"""
    problem, measured = run(code, folder).strip().split(";")
    assert measured == "0.0" and problem.startswith(present)
    write(folder, "", f"cpu.{family}.reference", former + problem.removeprefix(present))
    assert run(code, folder).strip() == f"{problem};1.0"


@pytest.mark.parametrize("line", table("kRenamedEngines"), ids=lambda line: line[0])
def test_former_names_are_of_engines_that_exist_now(line: tuple[str, str]) -> None:
    engines = {e for family in _C.families() for d in ("cpu", "cuda") for e in dnn.engines(family, d)}
    assert line[0] not in engines and line[1] in engines


NORMS = {
    "batch_norm": ("training f32 x=4x3x5x5", "cpu.norm.streamed", "cpu.batch_norm.vectorized",
                   "dnn.batch_norm_forward_training, np.ones((4, 3, 5, 5), 'f'), np.ones(3, 'f'), np.ones(3, 'f')"),
    "layer_norm": ("rms_forward f32 x=7x9 axis=1", "cpu.norm.rows", "cpu.layer_norm.contiguous_rows",
                   "dnn.rms_norm_forward, np.ones((7, 9), 'f')"),
    "group norm": ("group_forward f32 x=2x6x5x5 groups=3", "cpu.norm.rows_reference", "cpu.layer_norm.reference",
                   "dnn.group_norm_forward, np.ones((2, 6, 5, 5), 'f'), 3"),
    "lrn": ("lrn_forward f32 x=2x6x5x5 size=5", "cpu.norm.across", "cpu.lrn.cross_channel",
            "dnn.lrn_forward, np.ones((2, 6, 5, 5), 'f'), 5"),
    "lcn": ("lcn_forward f32 x=2x6x5x5 size=5", "cpu.norm.local_reference", "cpu.lrn.reference",
            "dnn.lcn_forward, np.ones((2, 6, 5, 5), 'f'), 5"),
}  # fmt: skip


@pytest.mark.parametrize("problem, former, present, call", NORMS.values(), ids=NORMS)
def test_records_of_the_former_family_norm_are_used(
    problem: str, former: str, present: str, call: str, folder: Path
) -> None:
    """batch_norm, layer_norm and lrn were one family: their problems began with its name. find() replaces such a record,
    whose problem then begins with the name of today."""
    write(folder, "", former, f"norm {problem}", "1e-6")
    show = f"(r,) = dnn.explain({call}); e = next(e for e in r.engines if e.name == r.chosen); print(e.name, e.measured_us)"
    assert run(show, folder) == f"{present} 1e-06\n"
    run(f"dnn.find({call})", folder)
    family = present.split(".")[1]
    assert [key for _, key, *_ in records(folder)] == [f"{family} {problem}"]


def test_a_record_beyond_max_workspace_is_ignored(folder: Path) -> None:
    write(folder, "images=16")
    out = run("""
e = chosen(handle=dnn.Handle(max_workspace=600_000), algo="im2col_gemm")
print(e.config, e.workspace_bytes <= 600_000, e.configs)
dnn.empty_cache("cpu"); dnn.reset_peak_memory("cpu")
h = dnn.Handle(max_workspace=600_000)
x, y = dnn.asarray(X), dnn.zeros((16, 6, 31, 31))
w, before = dnn.asarray(W), dnn.memory_stats("cpu")["allocated_bytes"]
dnn.reset_peak_memory("cpu")
dnn.conv_forward(x, w, out=y, handle=h, algo="im2col_gemm")
print(dnn.memory_stats("cpu")["peak_allocated_bytes"] - before <= 600_000)
""", folder)  # fmt: skip
    assert out == "images=1 True ['images=1']\nTrue\n"


def test_the_config_that_algo_names_is_used(folder: Path) -> None:
    write(folder, "images=1")
    assert run("print(chosen(algo='im2col_gemm:images=16').config)", folder) == "images=16\n"
    assert run("print(chosen(algo='im2col_gemm').config)", folder) == "images=1\n"
    with pytest.raises(dnn.NotSupported, match=r"needs 4\.\d MB of workspace; Handle.max_workspace allows 600.0 kB"):
        dnn.conv_forward(X, W, algo="im2col_gemm:images=16", handle=dnn.Handle(max_workspace=600_000))


@pytest.mark.parametrize("us", ["nan", "-inf", "-1", "0", "1 us", ""])
def test_a_record_without_a_time_is_ignored(us: str, folder: Path) -> None:
    write(folder, "images=2", rest=us)
    assert run("print(chosen().measured_us)", folder) == "0.0\n"


@pytest.mark.parametrize("content", [b"\0" * 100_000, b"\t" * 100_000, os.urandom(100_000), b"x\n" * 50_000])
def test_garbage_is_ignored(content: bytes, folder: Path) -> None:
    (folder / "tuning.txt").write_bytes(content)
    assert run("print(chosen().measured_us)", folder) == "0.0\n"


# ---- calls that restrict the choice of the engine


@pytest.mark.parametrize(
    "restriction",
    ["algo='direct'", "handle=dnn.Handle(max_workspace=0)", "handle=dnn.Handle(threads=1)", "handle=dnn.Handle(deterministic=True)"],
)  # fmt: skip
def test_a_restricted_find_applies_to_that_restriction_alone(restriction: str, folder: Path) -> None:
    free = run("print(chosen().name, chosen().config)", folder / "none")
    found = run(f"(r,) = dnn.find(dnn.conv_forward, X, W, {restriction}); print(r.chosen)", folder)
    assert run("e = chosen(); print(e.name, e.config); assert e.measured_us == 0", folder) == free
    assert run(f"e = chosen({restriction}); print(e.name); assert e.measured_us > 0", folder) == found
    ((_, key, *_),) = records(folder)
    assert key.startswith(PROBLEM + " ") and key != PROBLEM


def test_an_unrestricted_find_applies_where_restrictions_allow_it(folder: Path) -> None:
    write(folder, "images=1")
    assert run("print(chosen(handle=dnn.Handle(deterministic=True)).name)", folder) == GEMM + "\n"
    assert run("print(chosen(algo='direct').name)", folder) == "cpu.conv.direct\n"


def test_find_with_one_thread_starts_no_threads(folder: Path) -> None:
    out = run("""
import os
before = len(os.listdir("/proc/self/task"))
dnn.find(dnn.softmax_forward, np.ones((1000, 300), "float32"), handle=dnn.Handle(threads=1))
print(len(os.listdir("/proc/self/task")) - before)
""", folder, OMP_NUM_THREADS="4")  # fmt: skip
    assert out == "0\n"


def test_the_key_names_processor_threads_and_instruction_set(folder: Path) -> None:
    run("dnn.find(dnn.softmax_forward, np.ones((3, 5), 'float32'))", folder, OMP_NUM_THREADS="3")
    ((device, *_),) = records(folder)
    assert device.endswith(f" {_C.cpu_isas()[0]} x 3 threads")
    if len(_C.cpu_isas()) > 1:
        other = _C.cpu_isas()[1]
        run(
            "dnn.find(dnn.softmax_forward, np.ones((3, 5), 'float32'))",
            folder,
            OMP_NUM_THREADS="3",
            PYMINIDNN_CPU_ISA=other,
        )
        assert {d.replace(device.split(" x ")[0].split()[-1], "") for d, *_ in records(folder)} != {device}
        assert len(records(folder)) == 2


# ---- reading and writing the tuning file

FIND = "dnn.find(dnn.softmax_forward, np.ones((3, {}), 'float32'))"


def test_a_truncated_line_leaves_the_others_valid(folder: Path) -> None:
    (folder / "tuning.txt").write_text(f"{KEY}\tsoftmax forward f32 x=3x5 axis=1\tcpu.soft")
    run(FIND.format(7), folder)
    assert (
        run(
            "(r,) = dnn.explain(dnn.softmax_forward, np.ones((3, 7), 'float32')); print(max(e.measured_us for e in r.engines) > 0)",
            folder,
        )
        == "True\n"
    )


def test_finding_again_replaces_the_record(folder: Path) -> None:
    (folder / "tuning.txt").write_text("a line of another version\n")
    run("\n".join(FIND.format(n) for n in (4, 5, 4, 6, 5, 4)), folder)
    run(FIND.format(5), folder)
    first, *lines = records(folder)
    assert first == ["a line of another version"]
    assert sorted(line[1] for line in lines) == [f"softmax forward f32 x=3x{n} axis=1" for n in (4, 5, 6)]
    assert (folder / "tuning.txt").stat().st_mode & 0o777 == 0o600


def test_concurrent_writers_lose_nothing(folder: Path) -> None:
    def some(i: int) -> None:
        run("\n".join(FIND.format(n) for n in (*range(10 * i + 1, 10 * i + 8), 100, 100)), folder)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(some, range(4)))
    keys = [line[1] for line in records(folder)]
    wanted = [100, *(n for i in range(4) for n in range(10 * i + 1, 10 * i + 8))]
    assert sorted(keys) == sorted(f"softmax forward f32 x=3x{n} axis=1" for n in wanted)


WARNS = FIND.format(5) + "; (r,) = " + FIND.format(6) + "; print('measured', r.chosen != '')"


@pytest.mark.parametrize(
    "spoil, why",
    [
        (lambda f: os.mkfifo(f), "it is not a regular file"),
        (lambda f: f.mkdir(), "it is not a regular file"),
        (lambda f: (f.write_text(""), f.chmod(0o666)), "other users may write to it; run chmod 600 on it"),
    ],
)
def test_an_untrusted_file_is_refused_by_name(spoil: object, why: str, folder: Path) -> None:
    spoil(folder / "tuning.txt")
    out = run(WARNS, folder)
    assert "measured True" in out
    assert (
        f"RuntimeWarning: find: the result is kept in this process only: {folder}/tuning.txt is not used: {why}" in out
    )
    assert f"pyminidnn: {folder}/tuning.txt is not used: {why}" in run("chosen()", folder, PYMINIDNN_LOG="info")


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_the_file_of_another_user_is_refused(folder: Path) -> None:
    write(folder, "images=2")
    os.chown(folder / "tuning.txt", 12345, 12345)
    assert "tuning.txt is not used: it belongs to user 12345; the process runs as user 0" in run(WARNS, folder)
    assert run("print(chosen().measured_us)", folder) == "0.0\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_record_that_cannot_be_written_is_reported(folder: Path) -> None:
    out = run(f"""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
{FIND.format(4)}
resource.setrlimit(resource.RLIMIT_FSIZE, (len(open("{folder}/tuning.txt").read()) + 20,) * 2)
{FIND.format(5)}
(r,) = dnn.explain(dnn.softmax_forward, np.ones((3, 5), "float32"))
print(any(e.measured_us for e in r.engines))
""", folder)  # fmt: skip
    assert "find: the result is kept in this process only: " in out and "tuning.txt: File too large" in out
    assert out.endswith("True\n") or "True\n" in out
    assert len(records(folder)) == 1  # the failed write has left no part of the second record


# ---- the plans of threads and handles, before and after find()


def test_find_reaches_threads_that_have_a_plan() -> None:
    x = np.ones((3, 1217), "float32")
    ready, found, names = threading.Event(), threading.Event(), []

    def chosen() -> str:
        (report,) = dnn.explain(dnn.softmax_forward, x)
        return report.chosen

    def work() -> None:
        dnn.softmax_forward(x)
        ready.set()
        found.wait()
        names.append(ran(lambda: dnn.softmax_forward(x)))

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    # find() with the argument algo must not change the plan of another thread.
    dnn.find(dnn.softmax_forward, x, algo="reference")
    (report,) = dnn.find(dnn.softmax_forward, x)
    found.set()
    thread.join()
    assert names == [report.chosen] == [chosen()]


def test_find_reaches_other_handles_that_have_a_plan() -> None:
    """find() replaces the plan of the other handle. Several problems are tried until another engine or config than the
    expected one is the fastest."""
    other = dnn.Handle()
    for images, filters, algo in itertools.product(range(16, 2, -1), range(6, 0, -1), (None, "im2col_gemm")):
        x, w = dnn.asarray(X[:images]), W[:filters]
        call = lambda x=x, w=w, algo=algo: dnn.conv_forward(x, w, algo=algo, handle=other)
        before = ran(call)
        (report,) = dnn.find(dnn.conv_forward, x, w, algo=algo)
        found = next(f"{e.name} {e.config}".strip() for e in report.engines if e.name == report.chosen)
        assert ran(call) == found
        if found != before:
            return
    raise AssertionError("every find() chose what was expected")


def ran(call: object) -> str:
    """The engine that a call runs on, read from the log of this thread."""
    read, write = os.pipe()
    stderr = os.dup(2)
    os.dup2(write, 2)
    try:
        dnn.set_log_level("info")
        call()
    finally:
        dnn.set_log_level("off")
        os.dup2(stderr, 2)
        os.close(write)
    with os.fdopen(read) as text:
        (line,) = [t for t in text.read().splitlines() if " on cpu -> " in t]
    return line.partition(" -> ")[2]


def test_calls_after_find_use_its_choice() -> None:
    x, w = dnn.asarray(X), dnn.asarray(W)
    for algo in (None, "im2col_gemm"):
        call = lambda algo=algo: dnn.conv_forward(x, w, algo=algo)
        call()
        (report,) = dnn.find(dnn.conv_forward, x, w, algo=algo)
        best = next(e for e in report.engines if e.name == report.chosen)
        assert best.config == min(best.measurements, key=lambda m: m[1])[0]
        assert ran(call) == f"{best.name} {best.config}".strip()


def test_reports_have_the_workspace_of_the_chosen_config() -> None:
    of_config = {}
    for config in ("images=1", "images=2", "images=16"):
        (report,) = dnn.explain(dnn.conv_forward, X, W, algo=f"im2col_gemm:{config}")
        (engine,) = (e for e in report.engines if not e.why_not)
        of_config[config] = engine.workspace_bytes
    assert of_config["images=1"] < of_config["images=2"] < of_config["images=16"]
    (report,) = dnn.find(dnn.conv_forward, X, W, algo="im2col_gemm")
    (engine,) = (e for e in report.engines if not e.why_not)
    if engine.config in of_config:
        assert engine.workspace_bytes == of_config[engine.config]


def test_a_handle_keeps_the_most_recently_used_plans() -> None:
    h = dnn.Handle(max_plans=64)
    assert h.max_plans == 64 and dnn.Handle().max_plans == 4096
    base = dnn.zeros((2000,))
    call = lambda n: dnn.activation_forward(base.as_strided((n,), (1,)), "relu", handle=h)
    for n in range(1, 2000):
        call(n)
        call(1)
    for bad in (0, -1):
        with pytest.raises(dnn.ShapeError, match=f"Handle: max_plans must be 1 or more; got {bad}"):
            dnn.Handle(max_plans=bad)
    assert values(call(1)) == [0.0]
    one = dnn.Handle(max_plans=1)
    for n in (3, 4, 3, 4):
        assert values(dnn.activation_forward(dnn.full((n,), 2.0), "relu", handle=one)) == [2.0] * n


def values(t: dnn.DeviceTensor) -> list[float]:
    return t.numpy().tolist()


def test_plans_take_bounded_memory(folder: Path) -> None:
    """The plans of a handle, and those of the default handles, which empty_cache() releases."""
    out = run("""
import gc
def kilobytes():
    gc.collect()
    import ctypes; ctypes.CDLL(None).malloc_trim(0)
    return int(open("/proc/self/statm").read().split()[1]) * 4
base = dnn.zeros((200, 200))
def call(i, handle=None): dnn.matmul(base.as_strided((1 + i % 100, 1 + i // 100), (200, 1)), base.as_strided((1 + i // 100, 3), (200, 1)), handle=handle)
h = dnn.Handle(max_plans=500)
for i in range(600): call(i, h)
before = kilobytes()
for i in range(600, 8000): call(i, h)
print(kilobytes() - before < 4000, kilobytes() - before)
h.close()
before = kilobytes()
for i in range(4000): call(i)
grown = kilobytes() - before
dnn.empty_cache("cpu")
print(grown > 3000 and kilobytes() - before < grown / 3, grown, kilobytes() - before)
""", folder)  # fmt: skip
    assert [line.split()[0] for line in out.splitlines()] == ["True", "True"], out


def test_nested_explain() -> None:
    inner: list[object] = []
    reports = dnn.explain(lambda: inner.extend(dnn.explain(dnn.softmax_forward, X)))
    assert len(inner) == 1 and [r.problem for r in reports] == [r.problem for r in inner]
