# SPDX-License-Identifier: Apache-2.0
"""Functions of elements against torch: the bandwidth of large tensors, dense and with broadcasting."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from report import Target
from runner import Row, listed, main

import pyminidnn as dnn

UNARY = {"exp": torch.exp, "sqrt": torch.sqrt, "tanh": torch.tanh, "isnan": torch.isnan}
BINARY = {"add": torch.add, "mul": torch.mul, "maximum": torch.maximum, "pow": torch.pow, "lt": torch.lt}
SHORT = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int32: "i32"}


def rows(device: str) -> Iterator[Row]:
    shape = (64, 256, 56, 56) if device != "cpu" else (8, 64, 56, 56)
    c, w = shape[1], shape[3]
    size = "x".join(map(str, shape))
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        a, b, m = (torch.rand(shape, device=device).to(dtype) + 0.1 for _ in range(3))
        ours = {id(t): dnn.from_dlpack(t) for t in (a, b, m)}
        x, y, z = ours[id(a)], ours[id(b)], ours[id(m)]
        head = f"{SHORT[dtype]} a={size}"
        for op, peer in UNARY.items():
            moved = a.nbytes + (a.numel() if op == "isnan" else a.nbytes)
            yield Row(f"pointwise {op} {head}", lambda op=op, x=x: dnn.pointwise(op, x), lambda peer=peer, a=a: peer(a),
                      bytes=moved)  # fmt: skip
        for op, peer in BINARY.items():
            moved = 2 * a.nbytes + (a.numel() if op == "lt" else a.nbytes)
            yield Row(f"pointwise {op} {head} b={size}", lambda op=op, x=x, y=y: dnn.pointwise(op, x, y),
                      lambda peer=peer, a=a, b=b: peer(a, b), bytes=moved)  # fmt: skip
        yield Row(f"pointwise multiply_add {head} b={size} c={size}", lambda x=x, y=y, z=z: dnn.multiply_add(x, y, z),
                  lambda a=a, b=b, m=m: torch.addcmul(m, a, b), bytes=4 * a.nbytes)  # fmt: skip
        for name, other in (
            ("a channel's", torch.rand(1, c, 1, 1, device=device)),
            ("the last dimension's", torch.rand(w, device=device)),
            ("one number", torch.rand((), device=device)),
        ):
            other = other.to(dtype)
            t = dnn.from_dlpack(other)
            yield Row(f"pointwise mul {head} by {name}", lambda x=x, t=t: dnn.mul(x, t),
                      lambda a=a, other=other: torch.mul(a, other), bytes=2 * a.nbytes)  # fmt: skip
        last = a.contiguous(memory_format=torch.channels_last)
        t, per = dnn.from_dlpack(last), torch.rand(1, c, 1, 1, device=device).to(dtype)
        p = dnn.from_dlpack(per)
        yield Row(f"pointwise mul {head}:nhwc by a channel's", lambda t=t, p=p: dnn.mul(t, p),
                  lambda last=last, per=per: torch.mul(last, per), bytes=2 * a.nbytes)  # fmt: skip
        mask = a > 0.5
        mine = dnn.from_dlpack(mask)
        yield Row(f"pointwise where {head} b={size} c={size}", lambda k=mine, x=x, y=y: dnn.where(k, x, y),
                  lambda mask=mask, a=a, b=b: torch.where(mask, a, b), bytes=3 * a.nbytes + a.numel())  # fmt: skip
    i = torch.randint(-9, 9, shape, device=device, dtype=torch.int32)
    t = dnn.from_dlpack(i)
    yield Row(
        f"pointwise add i32 a={size} b={size}", lambda: dnn.add(t, t), lambda: torch.add(i, i), bytes=2 * i.nbytes
    )


if __name__ == "__main__":
    main(lambda device: listed("pointwise", rows(device)), __doc__, {"pointwise": Target(worst=1.0, share=0.92)})
