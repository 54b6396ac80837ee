# SPDX-License-Identifier: Apache-2.0
"""Writes cuda/device/wgmma.cuh: the assembler of wgmma wants each accumulator by name, up to 128 of them.

python scripts/make_wgmma.py
"""

from pathlib import Path

WIDTHS = (8, 16, 32, 64, 96, 128, 160, 192, 256)
TARGET = Path(__file__).parent.parent / "cuda/device/wgmma.cuh"

HEAD = """\
// SPDX-License-Identifier: Apache-2.0
// The asynchronous matrix product of a warpgroup (sm_90a): d += a b for a of 64 rows and b of N columns, both in shared
// memory, 32 bytes of k at a time; in TF32 a may be in registers. Written by scripts/make_wgmma.py.
//
// A thread's accumulators: d[4 j + i] is row 16 (warp % 4) + lane / 4 + 8 (i / 2), column 8 j + 2 (lane % 4) + i % 2;
// of a in registers, a[i] is row 16 (warp % 4) + lane / 4 + 8 (i % 2), k = lane % 4 + 4 (i / 2).
// clang-format off
#pragma once
#include "cpp/core/half.h"

namespace minidnn {

// Before the first product that touches accumulators which other code has written, and after each batch of products.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending> __device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from moving accumulators around products in flight.
template <int n> __device__ __forceinline__ void wgmma_pin(float (&d)[n]) {
#pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Registers of each thread of a warpgroup, given back or asked for: as many as all have given.
template <int kRegisters> __device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters> __device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// A matrix in shared memory, whose groups of eight rows (of k, where it lies along its rows) are `groups` bytes apart
// and whose chunks beside one another `columns`: 16 bytes, or 128 in 128-byte swizzle. That goes by addresses, so that
// a matrix may begin at any of its rows.
template <bool kSwizzled>
__device__ __forceinline__ uint64_t wgmma_matrix(uint32_t address, uint32_t columns, uint32_t groups) {
  return uint64_t((address & 0x3ffff) >> 4) | uint64_t(columns >> 4) << 16 | uint64_t(groups >> 4) << 32 |
         uint64_t(kSwizzled) << 62;
}

// Specialised by type and N. kAlongM: the operand is contiguous along its rows instead of along k (16-bit types only).
// d = a b when `add` is 0.
template <class T, int N> struct Wgmma;
"""

MEMBER = """
template <> struct Wgmma<{type}, {width}> {{{functions}}};
"""
FUNCTION = """
{head} {{
{check}    asm volatile(
        "{{\\n.reg .pred add;\\nsetp.ne.b32 add, %{flag}, 0;\\n"
        "wgmma.mma_async.sync.aligned.m64n{width}k{depth}.f32.{ptx}.{ptx} "
{registers}
        "{operands}, add, 1, 1{majors};\\n}}"
        : {outputs}
        : {inputs}, "r"(add){immediates});
  }}
"""


def wrapped(items: list[str], per_line: int, indent: str, separator: str = ", ") -> str:
    lines = [separator.join(items[i : i + per_line]) for i in range(0, len(items), per_line)]
    return f"{separator.rstrip()}\n{indent}".join(lines)


def function(ptx: str, depth: int, width: int, a_in_registers: bool) -> str:
    count = width // 2
    registers = [f"%{i}" for i in range(count)]
    lines = [", ".join(registers[i : i + 16]) for i in range(0, count, 16)]
    text = "\n".join(
        f'        "{"{" if i == 0 else ""}{line}{"}, " if i + 1 == len(lines) else ", "}"'
        for i, line in enumerate(lines)
    )
    halves = depth == 16
    b = count + (4 if a_in_registers else 1)
    if a_in_registers:
        head = (
            f"  static __device__ __forceinline__ void run(float (&d)[{count}], const uint32_t (&a)[4], uint64_t b, "
            "int add)"
        )
        operands = "{" + ", ".join(f"%{count + i}" for i in range(4)) + f"}}, %{b}"
        inputs = ", ".join(f'"r"(a[{i}])' for i in range(4)) + ', "l"(b)'
    else:
        head = (
            "  template <bool kAlongM, bool kAlongN>\n"
            f"  static __device__ __forceinline__ void run(float (&d)[{count}], uint64_t a, uint64_t b, int add)"
        )
        operands = f"%{count}, %{b}"
        inputs = '"l"(a), "l"(b)'
    check = '    static_assert(!kAlongM && !kAlongN, "TF32 operands in shared memory are contiguous along k");\n'
    return FUNCTION.format(
        head=head, width=width, count=count, ptx=ptx, depth=depth, registers=text,
        operands=operands, inputs=inputs, flag=b + 1,
        majors=f", %{b + 2}, %{b + 3}" if halves else "",
        outputs=wrapped([f'"+f"(d[{i}])' for i in range(count)], 8, "          "),
        immediates=', "n"(int(kAlongM)), "n"(int(kAlongN))' if halves else "",
        check="" if halves or a_in_registers else check,
    )  # fmt: skip


def member(name: str, ptx: str, depth: int, width: int) -> str:
    functions = [function(ptx, depth, width, False)]
    if ptx == "tf32":
        functions.append(function(ptx, depth, width, True))
    return MEMBER.format(type=name, width=width, functions="".join(functions))


def text() -> str:
    kinds = [("float16", "f16", 16), ("bfloat16", "bf16", 16), ("float", "tf32", 8)]
    members = [member(name, ptx, depth, width) for name, ptx, depth in kinds for width in WIDTHS]
    return HEAD + "".join(members) + "\n}  // namespace minidnn\n"


if __name__ == "__main__":
    TARGET.write_text(text())
