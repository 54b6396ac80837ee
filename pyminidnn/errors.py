# SPDX-License-Identifier: Apache-2.0
"""The five kinds of error, all derived from `Error`. A text names the function, what was found and what is accepted."""

from ._C import DeviceError, DTypeError, Error, NotSupported, OutOfMemory, ShapeError

__all__ = ["DTypeError", "DeviceError", "Error", "NotSupported", "OutOfMemory", "ShapeError"]
