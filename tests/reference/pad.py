# SPDX-License-Identifier: Apache-2.0
"""Padding."""

import numpy as np

_MODES = {"constant": "constant", "replicate": "edge", "reflect": "reflect"}  # our names of modes, and NumPy's names


def pad(x, widths, *, mode="constant", value=0.0):
    """x with new elements around it. widths: a number, or (before, after) for each dimension."""
    x = np.asarray(x, np.float64)
    if x.ndim == 0:
        return x
    return np.pad(x, widths, _MODES[mode], **({"constant_values": value} if mode == "constant" else {}))
