# SPDX-License-Identifier: Apache-2.0
"""python -m pyminidnn {info,selftest,demo,compile}"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyminidnn as dnn

from . import _C


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pyminidnn", description="pyminidnn on the command line")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="devices, driver, NVRTC, caches and engines of this machine")
    selftest = commands.add_parser("selftest", help="every function once on each device, against NumPy")
    demo = commands.add_parser("demo", help="train a small network on handwritten digits")
    demo.add_argument("--epochs", type=int, default=20, metavar="N")
    demo.add_argument("--out", type=Path, default=Path("."), metavar="DIR", help="folder for the pictures")
    for command in (selftest, demo):
        command.add_argument("--device", default=None, help="cpu or cuda:<index>; default: a GPU if there is one")
    build = commands.add_parser("compile", help="compile all kernels ahead of time; needs NVRTC, no GPU")
    build.add_argument("--arch", action="append", required=True, metavar="sm_90a", help="may be repeated")
    build.add_argument("--out", type=Path, default=None, metavar="DIR", help="folder; default: the user's kernel cache")
    options = parser.parse_args(arguments)
    try:
        if options.command == "info":
            return _info()
        if options.command == "selftest":
            from .selftest import run

            return run(options.device)
        if options.command == "compile":
            return _compile(options.arch, options.out)
        from .demo import train

        return train(options.device or default_device(), options.epochs, options.out)
    except dnn.Error as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1


def default_device() -> str:
    """A GPU whose kernels can be had, else the CPU."""
    return "cuda:0" if _C.cuda_device_count() and not _C.why_no_nvrtc() else "cpu"


def _info() -> int:
    print(f"pyminidnn {dnn.__version__} in {Path(dnn.__file__).parent}")
    cpu = _C.device_info("cpu")
    print(f"cpu         {cpu['units']} threads, {_C.cpu_isa()}, {cpu['memory_bytes'] / 1e9:.0f} GB")
    for i in range(_C.cuda_device_count()):
        gpu = _C.device_info(f"cuda:{i}")
        print(
            f"cuda:{i}      {gpu['model']}, sm_{gpu['arch']}, {gpu['units']} SMs, {gpu['memory_bytes'] / 1e9:.0f} GB, "
            f"about {gpu['copy_gb_s']:.0f} GB/s"
        )
    if why := _C.why_no_cuda():
        print(f"cuda        none: {why}")
    else:
        print(f"driver      CUDA {_C.driver_version()}")
    if why := _C.why_no_nvrtc():
        print(f"nvrtc       none: {why}")
    else:
        path, major, minor = _C.nvrtc_info()
        print(f"nvrtc       {major}.{minor}, {path}")
    print(f"cache       {_C.cache_folder() or 'in memory only'}")
    for family in dict.fromkeys(_C.families()):
        print(f"{family:<12}{', '.join(dnn.engines(family, 'cpu') + dnn.engines(family, 'cuda'))}")
    return 0


def _compile(archs: list[str], out: Path | None) -> int:
    specs = _C.manifest()
    start = time.perf_counter()
    failures = 0
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for arch in archs:
            wanted = [s for s in specs if _runs_on(s.min_arch, arch)]

            def build(spec: _C.KernelSpec, arch: str = arch) -> str | None:
                try:
                    _C.compile_kernel(spec, arch, str(out) if out else None)
                except dnn.Error as error:
                    return f"{arch} {spec.kernel} of {spec.file}: {error}"
                return None

            done = time.perf_counter()
            errors = [e for e in pool.map(build, wanted) if e]
            failures += len(errors)
            for line in errors:
                print(line, file=sys.stderr)
            print(f"{arch}: {len(wanted) - len(errors)} of {len(wanted)} kernels in {time.perf_counter() - done:.1f} s")
    print(f"{time.perf_counter() - start:.1f} s in all, into {out or _C.cache_folder()}")
    return 1 if failures else 0


def _runs_on(min_arch: int, arch: str) -> bool:
    """Kernels for sm_90a are in instructions that no later generation has."""
    number = int("".join(c for c in arch if c.isdigit()))
    return number == 90 if min_arch == 90 else number >= min_arch
