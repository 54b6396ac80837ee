# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers: relu, tanh, LSTM and GRU, their gradients, and their weights as one tensor."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import _C
from .._C import DeviceTensor, Handle
from ..conversion import ArrayLike, operands, output
from ..options import RnnLayout, RnnMode
from ..refusals import refusal, short

Weights = ArrayLike | Sequence[ArrayLike]


def rnn_forward(
    x: ArrayLike,
    weights: Weights,
    *,
    mode: RnnMode,
    hidden_size: int,
    layers: int = 1,
    bidirectional: bool = False,
    bias: bool = True,
    h0: ArrayLike | None = None,
    c0: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    batch_sizes: ArrayLike | None = None,
    batch: int | None = None,
    reset_after: bool = True,
    dropout: float = 0.0,
    seed: int = 0,
    offset: int = 0,
    clip: float | None = None,
    training: bool = False,
    layout: RnnLayout = "tnc",
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> tuple[DeviceTensor, DeviceTensor, DeviceTensor | None, DeviceTensor | None]:
    """Recurrent layers over sequences, as torch.nn.RNN, LSTM and GRU.

    relu, tanh  h = f(W x + b_ih + U h + b_hh)
    lstm        i, f, o = sigmoid(W x + b_ih + U h + b_hh), g = tanh(the same);  c = f c + i g;  h = o tanh(c)
    gru         r, z = sigmoid(the same), n = tanh(W x + b_ih + r (U h + b_hh));  h = (1 - z) n + z h
                reset_after=False: n = tanh(W x + b_ih + U (r h) + b_hh)

    With D directions (1 or 2) and G gates (1; lstm 4: i f g o; gru 3: r z n), H = hidden_size:
    x              [T, N, I]; float32, float64, float16 or bfloat16; any strides; NumPy, DLPack or DeviceTensor
    weights        a list: for each layer and direction w_ih [G H, I] ([G H, D H] in layers above the first),
                   w_hh [G H, H], and b_ih [G H], b_hh [G H] if `bias`; contiguous. Or one tensor with all of them: the
                   matrices in this order, then the biases (rnn_pack)
    layers         1 to 32; each layer has y of the one before as its input
    bidirectional  whether a second direction reads each sequence from its end; y has the units of both
    h0, c0         [layers D, N, H], contiguous: the first states (c0: lstm only); None: zeros
    lengths        int32 [N] on x's device: sequence n has the first lengths[n] steps of x. y is 0 beyond
    batch_sizes    packed sequences, in place of lengths: step t has the first batch_sizes[t] sequences, never more than
                   the step before, and x is [rows, I], one step after the other (torch's PackedSequence). A list of
                   ints, or int32 [T] on x's device, which needs `batch`, the number of sequences, if h0 is not given
    dropout        the probability with which an element of y becomes 0 before the next layer reads it, from 0 to below
                   1; the others are divided by 1 - dropout. It applies whenever it is above 0. Its random numbers
                   behind layer l are those of dropout_forward for y [T, N, D H] ([rows, D H]), seed and offset + l
    clip           lstm: c is cut to [-clip, clip] at each step
    training       whether to return the reserve, which the gradients need
    layout         "ntc": x and y are [N, T, features]
    algo           an engine by name, "cuda.rnn.generic" or "generic"; None: the fastest expected
    out            receives y instead of a new tensor
    handle         None: the current handle of x's device
    returns        (y, hn, cn, reserve). y [T, N, D H]; hn, cn [layers D, N, H]: the states after the last step of each
                   sequence (those given, for a sequence without steps); cn is None except for an lstm. All have x's
                   dtype. reserve is uint8 [bytes], or None; docs/ops/rnn.md describes its content

    Sums, gates and c are float32 (float64 for float64); h is rounded to x's dtype at each step. A NaN stays in its
    sequence. Contents of lengths and batch_sizes on the device are not checked: they are clamped, so wrong ones give
    wrong results only. A graph cannot capture the upload of a list of batch_sizes.
    Raises ShapeError, DTypeError, DeviceError, OutOfMemory; NotSupported lists every engine and its reason.
    Source: Hochreiter & Schmidhuber 1997; Cho et al. 2014, arXiv:1406.1078.
    """
    given = _weights(weights)
    sizes, batch = _batch_sizes(batch_sizes, batch)
    x, h0, c0, lengths, sizes, *given = operands(handle, x, h0, c0, lengths, sizes, *given, out=out)
    _check_rows(batch_sizes, x, "x")
    return _C.rnn_forward(
        x, given, mode, hidden_size, layers, bidirectional, bias, h0, c0, lengths, sizes, batch, reset_after, dropout,
        seed, offset, clip, training, layout, algo, output(out), handle,
    )  # fmt: skip


def rnn_backward_data(
    dy: ArrayLike,
    dhn: ArrayLike | None,
    dcn: ArrayLike | None,
    y: ArrayLike,
    weights: Weights,
    reserve: ArrayLike,
    *,
    mode: RnnMode,
    hidden_size: int,
    layers: int = 1,
    bidirectional: bool = False,
    bias: bool = True,
    h0: ArrayLike | None = None,
    c0: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    batch_sizes: ArrayLike | None = None,
    batch: int | None = None,
    reset_after: bool = True,
    dropout: float = 0.0,
    seed: int = 0,
    offset: int = 0,
    clip: float | None = None,
    layout: RnnLayout = "tnc",
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> tuple[DeviceTensor, DeviceTensor, DeviceTensor | None, DeviceTensor]:
    """The gradients of rnn_forward for x, h0 and c0, and those of the gates, which rnn_backward_weights needs.

    dy             the gradient of y; shape and dtype of y
    dhn, dcn       the gradients of hn and cn, contiguous; None: zeros
    y, reserve     what rnn_forward returned with training=True. A reserve of another size or dtype is refused; one of
                   another call with equal sizes gives wrong results
    weights        as in rnn_forward
    other options  as in rnn_forward, with equal values
    out            receives dx instead of a new tensor
    returns        (dx, dh0, dc0, dgates). dx has the shape of x; dh0, dc0 [layers D, N, H]; dc0 is None except for an
                   lstm. dgates [layers, D, T, N, K H] ([layers, D, rows, K H]) are the gradients of the gates before
                   their activation: K is 1; lstm 4: di df dg do; gru 4: dr dz dn and r dn, the last of which U sees in
                   place of dn; reset_after=False 3: dr dz dn. They are 0 beyond a sequence's end

    The gradient of c is 0 where abs(c) >= clip. Sums are float32 (float64 for float64); dgates are rounded to x's dtype
    at each step. Raises the errors of rnn_forward.
    """
    given = _weights(weights)
    sizes, batch = _batch_sizes(batch_sizes, batch)
    dy, dhn, dcn, y, reserve, h0, c0, lengths, sizes, *given = operands(
        handle, dy, dhn, dcn, y, reserve, h0, c0, lengths, sizes, *given, out=out
    )
    _check_rows(batch_sizes, y, "y")
    return _C.rnn_backward_data(
        dy, dhn, dcn, y, given, reserve, mode, hidden_size, layers, bidirectional, bias, h0, c0, lengths, sizes, batch,
        reset_after, dropout, seed, offset, clip, layout, algo, output(out), handle,
    )  # fmt: skip


def rnn_backward_weights(
    x: ArrayLike,
    h0: ArrayLike | None,
    y: ArrayLike,
    dgates: ArrayLike,
    reserve: ArrayLike,
    *,
    mode: RnnMode,
    hidden_size: int,
    layers: int = 1,
    bidirectional: bool = False,
    bias: bool = True,
    lengths: ArrayLike | None = None,
    batch_sizes: ArrayLike | None = None,
    batch: int | None = None,
    reset_after: bool = True,
    dropout: float = 0.0,
    seed: int = 0,
    offset: int = 0,
    layout: RnnLayout = "tnc",
    flat: bool = False,
    accumulate: bool = False,
    algo: str | None = None,
    out: Weights | None = None,
    handle: Handle | None = None,
) -> DeviceTensor | list[DeviceTensor]:
    """The gradients of rnn_forward for its weights.

    x, h0          as in rnn_forward
    y, reserve     what rnn_forward returned with training=True
    dgates         what rnn_backward_data returned
    flat           whether to return one tensor, as rnn_pack makes it, rather than a list
    accumulate     whether the gradients are added to `out`
    out            a list of tensors, or one tensor, in the form of `weights` in rnn_forward: receives the gradients and
                   is returned
    other options  as in rnn_forward, with equal values
    returns        the gradients in the form of `weights` in rnn_forward

    Sums over steps and sequences have a fixed order, so results repeat. x must be finite beyond a sequence's end, too.
    Raises the errors of rnn_forward.
    """
    sizes, batch = _batch_sizes(batch_sizes, batch)
    x, h0, y, dgates, reserve, lengths, sizes = operands(handle, x, h0, y, dgates, reserve, lengths, sizes)
    _check_rows(batch_sizes, x, "x")
    written: list[Any] = [] if out is None else [output(t, handle) for t in _weights(out)]
    made = _C.rnn_backward_weights(
        x, h0, y, dgates, reserve, mode, hidden_size, layers, bidirectional, bias, lengths, sizes, batch, reset_after,
        dropout, seed, offset, layout, flat, accumulate, algo, written, handle,
    )  # fmt: skip
    is_one = flat if out is None else not isinstance(out, (list, tuple))
    return made[0] if is_one else made


def rnn_pack(
    weights: Weights,
    *,
    mode: RnnMode,
    hidden_size: int,
    layers: int = 1,
    bidirectional: bool = False,
    bias: bool = True,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """The weights of rnn_forward as one tensor: copies of all matrices in the order of the list, then of all biases.

    weights        as in rnn_forward
    other options  as in rnn_forward
    out            receives the result instead of a new tensor; contiguous
    returns        a tensor of one dimension. torch's flattened buffer (flatten_parameters) has the same order

    Raises ShapeError, DTypeError, DeviceError, OutOfMemory.
    """
    given = operands(handle, *_weights(weights), out=out)
    return _C.rnn_pack([*given], mode, hidden_size, layers, bidirectional, bias, output(out), handle)


def rnn_unpack(
    tensor: ArrayLike,
    *,
    mode: RnnMode,
    hidden_size: int,
    layers: int = 1,
    bidirectional: bool = False,
    bias: bool = True,
) -> list[DeviceTensor]:
    """The weights in a tensor that rnn_pack made, as a list of views.

    tensor         one dimension, contiguous. The size of the input, I, follows from the number of elements
    other options  as in rnn_forward
    returns        the list that rnn_forward takes as `weights`; its tensors share the memory of `tensor`

    Raises ShapeError, DTypeError.
    """
    (tensor,) = operands(None, tensor)
    return _C.rnn_unpack(tensor, mode, hidden_size, layers, bidirectional, bias)


def _weights(weights: Any) -> list[Any]:
    """The tensors of a list, or a list of the one tensor."""
    return [*weights] if isinstance(weights, (list, tuple)) else [weights]


def _batch_sizes(sizes: Any, batch: int | None) -> tuple[Any, int | None]:
    """A list of batch sizes as an array, and the number of sequences."""
    if not isinstance(sizes, (list, tuple)):
        return sizes, batch
    try:
        array = np.array([operator.index(n) for n in sizes], np.int64)
    except (TypeError, OverflowError):
        raise refusal(_C.DTypeError, sizes, f"must be a list of ints; got {short(sizes)}") from None
    if array.size and (array.min() < 1 or array.max() >= 2**31 or (np.diff(array) > 0).any()):
        raise refusal(_C.ShapeError, sizes, f"must be positive and must not grow; got {short(sizes)}")
    if batch is None and array.size:
        batch = int(array[0])
    return array.astype(np.int32), batch


def _check_rows(sizes: Any, rows: DeviceTensor | None, name: str) -> None:
    """Checks that a list of batch sizes says how many rows there are. The call itself refuses rows that are None."""
    if isinstance(sizes, (list, tuple)) and rows is not None and rows.ndim == 2 and sum(sizes) != rows.shape[0]:
        text = f"must add up to {rows.shape[0]}, the number of rows of {name}; got {short(sizes)}"
        raise refusal(_C.ShapeError, sizes, text)
