#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the form of the C++ and CUDA sources. Prints each place that breaks a rule; the exit code is then 1.

    scripts/check_form.py [--fix]

- A function has at most 100 lines and 8 parameters (by lizard, from PyPI).
- A line has one statement: `a = 1, b = 2;` is two. --fix separates them; run clang-format afterwards.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import lizard

ROOT = Path(__file__).resolve().parent.parent
MOST_LINES, MOST_PARAMETERS = 100, 8
# Functions that may exceed the limits on lines and parameters. Dividing simt_gemm further would change its use of
# registers.
LARGER = {
    "cuda/gemm/simt/kernel.cu": {"simt_gemm"},
}
FOLDERS = ("cpp", "cuda", "examples", "include", "tests/cpp")
SOURCES = [p for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*.*"))]
CODE = (".h", ".hpp", ".c", ".cpp", ".cu", ".cuh")

# Matches comments, strings and preprocessor lines. They contain no C++ statements.
BLANKED = re.compile(r'//[^\n]*|"(?:[^"\\\n]|\\.)*"|^[ \t]*#(?:[^\n]|\\\n)*', re.M)
# Matches what may stand before a statement: `if (...)`, `else`, `for (...)`, `case X:` and the like.
CONTROL = re.compile(
    r"\s*(?:(?:if(?: constexpr)?|for|while|switch)\s*(?=\()|else\b|do\b|(?:case\b[^:]*|default|\w+)\s*:(?!:))"
)
# Matches the beginning of an expression statement: a call, or an operand and an assignment. Declarations begin with a
# type.
_BRACKETS = r"\[[^][]*(?:\[[^][]*\][^][]*)*\]|\([^()]*(?:\([^()]*\)[^()]*)*\)"
OPERAND = rf"(?:\+\+|--|\*)*[A-Za-z_]\w*(?:(?:\.\*?|->|::)[A-Za-z_]\w*|{_BRACKETS})*"
EXPRESSION = re.compile(rf"\s*{OPERAND}\s*(?:=(?!=)|[-+*/%&|^]=|<<=|>>=|\+\+|--|$)")


def joined_statements(text: str) -> Iterator[tuple[int, int, list[int], bool]]:
    """Begin, end, positions of commas, and whether a condition or loop precedes: of each statement of several
    expressions. The begin is behind the condition."""
    code = BLANKED.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    # An open bracket: the bracket, the position of the current statement in it, and the positions of the commas in that
    # statement.
    frames: list[tuple[str, int, list[int]]] = [("{", 0, [])]
    for i, c in enumerate(code):
        kind, begin, commas = frames[-1]
        if c in "([{":
            frames.append((c, i + 1, []))
        elif c in ")]}" and len(frames) > 1:
            frames.pop()
            if c == "}" and frames[-1][0] == "{" and ends_block(code, frames[-1][1], i):
                frames[-1] = ("{", i + 1, [])
        elif c == ",":
            commas.append(i)
        elif c == ";":
            if kind == "{" and commas:
                start, nested = skip_control(code, begin)
                inside = [k for k in commas if k > start]
                parts = [code[a + 1 : b] for a, b in itertools.pairwise([start - 1, *inside, i])]
                # A comma joins statements if every part between commas is an expression statement. In declarations and
                # template arguments, the parts are none. In `return a, b;` the last part may have any form.
                checked = parts[:-1] if parts[0].lstrip().startswith("return ") else parts
                if inside and all(map(is_expression, checked)):
                    yield start, i, inside, nested
            frames[-1] = (kind, i + 1, [])


def is_expression(text: str) -> bool:
    """Whether the text is an assignment, an increment or a call, and not a name that a declaration lists."""
    found = EXPRESSION.match(text)
    return bool(found) and (found.end() < len(text) or text.rstrip().endswith(")") or text.lstrip()[:2] in ("++", "--"))


def ends_block(code: str, begin: int, end: int) -> bool:
    """Whether the bracket at `end` closes a block, and not the braces of an initialiser or a lambda in a statement."""
    depth = 0
    for i in range(end, begin - 1, -1):
        depth += (code[i] == "}") - (code[i] == "{")
        if depth == 0:
            head = code[begin:i].rstrip()
            inner = re.sub(r"\([^()]*\)", "", re.sub(r"\([^()]*\)", "", head))
            return (
                not head
                or (head[-1] in ")" and "=" not in inner and "[" not in inner)
                or bool(
                    re.search(r"(?:\b(?:else|do|try|const|override|noexcept|final)|:)$", head)
                    or re.match(r"\s*(?:template\b.*)?(?:struct|class|namespace|enum|union)\b", head, re.S)
                )
            )
    return False


def skip_control(code: str, begin: int) -> tuple[int, bool]:
    """The begin of the statement behind `if (...)`, `else`, `for (...)` and labels; whether one of them but a label is
    there."""
    nested = False
    while m := CONTROL.match(code, begin):
        begin = m.end()
        if m[0].rstrip().endswith(":"):
            continue
        nested = True
        rest = re.match(r"\s*\(", code[begin:])
        if rest and not re.match(r"\s*(?:else|do)$", m[0]):
            depth, begin = 1, begin + rest.end()
            while depth:
                depth += (code[begin] == "(") - (code[begin] == ")")
                begin += 1
    return begin, nested


def separated(text: str) -> str:
    for begin, end, commas, nested in sorted(joined_statements(text), reverse=True):
        cuts = [begin, *(comma + 1 for comma in commas), end + 1]
        parts = [text[a : b - 1] for a, b in itertools.pairwise(cuts)]
        if value := re.match(r"\s*return\b", parts[0]):  # `return a, b;` returns b
            parts[0] = parts[0][value.end() :]
            parts[-1] = f" return{parts[-1]}"
        body = ";".join(parts) + ";"
        text = text[:begin] + (f" {{{body} }}" if nested else body) + text[end + 1 :]
    return text


def problems(path: Path) -> Iterator[str]:
    text, name = path.read_text(), path.relative_to(ROOT)
    for begin, _, _, _ in joined_statements(text):
        line = text.count("\n", 0, begin + len(text[begin:]) - len(text[begin:].lstrip())) + 1
        yield f"{name}:{line}: statements are joined by a comma"
    # lizard selects its parser by the file name. The name source.cpp makes it parse headers and .cu files as C++, too.
    for function in lizard.analyze_file.analyze_source_code("source.cpp", text).function_list:
        if function.name.rsplit("::", 1)[-1] in LARGER.get(str(name), ()):
            continue
        lines = function.end_line - function.start_line + 1
        if lines > MOST_LINES:
            yield f"{name}:{function.start_line}: {function.name} has {lines} lines; at most {MOST_LINES}"
        if function.parameter_count > MOST_PARAMETERS:
            count = function.parameter_count
            yield f"{name}:{function.start_line}: {function.name} has {count} parameters; at most {MOST_PARAMETERS}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fix", action="store_true", help="separate statements that a comma joins")
    parser.add_argument("files", nargs="*", type=Path, help="default: all sources")
    options = parser.parse_args()
    files = [p.resolve() for p in options.files] or [p for p in SOURCES if p.suffix in CODE]
    if options.fix:
        for path in files:
            if (text := path.read_text()) != (new := separated(text)):
                path.write_text(new)
    found = [p for path in files for p in problems(path)]
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
