# SPDX-License-Identifier: Apache-2.0
"""Functions around a pygraph: jit, graph_cache and graph, the version, and objects that have no use here."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .enums import data_type, heur_mode
from .graph import pygraph
from .handles import CudnnHandle


@contextmanager
def graph(
    handle: CudnnHandle | None,
    name: str = "cudnn_graph",
    io_data_type: Any = data_type.HALF,
    intermediate_data_type: Any = data_type.FLOAT,
    compute_data_type: Any = data_type.FLOAT,
) -> Iterator[tuple[pygraph, list[Any]]]:
    """`with graph(handle) as (g, _):` makes a pygraph."""
    yield (
        pygraph(
            handle=handle,
            name=name,
            io_data_type=io_data_type,
            intermediate_data_type=intermediate_data_type,
            compute_data_type=compute_data_type,
        ),
        [],
    )


def jit(heur_modes: Any = heur_mode.A, **_: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator of functions that return (graph, tensors). The result builds the graph, and returns (graph, uids)."""
    modes = heur_modes if isinstance(heur_modes, list) else [heur_modes]

    def decorator(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def built(*args: Any, **kwargs: Any) -> tuple[pygraph, list[int]]:
            g, tensors = function(*args, **kwargs)
            if g.get_execution_plan_count() <= 0:
                g.build(modes)
            return g, [t.get_uid() for t in tensors]

        return built

    return decorator


def graph_cache(key_fn: Callable[..., Any], maxsize: int = 256) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that calls the function once for each key_fn(*args, **kwargs). The oldest of `maxsize` results goes
    first."""

    def decorator(function: Callable[..., Any]) -> Callable[..., Any]:
        kept: dict[Any, Any] = {}

        @functools.wraps(function)
        def cached(*args: Any, **kwargs: Any) -> Any:
            key = key_fn(*args, **kwargs)
            if key not in kept:
                result = function(*args, **kwargs)
                if len(kept) >= maxsize:
                    del kept[next(iter(kept))]
                kept[key] = result
            return kept[key]

        return cached

    return decorator


class KernelCache:
    """An object without contents: pyminidnn caches compiled kernels itself, in memory and in a folder."""

    def serialize(self) -> str:
        """An empty JSON object."""
        return "{}"

    def deserialize(self, text: str) -> None:
        """Has no effect."""


class DeviceProperties:
    """An object without contents: kernels are compiled for the GPU that runs them."""

    def serialize(self) -> str:
        """An empty JSON object."""
        return "{}"


def create_kernel_cache() -> KernelCache:
    """An object for pygraph's kernel_cache."""
    return KernelCache()


def create_device_properties(_: int | str) -> DeviceProperties:
    """An object for pygraph's device_property."""
    return DeviceProperties()


def backend_version() -> int:
    """The version of cuDNN whose graphs this module follows, as cuDNN writes it: 91900 for 9.19.0."""
    return 91900


def backend_version_string() -> str:
    """backend_version() as text."""
    return "9.19.0"


def get_last_error_string() -> str:
    """An empty text: exceptions tell all."""
    return ""
