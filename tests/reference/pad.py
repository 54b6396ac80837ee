# SPDX-License-Identifier: Apache-2.0
"""Padding."""

import numpy as np

# The library's names of padding modes, and NumPy's names of the same modes.
_MODES = {"constant": "constant", "replicate": "edge", "reflect": "reflect"}


def pad(x, widths, *, mode="constant", value=0.0):
    """x with new elements around it. widths: a number, or (before, after) for each dimension."""
    x = np.asarray(x, np.float64)
    if x.ndim == 0:
        return x
    return np.pad(x, widths, _MODES[mode], **({"constant_values": value} if mode == "constant" else {}))
