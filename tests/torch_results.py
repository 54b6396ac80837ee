# SPDX-License-Identifier: Apache-2.0
"""Results of torch for a case's inputs in float64, to check the oracle. None where torch has no such function, or
defines it differently."""

from __future__ import annotations

import math

import numpy as np
from cases import Case
from support import Sample

# The families whose samples have all that torch needs as inputs.
FAMILIES = ("activation", "conv", "loss", "matmul", "pooling", "reduce", "softmax")


def torch_results(case: Case, sample: Sample) -> list[np.ndarray] | None:
    if case.family not in FAMILIES or defined_differently(case):
        return None
    import torch
    from torch_calls import torch_call

    inputs = {
        name: torch.from_numpy(np.array(v, "int64" if name in ("target", "indices") else "float64"))
        for name, v in sample.inputs.items()
    }
    call = torch_call(case, inputs)
    if call is None:
        return None
    found = call()
    found = [found] if isinstance(found, torch.Tensor) else found
    results = [t.detach().numpy() for t in found]
    if case.family == "loss" and case.direction == "forward":
        results.append(torch.logsumexp(inputs["x"], 1).numpy())
    return results


def defined_differently(case: Case) -> bool:
    """Whether torch's function has other numbers than the sample: factors, roundings of results, or mean losses of no
    rows, which are NaN in torch."""
    return {
        "activation": case.words[:1] == ("softplus",) and case.dtype == "float64",  # torch returns x above 20
        "loss": "smoothed" in case.words or case.attributes.get("reduction") == "mean",
        "matmul": "c" in case.operands,
        "reduce": case.dtype.startswith(("int", "uint", "bool")),
    }.get(case.family, False)


def largest_difference(case: Case, sample: Sample) -> float:
    """The largest difference between torch and the oracle, as a fraction of the tolerance. Both compute in float64, so
    it is far below 1. 0 if torch has no result."""
    worst = 0.0
    for got, result in zip(torch_results(case, sample) or [], sample.results, strict=False):
        want = np.asarray(result.want, "float64")
        assert got.shape == want.shape, f"torch has {got.shape}, the oracle {want.shape}"
        with np.errstate(invalid="ignore"):
            same = (got == want) | (np.isnan(got) & np.isnan(want))
            difference = np.where(same, 0, np.abs(got - want)) / (
                np.asarray(result.tolerance) + 1e-9 * np.abs(want) + 1e-12
            )
        worst = max(
            worst, float(np.nanmax(difference, initial=0.0)) if not np.isnan(difference[~same]).any() else math.inf
        )
    return worst
