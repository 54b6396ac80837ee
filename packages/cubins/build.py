#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds a wheel of compiled kernels, pyminidnn-cubins-cu12 or pyminidnn-cubins-cu13, into dist/.

    packages/cubins/build.py [--cuda 13] [--arch sm_90a]... [--install-nvrtc]

The wheel contains what `pyminidnn compile` writes, for the installed pyminidnn and its NVRTC. With such a wheel, the
first call of a function on a GPU compiles nothing. The key of a kernel contains its source, so a wheel serves exactly
the version of pyminidnn that it was built with; its own version is the same. It needs no GPU.

--install-nvrtc first installs the NVRTC of that CUDA release, by pip, into the environment of this Python.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NVRTC = {"12": "nvidia-cuda-nvrtc-cu12==12.9.*", "13": "nvidia-cuda-nvrtc==13.0.*"}
# The names under which the library looks for kernels: sm_80 serves compute capability 8.x, sm_100 10.x, sm_120 12.x.
ARCHITECTURES = ("sm_80", "sm_90a", "sm_100", "sm_120")
PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "pyminidnn-cubins-cu{cuda}"
version = "{version}"
description = "Compiled kernels of pyminidnn {version} for CUDA {cuda}: {archs}"
license = "Apache-2.0"
requires-python = ">=3.10"

[tool.setuptools]
packages = ["{package}"]
package-data = {{ {package} = ["*/*.cubin"] }}
"""


def main() -> None:
    """Builds the wheel that the options describe."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuda", choices=NVRTC, default="13", help="the release of CUDA")
    parser.add_argument("--arch", action="append", help=f"default: {', '.join(ARCHITECTURES)}")
    parser.add_argument("--install-nvrtc", action="store_true")
    parser.add_argument("--kernels", type=int, metavar="N", help="only the first N kernels, to try this script")
    options = parser.parse_args()
    if options.install_nvrtc:
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", NVRTC[options.cuda]], check=True)
    import pyminidnn
    from pyminidnn import _C, cli

    if why := _C.why_no_nvrtc():
        sys.exit(f"build.py: {why}")
    path, major, minor = _C.nvrtc_info()
    if str(major) != options.cuda:
        sys.exit(f"build.py: --cuda {options.cuda} needs NVRTC of that release; {path} is {major}.{minor}")
    archs = options.arch or list(ARCHITECTURES)
    package = f"pyminidnn_cubins_cu{options.cuda}"
    with tempfile.TemporaryDirectory() as folder:
        inside = Path(folder) / package
        if options.kernels:
            compiled = _C.manifest()[: options.kernels]
            for arch in archs:
                for spec in compiled:
                    _C.compile_kernel(spec, arch, str(inside))
        elif cli.main(["compile", "--out", str(inside), *(word for a in archs for word in ("--arch", a))]):
            sys.exit("build.py: not all kernels were compiled")
        (inside / "__init__.py").write_text(f'"""Compiled kernels of pyminidnn {pyminidnn.__version__}."""\n')
        text = PYPROJECT.format(
            cuda=options.cuda, version=pyminidnn.__version__, archs=", ".join(archs), package=package
        )
        (Path(folder) / "pyproject.toml").write_text(text)
        files = list(inside.rglob("*.cubin"))
        print(f"{len(files)} kernels, {sum(f.stat().st_size for f in files) / 1e6:.1f} MB")
        (ROOT / "dist").mkdir(exist_ok=True)
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, folder]
        subprocess.run(command, check=True)
        (wheel,) = Path(folder).glob("*.whl")
        shutil.copy(wheel, ROOT / "dist")
        print(f"dist/{wheel.name}: {os.path.getsize(ROOT / 'dist' / wheel.name) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
