# SPDX-License-Identifier: Apache-2.0
"""python -m pyminidnn calibrate: measures how long each CPU engine takes on this machine, compared with its estimate.

The quotient is the engine's cost factor for that kind of problem (cpp/engine/costs.h): the median over the problems of
this file that the engine can run. Later choices of engines multiply estimates by it, in all processes of the user.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import pyminidnn as dnn

from . import _C
from .progress import Progress

Call = Callable[[], Any]
# The estimates of some engines contain those of others: of copies, of matrix products, of each call of a region. So the
# factors of one round change the estimates of the next. No such chain has more links than this.
ROUNDS = 3


def run(calls: list[Call] | None = None) -> int:
    """Measures `calls`, by default all problems of this file, and writes the cost factors. Returns 0.

    A call is a function without arguments that calls functions of the library. None of them runs: their engines are
    measured on separate memory. Raises DeviceError if the factors cannot be kept.
    """
    if why := _C.why_no_costs():
        raise dnn.DeviceError(f"calibrate: cost factors cannot be kept: {why}")
    start = time.perf_counter()
    with dnn.Handle("cpu"):
        chosen = problems() if calls is None else calls
        with Progress(len(chosen), "problem") as bar:
            measured = []
            for call in chosen:
                measured.append(_C.dry_run(call, "calibrate"))
                bar.step()
        for _ in range(ROUNDS):
            factors = _factors(measured, [_C.dry_run(call, "explain") for call in chosen])
            _C.import_costs("".join(f"{line}\n" for line in factors), True)
    print(
        f"measured {len(factors)} cost factors of CPU engines on {sum(map(len, measured))} problems "
        f"in {time.perf_counter() - start:.0f} s; GPUs are not calibrated"
    )
    return 0


def _factors(measured: list[list[_C.Report]], estimated: list[list[_C.Report]]) -> list[str]:
    """A line for each engine and kind of problem, from two reports on each problem: with times, and with estimates."""
    quotients: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for timed, expected in zip(measured, estimated, strict=True):
        for report, estimates in zip(timed, expected, strict=True):
            for e, estimate in zip(report.engines, estimates.engines, strict=True):
                if e.measured_us and not estimate.why_not:
                    quotient = e.measured_us / (estimate.estimate_us / estimate.cost_factor)
                    quotients[_C.cost_kind(report.problem), e.name, e.revision].append(quotient)
    factors = {engine: _median(values) for engine, values in quotients.items()}
    device = _C.device_info("cpu")["model"]
    return [
        f"{device}\t{kind}\t{name}\t{revision}\t{_careful(factors, (kind, name, revision)):.4g}"
        for kind, name, revision in sorted(factors)
    ]


def _careful(factors: dict[tuple[str, str, int], float], engine: tuple[str, str, int]) -> float:
    """The factor of an engine. That of a reference engine is at least the mean of its competitors' factors: it was
    measured on small problems only, and no small problem may make it the choice for a large one."""
    others = [f for other, f in factors.items() if other[0] == engine[0] and not other[1].endswith(".reference")]
    if not engine[1].endswith(".reference") or not others:
        return factors[engine]
    return max(factors[engine], statistics.geometric_mean(others))


def _median(values: list[float]) -> float:
    """The median of the logarithms, as a number again."""
    return float(np.exp(statistics.median(np.log(values))))


def problems() -> list[Call]:
    """Calls that every CPU engine takes part in: of several sizes, layouts and dtypes.

    The sizes are small enough for the reference engine, which competes too, and large enough for the main loops of the
    fast engines.
    """
    families = (_conv, _matmul, _attention, _rnn, _pooling, _softmax, _loss, _ctc, _batch_norm, _layer_norm, _lrn)
    others = (_activation, _pointwise, _random, _transform, _pad, _gather, _reduce, _graph)
    return [call for family in (*families, *others) for call in family()]


def _tensor(*shape: int, dtype: str = "float32", order: str = "") -> dnn.DeviceTensor:
    """A tensor without values. Its order in memory is that of its dimensions, a layout, or "gaps" behind each row."""
    options: dict[str, Any] = {"dtype": dtype, "device": "cpu"}
    if order == "gaps":
        wide = dnn.empty((*shape[:-1], shape[-1] + 3), **options)
        return dnn.slice(wide, [0] * len(shape), shape)
    if order:
        options["layout"] = order
    return dnn.empty(shape, **options)


def _conv() -> Iterator[Call]:
    def call(n: int, c: int, hw: int, k: int, r: int, order: str = "", dtype: str = "float32", **options: Any) -> Call:
        x = _tensor(n, c, hw, hw, dtype=dtype, order=order)
        w = _tensor(k, c // options.get("groups", 1), r, r, dtype=dtype)

        def each() -> None:
            y = dnn.conv_forward_statistics(x, w, padding=r // 2, **options)[0]
            dnn.conv_forward(x, w, padding=r // 2, **options)
            dnn.conv_backward_data(y, w, x.shape, padding=r // 2, **options)
            dnn.conv_backward_filter(y, x, w.shape, padding=r // 2, **options)
            dnn.conv_backward_bias(y)

        return each

    for order in ("", "NHWC"):
        yield call(2, 3, 56, 32, 3, order, stride=2)
        yield call(2, 64, 28, 64, 3, order)
        yield call(1, 32, 56, 32, 3, order)
        yield call(4, 128, 14, 64, 1, order)
        yield call(2, 32, 14, 64, 3, order, "bfloat16")
        yield call(2, 32, 14, 32, 3, order, "float64")
        yield call(4, 64, 28, 64, 3, order, groups=64)
        yield call(2, 64, 28, 64, 3, order, groups=8)
        yield call(1, 8, 8, 8, 3, order)


def _matmul() -> Iterator[Call]:
    sizes = (
        (1, 16, 16, 16),
        (1, 64, 64, 64),
        (1, 256, 256, 256),
        (1, 1024, 64, 256),
        (1, 1, 1024, 1024),
        (16, 32, 48, 32),
    )
    for dtype in ("float32", "bfloat16", "float64"):
        for batch, m, n, k in sizes:
            a, b = _tensor(batch, m, k, dtype=dtype), _tensor(batch, k, n, dtype=dtype)
            yield lambda a=a, b=b: dnn.matmul(a, b)  # type: ignore[misc]


def _attention() -> Iterator[Call]:
    for dtype in ("float32", "bfloat16"):
        for b, h, s, d, causal in ((1, 2, 16, 32, False), (1, 4, 64, 64, False), (2, 2, 128, 32, True)):
            x, lengths = _tensor(b, h, s, d, dtype=dtype), np.full(b, s, "int32")
            first = dnn.slice(x, (0, 0, 0, 0), (b, h, 1, d))

            def each(x: Any = x, first: Any = first, lengths: Any = lengths, causal: bool = causal) -> None:
                y, lse = dnn.attention_forward(x, x, x, causal=causal)
                dnn.attention_backward(y, x, x, x, y, lse, causal=causal)
                dnn.attention_decode(first, x, x, lengths=lengths, layout="bhsd")

            yield each


def _rnn() -> Iterator[Call]:
    sizes = (
        ("lstm", 8, 4, 32, "float32"), ("lstm", 16, 8, 64, "float32"), ("gru", 12, 1, 64, "float32"),
        ("tanh", 16, 16, 64, "float32"), ("gru", 8, 8, 48, "bfloat16"), ("lstm", 8, 8, 32, "float64"),
    )  # fmt: skip
    for mode, t, n, h, dtype in sizes:
        gates = {"lstm": 4, "gru": 3}.get(mode, 1) * h
        x, weights = (
            _tensor(t, n, h, dtype=dtype),
            [_tensor(*s, dtype=dtype) for s in ((gates, h),) * 2 + ((gates,),) * 2],
        )

        def each(x: Any = x, weights: Any = weights, mode: Any = mode, h: int = h) -> None:
            y, *_, reserve = dnn.rnn_forward(x, weights, mode=mode, hidden_size=h, training=True)
            *_, gradients = dnn.rnn_backward_data(y, None, None, y, weights, reserve, mode=mode, hidden_size=h)
            dnn.rnn_backward_weights(x, None, y, gradients, reserve, mode=mode, hidden_size=h)

        yield each


def _pooling() -> Iterator[Call]:
    for order in ("", "NHWC"):
        for n, c, hw, dtype in (
            (1, 8, 14, "float32"),
            (2, 32, 28, "float32"),
            (4, 64, 28, "float32"),
            (2, 32, 28, "bfloat16"),
            (2, 16, 28, "float64"),
        ):
            x = _tensor(n, c, hw, hw, dtype=dtype, order=order)

            def each(x: Any = x) -> None:
                for window, stride, mode in ((2, 2, "max"), (3, 1, "avg"), (3, 2, "max")):
                    options: dict[str, Any] = {"stride": stride, "mode": mode}
                    y = dnn.pool_forward(x, window, **options)
                    dnn.pool_backward(y, x, y, window, **options)
                y, indices = dnn.pool_forward_with_indices(x, 2)
                dnn.pool_backward(y, x, y, 2, indices=indices)

            yield each


# The shape of a tensor, the axis of its rows, its dtype, and its order in memory.
_ROWS = (
    ((8, 64), 1, "float32", ""), ((64, 1000), 1, "float32", ""), ((2048, 24), 1, "float32", ""),
    ((8, 64, 28, 28), 1, "float32", ""), ((8, 64, 14, 14), 1, "float32", "NHWC"), ((4, 50, 40), 1, "float32", ""),
    ((4, 32, 28, 28), 1, "bfloat16", "NHWC"), ((64, 512), 1, "bfloat16", ""), ((4, 64, 20, 20), 1, "bfloat16", ""),
    ((64, 300), 1, "float64", ""), ((64, 500), 1, "float32", "gaps"), ((4, 32, 20, 20), 1, "float32", "gaps"),
)  # fmt: skip


def _softmax() -> Iterator[Call]:
    for shape, axis, dtype, order in _ROWS:
        x = _tensor(*shape, dtype=dtype, order=order)
        yield lambda x=x, axis=axis: dnn.softmax_backward(x, dnn.softmax_forward(x, axis=axis), axis=axis)  # type: ignore[misc]


def _loss() -> Iterator[Call]:
    for shape, axis, dtype, order in _ROWS:
        x, target = _tensor(*shape, dtype=dtype, order=order), np.zeros((shape[0], *shape[2:]), "int64")

        def each(x: Any = x, target: Any = target, axis: int = axis) -> None:
            loss, lse = dnn.cross_entropy_forward(x, target, axis=axis)
            dnn.cross_entropy_backward(loss, x, target, lse, axis=axis)

        yield each


def _ctc() -> Iterator[Call]:
    for t, n, classes, labels, dtype, order in (
        (20, 2, 11, 5, "float32", ""),
        (50, 8, 29, 20, "float32", ""),
        (50, 8, 29, 20, "float32", "NWC"),
        (100, 4, 64, 30, "bfloat16", ""),
    ):
        x, targets = _tensor(t, n, classes, dtype=dtype, order=order), np.ones((n, labels), "int64")
        steps, lengths = np.full(n, t), np.full(n, labels)

        def each(x: Any = x, targets: Any = targets, steps: Any = steps, lengths: Any = lengths) -> None:
            for logits in (False, True):
                loss, saved = dnn.ctc_loss_forward(x, targets, steps, lengths, logits=logits)
                dnn.ctc_loss_backward(loss, x, targets, steps, lengths, saved, logits=logits)

        yield each


def _batch_norm() -> Iterator[Call]:
    for order in ("", "NHWC", "gaps"):
        for n, c, hw, dtype in (
            (2, 16, 7, "float32"),
            (4, 64, 28, "float32"),
            (8, 32, 14, "bfloat16"),
            (2, 24, 20, "float64"),
        ):
            x = _tensor(n, c, hw, hw, dtype=dtype, order=order)
            p = _tensor(c, dtype="float64" if dtype == "float64" else "float32")

            def each(x: Any = x, p: Any = p) -> None:
                dnn.batch_norm_forward_inference(x, p, p, p, p)
                y, mean, inv_std = dnn.batch_norm_forward_training(x, p, p)
                dnn.batch_norm_backward(y, x, p, mean, inv_std)

            yield each


def _layer_norm() -> Iterator[Call]:
    for shape, axis, dtype, order in _ROWS:
        x = _tensor(*shape, dtype=dtype, order=order)

        def each(x: Any = x, axis: int = axis) -> None:
            y, *saved = dnn.layer_norm_forward(x, axis=axis)
            dnn.layer_norm_backward(y, x, None, *saved, axis=axis)
            y, *saved = dnn.rms_norm_forward(x, axis=axis)
            dnn.rms_norm_backward(y, x, None, *saved, axis=axis)
            if x.ndim > 2:
                y, *saved = dnn.group_norm_forward(x, 2)
                dnn.group_norm_backward(y, x, 2, None, *saved)

        yield each


def _lrn() -> Iterator[Call]:
    for order in ("", "NHWC"):
        for n, c, hw, dtype in ((2, 16, 8, "float32"), (4, 64, 28, "float32"), (2, 32, 14, "bfloat16")):
            x = _tensor(n, c, hw, hw, dtype=dtype, order=order)

            def each(x: Any = x) -> None:
                dnn.lrn_backward(dnn.lrn_forward(x, 5), x, 5)
                dnn.lcn_backward(dnn.lcn_forward(x, 5), x, 5)

            yield each


# The shape of a tensor, its dtype, and its order in memory.
_ELEMENTS = (
    ((1000,), "float32", ""), ((4, 64, 28, 28), "float32", ""), ((4, 64, 28, 28), "bfloat16", ""),
    ((100, 200), "float64", ""), ((300, 500), "float32", "gaps"),
)  # fmt: skip


def _activation() -> Iterator[Call]:
    for shape, dtype, order in _ELEMENTS:
        x = _tensor(*shape, dtype=dtype, order=order)
        for mode in ("relu", "gelu", "tanh"):
            yield lambda x=x, mode=mode: dnn.activation_backward(dnn.activation_forward(x, mode), x, x, mode)  # type: ignore[misc]


def _pointwise() -> Iterator[Call]:
    for shape, dtype, order in _ELEMENTS:
        x, one = _tensor(*shape, dtype=dtype, order=order), _tensor(shape[-1], dtype=dtype)
        yield lambda x=x: dnn.add(x, x)  # type: ignore[misc]
        yield lambda x=x, one=one: dnn.mul(x, one)  # type: ignore[misc]
        yield lambda x=x: dnn.exp(x)  # type: ignore[misc]


def _random() -> Iterator[Call]:
    for shape, dtype, order in _ELEMENTS:
        x = _tensor(*shape, dtype=dtype, order=order)
        yield lambda x=x: dnn.dropout_forward(x, 0.5, seed=0)  # type: ignore[misc]
        yield lambda x=x: dnn.random_normal(x.shape, dtype=x.dtype, seed=0, device="cpu")  # type: ignore[misc]
        yield lambda x=x: dnn.random_uniform(x.shape, dtype=x.dtype, seed=0, device="cpu")  # type: ignore[misc]


def _transform() -> Iterator[Call]:
    for n, c, hw, dtype in ((1, 8, 8, "float32"), (4, 64, 28, "float32"), (4, 32, 28, "bfloat16")):
        for order, other in (("", ""), ("", "NHWC"), ("NHWC", ""), ("gaps", "")):
            x, y = _tensor(n, c, hw, hw, dtype=dtype, order=order), _tensor(n, c, hw, hw, order=other)
            for alpha, beta in ((1.0, 0.0), (2.0, 0.0), (2.0, 1.0)):
                yield lambda x=x, y=y, alpha=alpha, beta=beta: dnn.transform(x, alpha=alpha, beta=beta, out=y)  # type: ignore[misc]


def _pad() -> Iterator[Call]:
    for n, c, hw, dtype, order in (
        (1, 8, 8, "float32", ""), (4, 64, 28, "float32", ""),
        (4, 64, 28, "bfloat16", "NHWC"), (4, 32, 28, "float32", "gaps"),
    ):  # fmt: skip
        x = _tensor(n, c, hw, hw, dtype=dtype, order=order)
        for mode in ("constant", "reflect"):
            yield lambda x=x, mode=mode: dnn.pad(x, (0, 0, 1, 1), mode=mode)  # type: ignore[misc]


def _gather() -> Iterator[Call]:
    for shape, axis, dtype, count in (
        ((100, 8), 0, "float32", 50), ((1000, 64), 0, "float32", 2000), ((64, 300, 20), 1, "float32", 100),
        ((500, 128), 0, "bfloat16", 500), ((64, 300), 1, "float64", 200),
    ):  # fmt: skip
        x, index = _tensor(*shape, dtype=dtype), np.arange(count) % shape[axis]
        yield lambda x=x, index=index, axis=axis: dnn.gather_backward(  # type: ignore[misc]
            dnn.gather(x, index, axis=axis), index, x.shape, axis=axis
        )


def _reduce() -> Iterator[Call]:
    for shape, axis, dtype, order in _ROWS:
        x = _tensor(*shape, dtype=dtype, order=order)
        for along in (axis, 0, None):
            for f in (dnn.sum, dnn.max, dnn.argmax):
                yield lambda f=f, x=x, along=along: f(x, along)  # type: ignore[misc]


def _graph() -> Iterator[Call]:
    def conv(x: Any, w: Any, p: Any) -> Any:
        y = dnn.conv_forward(x, w, padding=1)
        return dnn.activation_forward(dnn.batch_norm_forward_inference(y, p, p, p, p), "relu")

    def product(x: Any, w: Any) -> Any:
        return dnn.activation_forward(dnn.matmul(x, w), "gelu")

    def elements(x: Any) -> Any:
        return dnn.mul(dnn.activation_forward(dnn.add(x, x), "gelu"), x)

    def rows(x: Any) -> Any:
        return dnn.mul(dnn.softmax_forward(dnn.add(x, x), axis=-1), x)

    def normalized(x: Any) -> Any:
        return dnn.activation_forward(dnn.layer_norm_forward(dnn.add(x, x))[0], "relu")

    for dtype in ("float32", "bfloat16"):
        calls: list[tuple[Callable[..., Any], tuple[int, ...], list[dnn.DeviceTensor]]] = []
        for n, c, hw in ((1, 16, 14), (2, 32, 28)):
            calls.append((conv, (n, c, hw, hw), [_tensor(c, c, 3, 3, dtype=dtype), _tensor(c)]))
        for m in (16, 256):
            calls.append((product, (m, 64), [_tensor(64, 64, dtype=dtype)]))
        for f in (elements, rows, normalized):
            calls += [(f, shape, []) for shape in ((16, 100), (300, 500))]
        for f, shape, parameters in calls:
            with dnn.record(device="cpu") as graph:
                graph.output("y", f(graph.input("x", shape, dtype), *parameters))
            yield lambda graph=graph: graph._ended().choose_plans(None)  # type: ignore[misc]
