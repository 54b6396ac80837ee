# SPDX-License-Identifier: Apache-2.0
"""python -m pyminidnn bench: times typical calls of each family on this machine, against NumPy and torch.

It answers "is it fast here?" in a minute. The published tables are made by benchmarks/ in the sources, with more
problems and stricter measurements.
"""

from __future__ import annotations

import importlib.util
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import pyminidnn as dnn

from .progress import Progress

Array = np.ndarray[Any, Any]
Call = Callable[[], Any]
SIZES = {"small": 1, "medium": 8, "large": 32}  # the images of a batch; other sizes are in proportion
TURNS = 3  # ours and each peer are timed in alternating turns; the median turn counts


@dataclass
class Row:
    """A call of ours and the same call of each peer, by the name of the peer."""

    family: str
    name: str
    ours: Call
    peers: dict[str, Call]
    bytes: float  # of all inputs and outputs, each counted once
    flop: float = 0
    us: float = 0
    peer_us: dict[str, float] = field(default_factory=dict)
    engine: str = ""

    @property
    def rate(self) -> str:
        """GFLOP/s if the call is a product, else GB/s."""
        return f"{self.flop / self.us / 1e3:.1f} GFLOP/s" if self.flop else f"{self.bytes / self.us / 1e3:.1f} GB/s"


def run(families: list[str], size: str, device: str, seconds: float, out: Path | None) -> int:
    """Prints a row per call. With `out`, writes bench.md into it, and bench.png if matplotlib is installed."""
    if out:
        out.mkdir(parents=True, exist_ok=True)
    bench = _Bench(device, size, seconds)
    peers = list(bench.peers)
    head = f"{dnn._C.device_info(device)['model']} ({device}), {size}, pyminidnn {dnn.__version__}"
    head += "".join(f", {name} {version}" for name, version in bench.peers.items())
    print(
        f"{head}\n{'call':<44}{'us':>11}{'rate':>18}" + "".join(f"{name + '/ours':>13}" for name in peers) + "  engine"
    )
    chosen = [f for f in bench.FAMILIES if not families or f in families]
    rows: list[Row] = []
    with Progress(len(chosen), "family") as bar:
        for family in chosen:
            for row in bench.rows(family):
                bench.measure(row)
                rows.append(row)
                ratios = "".join(f"{row.peer_us[p] / row.us:>13.2f}" if p in row.peers else f"{'':>13}" for p in peers)
                bar.print(f"{row.family + ' ' + row.name:<44}{row.us:>11.1f}{row.rate:>18}{ratios}  {row.engine}")
            bar.step()
    for name in peers:
        values = [r.peer_us[name] / r.us for r in rows if name in r.peers]
        if values:
            print(f"geometric mean of {name}/ours: {statistics.geometric_mean(values):.2f} over {len(values)} calls")
    if out:
        _write(out, head, rows, peers)
    return 0


