// SPDX-License-Identifier: Apache-2.0
// The inner loops of matrix products and convolutions on the CPU, compiled once per instruction set. They multiply a
// tile whose sums stay in registers, pack the operands of tiles, and write the sums to memory. The engines choose the
// memory layout.
#pragma once
#include "cpp/core/cpu/isa.h"
#include "cpp/core/host_device/half.h"

namespace minidnn {

constexpr int kGemmRows = 8;  // the largest number of rows in a tile of any micro-kernel

// Byte offsets in a, one per row of a tile, and in b, for some steps of the inner dimension k. Several rows may have
// the same offset, for example that of a buffer of zeros.
struct GemmSegment {
  int64_t a[kGemmRows], b;
};

// A tile of a matrix product. The inner dimension k is divided into segments with their own byte offsets into a and b.
// From there, row i reads a[k * a_step], and column j reads b[k * b_step + j].
template <class T, class B = T> struct GemmTile {
  const GemmSegment* segments;
  // the number of segments, and the number of steps of k in each
  int64_t count, steps;
  const T* a;
  int64_t a_step;
  const B* b;
  int64_t b_step;
  T* to;
  int64_t pitch;  // distance from one row of `to` to the next, in elements
  bool add;       // true: adds the product to `to`; false: stores it
};

template <class T> struct GemmKernel {
  int64_t rows, columns;  // numbers of rows and columns of a tile
  // Computes to[i, j] = (add ? to[i, j] : 0) + sum of a * b over all steps of k, in the order of the segments. Reads
  // and writes all rows and columns of the tile.
  void (*multiply)(const GemmTile<T>&);
  // Packs columns of operand b, which are `column` elements apart, into a panel. For all k < length:
  //   to[k * columns + j] = j < count ? from[j * column + k * step] : 0
  void (*pack)(const T* from, int64_t column, int64_t step, int64_t count, int64_t length, T* to);
  // Packs rows of operand a, which are `row` elements apart, into a panel. For all k < length:
  //   to[k * rows + i] = i < count ? from[i * row + k * step] : 0
  void (*pack_rows)(const T* from, int64_t row, int64_t step, int64_t count, int64_t length, T* to);
};

// The functions pack() and pack_rows() of GemmKernel<float>, for operands of another dtype.
template <class From> struct GemmPacking {
  void (*pack)(const From* from, int64_t column, int64_t step, int64_t count, int64_t length, float* to);
  void (*pack_rows)(const From* from, int64_t row, int64_t step, int64_t count, int64_t length, float* to);
};

// An elementwise function that is applied to n floats in place. If `loop` is null, the floats do not change.
struct FloatsFunction {
  using Loop = void (*)(const void* x, const void* unused, void* out, int64_t n, double alpha);
  Loop loop = nullptr;
  void (*apply)(Loop, const void* x, const void* unused, void* out, int64_t n, double alpha,
                bool non_temporal) = nullptr;
};

// The epilogue of a matrix product. It computes y = activation(alpha * sum + beta * c + bias) from a block of sums. The
// result is rounded once.
struct Epilogue {
  FloatsFunction activation;
  float activation_alpha = 0, alpha = 1, beta = 0;
  int64_t y_column = 1, c_column = 0;  // distances from one column to the next in y and in c, in elements
  int64_t bias_row = 0, bias_column = 0;
  bool plain() const { return !activation.loop && alpha == 1 && y_column == 1; }
};

// The arguments of an epilogue: a block of float32 sums, which is overwritten, and the other operands. Row i of the
// result is at y + y_rows[i], and row i of c at c + c_rows[i] (in elements). bias and c may be null.
struct EpilogueBlock {
  float* sums;
  int64_t pitch, rows, columns;  // pitch: distance from one row of `sums` to the next, in elements
  void* y;
  const int64_t* y_rows;
  const void* c;
  const int64_t* c_rows;
  const void* bias;
};

// Kernels for a product with a single row, whose time is that of reading b.
template <class T> struct GemmRow {
  // The micro-kernel for a matrix b with contiguous rows. Its tile has one row, whose sums take 3/4 of the vector
  // registers.
  GemmKernel<T> wide;
  // The kernel for a matrix b with contiguous columns, which are `column` elements apart. It computes to[j] = sum over
  // k < length of a[k] * b[j * column + k] for all j < columns.
  void (*dots)(const T* a, const T* b, int64_t column, int64_t columns, int64_t length, T* to);
};

// The same kernels for operands of 16 bits, which are converted to float32. A tile has one row and `columns` columns;
// multiply() reads b in place, and multiply_packed() converted columns.
template <class B> struct GemmRowOf {
  int64_t columns;
  void (*multiply)(const GemmTile<float, B>&);
  void (*multiply_packed)(const GemmTile<float>&);
  void (*dots)(const B* a, const B* b, int64_t column, int64_t columns, int64_t length, float* to);
};

struct GemmKernels {
  GemmKernel<float> f32;
  GemmKernel<double> f64;
  // Executes n iterations of independent multiply-adds in registers, to measure the peak rate of a thread. Returns the
  // number of floating-point operations.
  int64_t (*fma)(int64_t n, float* sink);
  GemmRow<float> row_f32;
  GemmRow<double> row_f64;
  GemmRowOf<float16> row_f16;
  GemmRowOf<bfloat16> row_bf16;
  // Transposes a matrix [rows, columns] to [columns, rows]. The distance between rows is `pitch` elements in `from`,
  // and `to_pitch` elements in `to`.
  void (*transpose)(const float* from, int64_t pitch, int64_t rows, int64_t columns, float* to, int64_t to_pitch);
  // Each function applies the epilogue to a block of sums, for one pair of the dtypes of operands and result: [0]
  // float32 to float32, [1] float16 to float16, [2] bfloat16 to bfloat16, [3] float16 to float32, [4] bfloat16 to
  // float32.
  void (*finish[5])(const Epilogue&, const EpilogueBlock&);
  // few_rows[i] multiplies a tile of i + 1 rows, at most f32.rows, and f32.columns columns. few_rows[0] computes the sum
  // of each segment by itself, and adds these sums in their order: that is what the others compute by a call for each
  // segment. Several segments make few_rows[0] fast.
  void (*few_rows[kGemmRows])(const GemmTile<float>&);
  // Convert operands to float32 while packing them.
  GemmPacking<float16> from_f16;
  GemmPacking<bfloat16> from_bf16;
  // multiply_pairs[i] multiplies a tile of i + 1 rows, at most f32.rows, and f32.columns columns. The elements of a and
  // b are pairs of bfloat16, those of two adjacent steps of k, in place of floats. Subnormal elements and sums count as
  // 0. Null without AVX-512; the instructions need AVX512-BF16 (cpu::Isa::v4_bf16).
  void (*multiply_pairs[kGemmRows])(const GemmTile<float>&);
  // Multiply a tile of f32.rows rows, but only the first half of its f32.columns columns.
  void (*narrow)(const GemmTile<float>&);
  void (*narrow_pairs)(const GemmTile<float>&);
  // Pack pairs. Here `step` and `length` are those of k, and the packed length is half of that, rounded up. The last
  // pair of an odd length ends with a 0.
  GemmPacking<bfloat16> pairs;
};

MINIDNN_PER_ISA(GemmKernels, gemm_kernels)

// Whether operands of bfloat16 are packed as pairs. multiply_pairs computes their products, or AMX where it is present
// (bf16_products.h).
inline bool gemm_has_pairs() { return cpu::isa() == cpu::Isa::v4_bf16 || cpu::isa() == cpu::Isa::v4_amx; }

// Returns the functions that pack operands of type T for products in float32 or float64, or as pairs of bfloat16.
template <class T> const auto& gemm_packing(bool pairs) {
  const GemmKernels& kernels = gemm_kernels();
  if constexpr (__is_same(T, double)) return kernels.f64;
  else if constexpr (__is_same(T, float)) return kernels.f32;
  else if constexpr (__is_same(T, float16)) return kernels.from_f16;
  else return pairs ? kernels.pairs : kernels.from_bf16;
}
// Returns the function that multiplies the first `rows` rows and `columns` columns of a tile of floats or of pairs.
inline auto gemm_multiply(bool pairs, int64_t rows, int64_t columns) {
  const GemmKernels& kernels = gemm_kernels();
  if (rows == kernels.f32.rows && 2 * columns <= kernels.f32.columns)
    return pairs ? kernels.narrow_pairs : kernels.narrow;
  if (pairs) return kernels.multiply_pairs[rows - 1];
  return rows < kernels.f32.rows ? kernels.few_rows[rows - 1] : kernels.f32.multiply;
}

// Returns the function of GemmKernels::finish for operands of type T and results of type Y.
template <class T, class Y> auto gemm_finish() {
  const int of_operands = __is_same(T, float) ? 0 : __is_same(T, float16) ? 1 : 2;
  return gemm_kernels().finish[of_operands + (__is_same(T, Y) ? 0 : 2)];
}

}  // namespace minidnn
