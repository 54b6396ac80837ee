# SPDX-License-Identifier: Apache-2.0
"""Mutation testing of the CPU side and of the Python functions: how many planted mistakes the tests notice.

    python scripts/mutate.py                    # all mutants of scripts/mutants.py; half an hour on 4 cores
    python scripts/mutate.py --only A03 D02     # or --class d
    python scripts/mutate.py --list             # lists the mutants; runs nothing
    python scripts/mutate.py --check            # whether each mutant still applies to the sources; takes a second

All mutants are built into one library, each behind a switch: `expression` becomes `(switch == 17 ? (wrong) : (right))`,
and the environment variable PYMINIDNN_MUTANT selects the one that is on. So all mutants need one build, which is made
from a copy of the sources in build/mutants; the checkout itself is not changed. The tests of a mutant's family run
first; if they pass, all tests run. A failure, a crash or a hang of the tests kills the mutant. In the end, the tests
that failed must pass with every switch off.

Exit status 0: at least 66 of the 70 mutants of the audit and 90 % of the later ones that ran were killed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from mutants import AUDIT, LATER, Mutant

ROOT = Path(__file__).resolve().parent.parent
COPY = ROOT / "build" / "mutants"
ALL = [*AUDIT, *LATER]
FAMILIES = ("activation", "attention", "batch_norm", "conv", "ctc", "gather", "layer_norm", "loss", "lrn", "matmul",
            "pad", "pointwise", "pooling", "random", "reduce", "rnn", "softmax", "transform")  # fmt: skip
WALKS = ("tests/test_calls.py", "tests/test_errors.py")  # the test files that call all public functions
SHARED = ("engine", "graph", "regions", "tuning", "tensor", "dlpack", "c_exchange", "handle", "activation")
# Test files that are not run for a mutant (the library with one deliberate error). test_isa.py repeats the tests that
# tests_of() selects. test_mutate.py and test_tree.py only read the sources.
LEFT_OUT = [f"--ignore=tests/test_{t}.py" for t in ("isa", "mutate", "tree")]
# With these environment variables, CPU loops divide their work into small chunks, as in tests/test_isa.py.
SMALL = {"PYMINIDNN_TEST_WORK_DIVISOR": "61", "OMP_NUM_THREADS": "3"}
DEFINED_IN = "cpp/core/dtype.cpp"  # the file that defines the switch which selects a mutant
TIMEOUT_S = 1200


class Run:
    """Arguments and environment of pytest."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.arguments, self.environment = arguments, environment


def path_of(mutant: Mutant) -> str:
    return mutant.file if mutant.file.endswith(".py") else "cpp/" + mutant.file


def span_of(mutant: Mutant, text: str) -> tuple[int, int]:
    """Begin and end of the expression in the text of its file."""
    found = mutant.old if "«" in mutant.old else f"«{mutant.old}»"
    before, _, rest = found.partition("«")
    old, _, after = rest.partition("»")
    count = text.count(before + old + after)
    if count != 1:
        raise SystemExit(f"{mutant.name}: {path_of(mutant)} has {before + old + after!r} {count} times instead of once")
    if old == mutant.new:
        raise SystemExit(f"{mutant.name}: the new text is the old one")
    begin = text.index(before + old + after) + len(before)
    return begin, begin + len(old)


def switched(path: str, text: str) -> str:
    """The text of a file with all of its mutants behind their switches."""
    spans = [(*span_of(m, text), number, m) for number, m in enumerate(ALL, 1) if path_of(m) == path]
    for (_, end, _, a), (begin, _, _, b) in zip(sorted(spans), sorted(spans)[1:], strict=False):
        if begin < end:
            raise SystemExit(f"{a.name} and {b.name} overlap in {path}")
    for begin, end, number, m in sorted(spans, reverse=True):
        old = text[begin:end]
        if path.endswith(".py"):
            new = f'({m.new} if __import__("os").environ.get("PYMINIDNN_MUTANT") == "{number}" else {old})'
        else:
            new = f"(::pyminidnn_mutant == {number} ? ({m.new}) : ({old}))"
        text = text[:begin] + new + text[end:]
    if spans and not path.endswith(".py"):
        text = text.replace("#include", "extern const int pyminidnn_mutant;\n#include", 1)
    if path == DEFINED_IN:
        text += (
            "\n#include <cstdlib>\nextern const int pyminidnn_mutant;\nconst int pyminidnn_mutant = "
            '[] { const char* n = std::getenv("PYMINIDNN_MUTANT"); return n ? std::atoi(n) : 0; }();\n'
        )
    return text


