# SPDX-License-Identifier: Apache-2.0
"""Lists the engines, reports which of them can run a call and which one is chosen, and measures them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from . import _C
from .options import Family
from .progress import FindProgress
from .refusals import refusal, short
from .reports import Reports


def explain(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Reports:
    """Reports which engine op(*args, **kwargs) would use, and why not the others. It runs no engine.

    explain(conv_forward, x, w, padding=1) returns a list with a Report for each problem of the call, usually one.
    A Report has .problem, .device, .chosen and .engines. An engine has .name, .why_not ("" if the engine can run the
    problem, else one sentence), .estimate_us (microseconds), .workspace_bytes, .config and .traits. A report and the
    list print as tables, also in notebooks. No argument is written. Raises the errors that the call itself would raise.
    """
    return Reports(_C.dry_run(_call(op, args, kwargs), "explain"))


def find(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Reports:
    """Measures every engine and config that can run op(*args, **kwargs), and remembers the fastest (as cudnnFind does).

    Later calls with the same problem use the fastest one: in this process, and in other processes through tuning.txt in
    the cache folder. A result found under a restriction (`algo`, or a handle with max_workspace, threads or
    deterministic) is used only by calls with the same restriction. Measurements use separate memory; no argument is
    written. Returns Reports as explain() does, with .measured_us (medians, in microseconds). Warns if the cache folder
    cannot keep the result; .not_kept says why. If stderr is a terminal and tqdm is installed, a bar shows the progress.
    """
    progress = FindProgress()
    try:
        reports = Reports(_C.dry_run(_call(op, args, kwargs), "find", progress))
    finally:
        progress.close()
    for why in dict.fromkeys(r.not_kept for r in reports if r.not_kept):
        warnings.warn(f"find: the result is kept in this process only: {why}", RuntimeWarning, stacklevel=2)
    return reports


def _call(op: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Any]:
    if not callable(op):
        raise refusal(_C.DTypeError, op, f"must be a function such as pyminidnn.conv_forward; got {short(op)}")
    return lambda: op(*args, **kwargs)


def engines(family: Family | None = None, device: str = "cpu") -> list[str]:
    """The names of the engines of one family, or of all families, on one kind of device.

    family  such as "conv"; None: all
    device  "cpu" or "cuda"; the machine need not have such a device

    Raises ShapeError for an unknown family, DeviceError for another device.
    """
    if not isinstance(device, str) or device.partition(":")[0] not in ("cpu", "cuda"):
        raise _C.DeviceError(f"engines: device must be 'cpu' or 'cuda'; got {short(device)}")
    families = list(dict.fromkeys(_C.families()))
    if family is not None and not (isinstance(family, str) and family in families):
        raise _C.ShapeError(f"engines: family must be one of {', '.join(families)}; got {short(family)}")
    chosen = families if family is None else [family]
    return [e["name"] for f in chosen for e in _C.engines(f, device.startswith("cuda"))]
