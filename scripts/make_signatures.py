#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the signatures of the public functions into the pages of docs/ops, between two marks.

python scripts/make_signatures.py

tests/test_docs.py fails if a page is out of date.
"""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

import pyminidnn as dnn

PAGES = sorted((Path(__file__).parent.parent / "docs/ops").glob("*.md"))
BEGIN, END = "<!-- signatures: made by scripts/make_signatures.py -->", "<!-- end of signatures -->"


def functions_of(family: str) -> list[Any]:
    """The public functions that pyminidnn/ops/FAMILY.py defines, in its order; of pointwise, the one with all modes."""
    if family == "pointwise":
        return [dnn.pointwise]
    if family == "graph":  # pyminidnn/graph.py has functions and classes
        return [dnn.record, dnn.fuse]
    module = importlib.import_module(f"pyminidnn.ops.{family}")
    return [f for n, f in vars(module).items() if getattr(f, "__module__", "") == module.__name__ and hasattr(dnn, n)]


def signature(function: Any) -> str:
    """The signature without types, in lines of at most 110 characters."""
    parameters = inspect.signature(function).parameters.values()
    names, keyword_only = [], False
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and not keyword_only:
            names.append("*")
            keyword_only = True
        default = f'"{p.default}"' if isinstance(p.default, str) else repr(p.default)
        names.append(p.name if p.default is p.empty else f"{p.name}={default}")
    head = f"{function.__name__}("
    text = head + ", ".join(n.replace(" ", "\N{NO-BREAK SPACE}") for n in names) + ")"
    lines = textwrap.wrap(text, 110, subsequent_indent=" " * len(head), break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")


def updated(page: Path) -> str:
    block = "\n".join([BEGIN, "```python", *map(signature, functions_of(page.stem)), "```", END])
    text = page.read_text()
    if BEGIN not in text:
        raise SystemExit(f"{page.name} lacks the line {BEGIN}")
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: block, text, flags=re.DOTALL)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(updated(page))
