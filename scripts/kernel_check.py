# SPDX-License-Identifier: Apache-2.0
"""Compiles kernels without a GPU, as continuous integration does: python scripts/kernel_check.py FOLDER

For sm_80, all kernels. For sm_90a and sm_120, all kernels that are for one of them alone or whose source file asks for
the architecture. sm_80 has compiled the source of the others, so one of each (source file, template, dtypes) is
compiled for each of the two, chosen anew in each run. packages/cubins/build.py, which makes releases, compiles all
kernels for all architectures.
"""

from __future__ import annotations

import os
import random
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyminidnn as dnn
from pyminidnn import _C

ROOT = Path(__file__).parent.parent
DTYPES = re.compile(r"float16|bfloat16|float|double|u?int\d+_t|bool")


def asks_for_the_architecture(file: str) -> bool:
    return re.search(r"__CUDA_ARCH__\s*[<>=!]", (ROOT / file).read_text()) is not None


def kernels_for(arch: str, specs: list[_C.KernelSpec]) -> list[_C.KernelSpec]:
    common = [s for s in specs if s.min_arch == 80]
    if arch == "sm_80":
        return common
    own = [s for s in specs if arch == "sm_90a" and s.min_arch == 90]
    random.SystemRandom().shuffle(common)
    one_of_each = {(s.file, s.kernel.partition("<")[0], *DTYPES.findall(s.kernel)): s for s in common}
    rest = [s for s in common if asks_for_the_architecture(s.file)]
    return [*own, *rest, *(s for s in one_of_each.values() if s not in rest)]


def compile_all(folder: str) -> int:
    failures = 0
    specs = _C.manifest()
    assert {s.min_arch for s in specs} == {80, 90}, "a kernel is for an architecture that this script does not know"
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for arch in ("sm_80", "sm_90a", "sm_120"):

            def failure(spec: _C.KernelSpec, arch: str = arch) -> str:
                try:
                    _C.compile_kernel(spec, arch, folder)
                except dnn.Error as error:
                    return f"{arch} {spec.kernel} of {spec.file}: {error}"
                return ""

            start, wanted = time.monotonic(), kernels_for(arch, specs)
            errors = [e for e in pool.map(failure, wanted) if e]
            done = f"{len(wanted) - len(errors)} of {len(wanted)} kernels in {time.monotonic() - start:.0f} s"
            print(*errors, f"{arch}: {done}", sep="\n", flush=True)
            failures += len(errors)
    return failures


if __name__ == "__main__":
    sys.exit(compile_all(sys.argv[1]) > 0)
