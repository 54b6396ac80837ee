# SPDX-License-Identifier: Apache-2.0
"""An LSTM that learns to write character by character, trained without a framework, and then run as a stream.

Its text is made here: sentences such as "the cats hear the dog.", in which the verb agrees with its subject. The loss
begins at the logarithm of the alphabet's size. At best, it is that of the random choices of words. In training, each
chunk of text begins with the states at the end of the chunk before. Gradients are explicit calls.

    python examples/char_lstm.py [--device cuda] [--steps 1000]
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np

import pyminidnn as dnn
from pyminidnn import DeviceTensor
from pyminidnn import functional as F

NOUNS, VERBS = ("cat", "dog", "bird", "lion"), ("see", "hear", "need")
ALPHABET = "\n ." + "".join(sorted(set("the" + "".join(NOUNS + VERBS) + "s")))
BATCH, LENGTH, WIDTH, UNITS = 16, 24, 12, 48
LSTM: dict[str, Any] = {"mode": "lstm", "hidden_size": UNITS, "layout": "ntc"}
Tensors = dict[str, DeviceTensor]
States = tuple[DeviceTensor, DeviceTensor] | None


def text_of(rng: np.random.Generator, sentences: int) -> str:
    """Lines of one sentence."""
    lines = []
    for subject, verb, noun, many, of_object in rng.integers(0, (4, 3, 4, 2, 2), (sentences, 5)):
        lines.append(
            f"the {NOUNS[subject]}{'s' * many} {VERBS[verb]}{'s' * (1 - many)} the {NOUNS[noun]}{'s' * of_object}.\n"
        )
    return "".join(lines)


def codes_of(text: str, device: str) -> DeviceTensor:
    """[1, T]."""
    return dnn.asarray(np.array([[ALPHABET.index(c) for c in text]]), device=device)


def parameters_of(rng: np.random.Generator, device: str) -> Tensors:
    """The weights by name. Those of the LSTM are one tensor."""

    def uniform(*shape: int) -> DeviceTensor:
        return dnn.asarray(rng.uniform(-1, 1, shape).astype("float32") / UNITS**0.5, device=device)

    weights = [uniform(4 * UNITS, WIDTH), uniform(4 * UNITS, UNITS), uniform(4 * UNITS), uniform(4 * UNITS)]
    flat = dnn.rnn_pack(weights, mode="lstm", hidden_size=UNITS)
    return {"tokens": uniform(len(ALPHABET), WIDTH), "lstm": flat, "head": uniform(len(ALPHABET), UNITS)}


def forward(p: Tensors, codes: DeviceTensor, states: States) -> tuple[DeviceTensor, States]:
    """The logits [N, T, alphabet] of the next characters, and the states at the end."""
    h0, c0 = states or (None, None)
    y, hn, cn, _ = dnn.rnn_forward(F.embedding(codes, p["tokens"]), p["lstm"], h0=h0, c0=c0, **LSTM)
    assert cn is not None
    return F.linear(y, p["head"]), (hn, cn)


def train(p: Tensors, codes: DeviceTensor, wanted: DeviceTensor, states: States) -> tuple[float, Tensors, States]:
    """The loss, the gradients of all parameters by name, and the states at the end."""
    h0, c0 = states or (None, None)
    x, g = F.embedding(codes, p["tokens"]), {}
    y, hn, cn, reserve = dnn.rnn_forward(x, p["lstm"], h0=h0, c0=c0, training=True, **LSTM)
    assert cn is not None and reserve is not None
    logits = F.linear(y, p["head"]).reshape((-1, len(ALPHABET)))
    loss, lse = dnn.cross_entropy_forward(logits, wanted.reshape((-1,)))
    dlogits = dnn.cross_entropy_backward(np.float32(1), logits, wanted.reshape((-1,)), lse)
    dy, g["head"], _ = F.linear_backward(dlogits.reshape((*codes.shape, -1)), y, p["head"])
    dx, _, _, dgates = dnn.rnn_backward_data(dy, None, None, y, p["lstm"], reserve, h0=h0, c0=c0, **LSTM)
    g["lstm"] = dnn.rnn_backward_weights(x, h0, y, dgates, reserve, flat=True, **LSTM)
    g["tokens"] = F.embedding_backward(dx, codes, p["tokens"])
    return loss.item(), g, (hn, cn)


def sample(p: Tensors, start: str, count: int, rng: np.random.Generator, device: str) -> str:
    """`start`, continued by random characters of the model's probabilities. Each call reads only the newest ones."""
    states, new = None, start
    for _ in range(count):
        logits, states = forward(p, codes_of(new, device), states)
        chances = np.exp(logits.numpy()[0, -1].astype("float64"))
        new = ALPHABET[rng.choice(len(ALPHABET), p=chances / chances.sum())]
        start += new
    return start


def main() -> None:
    """Trains, prints the loss and a sample, and compares a stream with the whole sequence."""
    parser = argparse.ArgumentParser(description="Trains a small LSTM on sentences.")
    parser.add_argument("--device", default="cuda" if dnn.device_count() else "cpu", help="'cpu' or 'cuda'")
    parser.add_argument("--steps", type=int, default=1000, help="of training; default: 1000")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    text = text_of(rng, 20000)
    rows = np.array([ALPHABET.index(c) for c in text[: len(text) // BATCH * BATCH]]).reshape(BATCH, -1)
    p = parameters_of(rng, options.device)
    state: dict[str, Any] = {}
    states: States = None
    print(f"{sum(t.size for t in p.values())} parameters; log({len(ALPHABET)}) = {math.log(len(ALPHABET)):.2f}")
    losses = []
    for step in range(options.steps):
        rate = 1e-2 * min(1, 3 * (1 - step / options.steps))
        first = step * LENGTH % (rows.shape[1] - LENGTH - 1)
        codes, wanted = (
            dnn.asarray(np.ascontiguousarray(rows[:, at : at + LENGTH]), device=options.device)
            for at in (first, first + 1)
        )
        loss, g, states = train(p, codes, wanted, states)
        F.adam_step([p[name] for name in p], [g[name] for name in p], state, lr=rate)
        losses.append(loss)
        if step % 100 == 0:
            print(f"step {step:4}: loss {loss:.3f}")
    best = math.log(4 * 3 * 4 * 2 * 2) * 20000 / len(text)
    print(f"step {options.steps:4}: loss {np.mean(losses[-20:]):.3f}; the random words alone have {best:.3f}")
    print(sample(p, "the ", 120, rng, options.device))

    whole, _ = forward(p, codes_of(text[:200], options.device), None)
    pieces, states = [], None
    for c in text[:200]:
        logits, states = forward(p, codes_of(c, options.device), states)
        pieces.append(logits.numpy()[0, 0])
    difference = np.abs(whole.numpy()[0] - pieces).max()
    print(f"200 characters one by one: the largest difference from the whole sequence is {difference:.1e}")
    assert difference < (1e-3 if options.device == "cpu" else 5e-2), (
        "a stream differs from the sequence"
    )  # TF32 on a GPU


if __name__ == "__main__":
    main()
