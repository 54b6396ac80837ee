// SPDX-License-Identifier: Apache-2.0
// Products of bfloat16 matrices with float32 sums, by the tile registers of AMX (cpu::Isa::v4_amx). A tile register holds
// 16 lines of 64 bytes: 16 rows of 32 elements of operand a, 16 columns of 32 elements of operand b, or 16 x 16 sums.
// Subnormal operands and sums count as 0.
#pragma once
#include "cpp/core/cpu/isa.h"
#include "cpp/core/host_device/half.h"

namespace minidnn {

constexpr int64_t kBf16Lines = 16;  // rows and columns come in this unit
constexpr int64_t kBf16Steps = 32;  // the inner dimension k comes in this unit

// Computes c[i, j] = (add ? c[i, j] : 0) + sum over k < steps of a[i, k] b[k, j]. Operand b is packed in panels of 16
// columns, which are `panel` elements apart. A panel holds, for each pair of k, the two elements of each column.
struct Bf16Product {
  const bfloat16* a;
  int64_t a_pitch;  // distance between rows, in elements
  const bfloat16* b;
  int64_t panel;
  float* c;
  int64_t c_pitch;
  int64_t rows, columns, steps;
  bool add;
};

// Makes operands from matrices whose rows are `pitch` elements apart. Sizes are multiples of kBf16Lines and kBf16Steps.
struct Bf16Kernels {
  void (*begin)();  // A thread calls begin() before its first product, and end() after the last one.
  void (*end)();
  void (*multiply)(const Bf16Product&);
  // Rounds a matrix [row, k] to operand a, whose rows are `to_pitch` elements apart.
  void (*round)(const float* from, int64_t pitch, int64_t rows, int64_t steps, bfloat16* to, int64_t to_pitch);
  // Rounds a matrix [k, column] to operand b.
  void (*round_packed)(const float* from, int64_t pitch, int64_t steps, int64_t columns, bfloat16* to, int64_t panel);
  // Packs a matrix [k, column], or a matrix [column, k], as operand b.
  void (*pack)(const bfloat16* from, int64_t pitch, int64_t steps, int64_t columns, bfloat16* to, int64_t panel);
  void (*pack_transposed)(const bfloat16* from, int64_t pitch, int64_t columns, int64_t steps, bfloat16* to,
                          int64_t panel);
  // to[j, i] = from[i, j]
  void (*transpose)(const bfloat16* from, int64_t pitch, int64_t rows, int64_t columns, bfloat16* to, int64_t to_pitch);
};

MINIDNN_PER_ISA(Bf16Kernels, bf16_kernels)

// Returns null where there is no AMX.
inline const Bf16Kernels* bf16_products() { return cpu::isa() == cpu::Isa::v4_amx ? &bf16_kernels() : nullptr; }

}  // namespace minidnn
