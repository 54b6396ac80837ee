# SPDX-License-Identifier: Apache-2.0
"""Every engine of the registry on every case line, against a float64 oracle. A new engine is tested because it is
listed.

An engine may refuse a case only through why_not, with a sentence. It must compute every case that it accepts: into a
poisoned output, without writes outside of it, and twice with equal bits unless it declares itself nondeterministic.
"""

from __future__ import annotations

import importlib
import math
import re
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from cases import FAMILIES, Case, load
from support import Sample, assert_close, calibrated, framed, reloaded, tensor, values_of

import pyminidnn as dnn
from pyminidnn import _C

# Reference engines with a longer estimate (in us) compute a case once, so they are not compared with a second run. Thousands
# of smaller cases compare them. A slow line tests the limits of a faster engine, and takes the reference engine seconds.
SLOW_US = 20_000.0
CASES = [case for family in FAMILIES for case in load(family)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: Case, device: str) -> None:
    check_line(case, device, sample_of(case))


def check_line(case: Case, device: str, sample: Sample, in_settings: bool = False) -> None:
    (report, *_) = check(case, device, sample, in_settings=in_settings)
    # The text of a case does not say at which address a tensor begins, so the alignment is not compared. For example,
    # the first element of a tensor with negative strides may have any alignment.
    problem = re.sub(r" align=\d+", "", report.problem)
    assert problem == case.text, "the line is not in the form that the library prints"
    able = {(_C.cost_kind(problem), e.name) for e in report.engines if not e.why_not}
    assert device != "cpu" or able <= calibrated(), "pyminidnn/calibrate.py has no problem of an engine"


def sample_of(case: Case) -> Sample:
    return importlib.import_module(f"test_{case.family}").sample(case)


def tensors_of(case: Case, sample: Sample, device: str) -> dict[str, dnn.DeviceTensor]:
    return {
        name: tensor(v, sample.dtypes.get(name, case.dtype), device, case.operand(name, v.shape))
        for name, v in sample.inputs.items()
    }


def check(
    case: Case, device: str, sample: Sample, most_us: float = math.inf, in_settings: bool = False
) -> list[_C.Report]:
    """Compares every engine that runs the case, and estimates at most `most_us`, with the oracle. Returns the reports
    of the call.

    `in_settings`: test_isa.py checks the case in other settings than the usual ones. This leaves out the file of the
    recorded call, which is the same in all settings, and slow reference engines, which have the same code.
    """
    tensors = tensors_of(case, sample, device)

    def arguments(algo: str | None) -> tuple[dict[str, object], Callable[[], bool]]:
        """A new poisoned output for each run, if the case names its strides."""
        if "out" not in case.operands:
            return {"algo": algo}, lambda: True
        operand = case.operands["out"]
        strides = operand.strides or tensor(np.zeros(operand.shape), "int8", "cpu", operand).strides
        out, margins_untouched = framed(operand.shape, strides, case.out_dtype, device)
        return {"algo": algo, "out": out}, margins_untouched

    reports = dnn.explain(sample.call, tensors, **arguments(None)[0])
    able = [e for e in reports[0].engines if not e.why_not]
    assert able, f"no engine runs {case}"
    able = [e for e in able if e.estimate_us <= most_us or e.name == reports[0].chosen]
    if _C.cpu_isa() != _C.cpu_isas()[0]:
        able = [e for e in able if depends_on_isa(e.name)]
    slow = {e.name for e in able if e.estimate_us > SLOW_US and not depends_on_isa(e.name)}
    if in_settings:
        able = [e for e in able if e.name not in slow]
    for engine, algo in ((e, algo) for e in able for algo in (e.name, *another_config(e, case))):
        keywords, margins_untouched = arguments(algo)
        outputs = sample.call(tensors, **keywords)
        assert len(outputs) == len(sample.results)
        for got, result in zip(outputs, sample.results, strict=True):
            assert_close(got, result, algo)
        assert margins_untouched(), f"{algo} wrote beside its output"
        for name, value in sample.inputs.items():
            assert (values_of(tensors[name]) == value).all(), f"{algo} changed its input {name}"
        if engine.name in slow:
            continue
        if len(outputs) == 1:  # elements that the engine has not written still contain the fill value
            out, margins_untouched = framed(outputs[0].shape, outputs[0].strides, outputs[0].dtype, device)
            again = sample.call(tensors, algo=algo, out=out)
            assert margins_untouched(), f"{algo} wrote beside its output"
        else:
            again = sample.call(tensors, **arguments(algo)[0])
        if "nondeterministic" not in engine.traits:
            for first, second in zip(outputs, again, strict=True):
                assert bytes(values_of(first)) == bytes(values_of(second)), f"{algo} does not repeat itself"
    if not (in_settings and reports[0].chosen in slow):
        keywords, others = (arguments(reports[0].chosen)[0] for _ in range(2))
        check_recorded(sample, tensors, keywords, others, files=not in_settings)
    return reports