class _Bench:
    """The rows on one device. Its peers are NumPy, on the CPU only, and torch if it is installed for the device."""

    def __init__(self, device: str, size: str, seconds: float) -> None:
        self.device, self.seconds, self.n = device, seconds, SIZES[size]
        self.handle = dnn.Handle(device)
        self.rng = np.random.default_rng(0)
        self.cuda = device.startswith("cuda")
        self.peers = {} if self.cuda else {"numpy": np.__version__}
        self.torch: Any = None
        if importlib.util.find_spec("torch"):
            import torch

            if not self.cuda or torch.cuda.is_available():
                self.torch = torch
                self.peers["torch"] = torch.__version__

    def rows(self, family: str) -> Iterator[Row]:
        """The rows of a family. A peer that is None does not have the call."""
        for name, ours, numpy, torch, moved, *flop in self.FAMILIES[family](self):
            peers = {"numpy": None if self.cuda else numpy, "torch": torch and self.torch and torch(self.torch)}
            yield Row(family, name, ours, {p: c for p, c in peers.items() if c}, moved, *flop)

    def data(self, *shape: int) -> tuple[Array, dnn.DeviceTensor, Any]:
        """Random float32 elements: as a NumPy array, as a tensor, and as a tensor of torch if that is a peer."""
        a = self.rng.standard_normal(shape, dtype="float32")
        t = dnn.asarray(a, device=self.device, copy=True)
        return a, t, self.torch and self.torch.from_numpy(a.copy()).to(self.device)

    def measure(self, row: Row) -> None:
        """Fills in the times and the engine."""
        row.engine = ", ".join(r.chosen.rpartition(".")[2] for r in dnn.explain(row.ours)) or "view"
        calls = {"": row.ours, **row.peers}
        for call in calls.values():
            call()
        turns = [{name: self._turn(call) for name, call in calls.items()} for _ in range(TURNS)]
        row.us, *theirs = (statistics.median(turn[name] for turn in turns) for name in calls)
        row.peer_us = dict(zip(row.peers, theirs, strict=True))

    def _turn(self, call: Call) -> float:
        """Microseconds per call. On a GPU, calls are enqueued one after the other, and the last is waited for."""
        count, spent, stop = 0, 0.0, self.seconds / TURNS
        call()
        self._wait()
        while spent < stop and count < 10000:
            batch = max(1, count)
            start = time.perf_counter()
            for _ in range(batch):
                call()
            self._wait()
            spent += time.perf_counter() - start
            count += batch
        return spent / count * 1e6

    def _wait(self) -> None:
        self.handle.synchronize()
        if self.cuda and self.torch:
            self.torch.cuda.synchronize()

    # Each method yields tuples: a name, our call, NumPy's call or None, a function that makes torch's call or None,
    # bytes, and FLOP for products.

    def _conv(self) -> Iterator[tuple[Any, ...]]:
        n = self.n
        for c, k, hw, r in ((64, 64, 56, 3), (256, 64, 56, 1), (256, 256, 14, 3)):
            (_, x, tx), (_, w, tw) = self.data(n, c, hw, hw), self.data(k, c, r, r)
            pad, flop = r // 2, 2.0 * n * k * hw * hw * c * r * r
            moved = 4.0 * (n * (c + k) * hw * hw + k * c * r * r)
            yield (f"forward {n}x{c}x{hw}x{hw}, {k} of {r}x{r}",
                   lambda x=x, w=w, pad=pad: dnn.conv_forward(x, w, padding=pad), None,
                   lambda torch, tx=tx, tw=tw, pad=pad: lambda: torch.conv2d(tx, tw, padding=pad),
                   moved, flop)  # fmt: skip

    def _matmul(self) -> Iterator[tuple[Any, ...]]:
        for n in (256, 64 * self.n):
            (a, x, tx), (b, y, ty) = self.data(n, n), self.data(n, n)
            yield (f"{n}x{n}x{n}", lambda x=x, y=y: dnn.matmul(x, y), lambda a=a, b=b: a @ b,
                   lambda _, tx=tx, ty=ty: lambda: tx @ ty, 12.0 * n * n, 2.0 * n**3)  # fmt: skip

    def _image(self) -> tuple[Array, dnn.DeviceTensor, Any, float]:
        a, x, t = self.data(self.n, 64, 56, 56)
        return a, x, t, float(a.nbytes)

    def _rows(self) -> tuple[Array, dnn.DeviceTensor, Any, float]:
        a, x, t = self.data(128 * self.n, 1024)
        return a, x, t, float(a.nbytes)

    def _pooling(self) -> Iterator[tuple[Any, ...]]:
        a, x, t, size = self._image()
        tiles = a.reshape(self.n, 64, 28, 2, 28, 2)
        yield ("max 2x2", lambda: dnn.pool_forward(x, 2), lambda: tiles.max((3, 5)),
               lambda torch: lambda: torch.max_pool2d(t, 2), 1.25 * size)  # fmt: skip
        yield ("avg 2x2", lambda: dnn.pool_forward(x, 2, mode="avg"), lambda: tiles.mean((3, 5)),
               lambda torch: lambda: torch.nn.functional.avg_pool2d(t, 2), 1.25 * size)  # fmt: skip

    def _softmax(self) -> Iterator[tuple[Any, ...]]:
        a, x, t, size = self._rows()

        def numpy() -> Array:
            e = np.exp(a - a.max(1, keepdims=True))
            return e / e.sum(1, keepdims=True)  # type: ignore[no-any-return]

        yield "forward, rows of 1024", lambda: dnn.softmax_forward(x), numpy, lambda _: lambda: t.softmax(1), 2 * size

    def _attention(self) -> Iterator[tuple[Any, ...]]:
        b = max(1, self.n // 4)
        for causal, s in ((False, 197), (True, 512)):
            (qa, q, qt), (ka, k, kt), (va, v, vt) = (self.data(b, 8, s, 64) for _ in range(3))
            yield (f"forward {b}x8x{s}x64{', causal' * causal}",
                   lambda q=q, k=k, v=v, causal=causal: dnn.attention_forward(q, k, v, causal=causal),
                   lambda q=qa, k=ka, v=va, causal=causal: _attention_by_numpy(q, k, v, causal),
                   lambda torch, q=qt, k=kt, v=vt, causal=causal: lambda:
                   torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal),
                   16.0 * b * 8 * s * 64, (2.0 if causal else 4.0) * b * 8 * s * s * 64)  # fmt: skip

    def _rnn(self) -> Iterator[tuple[Any, ...]]:
        t, h = 24, 64
        (_, x, their_x), weights = self.data(t, self.n, h), [self.data(*s) for s in ((4 * h, h),) * 2 + ((4 * h,),) * 2]
        ours, theirs = ([each[i] for each in weights] for i in (1, 2))

        def lstm(torch: Any) -> Call:
            state = their_x.new_zeros((1, self.n, h))
            return lambda: torch.lstm(their_x, (state, state), theirs, True, 1, 0.0, False, False, False)[0]

        yield (f"lstm {t}x{self.n}x{h}, {h} units", lambda: dnn.rnn_forward(x, ours, mode="lstm", hidden_size=h)[0],
               None, lstm, 4.0 * (2 * t * self.n * h + 8 * h * (h + 1)), 16.0 * t * self.n * h * h)  # fmt: skip

    def _loss(self) -> Iterator[tuple[Any, ...]]:
        _, x, t, size = self._rows()
        classes = self.rng.integers(0, 1024, x.shape[0])
        target = dnn.asarray(classes, device=self.device)
        theirs = self.torch and self.torch.from_numpy(classes).to(self.device)
        yield ("forward, rows of 1024", lambda: dnn.cross_entropy_forward(x, target), None,
               lambda torch: lambda: torch.nn.functional.cross_entropy(t, theirs), size)  # fmt: skip

    def _ctc(self) -> Iterator[tuple[Any, ...]]:
        steps, labels, classes = 150, 40, 28
        a, _, _ = self.data(steps, self.n, classes)
        a -= np.log(np.exp(a).sum(2, keepdims=True))
        given = [self.rng.integers(1, classes, (self.n, labels)), np.full(self.n, steps), np.full(self.n, labels)]
        x, *ours = (dnn.asarray(v, device=self.device) for v in (a, *given))
        t, *theirs = (self.torch and self.torch.from_numpy(v).to(self.device) for v in (a, *given))
        yield (f"forward {steps}x{self.n}x{classes}, {labels} labels", lambda: dnn.ctc_loss_forward(x, *ours), None,
               lambda torch: lambda: torch.nn.functional.ctc_loss(t, *theirs),
               16.0 * steps * self.n * labels)  # fmt: skip

    def _batch_norm(self) -> Iterator[tuple[Any, ...]]:
        a, x, t, size = self._image()
        p = [self.data(64) for _ in range(3)] + [(v, dnn.asarray(v, device=self.device),
             self.torch and self.torch.from_numpy(v).to(self.device)) for v in (np.ones(64, "float32"),)]  # fmt: skip
        (b, s, m, v), ours, theirs = ([each[i] for each in p] for i in range(3))
        shaped = [array.reshape(64, 1, 1) for array in (b, s, m, v)]
        yield ("inference", lambda: dnn.batch_norm_forward_inference(x, *ours),
               lambda: (a - shaped[2]) / np.sqrt(shaped[3] + 1e-5) * shaped[0] + shaped[1],
               lambda torch: lambda: torch.nn.functional.batch_norm(t, theirs[2], theirs[3], *theirs[:2]),
               2 * size)  # fmt: skip
        yield ("training", lambda: dnn.batch_norm_forward_training(x, *ours[:2]), None,
               lambda torch: lambda: torch.nn.functional.batch_norm(t, None, None, *theirs[:2], training=True),
               2 * size)  # fmt: skip

    def _layer_norm(self) -> Iterator[tuple[Any, ...]]:
        a, x, t, size = self._rows()
        yield ("forward, rows of 1024", lambda: dnn.layer_norm_forward(x),
               lambda: (a - a.mean(1, keepdims=True)) / np.sqrt(a.var(1, keepdims=True) + 1e-5),
               lambda torch: lambda: torch.nn.functional.layer_norm(t, (1024,)), 2 * size)  # fmt: skip

    def _lrn(self) -> Iterator[tuple[Any, ...]]:
        _, x, t, size = self._image()
        yield ("lrn, 5 channels", lambda: dnn.lrn_forward(x, 5), None,
               lambda torch: lambda: torch.nn.functional.local_response_norm(t, 5), 2 * size)  # fmt: skip

    def _activation(self) -> Iterator[tuple[Any, ...]]:
        a, x, t, size = self._image()
        yield ("relu", lambda: dnn.activation_forward(x, "relu"), lambda: np.maximum(a, 0),
               lambda torch: lambda: torch.relu(t), 2 * size)  # fmt: skip
        yield ("gelu", lambda: dnn.activation_forward(x, "gelu"), None,
               lambda torch: lambda: torch.nn.functional.gelu(t), 2 * size)  # fmt: skip

    def _pointwise(self) -> Iterator[tuple[Any, ...]]:
        a, x, t, size = self._image()
        yield "add", lambda: dnn.add(x, x), lambda: a + a, lambda _: lambda: t + t, 2 * size
        yield "exp", lambda: dnn.exp(x), lambda: np.exp(a), lambda _: lambda: t.exp(), 2 * size

    def _random(self) -> Iterator[tuple[Any, ...]]:
        shape, size = (self.n, 64, 56, 56), 4.0 * self.n * 64 * 56 * 56
        ours: dict[str, Any] = {"seed": 1, "device": self.device}
        yield ("normal", lambda: dnn.random_normal(shape, **ours), lambda: self.rng.standard_normal(shape, "float32"),
               lambda torch: lambda: torch.randn(shape, device=self.device), size)  # fmt: skip

    def _transform(self) -> Iterator[tuple[Any, ...]]:
        a, x, t, size = self._image()
        yield ("NCHW to NHWC", lambda: dnn.transform(x, layout="NHWC"),
               lambda: np.ascontiguousarray(a.transpose(0, 2, 3, 1)),
               lambda torch: lambda: t.contiguous(memory_format=torch.channels_last), 2 * size)  # fmt: skip

    def _pad(self) -> Iterator[tuple[Any, ...]]:
        a, x, t, size = self._image()
        widths = ((0, 0), (0, 0), (1, 1), (1, 1))
        yield ("zeros around images", lambda: dnn.pad(x, widths), lambda: np.pad(a, widths),
               lambda torch: lambda: torch.nn.functional.pad(t, (1, 1, 1, 1)), 2 * size)  # fmt: skip

    def _gather(self) -> Iterator[tuple[Any, ...]]:
        a, x, t, size = self._rows()
        order = self.rng.permutation(len(a))
        index = dnn.asarray(order, device=self.device)
        theirs = self.torch and self.torch.from_numpy(order).to(self.device)
        yield ("rows of 1024", lambda: dnn.gather(x, index), lambda: a[order],
               lambda _: lambda: t.index_select(0, theirs), 2 * size)  # fmt: skip

    def _reduce(self) -> Iterator[tuple[Any, ...]]:
        a, x, t, size = self._rows()
        yield "sum of rows", lambda: dnn.sum(x, 1), lambda: a.sum(1), lambda _: lambda: t.sum(1), size
        yield "argmax of rows", lambda: dnn.argmax(x, 1), lambda: a.argmax(1), lambda _: lambda: t.argmax(1), size

    FAMILIES: ClassVar[dict[str, Callable[[_Bench], Iterator[tuple[Any, ...]]]]] = {
        "conv": _conv, "matmul": _matmul, "attention": _attention, "rnn": _rnn, "pooling": _pooling,
        "softmax": _softmax, "loss": _loss, "ctc": _ctc, "batch_norm": _batch_norm, "layer_norm": _layer_norm,
        "lrn": _lrn, "activation": _activation, "pointwise": _pointwise, "random": _random, "transform": _transform,
        "pad": _pad, "gather": _gather, "reduce": _reduce,
    }  # fmt: skip


