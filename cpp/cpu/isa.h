// SPDX-License-Identifier: Apache-2.0
// Code compiled once per instruction set. Every file named X_isa.cpp is, with MINIDNN_ISA defined as the namespace to
// put its functions in: minidnn::v2, v3 and v4 on x86-64 (the levels of its psABI: SSE4.2; AVX2, FMA and F16C;
// AVX-512), minidnn::native elsewhere. Such a file ends in a table of functions, which the rest of the library takes by
//
//   struct SoftmaxKernels { void (*forward)(...); };        softmax_kernels.h
//   MINIDNN_PER_ISA(SoftmaxKernels, softmax_kernels)         ... softmax_kernels().forward(...)
//
// It includes no std header that defines functions, and of the library only what is always inlined (MINIDNN_HD):
// whatever such a file shared with others could be linked from there, and then fail on a machine without its
// instructions. tests/test_isa.py looks at the symbols.
#pragma once

namespace minidnn::cpu {

enum class Isa { v2, v3, v4, native };

// The best that this machine runs, or the one that PYMINIDNN_CPU_ISA names ("x86-64-v3"); DeviceError where it names
// none, or one that the machine lacks.
Isa isa();
bool has(Isa);
const char* name(Isa);

}  // namespace minidnn::cpu

#ifdef __x86_64__
#define MINIDNN_PER_ISA(Table, kernels)                                                         \
  namespace v2 {                                                                                \
  extern const Table kernels;                                                                   \
  }                                                                                             \
  namespace v3 {                                                                                \
  extern const Table kernels;                                                                   \
  }                                                                                             \
  namespace v4 {                                                                                \
  extern const Table kernels;                                                                   \
  }                                                                                             \
  inline const Table& kernels(cpu::Isa isa) {                                                   \
    return isa == cpu::Isa::v4 ? v4::kernels : isa == cpu::Isa::v3 ? v3::kernels : v2::kernels; \
  }                                                                                             \
  inline const Table& kernels() {                                                               \
    static const Table& best = kernels(cpu::isa());                                             \
    return best;                                                                                \
  }
#else
#define MINIDNN_PER_ISA(Table, kernels)                             \
  namespace native {                                                \
  extern const Table kernels;                                       \
  }                                                                 \
  inline const Table& kernels(cpu::Isa) { return native::kernels; } \
  inline const Table& kernels() { return native::kernels; }
#endif
