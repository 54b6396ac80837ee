# SPDX-License-Identifier: Apache-2.0
"""Matrix products."""

from __future__ import annotations

from .. import _C
from .._C import DeviceTensor, Handle
from ..tensor import ArrayLike, operands, output
from .activation import Mode


def matmul(
    a: ArrayLike,
    b: ArrayLike,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    activation: Mode | None = None,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """A matrix product, or a batch of them, with what a GEMM adds to it.

    y = activation(alpha op(a) @ op(b) + beta c + bias),  op(m) = m, or m with its last two dimensions swapped

    a, b         op(a) [..., M, K], op(b) [..., K, N]: 2 to 5 dimensions, those before the last two broadcast as in
                 NumPy; any strides; float32, float64, float16 or bfloat16; NumPy, DLPack or DeviceTensor
    transpose_a, transpose_b  whether op swaps
    alpha, beta  factors; with beta = 0, c is not read, so that a NaN in it does not spread
    c            broadcasts to y's shape; None with beta other than 0: what is in out, which must then be given
    bias         [N], added to every row
    activation   a mode of activation_forward with its default alpha; None: identity
    algo         an engine by name, "cpu.matmul.packed" or "packed"; None: the fastest expected.
                 A config may follow: "simt:tile=64x64"
    out          written instead of a new tensor; shape and device of y, dtype of a, or float32 for 16-bit ones; may be
                 c itself, but not a, b or bias
    handle       None: the current one for a's device. Its math="ieee" keeps float32 products in float32; "tf32", the
                 default, allows an engine to round them to TF32
    returns      y [..., M, N], row-major, on a's device and the handle's stream (does not synchronise)

    a, b and bias have one dtype, and c that of y. Sums and all that follows are in float32, float64 for float64, and
    rounded once. K = 0 gives activation(beta c + bias). NaN gives NaN, also where it meets a 0. Deterministic, and on
    the CPU the same whatever the number of threads.
    Raises ShapeError, DTypeError, DeviceError, OutOfMemory; NotSupported lists every engine and its reason.
    Source: Goto & van de Geijn 2008, doi:10.1145/1356052.1356053 (packing and blocking on the CPU).
    """
    a, b, c, bias = operands(handle, a, b, c, bias, out=out)
    return _C.matmul(a, b, transpose_a, transpose_b, alpha, beta, c, bias, activation, algo, output(out), handle)
