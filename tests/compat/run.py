#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs tests of a cudnn-frontend checkout with pyminidnn.cudnn_compat: those that need no attention and no 8-bit floats,
or the files that are named. Those of attention are test_mhas_v2.py -k "not fp8 and not ragged".

    CUDNN_FRONTEND_TESTS=checkout/test/python python tests/compat/run.py [--compat-device cpu] [options of pytest] [files]

It needs torch, and looseversion from PyPI. plugin.py explains the options. On a GPU all cases take some minutes.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

FILES = [
    "apply_rope", "batchnorm", "conv_bias", "conv_fprop", "conv_fuzzer", "conv_genstats", "conv_reduction",
    "instancenorm", "layernorm", "matmul_bias_relu", "matmul_fuzzer", "rmsnorm", "silu_and_mul", "slice", "wgrads",
]  # fmt: skip


def tests_folder() -> Path:
    """The folder test/python of the checkout, which CUDNN_FRONTEND_TESTS names."""
    folder = os.environ.get("CUDNN_FRONTEND_TESTS")
    if not folder or not (Path(folder) / "pytest.ini").is_file():
        raise SystemExit("CUDNN_FRONTEND_TESTS must name the folder test/python of a checkout of cudnn-frontend")
    return Path(folder).resolve()


def main() -> int:
    sys.path[:0] = [str(Path(__file__).resolve().parent)]  # where pytest finds the plugin
    folder = tests_folder()
    named = [a for a in sys.argv[1:] if a.startswith("test_")]
    files = named or [f"test_{name}.py" for name in FILES]
    paths = [str(folder / file) for file in files]
    options = [a for a in sys.argv[1:] if a not in named]
    return pytest.main(["-p", "plugin", "-c", str(folder / "pytest.ini"), "-q", *options, *paths])


if __name__ == "__main__":
    sys.exit(main())
