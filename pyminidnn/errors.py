# SPDX-License-Identifier: Apache-2.0
"""The six kinds of error, all derived from `Error`. A text names the function, what was found and what is accepted."""

from inspect import Parameter, Signature

from ._C import DeviceError, DTypeError, Error, IndexingError, NotSupported, OutOfMemory, ShapeError

__all__ = ["DTypeError", "DeviceError", "Error", "IndexingError", "NotSupported", "OutOfMemory", "ShapeError"]

for _kind in (Error, *Error.__subclasses__()):
    setattr(_kind, "__signature__", Signature([Parameter("args", Parameter.VAR_POSITIONAL)]))  # noqa: B010