def write(path: Path, content: bytes) -> None:
    if path.is_file() and path.read_bytes() == content:
        return  # the modification time of an unchanged file stays, so the compiler does not read the file again
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def build() -> None:
    """Updates the copy and builds it."""
    git = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = [n for n in subprocess.run(git, check=True, capture_output=True, text=True).stdout.split("\0") if n]
    mutated = {path_of(m) for m in ALL} | {DEFINED_IN}
    for name in names:
        if not (ROOT / name).is_file():
            continue
        content = (ROOT / name).read_bytes()
        write(COPY / name, switched(name, content.decode()).encode() if name in mutated else content)
        shutil.copymode(ROOT / name, COPY / name)
    for path in [p for folder in ("cpp", "cuda", "pyminidnn", "tests") for p in (COPY / folder).rglob("*")]:
        relative = path.relative_to(COPY)
        if path.suffix in (".cpp", ".h", ".py", ".cu", ".txt") and not (ROOT / relative).is_file():
            path.unlink()
    folder = COPY / "build"
    if not (folder / "build.ninja").exists():
        cmake_dir = subprocess.run(
            [sys.executable, "-m", "pybind11", "--cmakedir"], check=True, capture_output=True, text=True
        ).stdout.strip()
        cache = shutil.which("sccache") or shutil.which("ccache")
        launcher = [f"-DCMAKE_CXX_COMPILER_LAUNCHER={cache}"] if cache else []
        options = [f"-DPython_EXECUTABLE={sys.executable}", f"-Dpybind11_DIR={cmake_dir}", *launcher]
        subprocess.run(["cmake", "-S", str(COPY), "-B", str(folder), "-G", "Ninja", *options], check=True)
    subprocess.run(["ninja", "-C", str(folder), "_C"], check=True)
    (library,) = folder.glob("_C*.so")
    write(COPY / "pyminidnn" / library.name, library.read_bytes())


def tests_of(mutant: Mutant) -> list[Run]:
    """The first runs for a mutant: the tests of its family, also with small chunks of work, or else the tests of shared
    code."""
    parts = Path(mutant.file).with_suffix("").parts
    family = next((f for f in FAMILIES if f in parts), None)
    if family is None:
        return [Run(*WALKS, *(f"tests/test_{t}.py" for t in SHARED))]
    files = [str(f.relative_to(ROOT)) for f in (ROOT / "tests").glob(f"test_*{family}.py")]
    cases = ("tests/test_every_engine.py", "-k", f"{family} or test_calls or test_errors")
    return [Run(*WALKS, *files, *cases), Run(*cases, **SMALL)]


def killer(number: int, run: Run) -> str:
    """The test that fails while the numbered mutant is on (0: none), or how else the tests ended; "" if all passed."""
    cache = COPY / "build" / "pytest" / str(number)
    shutil.rmtree(cache, ignore_errors=True)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-o", f"cache_dir={cache}", *run.arguments]
    env = {
        **os.environ,
        **run.environment,
        "PYTHONPATH": str(COPY),
        "PYMINIDNN_MUTANT": str(number),
    }
    with subprocess.Popen(
        command, cwd=COPY, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return f"no end after {TIMEOUT_S} s"
    if process.returncode == 0:
        return ""
    failed = cache / "v" / "cache" / "lastfailed"
    if failed.exists():
        return str(next(iter(json.loads(failed.read_text()))))
    if process.returncode < 0:
        return f"signal {-process.returncode}"
    raise RuntimeError(f"pytest {' '.join(run.arguments)} ended with status {process.returncode}:\n{output}")


def chosen(options: argparse.Namespace) -> Iterator[int]:
    for number, m in enumerate(ALL, 1):
        if (not options.only or m.name in options.only) and (not options.letter or m.letter in options.letter):
            yield number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these mutants")
    parser.add_argument("--class", dest="letter", help="those of these classes, such as d or ab")
    parser.add_argument("--list", action="store_true", help="print the mutants; nothing runs")
    parser.add_argument("--check", action="store_true", help="verify that each mutant applies to the sources")
    parser.add_argument("--jobs", type=int, default=3, help="processes of pytest at a time; default: 3")
    options = parser.parse_args()
    if unknown := set(options.only or ()) - {m.name for m in ALL}:
        raise SystemExit(f"there is no mutant {', '.join(sorted(unknown))}; see --list")
    numbers = list(chosen(options))
    if options.check:
        for path in {path_of(m) for m in ALL}:
            switched(path, (ROOT / path).read_text())
        return
    if options.list:
        for n in numbers:
            print(f"{ALL[n - 1].name}  {path_of(ALL[n - 1]):36} {ALL[n - 1].what}")
        return

    build()
    killers: dict[int, str] = {}
    by_environment: dict[bool, set[str]] = {False: set(), True: set()}

    def test(n: int, runs: list[Run]) -> None:
        for run in runs:
            if name := killer(n, run):
                killers[n] = name
                by_environment[bool(run.environment)].add(name)
                break
        print(f"{ALL[n - 1].name}  {'killed: ' + killers[n] if n in killers else 'survives'}", flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda n: test(n, tests_of(ALL[n - 1])), numbers))
    for n in [n for n in numbers if n not in killers]:
        test(n, [Run("tests", "-n", str(options.jobs), *LEFT_OUT)])
    for small, tests in by_environment.items():
        named = sorted(t for t in tests if t.startswith("tests/"))
        if named and (broken := killer(0, Run(*named, **(SMALL if small else {})))):
            raise SystemExit(f"without any mutant, {broken} fails too")

    killed = Counter(ALL[n - 1].letter for n in numbers if n in killers)
    killed.update("audit" if ALL[n - 1] in AUDIT else "later" for n in numbers if n in killers)
    for n in [n for n in numbers if n not in killers]:
        print(f"SURVIVED: {ALL[n - 1].name} {path_of(ALL[n - 1])}: {ALL[n - 1].what}")
    total = Counter(ALL[n - 1].letter for n in numbers)
    total.update("audit" if ALL[n - 1] in AUDIT else "later" for n in numbers)
    for key, count in sorted(total.items()):
        print(f"{key:6} {killed[key]:3} of {count:3} killed, {100 * killed[key] / count:.0f} %")
    enough = killed["audit"] >= total["audit"] * 66 / 70 and killed["later"] >= total["later"] * 0.9
    raise SystemExit(not enough)


if __name__ == "__main__":
    main()
