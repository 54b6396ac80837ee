# SPDX-License-Identifier: Apache-2.0
"""Matrix products."""

from __future__ import annotations

from .. import _C
from .._C import DeviceTensor, Handle
from ..conversion import ArrayLike, operands, output
from ..options import Activation


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
    activation: Activation | None = None,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """A matrix product, or a batch of them, with scaling, an accumulator, a bias and an activation (GEMM).

    y = activation(alpha op(a) @ op(b) + beta c + bias),  op(m) = m, or m with its last two dimensions swapped

    a, b         op(a) [..., M, K], op(b) [..., K, N]: 2 to 5 dimensions, those before the last two broadcast as in
                 NumPy; any strides; float32, float64, float16 or bfloat16; NumPy, DLPack or DeviceTensor
    transpose_a, transpose_b  whether op swaps the last two dimensions
    alpha, beta  factors; with beta = 0, c is not read, so a NaN in c does not spread
    c            broadcasts to y's shape; None with beta other than 0: the old contents of `out`, which is then required
    bias         [N], added to every row
    activation   a mode of activation_forward with its default alpha; None: identity
    algo         an engine by name, "cpu.matmul.packed" or "packed"; None: the fastest expected.
                 A config may follow: "simt:tile=64x64"
    out          receives y instead of a new tensor; shape of y, device of a; dtype of a, or float32 for 16-bit a; may
                 be c itself, but not a, b or bias
    handle       None: the current handle of a's device. math="tf32", the default, allows an engine to round float32
                 operands to TF32; math="ieee" forbids this
    returns      y [..., M, N], row-major, on a's device and the handle's stream (does not synchronise)

    a, b and bias have the same dtype; c has the dtype of y. Everything is computed in float32 (float64 for float64),
    then rounded once. K = 0 gives activation(beta c + bias). NaN times 0 is NaN. Deterministic; on the CPU, results do
    not depend on the number of threads.
    Raises ShapeError, DTypeError, DeviceError, OutOfMemory; NotSupported lists every engine and its reason.
    Source: Goto & van de Geijn 2008, doi:10.1145/1356052.1356053 (packing and blocking on the CPU).
    """
    a, b, c, bias = operands(handle, a, b, c, bias, out=out)
    return _C.matmul(a, b, transpose_a, transpose_b, alpha, beta, c, bias, activation, algo, output(out), handle)
