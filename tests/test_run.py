# SPDX-License-Identifier: Apache-2.0
"""./run on machines where something is missing: its PATH consists of stubs, and nothing is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
INSTALL = "apt-get update && apt-get install -y --no-install-recommends"
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"


class Machine:
    """A copy of `run` in its own checkout, and a folder that is its whole PATH. Stubs that log their calls add a line
    to `log`."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.checkout, self.log = folder / "bin", folder / "checkout", folder / "log"
        self.bin.mkdir()
        (self.checkout / "cpp").mkdir(parents=True)
        for name in ("CMakeLists.txt", "pyproject.toml", "setup.py", "cpp/a.cpp", "cuda"):
            (self.checkout / name).touch()
        shutil.copy(ROOT / "run", self.checkout)
        self.log.touch()
        for name in ("dirname", "env", "find", "grep", "mv", "touch"):
            (self.bin / name).symlink_to(shutil.which(name))
        self.stub("id", "echo 1000")

    def stub(self, name: str, script: str) -> None:
        path = self.bin / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\nlog() {{ echo \"$@\" >> '{self.log}'; }}\n{script}\n")
        path.chmod(0o755)

    def python(self, but: str) -> None:
        """A python3 that first runs the statements `but`, then the given program."""
        self.stub("python3", f'exec {sys.executable} -c "{but}; exec(__import__(\'sys\').argv[1])" "$2"')

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([shutil.which("bash"), self.checkout / "run", *arguments], capture_output=True, text=True,
                              env={"PATH": str(self.bin), **environment})  # fmt: skip


BARE = "import sys, sysconfig; sys.modules['ensurepip'] = None; sysconfig.get_path = lambda name: '/no'"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_bare_machine_without_sudo(machine: Machine) -> None:
    machine.python(BARE)
    machine.stub("apt-get", 'log "$@"')
    done = machine.run("demo")
    assert done.returncode == 1 and not machine.log.read_text()
    lines = done.stderr.splitlines()
    assert lines[:5] == [
        "run: this machine lacks",
        "  Python's modules venv and ensurepip",
        "  Python's headers (/no/Python.h)",
        "  a C++20 compiler, g++ 12 or clang 16 or later",
        "run: it cannot be installed here without root or sudo. On Debian and Ubuntu, root installs what is missing by",
    ]
    # On Ubuntu 22.04, the compiler is g++-12.
    assert lines[5].removesuffix("-12") == f"  {INSTALL} {VERSION}-venv {VERSION}-dev g++"


def test_no_python_and_no_apt(machine: Machine) -> None:
    machine.stub("g++", "exit 0")
    done = machine.run("tests")
    assert done.returncode == 1
    assert "  Python 3.10 or later, with venv and headers\n" in done.stderr
    assert "cannot be installed here without apt-get" in done.stderr
    assert done.stderr.endswith(f"{INSTALL} python3 python3-venv python3-dev\n")


def test_sudo_installs_and_the_rest_is_named(machine: Machine) -> None:
    machine.python(BARE)
    machine.stub("clang++-17", "exit 0")
    machine.stub("sudo", 'log sudo; exec "$@"')
    machine.stub("apt-get", 'log apt-get "$@"')
    done = machine.run("demo")
    assert done.returncode == 1
    assert f"run: installs by sudo apt-get: {VERSION}-venv {VERSION}-dev\n" in done.stderr
    assert "apt-get installed all of its packages, which was not enough" in done.stderr
    install = f"apt-get install -y --no-install-recommends {VERSION}-venv {VERSION}-dev"
    assert machine.log.read_text().splitlines() == ["sudo", "apt-get update", "sudo", install]


def test_root_needs_no_sudo_and_a_failure_is_reported(machine: Machine) -> None:
    machine.python(BARE)
    machine.stub("id", "echo 0")
    machine.stub("apt-get", 'log "$@"; exit 100')
    done = machine.run("demo")
    assert done.returncode == 1 and "apt-get could not install it" in done.stderr
    assert machine.log.read_text().startswith("update\ninstall ")


def test_compiler_of_choice_is_too_old(machine: Machine) -> None:
    machine.python("pass")
    machine.stub("g++", "exit 0")
    machine.stub("old", "exit 1")
    done = machine.run("demo", CXX="old")
    assert done.returncode == 1
    assert "  a C++20 compiler, g++ 12 or clang 16 or later (CXX=old is none)\n" in done.stderr


def test_python_is_too_old(machine: Machine) -> None:
    machine.python("import sys; sys.version_info = (3, 9, 2)")
    done = machine.run("demo")
    assert done.returncode == 1
    assert "python3 is Python 3.9, and 3.10 or later is needed: set PYTHON to a later one" in done.stderr


def test_nothing_is_done_twice(machine: Machine) -> None:
    machine.stub("g++", "exit 1")
    machine.stub("g++-13", "exit 0")
    python = f'case "$*" in *--version | *"import pyminidnn") ;; -m*) log "$@, CXX=$CXX" ;; *) exec {sys.executable} "$@" ;; esac'
    machine.stub("../checkout/.venv/bin/python", python)

    def calls() -> list[str]:
        machine.log.write_text("")
        assert machine.run("tests", "-k", "conv").returncode == 0
        return machine.log.read_text().splitlines()

    build, extras, tests = (
        f"-m {what}, CXX=g++-13"
        for what in (
            "pip install -e .[test]",
            "pip install --quiet pyminidnn[test]",
            "pytest -n auto --dist worksteal -k conv",
        )
    )
    assert calls() == [build, tests]
    assert calls() == [extras, tests]
    later = os.stat(machine.checkout / ".venv/pyminidnn-built").st_mtime + 1
    os.utime(machine.checkout / "cpp/a.cpp", (later, later))
    assert calls() == [build, tests]


def test_usage(machine: Machine) -> None:
    done = machine.run("test")
    assert done.returncode == 2 and done.stderr == "usage: ./run demo|tests [OPTIONS]\n"
