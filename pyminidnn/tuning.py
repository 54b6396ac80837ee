# SPDX-License-Identifier: Apache-2.0
"""How a call would run: which engines there are, which can, which is chosen, and measuring them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from . import _C
from ._C import Report
from .refusals import refusal, short


def explain(op: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Report]:
    """What op(*args, **kwargs) would do, without doing it.

    explain(conv_forward, x, w, padding=1) gives a Report for each problem the call consists of, mostly one. A Report
    has .problem, .device, .chosen and .engines; an engine has .name, .why_not (a sentence, "" if it can), .estimate_us,
    .workspace_bytes, .config and .traits. print(report) shows all. Raises what the call itself would raise.
    """
    return _C.survey(_call(op, args, kwargs), False)


def find(op: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Report]:
    """Measures every engine and config that can run op(*args, **kwargs), and remembers the fastest (as cudnnFind does).

    Later calls with the same problem use it, in this process and, by tuning.txt in the cache folder, in others. What is
    found under a restriction (`algo`, or a handle with max_workspace, threads or deterministic) serves only calls with
    that restriction. Runs on memory of its own: no argument is written. Reports as explain(), with .measured_us
    (medians). Warns if the cache folder cannot keep the result (.not_kept says why).
    """
    reports = _C.survey(_call(op, args, kwargs), True)
    for why in dict.fromkeys(r.not_kept for r in reports if r.not_kept):
        warnings.warn(f"find: the result is kept in this process only: {why}", RuntimeWarning, stacklevel=2)
    return reports


def _call(op: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Any]:
    if not callable(op):
        raise refusal(_C.DTypeError, op, f"must be a function such as pyminidnn.conv_forward; got {short(op)}")
    return lambda: op(*args, **kwargs)


def engines(family: str | None = None, device: str = "cpu") -> list[str]:
    """Names of the engines of one family ("conv"), or of all, for "cpu" or "cuda"; there need not be such a device.

    Raises ShapeError for a family that does not exist, DeviceError for another device.
    """
    if not isinstance(device, str) or device.partition(":")[0] not in ("cpu", "cuda"):
        raise _C.DeviceError(f"engines: device must be 'cpu' or 'cuda'; got {short(device)}")
    families = list(dict.fromkeys(_C.families()))
    if family is not None and not (isinstance(family, str) and family in families):
        raise _C.ShapeError(f"engines: family must be one of {', '.join(families)}; got {short(family)}")
    chosen = families if family is None else [family]
    return [e["name"] for f in chosen for e in _C.engines(f, device.startswith("cuda"))]