def check_recorded(
    sample: Sample,
    tensors: dict[str, dnn.DeviceTensor],
    keywords: dict[str, object],
    others: dict[str, object],
    files: bool,
) -> None:
    """A recorded call gives the bits of the call itself, also after it was saved and loaded if `files`."""
    traits = {
        t for r in dnn.explain(sample.call, tensors, **keywords) for e in r.engines if not e.why_not for t in e.traits
    }
    called = sample.call(tensors, **keywords)
    fused = dnn.fuse(sample.call, rounding="each")
    recorded = fused(tensors, **others)
    for first, second in zip(called, recorded, strict=True):
        assert (first.shape, first.strides, first.dtype) == (second.shape, second.strides, second.dtype)
        same = bytes(values_of(first)) == bytes(values_of(second))
        assert same or "nondeterministic" in traits, "a recorded call differs from the call"
    if not files:
        return
    graph = fused.graph(tensors, **others)
    loaded = reloaded(graph)
    assert str(loaded) == str(graph)
    arrays = {f"x{i}": t for i, t in enumerate(t for t in (*tensors.values(), others.get("out")) if t is not None)}
    again = loaded.run(**arrays)
    for name, first in graph.run(**arrays).items():
        same = bytes(values_of(first)) == bytes(values_of(again[name]))
        assert same or "nondeterministic" in traits, "a loaded graph differs from the recorded one"


# One case of each family, direction and dtype.
CASES_TO_FIND = list({(c.family, c.direction, c.dtype): c for c in reversed(CASES) if "out" not in c.operands}.values())


@pytest.mark.parametrize("case", CASES_TO_FIND, ids=str)
def test_find(case: Case, device: str) -> None:
    check_find(case, device, sample_of(case))


def check_find(case: Case, device: str, sample: Sample) -> None:
    """Measures every engine, in memory that find() allocates: under AddressSanitizer, each block ends where its tensor
    ends. The workspace limit excludes no engine. Other tests have other limits, so they do not use the result."""
    tensors = tensors_of(case, sample, device)
    with dnn.Handle(device, max_workspace=2**40):
        reports = dnn.find(sample.call, tensors, algo=None)
    for report in reports:
        measured = {e.name: e.measured_us for e in report.engines if not e.why_not}
        assert all(us > 0 for us in measured.values()), measured
        assert measured[report.chosen] == min(measured.values())
    for name, value in sample.inputs.items():
        assert (values_of(tensors[name]) == value).all(), f"find() changed {name}"


def depends_on_isa(engine: str) -> bool:
    """Whether the engine has code for each instruction set (cpp/core/cpu/isa.h). test_isa.py checks this in its source
    files."""
    return engine == "cpu.ctc.reference" or not engine.endswith(("reference", "cpu.conv.direct"))


def another_config(engine: _C.EngineReport, case: Case) -> list[str]:
    """One of the configs other than the first that find() may choose; which one depends on the case."""
    others = engine.configs[1:]
    return [f"{engine.name}:{others[zlib.crc32(case.text.encode()) % len(others)]}"] if others else []


@pytest.mark.parametrize("family", [*FAMILIES, "graph"])
def test_engines_are_named_after_device_and_family(family: str) -> None:
    for device in ("cpu", "cuda"):
        names = dnn.engines(family, device)
        assert names, f"{family} has no engine on {device}"
        assert all(n.startswith(f"{device}.{family}.") for n in names)
        assert len(set(names)) == len(names)
