# SPDX-License-Identifier: Apache-2.0
"""PYMINIDNN_LOG and set_log_level: words, files, times, and NVTX ranges."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import pyminidnn as dnn
from pyminidnn import _C

X = np.ones((2, 3), "float32")
LINE = "pyminidnn: activation forward f32 relu x=2x3 on cpu -> cpu.activation.vectorized"
CALL = "import numpy as np, pyminidnn as dnn; dnn.activation_forward(np.ones((2, 3), 'float32'), 'relu')"


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(p for p in sys.path if p)
    environment = {**os.environ, "PYTHONPATH": paths, **environment}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)


@pytest.fixture(autouse=True)
def quiet() -> None:
    yield
    dnn.set_log_level("off")


@pytest.mark.parametrize("words", ["info", "info,", ",info", "off,info"])
def test_levels(words: str) -> None:
    assert run(CALL, PYMINIDNN_LOG=words).stderr == LINE + "\n"


@pytest.mark.parametrize("words", ["", "off", ",", "info,off", "nvtx"])
def test_nothing_is_logged(words: str) -> None:
    done = run(CALL, PYMINIDNN_LOG=words)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", ["us", "info,us", "us,debug"])
def test_microseconds(words: str) -> None:
    first, *others = run(CALL, PYMINIDNN_LOG=words).stderr.splitlines()
    measured = re.fullmatch(re.escape(LINE) + r" in ([0-9.e+-]+) us", first)
    assert measured and 0 < float(measured[1]) < 1e6
    assert bool(others) == ("debug" in words)


def test_microseconds_include_the_work_on_the_device(device: str, tmp_path: Path) -> None:
    """A call with 64 times the work takes longer, so the time is not that of the launch alone."""
    small, large = (dnn.asarray(np.ones((n, n), "float32"), device=device) for n in (512, 2048))
    for x in (small, large):
        dnn.matmul(x, x)
    dnn.set_log_level(f"us,file={tmp_path}/log")
    for x in (small, large):
        dnn.matmul(x, x)
    dnn.set_log_level("off")
    first, second = (float(us) for us in re.findall(r" in (\S+) us", (tmp_path / "log").read_text()))
    assert second > 2 * first


@pytest.mark.parametrize("words", ["info,file={}", "file={}"])
def test_lines_are_appended_to_a_file(words: str, tmp_path: Path) -> None:
    """The name of the file may contain commas, since it ends the words."""
    path = tmp_path / "a,off,b.txt"
    path.write_text("before\n")
    for _ in range(2):
        done = run(CALL, PYMINIDNN_LOG=words.format(path))
        assert (done.returncode, done.stderr) == (0, "")
    assert path.read_text() == f"before\n{LINE}\n{LINE}\n"


def test_lines_of_threads_and_processes_do_not_mix(tmp_path: Path) -> None:
    dnn.set_log_level(f"file={tmp_path}/log")
    child = os.fork()
    calls = [threading.Thread(target=lambda: [dnn.activation_forward(X, "relu") for _ in range(200)]) for _ in range(3)]
    for thread in calls:
        thread.start()
    for thread in calls:
        thread.join()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert (tmp_path / "log").read_text() == f"{LINE}\n" * 1200


def test_the_file_is_closed_after_use(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for i in range(20):
        dnn.set_log_level(f"file={tmp_path}/{i}")
    dnn.set_log_level("off")
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("words, got", [("loud", "loud"), ("info,1", "1"), ("INFO", "INFO"), ("info us", "info us"),
                                        ("debug,file", "file"), ("level=info", "level=info")])  # fmt: skip
def test_unknown_words_are_refused(words: str, got: str) -> None:
    text = f"must be words of off, info, debug, us, nvtx and file=PATH, separated by commas; got '{got}'"
    with pytest.raises(dnn.ShapeError, match=re.escape(f"set_log_level: level {text}")):
        dnn.set_log_level(words)
    done = run(CALL, PYMINIDNN_LOG=words)
    assert done.returncode == 1 and done.stderr.endswith(f"ShapeError: activation_forward: PYMINIDNN_LOG {text}\n")
    done = run("from pyminidnn.cli import main; raise SystemExit(main(['info']))", PYMINIDNN_LOG=words)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"ShapeError: PYMINIDNN_LOG {text}\n")


def test_a_refused_selection_changes_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    dnn.set_log_level("info")
    with pytest.raises(dnn.ShapeError):
        dnn.set_log_level("off,loud")
    dnn.activation_forward(X, "relu")
    assert capfd.readouterr().err == LINE + "\n"


def test_set_log_level_replaces_an_invalid_variable() -> None:
    code = f"import pyminidnn; pyminidnn.set_log_level('info'); {CALL}"
    assert run(code, PYMINIDNN_LOG="loud").stderr == LINE + "\n"


def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(dnn.ShapeError, match=r"level names the file '.*/no/log', which cannot be opened: No such file"):
        dnn.set_log_level(f"info,file={tmp_path}/no/log")
    assert "PYMINIDNN_LOG names the file ''" in run(CALL, PYMINIDNN_LOG="file=").stderr


def test_a_full_disk_does_not_stop_a_call() -> None:
    dnn.set_log_level("file=/dev/full")
    np.testing.assert_array_equal(dnn.activation_forward(X, "relu").numpy(), X)


# A library as a profiler has it. It writes the begin and the end of ranges to a file. Constants and layouts are those of
# NVTX 3's nvtxDetail/nvtxTypes.h.
INJECTION = r"""
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
using Function = void (*)();
struct Callbacks { size_t struct_size; int (*get)(uint32_t, Function***, unsigned*); };
struct Version { size_t struct_size; uint32_t version, reserved; void (*set)(uint32_t); };
static void note(const char* word, const char* text) {
  FILE* file = std::fopen(std::getenv("RANGES"), "a");
  std::fprintf(file, "%s %s\n", word, text);
  std::fclose(file);
}
static int push(const char* text) { note("push", text); return 0; }
static int pop() { note("pop", ""); return 0; }
extern "C" int InitializeInjectionNvtx2(const void* (*get_table)(uint32_t)) {
  auto version = static_cast<const Version*>(get_table(3));
  auto callbacks = static_cast<const Callbacks*>(get_table(1));
  Function** table = nullptr;
  unsigned size = 0;
  if (!version || version->struct_size < sizeof(Version) || version->version != 3 || get_table(2)) return 0;
  version->set(3);
  if (!callbacks || callbacks->struct_size < sizeof(Callbacks) || callbacks->get(99, &table, &size)) return 0;
  if (!callbacks->get(1, &table, &size) || size < 16 || table[size]) return 0;
  *table[9] = reinterpret_cast<Function>(push);
  *table[11] = reinterpret_cast<Function>(pop);
  return 1;
}
"""


@pytest.fixture(scope="module")
def injection(tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler = shutil.which("c++") or shutil.which("g++")
    if not compiler:
        pytest.skip("there is no C++ compiler")
    folder = tmp_path_factory.mktemp("nvtx")
    (folder / "injection.cpp").write_text(INJECTION)
    library = folder / "libinjection.so"
    subprocess.run([compiler, "-shared", "-fPIC", folder / "injection.cpp", "-o", library], check=True)
    return str(library)


def test_nvtx_ranges(injection: str, tmp_path: Path) -> None:
    variables = {"NVTX_INJECTION64_PATH": injection, "RANGES": str(tmp_path / "ranges")}
    code = f"{CALL}; dnn.explain(dnn.exp, np.ones(3)); dnn.set_log_level('off'); dnn.activation_forward(np.ones(4), 'relu')"
    for words, logged in (("nvtx", ""), ("nvtx,info", LINE + "\n")):
        assert run(code, PYMINIDNN_LOG=words, **variables).stderr.startswith(logged)
        assert (tmp_path / "ranges").read_text() == "push activation forward f32 relu x=2x3\npop \n"
        (tmp_path / "ranges").unlink()
    run(code, PYMINIDNN_LOG="info", **variables)
    assert not (tmp_path / "ranges").exists()


@pytest.mark.parametrize("library", ["", "/nonexistent", "libc.so.6"])
def test_without_a_profiler_there_are_no_ranges(library: str) -> None:
    done = run(CALL, PYMINIDNN_LOG="nvtx", NVTX_INJECTION64_PATH=library)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.gpu
@pytest.mark.torch
def test_captured_work_has_no_time(tmp_path: Path) -> None:
    import torch

    x = torch.ones(8, 8, device="cuda:0")
    stream = torch.cuda.Stream()
    handle = dnn.Handle("cuda:0", stream=stream)
    dnn.exp(x, handle=handle)
    graph = torch.cuda.CUDAGraph()
    dnn.set_log_level(f"us,file={tmp_path}/log")
    with torch.cuda.graph(graph, stream=stream):
        dnn.exp(x, handle=handle)
    dnn.set_log_level("off")
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert " -> cuda.pointwise." in line and " us" not in line


def test_info_level_of_the_kernel_cache(tmp_path: Path) -> None:
    """Lines that belong to no call obey the same words."""
    code = "from pyminidnn import _C; _C.cache_folder()"
    (tmp_path / "file").touch()
    variables = {"PYMINIDNN_CACHE_DIR": str(tmp_path / "file")}
    assert "kernels are kept in memory only" in run(code, PYMINIDNN_LOG="info", **variables).stderr
    assert run(code, PYMINIDNN_LOG="nvtx", **variables).stderr == ""
    assert _C.why_no_log() == ""
