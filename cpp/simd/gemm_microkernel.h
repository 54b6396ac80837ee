// SPDX-License-Identifier: Apache-2.0
// The loops that matrix products and convolutions on the CPU consist of, compiled once per instruction set: multiply a
// tile whose sums are kept in registers, pack its operands, and write the sums to memory. The engines choose the memory
// layout.
#pragma once
#include "cpp/core/half.h"
#include "cpp/core/isa.h"

namespace minidnn {

constexpr int kGemmRows = 12;  // the most rows in a tile of any kernel

// A segment: consecutive steps of k, along which each operand has a constant step in memory. `a` has the byte offset at
// which each row of the tile begins in operand a; it may be that of a row of zeros. `b` is the byte offset of the
// columns in operand b.
struct GemmSegment {
  int64_t a[kGemmRows], b;
};

// The operands of a tile. At step k of a segment, row i of the tile reads a_i[k * a_step] and column j reads
// b[k * b_step + j], where a_i and b begin at the segment's offsets.
template <class T> struct GemmTile {
  const GemmSegment* segments;
  int64_t count, steps;  // number of segments; number of steps of k in each of them
  const T* a;
  int64_t a_step;
  const T* b;
  int64_t b_step;
  T* to;
  int64_t pitch;  // distance of two rows of `to`, in elements
  bool add;       // whether the product is added to `to` or replaces its elements
};

template <class T> struct GemmKernel {
  int64_t rows, columns;  // the shape of a tile
  // to[i, j] = (add ? to[i, j] : 0) + sum of a_i[k * a_step] * b[k * b_step + j],
  // over all segments and the steps k of each, in order of k. Reads and writes all rows and columns of the tile.
  void (*multiply)(const GemmTile<T>&);
  // to[k * columns + j] = from[j * column + k * step] for j < count, zeros for the other j; k < length.
  void (*pack)(const T* from, int64_t column, int64_t step, int64_t count, int64_t length, T* to);
  // to[k * rows + i] = from[i * row + k * step] for i < count, zeros for the other i; k < length.
  void (*pack_rows)(const T* from, int64_t row, int64_t step, int64_t count, int64_t length, T* to);
};

// An elementwise function that is applied to n floats in place; a null `loop` is the identity.
struct FloatsFunction {
  using Loop = void (*)(const void* x, const void* unused, void* out, int64_t n, float alpha);
  Loop loop = nullptr;
  void (*apply)(Loop, const void* x, const void* unused, void* out, int64_t n, float alpha,
                bool non_temporal) = nullptr;
};

// The operation on a block of sums: y = activation(alpha * sum + beta * c + bias), rounded once.
struct Epilogue {
  FloatsFunction activation;
  float activation_alpha = 0, alpha = 1, beta = 0;
  int64_t y_column = 1, c_column = 0;  // strides of columns, in elements
  int64_t bias_row = 0, bias_column = 0;
  bool plain() const { return !activation.loop && alpha == 1 && y_column == 1; }
};

// A block of float32 sums, which an epilogue overwrites, and the other operands of the epilogue. Row i of the result is
// stored at y + y_rows[i], in elements, and row i of c is read at c + c_rows[i]. bias and c may be null.
struct EpilogueBlock {
  float* sums;
  int64_t pitch, rows, columns;  // pitch: distance of two rows of sums, in elements
  void* y;
  const int64_t* y_rows;
  const void* c;
  const int64_t* c_rows;
  const void* bias;
};

// Kernels for a product with a single row, a vector times b. The speed of such a product is that of reading b.
template <class T> struct GemmRow {
  GemmKernel<T> wide;  // for b with contiguous rows: the tile has one row, whose sums take 3/4 of the registers
  // For b with contiguous columns: to[j] = sum over k of a[k] * b[j * column + k].
  void (*dots)(const T* a, const T* b, int64_t column, int64_t columns, int64_t length, T* to);
};

struct GemmKernels {
  GemmKernel<float> f32;
  GemmKernel<double> f64;
  // Runs n rounds of independent multiply-adds in registers, to measure the peak rate. Returns their number of FLOP.
  int64_t (*fma)(int64_t n, float* sink);
  GemmRow<float> row_f32;
  GemmRow<double> row_f64;
  // Transposes [rows, columns] at `pitch` into [columns, rows] at `to_pitch`.
  void (*transpose)(const float* from, int64_t pitch, int64_t rows, int64_t columns, float* to, int64_t to_pitch);
  // Applies the epilogue to a block. By dtype of operands and result: [0] float32 to float32; [1] float16, [2] bfloat16
  // to the same type; [3] float16, [4] bfloat16 to float32.
  void (*finish[5])(const Epilogue&, const EpilogueBlock&);
};

MINIDNN_PER_ISA(GemmKernels, gemm_kernels)

// The entry of `finish` for float32 sums of operands of type T and results of type Y.
template <class T, class Y> auto gemm_finish() {
  const int of_operands = __is_same(T, float) ? 0 : __is_same(T, float16) ? 1 : 2;
  return gemm_kernels().finish[of_operands + (__is_same(T, Y) ? 0 : 2)];
}

}  // namespace minidnn
