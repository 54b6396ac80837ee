# SPDX-License-Identifier: Apache-2.0
"""Finds what other packages provide: compiled kernels, and NVRTC."""

from __future__ import annotations

from importlib.util import find_spec

# The packages that packages/cubins builds. A driver of CUDA 12 loads no kernels of CUDA 13, so CUDA 13 is tried first
# and CUDA 12 next.
CUBIN_PACKAGES = ("pyminidnn_cubins_cu13", "pyminidnn_cubins_cu12")


def cubin_folders() -> list[str]:
    """The folders of installed packages of cubins. Each has files <arch>/<key>.cubin."""
    specs = [find_spec(name) for name in CUBIN_PACKAGES]
    return [folder for spec in specs if spec for folder in spec.submodule_search_locations or ()]


def find_nvrtc() -> str:
    """The path of libnvrtc by cuda-pathfinder; "" if this package is missing or finds none."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        return load_nvidia_dynamic_lib("nvrtc").abs_path or ""
    # If the package is missing or fails, the library searches by itself, and reports what it tried.
    except Exception:
        return ""
