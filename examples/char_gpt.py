# SPDX-License-Identifier: Apache-2.0
"""A small GPT that learns to write character by character, trained without a framework.

Its text is made here: sums such as "7+8=15", each in a line. The loss begins at the logarithm of the alphabet's size.
At best, it is that of the random digits before "=", because all behind it can be known. Gradients are explicit calls.

    python examples/char_gpt.py [--device cuda] [--steps 1000]
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np

import pyminidnn as dnn
from pyminidnn import DeviceTensor
from pyminidnn import functional as F

ALPHABET = "\n+=0123456789"
BATCH, LENGTH, WIDTH, HEADS, LAYERS = 16, 42, 96, 4, 2
SHAPE = (BATCH, LENGTH, HEADS, WIDTH // HEADS)
Tensors = dict[str, DeviceTensor]


def text_of(rng: np.random.Generator, sums: int) -> str:
    """Lines with sums of two digits."""
    return "".join(f"{a}+{b}={a + b:02}\n" for a, b in rng.integers(0, 10, (sums, 2)))


def parameters_of(rng: np.random.Generator, device: str) -> Tensors:
    """The weights by name; those of layer i end in i."""

    def normal(*shape: int, scale: float = 0.02) -> DeviceTensor:
        return dnn.asarray(rng.normal(0, scale, shape).astype("float32"), device=device)

    p = {"tokens": normal(len(ALPHABET), WIDTH), "places": normal(LENGTH, WIDTH)}
    for i in range(LAYERS):
        p[f"qkv{i}"], p[f"out{i}"] = normal(3 * WIDTH, WIDTH, scale=0.08), normal(WIDTH, WIDTH)
        p[f"up{i}"], p[f"down{i}"] = normal(4 * WIDTH, WIDTH, scale=0.08), normal(WIDTH, 4 * WIDTH)
        for norm in ("first", "second"):
            p[f"{norm}{i}"] = dnn.ones((WIDTH,), device=device)
    return {**p, "last": dnn.ones((WIDTH,), device=device), "head": normal(len(ALPHABET), WIDTH)}


def forward(p: Tensors, tokens: DeviceTensor, kept: list[Any] | None = None) -> DeviceTensor:
    """The logits [B, S, alphabet] of tokens [B, S]. `kept` receives what backward() needs."""
    kept = [] if kept is None else kept
    x = F.embedding(tokens, p["tokens"]) + p["places"][: tokens.shape[1]]
    for i in range(LAYERS):
        normed = F.rms_norm(x, WIDTH, p[f"first{i}"])
        heads = F.linear(normed, p[f"qkv{i}"]).reshape((*tokens.shape, 3 * HEADS, WIDTH // HEADS))
        q, k, v = heads[:, :, :HEADS], heads[:, :, HEADS : 2 * HEADS], heads[:, :, 2 * HEADS :]
        o, lse = dnn.attention_forward(q, k, v, causal=True, layout="bshd")
        mixed = x + F.linear(o.reshape(x.shape), p[f"out{i}"])
        second = F.rms_norm(mixed, WIDTH, p[f"second{i}"])
        up = F.linear(second, p[f"up{i}"])
        hidden = F.gelu(up)
        kept.append((x, normed, q, k, v, o, lse, mixed, second, up, hidden))
        x = mixed + F.linear(hidden, p[f"down{i}"])
    kept.append(x)
    return F.linear(F.rms_norm(x, WIDTH, p["last"]), p["head"])


def backward(p: Tensors, tokens: DeviceTensor, dlogits: DeviceTensor, kept: list[Any]) -> Tensors:
    """The gradients of all parameters, by name."""
    g: Tensors = {}
    x = kept[-1]
    dx, g["head"], _ = F.linear_backward(dlogits, F.rms_norm(x, WIDTH, p["last"]), p["head"])
    dx, g["last"] = F.rms_norm_backward(dx, x, WIDTH, p["last"])
    for i in reversed(range(LAYERS)):
        x, normed, q, k, v, o, lse, mixed, second, up, hidden = kept[i]
        dhidden, g[f"down{i}"], _ = F.linear_backward(dx, hidden, p[f"down{i}"])
        dsecond, g[f"up{i}"], _ = F.linear_backward(F.gelu_backward(dhidden, up), second, p[f"up{i}"])
        dmixed, g[f"second{i}"] = F.rms_norm_backward(dsecond, mixed, WIDTH, p[f"second{i}"])
        dx = dx + dmixed
        do, g[f"out{i}"], _ = F.linear_backward(dx, o.reshape(x.shape), p[f"out{i}"])
        gradients = dnn.attention_backward(do.reshape(SHAPE), q, k, v, o, lse, causal=True, layout="bshd")
        dheads = dnn.concat(gradients, axis=2).reshape((*tokens.shape, 3 * WIDTH))
        dnormed, g[f"qkv{i}"], _ = F.linear_backward(dheads, normed, p[f"qkv{i}"])
        dfirst, g[f"first{i}"] = F.rms_norm_backward(dnormed, x, WIDTH, p[f"first{i}"])
        dx = dx + dfirst
    g["places"] = dx.sum(axis=0)
    g["tokens"] = F.embedding_backward(dx, tokens, p["tokens"])
    return g


def sample(p: Tensors, start: str, count: int, device: str) -> str:
    """`start`, continued by the most probable characters."""
    for _ in range(count):
        at = dnn.asarray(np.array([[ALPHABET.index(c) for c in start[-LENGTH:]]]), device=device)
        start += ALPHABET[int(forward(p, at)[0, -1].numpy().argmax())]
    return start


def main() -> None:
    """Trains, and prints the loss and a sample."""
    parser = argparse.ArgumentParser(description="Trains a small GPT on sums of two numbers.")
    parser.add_argument("--device", default="cuda" if dnn.device_count() else "cpu", help="'cpu' or 'cuda'")
    parser.add_argument("--steps", type=int, default=1000, help="of training; default: 1000")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    codes = np.array([ALPHABET.index(c) for c in text_of(rng, 20000)])
    p = parameters_of(rng, options.device)
    state: dict[str, Any] = {}
    print(f"{sum(t.size for t in p.values())} parameters; log({len(ALPHABET)}) = {math.log(len(ALPHABET)):.2f}")
    losses = []
    for step in range(options.steps):
        rate = 3e-3 * min(1, 4 * (1 - step / options.steps))
        first = rng.integers(0, len(codes) - LENGTH - 1, (BATCH, 1)) + np.arange(LENGTH + 1)
        tokens, wanted = (dnn.asarray(codes[at], device=options.device) for at in (first[:, :-1], first[:, 1:]))
        kept: list[Any] = []
        logits = forward(p, tokens, kept).reshape((-1, len(ALPHABET)))
        loss, lse = dnn.cross_entropy_forward(logits, wanted.reshape((-1,)))
        dlogits = dnn.cross_entropy_backward(np.float32(1), logits, wanted.reshape((-1,)), lse)
        g = backward(p, tokens, dlogits.reshape((BATCH, LENGTH, -1)), kept)
        F.adam_step([p[name] for name in p], [g[name] for name in p], state, lr=rate)
        losses.append(loss.item())
        if step % 100 == 0:
            print(f"step {step:4}: loss {losses[-1]:.3f}")
    best = 2 * math.log(10) / 7  # two of seven characters are random digits
    print(f"step {options.steps:4}: loss {np.mean(losses[-20:]):.3f}; the random digits alone have {best:.3f}")
    print(sample(p, "2+3=05\n7+8=", 2, options.device))


if __name__ == "__main__":
    main()