FAMILIES = tuple(_Bench.FAMILIES)


def _attention_by_numpy(q: Array, k: Array, v: Array, causal: bool) -> Array:
    z = q @ k.swapaxes(2, 3) / np.float32(np.sqrt(q.shape[3]))
    if causal:
        z[:, :, np.tri(*z.shape[2:]) == 0] = -np.inf
    e = np.exp(z - z.max(3, keepdims=True))
    return e @ v / e.sum(3, keepdims=True)  # type: ignore[no-any-return]


def _write(out: Path, head: str, rows: list[Row], peers: list[str]) -> None:
    lines = [
        f"# {head}",
        "",
        f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}. Microseconds per call.",
        "",
    ]
    lines += ["| call | us | rate |" + "".join(f" {p} us | {p}/ours |" for p in peers) + " engine |"]
    lines += ["|---|---|---|" + "---|---|" * len(peers) + "---|"]
    for r in rows:
        times = "".join(f" {r.peer_us[p]:.1f} | {r.peer_us[p] / r.us:.2f} |" if p in r.peers else " | |" for p in peers)
        lines += [f"| {r.family} {r.name} | {r.us:.1f} | {r.rate} |{times} {r.engine} |"]
    (out / "bench.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    written = [out / "bench.md"]
    if importlib.util.find_spec("matplotlib"):
        _draw(out / "bench.png", head, rows, peers)
        written.append(out / "bench.png")
    print(f"wrote {', '.join(map(str, written))}")


def _draw(path: Path, head: str, rows: list[Row], peers: list[str]) -> None:
    """Bars of the time of each call, ours and the peers'."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 1.5 + 0.32 * len(rows)), layout="constrained")
    height = 0.8 / (1 + len(peers))
    for i, name in enumerate(["ours", *peers]):
        times = [
            (k, r.us if name == "ours" else r.peer_us[name])
            for k, r in enumerate(rows)
            if name == "ours" or name in r.peers
        ]
        axes.barh([k + i * height for k, _ in times], [us for _, us in times], height, label=name)
    axes.set_yticks(
        [k + 0.4 - height / 2 for k in range(len(rows))], [f"{r.family} {r.name}" for r in rows], fontsize=7
    )
    axes.invert_yaxis()
    axes.set(xscale="log", xlabel="us per call", title=head)
    axes.title.set_fontsize(8)
    axes.legend(fontsize=7)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
