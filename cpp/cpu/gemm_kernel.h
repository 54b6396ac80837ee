// SPDX-License-Identifier: Apache-2.0
// What matrix products and convolutions on the CPU are made of, compiled once per instruction set: a tile of sums in
// registers, the packing of what it reads and the way of its sums to memory. Engines decide what lies where.
#pragma once
#include "cpp/core/half.h"
#include "cpp/cpu/isa.h"

namespace minidnn {

constexpr int kGemmRows = 12;  // of any kernel's tile, at most

// A run of k for which every row of a tile, and its columns, lie at one step: where these begin, in bytes from `a` and
// `b`. Rows may lie anywhere, a row of zeros too.
struct GemmSegment {
  int64_t a[kGemmRows], b;
};

template <class T> struct GemmKernel {
  int64_t rows, columns;  // of a tile
  // to[i, j] = sum over segments and `run` steps k of a_i[k * a_step] * b[k * b_step + j], or is increased by it. k is
  // summed in order. Reads and writes all rows and columns.
  void (*multiply)(const GemmSegment*, int64_t segments, int64_t run, const T* a, int64_t a_step, const T* b,
                   int64_t b_step, T* to, int64_t pitch, bool add);
  // to[k * columns + j] = from[j * column + k * step] for j < count and zeros behind, k < length.
  void (*pack)(const T* from, int64_t column, int64_t step, int64_t count, int64_t length, T* to);
  // to[k * rows + i] = from[i * row + k * step], likewise.
  void (*pack_rows)(const T* from, int64_t row, int64_t step, int64_t count, int64_t length, T* to);
};

// A function of each of n floats, in place; null: the identity.
struct FloatsFunction {
  using Loop = void (*)(const void* x, const void* unused, void* out, int64_t n, float alpha);
  Loop loop = nullptr;
  void (*apply)(Loop, const void* x, const void* unused, void* out, int64_t n, float alpha,
                bool non_temporal) = nullptr;
};

// What becomes of a block of sums: y = activation(alpha * sum + beta * c + bias), rounded once.
struct Epilogue {
  FloatsFunction activation;
  float activation_alpha = 0, alpha = 1, beta = 0;
  int64_t y_column = 1, c_column = 0;  // strides of columns, in elements
  int64_t bias_row = 0, bias_column = 0;
  bool plain() const { return !activation.loop && alpha == 1 && y_column == 1; }
};

// Of one row there is only a vector to multiply with: what counts is how b streams in.
template <class T> struct GemmRow {
  GemmKernel<T> wide;  // one row by as many columns as there are registers: rows of b that lie together
  // to[j] = sum over k of a[k] * b[j * column + k]: columns of b that lie together.
  void (*dots)(const T* a, const T* b, int64_t column, int64_t columns, int64_t length, T* to);
};

struct GemmKernels {
  GemmKernel<float> f32;
  GemmKernel<double> f64;
  int64_t (*fma)(int64_t n, float* sink);  // the FLOP of n rounds of independent multiply-adds in registers, now done
  GemmRow<float> row_f32;
  GemmRow<double> row_f64;
  // [rows, columns] at `pitch` -> [columns, rows] at `to_pitch`; of floats, of 16-bit types into floats.
  void (*transpose)(const float* from, int64_t pitch, int64_t rows, int64_t columns, float* to, int64_t to_pitch);
  // Sums are overwritten. Row i goes to y + y_rows[i] elements, with c + c_rows[i]; bias and c may be null.
  // [0] of float32 sums to float32; [1], [2] of float16, bfloat16 operands to themselves; [3], [4] to float32.
  void (*finish[5])(const Epilogue&, float* sums, int64_t pitch, int64_t rows, int64_t columns, void* y,
                    const int64_t* y_rows, const void* c, const int64_t* c_rows, const void* bias);
};

MINIDNN_PER_ISA(GemmKernels, gemm_kernels)

// The finish of float32 sums over operands T into results Y.
template <class T, class Y> auto gemm_finish() {
  const int of_operands = __is_same(T, float) ? 0 : __is_same(T, float16) ? 1 : 2;
  return gemm_kernels().finish[of_operands + (__is_same(T, Y) ? 0 : 2)];
}

}  // namespace minidnn
