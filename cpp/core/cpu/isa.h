// SPDX-License-Identifier: Apache-2.0
// Code that is compiled once per CPU instruction set. Every file named X_isa.cpp is compiled several times, each time
// with MINIDNN_ISA defined as the namespace of its functions. On x86-64 the namespaces are minidnn::v2, v3 and v4,
// after the levels of the psABI (v2: SSE4.2; v3: AVX2, FMA and F16C; v4: AVX-512). On other machines the only namespace
// is minidnn::native. An X_isa.cpp file ends with a table of its functions. The rest of the library calls them through
// this table:
//   struct SoftmaxKernels { void (*forward)(...); };        softmax_kernels.h
//   MINIDNN_PER_ISA(SoftmaxKernels, softmax_kernels)         ... softmax_kernels().forward(...)
//
// An X_isa.cpp file includes no std header that defines functions. From this library it includes only headers whose
// functions are always inlined (MINIDNN_HD). The reason: several files may compile the same inline function, and the
// linker keeps one of these copies for the whole program. If it kept a copy with AVX-512 instructions, the program
// would fail on a machine without them. tests/test_isa.py checks the symbols.
#pragma once

namespace minidnn::cpu {

// v4_bf16 is v4 with the dot products of AVX512-BF16, which gemm_microkernel.h has. v4_amx is v4 with the tile registers
// of AMX for bfloat16, which bf16_products.h has.
enum class Isa { v2, v3, v4, v4_bf16, v4_amx, native };
constexpr Isa kAllIsas[] = {Isa::v4_amx, Isa::v4_bf16, Isa::v4, Isa::v3, Isa::v2, Isa::native};  // the best first

// Returns the best instruction set of this machine, or the one that PYMINIDNN_CPU_ISA names, such as "x86-64-v3".
// Throws DeviceError if the name is unknown, or if the machine lacks the instruction set.
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
    return isa >= cpu::Isa::v4 ? v4::kernels : isa == cpu::Isa::v3 ? v3::kernels : v2::kernels; \
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
