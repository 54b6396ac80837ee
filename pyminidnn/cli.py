# SPDX-License-Identifier: Apache-2.0
"""python -m pyminidnn {info,selftest,bench,calibrate,demo,compile,cache}"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyminidnn as dnn

from . import _C
from .bench import FAMILIES, SIZES
from .progress import Progress


def main(arguments: list[str] | None = None) -> int:
    """Runs one subcommand and returns its exit code: 0, 1 for a failure, 130 after Ctrl-C, 141 after a broken pipe.

    A bad argument raises SystemExit with code 2.
    """
    try:
        try:
            options = _options(arguments)
            if why := _C.why_no_log():
                raise dnn.ShapeError(why)
            return _run(options)
        finally:
            # If writing to stdout fails, flush=True raises the error here, where it is caught. Without it, the error
            # would occur while Python exits.
            print(end="", flush=True)
    except KeyboardInterrupt:
        print("pyminidnn: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        code = 141
    except dnn.Error as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"pyminidnn: {error}", file=sys.stderr)
        code = 1
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:  # without dup2, Python would write the buffer again at exit, and report the failure
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return code


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m pyminidnn", description="pyminidnn on the command line")
    parser.add_argument("--version", action="version", version=f"pyminidnn {dnn.__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="devices, driver, NVRTC, caches and engines of this machine")
    selftest = commands.add_parser("selftest", help="every function once on each device, against NumPy")
    bench = commands.add_parser("bench", help="time typical calls of each family, against NumPy and torch")
    bench.add_argument(
        "families", nargs="*", type=_family, metavar="FAMILY", help=f"of {', '.join(FAMILIES)}; default: all"
    )
    bench.add_argument("--size", choices=SIZES, default="medium", help="of the tensors; default: medium")
    bench.add_argument(
        "--seconds", type=_seconds, default=0.3, help="of measurement for each call and peer; default: 0.3"
    )
    bench.add_argument(
        "--out", type=_folder, metavar="DIR", help="folder for a table, and a picture if matplotlib is installed"
    )
    commands.add_parser(
        "calibrate", help="measure the CPU engines on this machine, to choose the fastest; takes a minute"
    )
    demo = commands.add_parser("demo", help="train a small network on handwritten digits")
    demo.add_argument("--epochs", type=_epochs, default=20, metavar="N")
    demo.add_argument("--out", type=_folder, default=Path("."), metavar="DIR", help="folder for the pictures")
    for command in (selftest, bench, demo):
        command.add_argument("--device", type=_device, help="cpu or cuda:<index>; default: a GPU if there is one")
    build = commands.add_parser("compile", help="compile all kernels ahead of time; needs NVRTC, no GPU")
    build.add_argument("--arch", type=_arch, action="append", required=True, metavar="sm_90a", help="may be repeated")
    build.add_argument("--out", type=_folder, metavar="DIR", help="folder; default: the user's kernel cache")
    _add_cache(commands.add_parser("cache", help="compiled kernels, tuning records and cost factors of this user"))
    return parser.parse_args(arguments)


def _add_cache(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("show", help="the folder, and what it holds")
    clean = actions.add_parser("clean", help="delete compiled kernels; they are compiled again when they are needed")
    clean.add_argument("--tuning", action="store_true", help="also delete the tuning records, the results of find()")
    clean.add_argument("--costs", action="store_true", help="also delete the cost factors, the results of calibrate")
    export = actions.add_parser("export", help="write the tuning records and cost factors to a file")
    load = actions.add_parser("import", help="add the tuning records and cost factors of an exported file")
    load.add_argument("--replace", action="store_true", help="replace those of the same problems; default: keep them")
    for action in (export, load):
        action.add_argument("file", type=_file, metavar="FILE")


def _family(text: str) -> str:
    if text not in FAMILIES:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(FAMILIES)}")
    return text


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0 and up to 3600")
    return value


def _epochs(text: str) -> int:
    if not re.fullmatch("[1-9][0-9]*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of 1 or more")
    return int(text)


def _folder(text: str) -> Path:
    return _path(text, "folder")


def _file(text: str) -> Path:
    return _path(text, "file")


def _path(text: str, kind: str) -> Path:
    # In a str, surrogates stand for bytes that are not UTF-8. C++ does not accept names with such bytes.
    if not text or any("\ud800" <= c <= "\udfff" for c in text):
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a {kind} in UTF-8")
    return Path(text)


def _device(text: str) -> str:
    if not re.fullmatch("cpu|cuda(:[0-9]+)?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not cpu, cuda or cuda:<index>")
    return text


def _arch(text: str) -> str:
    """An architecture that kernels are stored under. arch_for() in cuda/runtime/kernel_cache.cpp makes these names."""
    known = re.fullmatch("sm_(90a|[1-9][0-9]*0)", text)
    if not known or text == "sm_90" or _number(text) < 80:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an architecture that kernels are compiled for: sm_80 serves compute capability 8.x, "
            "sm_90a 9.0, sm_100 10.x, sm_110 11.x, sm_120 12.x"
        )
    return text


def _number(arch: str) -> int:
    return int(arch.removeprefix("sm_").removesuffix("a"))


def _run(options: argparse.Namespace) -> int:
    if options.command == "info":
        return _info()
    if options.command == "compile":
        return _compile(options.arch, options.out)
    if options.command == "cache":
        return _cache(options)
    if options.command == "calibrate":
        from .calibrate import run as calibrate

        return calibrate()
    if options.command == "bench":
        from .bench import run as bench

        return bench(options.families, options.size, options.device or default_device(), options.seconds, options.out)
    if options.command == "selftest":
        from .selftest import run

        return run(options.device)
    from .demo import train

    return train(options.device or default_device(), options.epochs, options.out)


def _cache(options: argparse.Namespace) -> int:
    from . import cache

    if options.action == "show":
        return cache.show()
    if options.action == "clean":
        return cache.clean(options.tuning, options.costs)
    if options.action == "export":
        return cache.export(options.file)
    return cache.import_(options.file, options.replace)


def default_device() -> str:
    """The first GPU if there is one and NVRTC is available, else the CPU."""
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
    if why := _C.why_no_tuning():
        print(f"tuning      results of find() are kept in memory only: {why}")
    factors = sum(line.startswith(f"{cpu['model']}\t") for line in _C.costs_text().splitlines())
    print(
        f"calibrated  {f'yes, {factors} cost factors of CPU engines' if factors else 'no: pyminidnn calibrate does it'}"
    )
    for family in dict.fromkeys(_C.families()):
        print(f"{family:<12}{', '.join(dnn.engines(family, 'cpu') + dnn.engines(family, 'cuda'))}")
    return 0


def _compile(archs: list[str], out: Path | None) -> int:
    if why := _C.why_no_nvrtc():
        raise dnn.DeviceError(f"compile: {why}")
    if out is None and not _C.cache_folder():
        raise dnn.DeviceError("compile: there is no cache folder to keep kernels in; --out DIR names another folder")
    specs = _C.manifest()
    start = time.perf_counter()
    failures = 0
    pool = ThreadPoolExecutor(max_workers=os.cpu_count())
    bar = Progress(sum(_runs_on(s.min_arch, arch) for s in specs for arch in archs), "kernel")
    try:
        for arch in archs:
            wanted = [s for s in specs if _runs_on(s.min_arch, arch)]

            def build(spec: _C.KernelSpec, arch: str = arch) -> str | None:
                try:
                    _C.compile_kernel(spec, arch, str(out) if out else None)
                except dnn.Error as error:
                    return f"{arch} {spec.kernel} of {spec.file}: {error}"
                finally:
                    bar.step()
                return None

            done = time.perf_counter()
            # The first kernel is compiled before all others. If NVRTC does not know the architecture, or if the folder
            # cannot be written, the user sees one error instead of one error per kernel.
            if error := build(wanted[0]):
                raise dnn.DeviceError(f"compile: the first kernel failed, so the others were skipped: {error}")
            errors = [e for e in pool.map(build, wanted) if e]
            failures += len(errors)
            for line in errors:
                print(line, file=sys.stderr)
            bar.print(
                f"{arch}: {len(wanted) - len(errors)} of {len(wanted)} kernels in {time.perf_counter() - done:.1f} s"
            )
    finally:
        bar.close()
        pool.shutdown(cancel_futures=True)  # after Ctrl-C, Python waits only for the kernels that are being compiled
    print(f"{time.perf_counter() - start:.1f} s in all, into {out or _C.cache_folder()}")
    return 1 if failures else 0


def _runs_on(min_arch: int, arch: str) -> bool:
    """Whether a kernel whose least architecture is `min_arch` compiles for `arch`.

    Kernels for sm_90a use instructions that no other architecture has.
    """
    return arch == "sm_90a" if min_arch == 90 else _number(arch) >= min_arch
