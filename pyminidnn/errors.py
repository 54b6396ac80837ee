# SPDX-License-Identifier: Apache-2.0
"""The six kinds of error, all derived from `Error`. A text names the function, what was found and what is accepted."""

from ._C import DeviceError, DTypeError, Error, IndexingError, NotSupported, OutOfMemory, ShapeError

__all__ = ["DTypeError", "DeviceError", "Error", "IndexingError", "NotSupported", "OutOfMemory", "ShapeError"]
