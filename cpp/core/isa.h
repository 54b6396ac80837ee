// SPDX-License-Identifier: Apache-2.0
// Code compiled once per instruction set. Every file named X_isa.cpp is compiled several times, with MINIDNN_ISA
// defined as the namespace of its functions: minidnn::v2, v3 and v4 on x86-64 (the levels of its psABI: SSE4.2; AVX2,
// FMA and F16C; AVX-512), minidnn::native elsewhere. Such a file ends in a table of functions, which the rest of the
// library accesses through
//   struct SoftmaxKernels { void (*forward)(...); };        softmax_kernels.h
//   MINIDNN_PER_ISA(SoftmaxKernels, softmax_kernels)         ... softmax_kernels().forward(...)
//
// The file includes no std header that defines functions, and from this library only headers whose functions are always
// inlined (MINIDNN_HD). Otherwise the linker could keep this file's copy of a shared function for the whole program,
// which then fails on a machine without its instructions. tests/test_isa.py checks the symbols.
#pragma once

namespace minidnn::cpu {

enum class Isa { v2, v3, v4, native };

// The best instruction set of this machine, or the one that PYMINIDNN_CPU_ISA names ("x86-64-v3"). DeviceError if the
// name is unknown or the machine lacks it.
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
