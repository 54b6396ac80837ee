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

// Computes c[i, j] = (add ? c[i, j] : 0) + sum over k < steps of a[i, k] b[k, j]. Operand a has rows `a_pitch` elements
// apart, or is in tiles if `a_pitch` is 0: the rows i and columns k of a tile register are contiguous, and the tiles of
// the same rows follow each other. Operand b is packed in panels of 16
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
  // The distance between pairs of k in a panel, in elements. Two panels whose pairs alternate are the layout of
  // GemmKernels::pairs: `panel` is then 32, and `b_pitch` 64.
  int64_t b_pitch = 2 * kBf16Lines;
};

// kBf16Lines rows of operand a, `pitch` elements apart.
struct Bf16Rows {
  const bfloat16* at;
  int64_t pitch;
};

// Makes operands from matrices whose rows are `pitch` elements apart. Sizes are multiples of kBf16Lines and kBf16Steps.
struct Bf16Kernels {
  void (*begin)();  // A thread calls begin() before its first product, and end() after the last one.
  void (*end)();
  void (*multiply)(const Bf16Product&);
  // The same with an operand a of `segments` parts, of `steps` columns each. rows[i * segments + s] are its rows from
  // i * kBf16Lines on, in part s. `a` and `a_pitch` of the product are not read.
  void (*multiply_segments)(const Bf16Product&, const Bf16Rows* rows, int64_t segments);
  // Rounds a matrix [row, k] to operand a, whose rows are `to_pitch` elements apart.
  void (*round)(const float* from, int64_t pitch, int64_t rows, int64_t steps, bfloat16* to, int64_t to_pitch);
  // Rounds a matrix [k, column] to operand b.
  void (*round_packed)(const float* from, int64_t pitch, int64_t steps, int64_t columns, bfloat16* to, int64_t panel);
  // Packs a matrix [k, column], or a matrix [column, k], as operand b.
  void (*pack)(const bfloat16* from, int64_t pitch, int64_t steps, int64_t columns, bfloat16* to, int64_t panel);
  void (*pack_transposed)(const bfloat16* from, int64_t pitch, int64_t columns, int64_t steps, bfloat16* to,
                          int64_t panel);
  // Packs rows of operand b, which are anywhere in memory. Row k has `columns` elements. Columns up to a multiple of
  // kBf16Lines are zeros.
  void (*pack_rows)(const bfloat16* const* rows, int64_t steps, int64_t columns, bfloat16* to, int64_t panel);
  // Copies rows of `count` elements, and writes zeros behind them up to the length `padded`, a multiple of kBf16Steps.
  void (*pad_rows)(const bfloat16* from, int64_t pitch, int64_t rows, int64_t count, bfloat16* to, int64_t to_pitch,
                   int64_t padded);
  // to[j, i] = from[i, j]
  void (*transpose)(const bfloat16* from, int64_t pitch, int64_t rows, int64_t columns, bfloat16* to, int64_t to_pitch);
};

MINIDNN_PER_ISA(Bf16Kernels, bf16_kernels)

// The time of a large product by AMX over that of the same product in float32.
constexpr double kAmxCost = 0.125;

// Returns null where there is no AMX.
inline const Bf16Kernels* bf16_products() { return cpu::isa() == cpu::Isa::v4_amx ? &bf16_kernels() : nullptr; }

// Returns the distance between rows of operand a, in elements, for rows of `steps` elements. The distance is an odd
// number of cache lines. Rows of a tile are then in different sets of the first-level cache.
inline int64_t bf16_pitch(int64_t steps) { return (steps + kBf16Steps - 1) / kBf16Steps * kBf16Steps | kBf16Steps; }

}  // namespace minidnn
