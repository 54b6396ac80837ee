# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/tensor.md, docs/array_api.md, docs/graph.md, docs/cudnn_compat.md, docs/ops and the README run
and print what the pages show. The programs in examples/ run."""

from __future__ import annotations

import doctest
import re
import runpy
import sys
from pathlib import Path

import pytest

import pyminidnn as dnn
from pyminidnn import _C

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    "page",
    [
        *(ROOT / "docs" / f"{p}.md" for p in ("tensor", "array_api", "graph", "cudnn_compat")),
        *sorted((ROOT / "docs/ops").glob("*.md")),
    ],
    ids=lambda p: p.stem,
)
def test_examples(page: Path) -> None:
    result = doctest.testfile(str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 0, f"{page.name} has no example"
    assert result.failed == 0


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "ops").glob("*.md")), ids=lambda p: p.stem)
def test_signatures_are_up_to_date(page: Path) -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "make_signatures.py"))
    assert script["updated"](page) == page.read_text(), "run scripts/make_signatures.py"


def test_public_names_are_documented() -> None:
    """Ruff checks the names that Python files define; this also checks those of the extension."""
    classes = (_C.DeviceTensor, _C.Handle, _C.Report, _C.EngineReport)
    names = {name: getattr(dnn, name) for name in dnn.__all__ if callable(getattr(dnn, name))}
    names |= {f"{c.__name__}.{n}": member for c in classes for n, member in vars(c).items() if not n.startswith("_")}
    assert len(names) > 140
    assert [name for name, value in names.items() if not (value.__doc__ or "").strip()] == []


def test_readme_example(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    exec(compile(code, "README.md", "exec"), {})
    assert "conv forward f32 x=8x3x32x32 w=16x3x3x3 pad=1" in capsys.readouterr().out


# What a program in examples/ prints, as patterns.
PRINTED = {
    "char_gpt": [r"log\(13\) = 2\.56", r"step +0: loss 2\.5", r"loss (0|1\.[0-4])[.\d]*; the random", r"(?m)^7\+8="],
    "char_lstm": [
        r"log\(17\) = 2\.83",
        r"step +0: loss 2\.8",
        r"loss 0\.\d+; the random",
        r"\.\n",
        r"one by one: the largest",
    ],
    "ctc_digits": [r"step +0: loss \d", r"is read as \d", r"[\d.]+% of 128 new strings are read right"],
    "gpt_block": [r"14 by a cache: the largest", r"14 by a cache of pages: the largest", r"attention decode f32"],
    "resnet_block": [r"region 1: ", r"as a graph"],
    "transformer_mlp": [r"region 1: ", r"as a graph"],
}


@pytest.mark.parametrize("program", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_programs(
    program: Path, device: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They compare their results with others, and end with an error if these differ."""
    assert len(program.read_text().splitlines()) < 150
    brief = ["--steps", "200"] if program.stem == "char_gpt" else []
    monkeypatch.setattr(sys, "argv", [str(program), "--device", device, *brief])
    runpy.run_path(str(program), run_name="__main__")
    text = capsys.readouterr().out
    assert all(re.search(pattern, text) for pattern in PRINTED[program.stem]), text
    assert "False" not in text


def test_pictures_of_a_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page has the code that makes its pictures."""
    (code,) = re.findall(r"```python\n(from pathlib .*?)```", (ROOT / "docs/graph.md").read_text(), re.S)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    exec(compile(code, "graph.md", "exec"), {})
    for made in (tmp_path / "docs").iterdir():
        assert made.read_text() == (ROOT / "docs" / made.name).read_text(), f"make docs/{made.name} again"
