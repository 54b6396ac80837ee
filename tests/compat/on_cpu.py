# SPDX-License-Identifier: Apache-2.0
"""Makes torch's device "cuda" the CPU, so far as the tests of cudnn-frontend need it."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed.tensor  # imported before torch.Generator changes, which it needs as a type
from torch.overrides import TorchFunctionMode

FUNCTIONS = {torch.nn.functional.conv2d, torch.nn.functional.conv3d, torch.conv2d, torch.conv3d}


def on_cpu(value: Any) -> Any:
    """The value; "cpu" if it names a CUDA device."""
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return "cpu"
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    return value


class OnCpu(TorchFunctionMode):
    """Replaces the device in the arguments of torch's functions and of Tensor's methods."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.Tensor.cuda:
            return args[0]
        kwargs = {k: on_cpu(v) for k, v in (kwargs or {}).items()}
        args = tuple(on_cpu(a) for a in args)
        if function is torch.nn.functional.layer_norm:
            return self.layer_norm(*args, **kwargs)
        if function is torch.nn.functional.batch_norm:
            args = (args[0], *(a.reshape(-1) for a in args[1:]))
            kwargs = {k: v.reshape(-1) if isinstance(v, torch.Tensor) else v for k, v in kwargs.items()}
        if function in FUNCTIONS and args[0].dtype == torch.int8:
            raise RuntimeError("torch has no int8 convolution on CUDA")
        return function(*args, **kwargs)

    @staticmethod
    def layer_norm(x: torch.Tensor, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
        """On the CPU, torch adds up the gradients of 16-bit scales in 16 bits; on CUDA it does so in float32."""
        weight, bias = (None if t is None else t.float() for t in (weight, bias))
        return torch.layer_norm(x.float(), shape, weight, bias, eps).to(x.dtype)


class Float32Convolutions(TorchFunctionMode):
    """torch.amp.autocast("cuda", dtype=torch.float32) for convolutions."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in FUNCTIONS:
            args = [a.float() if isinstance(a, torch.Tensor) else a for a in args]
        return function(*args, **(kwargs or {}))


class Stream:
    """A stream without effect."""

    cuda_stream = 0


_Generator = torch.Generator


def generator(device: Any = "cpu") -> torch.Generator:
    return _Generator(device=on_cpu(device))


def memory() -> tuple[int, int]:
    bytes_ = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return bytes_, bytes_


def put_torch_on_the_cpu() -> None:
    for name, value in {
        "is_available": lambda: True,
        "device_count": lambda: 0,
        "get_device_capability": lambda *_: (9, 0),
        "get_device_name": lambda *_: "the CPU",
        "get_device_properties": lambda *_: SimpleNamespace(multi_processor_count=1),
        "current_stream": lambda *_: Stream(),
        "Stream": Stream,
        "synchronize": lambda *_: None,
        "empty_cache": lambda: None,
        "mem_get_info": lambda *_: memory(),
    }.items():
        setattr(torch.cuda, name, value)
    torch.Generator = generator  # type: ignore[misc, assignment]
    torch.amp.autocast = lambda *_, **__: Float32Convolutions()  # type: ignore[misc, assignment]
    OnCpu().__enter__()
