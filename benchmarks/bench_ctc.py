# SPDX-License-Identifier: Apache-2.0
"""The CTC loss against torch: recognisers of speech, of text and of words, with few and with many classes. On a GPU,
torch also runs by cuDNN, which takes targets on the host, full lengths and the blank 0. cuDNN computes the gradient in
the forward call, and torch's backward call only multiplies it by a number. So backward alone is compared with torch's
own kernels, and "training" is both calls together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from report import Target
from runner import Row, listed, main

import pyminidnn as dnn

TARGETS = {"log-probabilities": Target(2.0, 1.0), "logits": Target(2.0, 1.0)}
# steps, sequences, classes, labels
SHAPES = (
    (1000, 32, 5000, 100),
    (1000, 32, 500, 100),
    (150, 128, 28, 40),
    (400, 16, 1000, 60),
    (64, 256, 97, 20),
    (1500, 8, 32, 250),
)


def rows(device: str) -> Iterator[Row]:
    for steps, sequences, classes, labels in SHAPES:
        few = max(sequences // 4, 1) if device == "cpu" else sequences
        yield from listed("log-probabilities", pair(device, steps, few, classes, labels, torch.float32, logits=False))
        for dtype in (torch.float32, torch.bfloat16):
            yield from listed("logits", pair(device, steps, few, classes, labels, dtype, logits=True))


def pair(
    device: str, steps: int, sequences: int, classes: int, labels: int, dtype: torch.dtype, logits: bool
) -> Iterator[Row]:
    """Forward, backward alone, and both. Torch computes log_softmax of logits by a call of its own, in float32."""
    x = torch.randn(steps, sequences, classes, device=device).to(dtype)
    x = x if logits else x.log_softmax(2)
    targets = torch.randint(1, classes, (sequences, labels), device=device)
    lengths = [torch.full((sequences,), n, device=device) for n in (steps, labels)]
    options: dict[str, Any] = {"reduction": "sum", "logits": logits}
    t, *given = map(dnn.from_dlpack, (x, targets, *lengths))
    loss, saved = dnn.ctc_loss_forward(t, *given, **options)
    one = dnn.full((), 1, dtype=loss.dtype, device=loss.device)
    kept = 2 * saved[0].nbytes
    name = str(dtype).removeprefix("torch.")
    text = f"{name} x={steps}x{sequences}x{classes} targets={sequences}x{labels} reduction=sum{' logits' * logits}"

    leaf = x.detach().requires_grad_()
    forms: dict[str, list[torch.Tensor]] = {"": [targets, *lengths]}
    if device != "cpu" and labels < 256:
        forms = {"native": forms[""], "cudnn": [targets.flatten().cpu().int(), *(n.cpu().int() for n in lengths)]}

    def theirs(operands: list[torch.Tensor]) -> torch.Tensor:
        log_p = leaf.float().log_softmax(2) if logits else leaf
        return torch.nn.functional.ctc_loss(log_p, *operands, reduction="sum")

    def gradient(operands: list[torch.Tensor]) -> Callable[[], Any]:
        return partial(torch.autograd.grad, theirs(operands), leaf, retain_graph=True)

    def backward() -> Any:
        return dnn.ctc_loss_backward(one, t, *given, saved, **options)

    def training() -> Any:
        return dnn.ctc_loss_backward(one, t, *given, dnn.ctc_loss_forward(t, *given, **options)[1], **options)

    read = x.nbytes if logits else steps * sequences * (labels + 1) * x.element_size()
    calls: dict[str, tuple[Callable[[], Any], dict[str, Callable[[], Any]], float]] = {
        "forward": (lambda: dnn.ctc_loss_forward(t, *given, **options)[0],
                    {way: partial(theirs, operands) for way, operands in forms.items()}, read + kept),
        "backward": (backward, {next(iter(forms)): gradient(forms[next(iter(forms))])}, 2 * x.nbytes + kept),
        "training": (training,
                     {way: lambda operands=operands: torch.autograd.grad(theirs(operands), leaf)
                      for way, operands in forms.items()}, read + 2 * x.nbytes + 2 * kept),
    }  # fmt: skip
    for direction, (ours, ways, total) in calls.items():
        # Torch adds logarithms of paths in float32, so its posteriors are off by up to some percent.
        yield Row(f"ctc {direction} {text}", ours, ways, bytes=total, dtype=name, terms=steps * labels,
                  tolerance=None if direction == "forward" else 0.05)  # fmt: skip


if __name__ == "__main__":
    main(rows, __doc__, TARGETS)
