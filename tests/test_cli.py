# SPDX-License-Identifier: Apache-2.0
"""The command line as a shell sees it: exit codes, messages, and how often each message appears. No test trains the
demo's network."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from pyminidnn import _C

# PYTHONUNBUFFERED is set to an empty text, which means that stdout is buffered. If stdout were unbuffered, writing the
# text of --help would fail inside argparse, which ignores the error.
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": ""}
needs_nvrtc = pytest.mark.skipif(bool(_C.why_no_nvrtc()), reason=_C.why_no_nvrtc())


def start(*arguments: str, code: str = "", **options: object) -> subprocess.Popen:
    """Starts python -m pyminidnn with these arguments; `code` runs first, in the same process."""
    program = f"import os, signal, sys\n{code}\nfrom pyminidnn.cli import main\nsys.exit(main())"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": ENVIRONMENT, "text": True}
    return subprocess.Popen([sys.executable, "-c", program, *arguments], **{**pipes, **options})


def run(*arguments: str, code: str = "", **variables: str) -> tuple[int, str, str]:
    """Returns exit code, stdout and stderr, and checks that the output has no traceback."""
    process = start(*arguments, code=code, env={**ENVIRONMENT, **variables})
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert "Traceback" not in out + err
    return process.returncode, out, err


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


@pytest.mark.parametrize("arch", ["sm_1", "sm_75", "sm_86", "sm_90", "sm_100a", "nope", "", "sm_", "sm_8\u0660"])
def test_compile_refuses_an_architecture_without_kernels(arch: str) -> None:
    code, out, err = run("compile", "--arch", "sm_80", "--arch", arch)
    assert (code, out) == (2, "")
    assert f"argument --arch: {arch!r} is not an architecture that kernels are compiled for: sm_80 serves" in err


def test_compile_reports_missing_nvrtc_once() -> None:
    code, out, err = run("compile", "--arch", "sm_80", "--arch", "sm_90a", PYMINIDNN_NVRTC="none")
    assert (code, out) == (1, "")
    assert (
        err == "DeviceError: compile: PYMINIDNN_NVRTC is 'none'; to compile kernels: pip install \"pyminidnn[cuda]\"\n"
    )


@needs_nvrtc
@pytest.mark.parametrize(
    "arch, folder, why", [("sm_990", "", "invalid value for --gpu-architecture"), ("sm_80", "file", "Not a directory")]
)
def test_compile_reports_a_failure_of_all_kernels_once(arch: str, folder: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, out, err = run("compile", "--arch", arch, "--out", str(tmp_path / folder))
    assert (code, out) == (1, "")
    assert err.startswith(f"DeviceError: compile: the first kernel failed, so the others were skipped: {arch} ")
    assert err.count(why) == 1


@needs_nvrtc
def test_compile_needs_a_folder() -> None:
    code, _, err = run("compile", "--arch", "sm_80", PYMINIDNN_CACHE_DIR=os.devnull)
    assert code == 1 and err.startswith("DeviceError: compile: there is no cache folder to keep kernels in; --out DIR ")


@pytest.mark.parametrize("command", ["info", "selftest --device cpu", "--help"])
def test_a_broken_pipe_ends_quietly(command: str) -> None:
    process = start(*command.split())
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 128 + signal.SIGPIPE


@pytest.mark.parametrize("command", ["info", "selftest --device cpu", "--help"])
def test_a_full_disk_is_reported_in_one_line(command: str) -> None:
    with open("/dev/full", "w") as full:
        process = start(*command.split(), stdout=full)
        assert process.communicate(timeout=60)[1] == "pyminidnn: [Errno 28] No space left on device\n"
        assert process.returncode == 1


def test_the_demo_checks_its_output_folder_before_training(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "taken" / "digits_mistakes.png").mkdir(parents=True)
    for folder in ("file", "file/below", "taken"):
        code, out, err = run("demo", "--out", str(tmp_path / folder))
        assert (code, out) == (1, "")
        assert err.startswith("DeviceError: demo: the pictures cannot be written: ") and folder in err
        assert err.endswith("; --out names another folder\n") and err.count("\n") == 1
    assert [p.name for p in (tmp_path / "taken").iterdir()] == ["digits_mistakes.png"]


@pytest.mark.parametrize(
    "option, value, why",
    [
        ("--epochs", "0", "'0' is not an integer of 1 or more"),
        ("--epochs", "-1", "'-1' is not an integer of 1 or more"),
        ("--epochs", "1.5", "'1.5' is not an integer of 1 or more"),
        ("--out", "", "'' is not the name of a folder in UTF-8"),
        ("--out", os.fsdecode(b"\xff"), r"'\udcff' is not the name of a folder in UTF-8"),
        ("--device", "", "'' is not cpu, cuda or cuda:<index>"),
        ("--device", os.fsdecode(b"\xff"), r"'\udcff' is not cpu, cuda or cuda:<index>"),
    ],
)
def test_the_demo_refuses_invalid_options(option: str, value: str, why: str) -> None:
    code, out, err = run("demo", option, value)
    assert (code, out) == (2, "")
    assert last_line(err).endswith(f"error: argument {option}: {why}")


def test_the_demo_says_why_it_failed() -> None:
    verdict = "from pyminidnn.demo import _verdict; sys.exit(_verdict(float(sys.argv[1])))"
    assert run("0.8861", code=verdict) == (
        1,
        "verdict   below 98%, which 20 epochs should reach; the exit code is 1\n",
        "",
    )
    assert run("0.98", code=verdict) == (0, "", "")


INTERRUPT = "lambda *a, **k: os.kill(os.getpid(), signal.SIGINT)"


@pytest.mark.parametrize(
    "command, function",
    [("info", "_C.device_info"), ("selftest", "conv_forward"), ("demo", "demo.Parameter.step")],
)
def test_control_c_prints_one_line_and_exits_with_130(command: str, function: str, tmp_path: Path) -> None:
    """In the demo, the interrupt arrives at the end of the first batch. Its progress bar appears on terminals only."""
    if command == "demo":
        pytest.importorskip("sklearn")
    arguments = ["demo", "--device", "cpu", "--out", str(tmp_path)] if command == "demo" else [command]
    code, _, err = run(*arguments, code=f"import pyminidnn.demo; pyminidnn.{function} = {INTERRUPT}")
    assert (code, err) == (130, "pyminidnn: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_the_demo_shows_its_progress_on_a_terminal(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    try:
        here, there = os.openpty()
    except OSError as error:
        pytest.skip(f"this machine opens no terminals ({error})")
    # Sets the size of the terminal to 24 lines and 80 columns. tqdm fits its progress bar to this size.
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = start("demo", "--device", "cpu", "--out", str(tmp_path), stderr=there,
                    code=f"import pyminidnn.demo; pyminidnn.demo.Parameter.step = {INTERRUPT}")  # fmt: skip
    assert process.wait(timeout=60) == 130
    os.close(there)
    assert b"0/440" in os.read(here, 4096)
    os.close(here)


@needs_nvrtc
def test_control_c_does_not_wait_for_all_kernels(tmp_path: Path) -> None:
    process = start("compile", "--arch", "sm_90a", "--out", str(tmp_path))
    try:
        while not list(tmp_path.rglob("*.cubin")):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60) == ("", "pyminidnn: interrupted\n")
    finally:
        process.kill()
    assert process.returncode == 130


def test_selftest_reports_an_unusable_device_once() -> None:
    for device in ("nope", ""):
        code, out, err = run("selftest", "--device", device)
        assert (code, out) == (2, "")
        assert last_line(err).endswith(f"error: argument --device: {device!r} is not cpu, cuda or cuda:<index>")
    for device, variables, why in (
        ("cuda:4000", {}, "DeviceError: "),
        ("cpu", {"PYMINIDNN_CPU_ISA": "bogus"}, "PYMINIDNN_CPU_ISA is 'bogus'; this machine supports "),
    ):
        code, out, err = run("selftest", "--device", device, **variables)
        assert (code, err) == (1, "")
        first, second, last = out.splitlines()
        assert first.startswith(f"{device:<7} conv_forward") and why in first
        assert second.split(maxsplit=1) == [device, "the remaining checks were skipped"]
        assert last == "1 checks failed"


def test_info_says_that_results_of_find_cannot_be_kept(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    code, out, _ = run("info", PYMINIDNN_CACHE_DIR=str(tmp_path))
    assert code == 0 and "results of find()" not in out and list(tmp_path.iterdir()) == []
    _, out, _ = run("info", PYMINIDNN_CACHE_DIR=os.devnull)
    assert "tuning      results of find() are kept in memory only: there is no cache folder\n" in out
    for make in (Path.mkdir, os.mkfifo):
        make(tmp_path / "tuning.txt")
        code, out, _ = run("info", PYMINIDNN_CACHE_DIR=str(tmp_path))
        assert (
            code == 0
            and "tuning      results of find() are kept in memory only: " in out
            and "it is not a regular file" in out
        )
        assert str(tmp_path / "tuning.txt") in out
        (tmp_path / "tuning.txt").rmdir() if make is Path.mkdir else (tmp_path / "tuning.txt").unlink()


def test_other_exit_codes() -> None:
    assert run("selftest", "--device", "cpu")[0] == 0
    code, _, err = run()
    assert code == 2 and "the following arguments are required: command" in err
