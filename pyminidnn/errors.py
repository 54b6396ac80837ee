# SPDX-License-Identifier: Apache-2.0
"""The five kinds of error, all under `Error`. Their texts name the call, what was found and what would do."""

from ._C import DeviceError, DTypeError, Error, NotSupported, OutOfMemory, ShapeError

__all__ = ["DTypeError", "DeviceError", "Error", "NotSupported", "OutOfMemory", "ShapeError"]
