# SPDX-License-Identifier: Apache-2.0
"""The structure of the repository: a family has the same stem everywhere, includes have one direction, and tables are
complete."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from cases import FAMILIES as CALLED

import pyminidnn as dnn
from pyminidnn import _C

ROOT = Path(__file__).resolve().parent.parent
FAMILIES = list(dict.fromkeys(_C.families()))
FOLDERS = ("benchmarks", "cpp", "cuda", "examples", "include", "pyminidnn", "scripts", "tests")
FILES = ["setup.py", *(str(p.relative_to(ROOT)) for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*.*")))]
SOURCES = [p for p in FILES if re.search(r"^(cpp|cuda)/.*\.(h|cpp|cu|cuh)$", p)]


@pytest.mark.parametrize("family", CALLED)
def test_a_family_has_the_same_stem_everywhere(family: str) -> None:
    for path in (
        f"cpp/{family}/{family}.h",
        f"cpp/{family}/{family}.cpp",
        f"cpp/{family}/{family}_math.h",
        f"cpp/{family}/{family}_py.cpp",
        f"cuda/{family}/engines.cpp",
        f"pyminidnn/ops/{family}.py",
        f"tests/test_{family}.py",
        f"tests/reference/{family}.py",
        f"tests/cases/{family}.txt",
        f"benchmarks/bench_{family}.py",
        f"docs/ops/{family}.md",
    ):
        assert (ROOT / path).is_file(), f"{family} lacks {path}"
    assert f"bind_{family}(m);" in (ROOT / "cpp/bindings/module.cpp").read_text()
    assert f"from .ops.{family} import" in (ROOT / "pyminidnn/__init__.py").read_text()
    assert f"def test_{family}(" in (ROOT / "tests/test_big.py").read_text()


def test_the_family_graph_has_its_files() -> None:
    """The family `graph` has no function of its own, no arithmetic and no case lines: its problems are regions of
    recorded calls, which are compared with the calls themselves."""
    assert set(FAMILIES) - set(CALLED) == {"graph"}
    for path in (
        "cpp/graph/region.h",
        "cpp/graph/engines.cpp",
        "cpp/graph/graph_py.cpp",
        "cuda/graph/engines.cpp",
        "pyminidnn/graph.py",
        "tests/test_regions.py",
        "docs/ops/graph.md",
    ):
        assert (ROOT / path).is_file(), f"graph lacks {path}"


@pytest.mark.parametrize("family", FAMILIES)
def test_an_engine_is_in_the_file_of_its_name(family: str) -> None:
    """cpu.F.X is in a file X.cpp of cpp/F/cpu, cuda.F.X in one of cuda/F. Both are lines of a file engines.cpp."""
    for device, folder in (("cpu", ROOT / "cpp" / family), ("cuda", ROOT / "cuda" / family)):
        listed = re.findall(r"\bstruct (\w+)", (folder / "engines.cpp").read_text())
        for engine in dnn.engines(family, device):
            name = engine.rsplit(".", 1)[1]
            (file,) = (folder / "cpu" if device == "cpu" else folder).rglob(f"{name}.cpp")
            assert f'"{engine}"' in file.read_text(), f"{file} lacks the name {engine}"
            struct = "".join(word.capitalize() for word in name.split("_"))
            assert struct.lower() in [s.lower() for s in listed], f"{folder}/engines.cpp lacks struct {struct}"


@pytest.mark.parametrize("path", [p for p in SOURCES if p != "cpp/core/platform.cpp"])
def test_platform_has_all_that_is_of_one_system(path: str) -> None:
    """Only cpp/core/platform.cpp uses headers, macros and paths of POSIX, Linux, macOS or Windows."""
    text = (ROOT / path).read_text()
    headers = r"#include <((sys|mach)/.*|(dlfcn|fcntl|pthread|sched|signal|strings|unistd|windows|io|process)\.h)>"
    others = r'\b(_WIN32|__APPLE__|__linux__|pthread_\w+)\b|"/proc/'
    found = re.search(f"{headers}|{others}", text)
    assert not found, found[0]


@pytest.mark.parametrize("path", SOURCES)
def test_includes_have_one_direction(path: str) -> None:
    """cuda/F -> cpp/F -> cpp/engine -> cpp/core. A family includes another one only through its headers F.h and
    F_math.h. F_math.h is arithmetic alone, so all code above cpp/core may include it."""

    def rank(p: str) -> int:
        if p.startswith(("include/", "third_party/")):
            return 0
        area = "bindings" if p.endswith("_py.cpp") else p.split("/")[1]
        if p.startswith("cuda/"):
            return {"device": 1, "runtime": 2}.get(area, 4)
        if p.endswith("_math.h"):
            return 1
        return {"core": 0, "simd": 1, "engine": 2, "bindings": 5, "c_api": 5}.get(area, 3)

    for included in re.findall(r'#include "([^"]+)"', (ROOT / path).read_text()):
        assert (ROOT / included).is_file(), f"{path} includes {included}, which is not there"
        assert rank(included) <= rank(path), f"{path} includes {included}, which lies above it"
        family, other = path.split("/")[1], included.split("/")[1]
        if family != other and other in FAMILIES:
            assert included in (f"cpp/{other}/{other}.h", f"cpp/{other}/{other}_math.h"), (
                f"{path} reaches past cpp/{other}/{other}.h to {included}"
            )


@pytest.mark.parametrize("path", [p for p in SOURCES if p.startswith("cuda/") and not p.startswith("cuda/device/ptx/")])
def test_instructions_have_wrappers(path: str) -> None:
    """PTX is in cuda/device/ptx, one wrapper per instruction. Elsewhere, `asm volatile("" ...)` may only restrict the
    compiler."""
    assert not re.search(r'\basm\b(?! volatile\(""[ )])', re.sub(r"//.*", "", (ROOT / path).read_text()))


@pytest.mark.parametrize(
    "path", [p for p in FILES if re.search(r"^(?!pyminidnn/sources/).*\.(h|hpp|c|cpp|cu|cuh|py|sh)$", p)]
)
def test_files_begin_with_their_licence(path: str) -> None:
    assert "SPDX-License-Identifier: Apache-2.0" in "".join((ROOT / path).read_text().splitlines(True)[:2])


def test_tests_with_torch_are_marked() -> None:
    """CI runs `-m torch` with torch, and the rest without torch. A test that skips itself because torch is missing
    would never run."""
    for path in sorted((ROOT / "tests").glob("test_*.py")):
        inside_functions = re.findall(r"^ +.*importorskip\(.torch", path.read_text(), re.M)
        assert path == Path(__file__) or not inside_functions, (
            f"{path.name}: mark it with pytest.mark.torch and import torch"
        )


def test_readme_lists_all_functions() -> None:
    """The README has a row for each family with all of its functions; for pointwise, only with the function that has
    all modes."""
    modules: dict[str, set[str]] = {}
    for name, value in vars(dnn).items():
        if str(getattr(value, "__module__", "")).startswith("pyminidnn.ops."):
            modules.setdefault(value.__module__.rsplit(".", 1)[1], set()).add(name)
    modules["pointwise"] = {"pointwise"}
    rows = re.findall(
        r"^\| (`\w+`[^|]*) \| \[(\w+)\]\(docs/ops/(\w+)\.md\) \|$", (ROOT / "README.md").read_text(), re.M
    )
    assert {page: set(re.findall(r"`(\w+)`", functions.split(" and ")[0])) for functions, _, page in rows} == modules
    assert all(text == page for _, text, page in rows)


def test_cpp_has_all_functions() -> None:
    """Each function of Python has one in minidnn.hpp, of the same name or of the name given here. docs/cpp.md lists all
    functions of minidnn.hpp."""
    other = {
        "random_uniform": "fill_uniform",
        "random_normal": "fill_normal",
        "slice": "Tensor::view",
        "split": "Tensor::view",
    }
    modules = {f"pyminidnn.ops.{family}" for family in FAMILIES}
    shortcuts = ("pyminidnn.ops.pointwise", "pyminidnn.ops.reduce")  # add is pointwise("add"), sum is reduce("sum")
    python = {
        other.get(name, re.sub("^(layer|rms|group|instance)_norm|^(adaptive|global)_pool", _general, name))
        for name, value in vars(dnn).items()
        if getattr(value, "__module__", "") in modules
        and (value.__module__ not in shortcuts or name in ("pointwise", "reduce"))
    }
    listed = set(
        re.findall(r"`([\w:]+)`", (ROOT / "docs/cpp.md").read_text().split("## Functions")[1].split("## Tensors")[0])
    )
    header = (ROOT / "include/minidnn/minidnn.hpp").read_text().split("// ---- Convolution ----")[1]
    functions = set(
        re.findall(
            r"^inline (?!minidnn)[\w:<>, ]+ (\w+)\(",
            re.sub(r"namespace detail \{.*?\n\}  // namespace detail", "", header, flags=re.S),
            re.M,
        )
    )
    assert python <= listed and functions <= listed
    assert {name for name in listed if "_" in name and "::" not in name and "minidnn" not in name} <= functions


def _general(match: re.Match[str]) -> str:
    return "norm" if match[1] else "pool"


def test_engines_page_is_up_to_date() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "make_engines_page.py"))
    assert script["PAGE"].read_text() == script["page"](), "run scripts/make_engines_page.py"


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120
