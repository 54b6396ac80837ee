# SPDX-License-Identifier: Apache-2.0
"""A recogniser of digit strings: a bidirectional GRU with the CTC loss, trained without a framework.

Its images are made here: digits of 3 x 5 pixels, of different widths, heights and distances, with noise. A step of the
GRU is a column. The CTC loss needs the digits alone, not where they are. Gradients are explicit calls.

    python examples/ctc_digits.py [--device cuda] [--steps 600]
"""

from __future__ import annotations

import argparse
import itertools
from typing import Any

import numpy as np

import pyminidnn as dnn
from pyminidnn import DeviceTensor
from pyminidnn import functional as F

# The pixels of the digits 0 to 9: five rows, of which each is an octal number of three bits.
GLYPHS = ("75557", "26227", "71747", "71717", "55711", "74717", "74757", "71222", "75757", "75717")
ROWS, COLUMNS, DIGITS = 6, 40, 4  # the size of an image, and the most digits in it
BLANK, BATCH = 10, 16
GRU: dict[str, Any] = {"mode": "gru", "hidden_size": 32, "bidirectional": True}
Tensors = dict[str, DeviceTensor]


def glyph(digit: int) -> np.ndarray:
    """[5, 3] pixels."""
    return np.array([[int(row) >> bit & 1 for bit in (2, 1, 0)] for row in GLYPHS[digit]], "float32")


def image_of(rng: np.random.Generator, digits: np.ndarray) -> np.ndarray:
    """[columns, ROWS] of a string, without noise."""
    parts = []
    for digit in digits:
        pixels = np.repeat(glyph(digit), rng.integers(1, 3, 3), axis=1)
        top = int(rng.integers(0, ROWS - 5 + 1))
        parts += [np.zeros((ROWS, int(rng.integers(1, 4)))), np.pad(pixels, ((top, ROWS - 5 - top), (0, 0)))]
    return np.concatenate(parts, axis=1).T


def batch_of(rng: np.random.Generator, device: str) -> Tensors:
    """Images x [COLUMNS, BATCH, ROWS], their widths, their digits and how many these are."""
    x, widths = np.zeros((COLUMNS, BATCH, ROWS)), np.zeros(BATCH, "int32")
    digits, counts = rng.integers(0, 10, (BATCH, DIGITS)), rng.integers(1, DIGITS + 1, BATCH)
    for n in range(BATCH):
        image = image_of(rng, digits[n, : counts[n]])
        widths[n] = len(image)
        x[: len(image), n] = image
    x = (x + rng.normal(0, 0.1, x.shape)).astype("float32")
    made = {"x": x, "widths": widths, "digits": digits, "counts": counts}
    return {name: dnn.asarray(array, device=device) for name, array in made.items()}


def parameters_of(rng: np.random.Generator, device: str) -> Tensors:
    """The weights of the GRU as one tensor, and those of the layer behind it."""
    hidden = GRU["hidden_size"]
    count = 2 * (3 * hidden * (ROWS + hidden) + 6 * hidden)
    made = {
        "gru": rng.normal(0, 0.15, count),
        "head": rng.normal(0, 0.15, (BLANK + 1, 2 * hidden)),
        "bias": np.zeros(BLANK + 1),
    }
    return {name: dnn.asarray(array.astype("float32"), device=device) for name, array in made.items()}


def logits_of(p: Tensors, b: Tensors) -> DeviceTensor:
    """[COLUMNS, BATCH, classes]."""
    y, *_ = dnn.rnn_forward(b["x"], p["gru"], lengths=b["widths"], **GRU)
    return F.linear(y, p["head"], p["bias"])


def train(p: Tensors, b: Tensors) -> tuple[float, Tensors]:
    """The loss, and the gradients of all parameters by name."""
    x, widths = b["x"], b["widths"]
    y, _, _, reserve = dnn.rnn_forward(x, p["gru"], lengths=widths, training=True, **GRU)
    assert reserve is not None
    logits = F.linear(y, p["head"], p["bias"])
    given = b["digits"], widths, b["counts"]
    loss, saved = dnn.ctc_loss_forward(logits, *given, blank=BLANK, logits=True)
    dlogits = dnn.ctc_loss_backward(np.float32(1), logits, *given, saved, blank=BLANK, logits=True)
    dy, dhead, dbias = F.linear_backward(dlogits, y, p["head"], p["bias"])
    _, _, _, dgates = dnn.rnn_backward_data(dy, None, None, y, p["gru"], reserve, lengths=widths, **GRU)
    dgru = dnn.rnn_backward_weights(x, None, y, dgates, reserve, lengths=widths, flat=True, **GRU)
    assert isinstance(dgru, DeviceTensor) and dbias is not None
    return loss.item(), {"gru": dgru, "head": dhead, "bias": dbias}


def read(p: Tensors, b: Tensors) -> list[str]:
    """The digits by greedy decoding: the likeliest class of each column, without repeats and blanks."""
    best, widths = logits_of(p, b).numpy().argmax(axis=2), b["widths"].numpy()
    strings = (itertools.groupby(best[: widths[n], n]) for n in range(BATCH))
    return ["".join(str(c) for c, _ in runs if c != BLANK) for runs in strings]


def right_of(b: Tensors) -> list[str]:
    """The digits that are in the images."""
    return ["".join(map(str, row[:n])) for row, n in zip(b["digits"].numpy(), b["counts"].numpy(), strict=True)]


def main() -> None:
    """Trains, prints the loss, reads new images, and ends with an error if too few of them are read right."""
    parser = argparse.ArgumentParser(description="Trains a reader of digit strings by the CTC loss.")
    parser.add_argument("--device", default="cuda" if dnn.device_count() else "cpu", help="'cpu' or 'cuda'")
    parser.add_argument("--steps", type=int, default=600, help="of training; default: 600")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    p = parameters_of(rng, options.device)
    state: dict[str, Any] = {}
    print(f"{sum(t.size for t in p.values())} parameters")
    losses = []
    for step in range(options.steps):
        rate = 1e-2 * min(1, 3 * (1 - step / options.steps))
        loss, g = train(p, batch_of(rng, options.device))
        F.adam_step([p[name] for name in p], [g[name] for name in p], state, lr=rate)
        losses.append(loss)
        if step % 100 == 0:
            print(f"step {step:4}: loss {loss:.3f}")
    print(f"step {options.steps:4}: loss {np.mean(losses[-20:]):.3f}")

    batches = [batch_of(rng, options.device) for _ in range(8)]
    pairs = [pair for b in batches for pair in zip(right_of(b), read(p, b), strict=True)]
    for right, found in pairs[:5]:
        print(f"{right:5} is read as {found}")
    share = np.mean([right == found for right, found in pairs])
    print(f"{share:.1%} of {len(pairs)} new strings are read right")
    assert share > 0.5, "the model has not learned to read"


if __name__ == "__main__":
    main()
