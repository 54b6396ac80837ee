// SPDX-License-Identifier: Apache-2.0
// Implements the kernels of gemm_microkernel.h. This file is compiled once per instruction set.
#include "cpp/simd/gemm_microkernel.h"

#include "cpp/simd/transpose.h"

namespace minidnn::MINIDNN_ISA {
namespace {

template <class T> const T* at_byte(const T* p, int64_t bytes) {
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(p) + bytes);
}

// Loads a vector of T, and converts 16-bit elements to it.
template <class T, class From> inline __attribute__((always_inline)) Vector<T> load_as(const From* from) {
  if constexpr (sizeof(From) == sizeof(T)) return load(from);
  else return load_floats(from);
}

struct MultiplyAdd {
  template <class T> static inline __attribute__((always_inline)) void add(Vector<T>& sum, const T* a, Vector<T> b) {
    sum += *a * b;
  }
};
#ifdef __AVX512F__
// Adds the products of both elements of pairs of bfloat16.
struct PairDots {
  static inline __attribute__((always_inline)) void add(Floats& sum, const float* a, Floats b) {
    uint32_t pair;
    __builtin_memcpy(&pair, a, sizeof pair);
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(Words{} + pair), "v"(b));
  }
};
#endif

// Multiplies a tile of kRows rows and kVectors vectors of columns. The sums of the tile stay in registers. Each step of
// k loads kVectors vectors of b, and broadcasts kRows elements of a. A loop that is not unrolled takes a third of the
// code.
template <class T, int kRows, int kVectors, bool unrolled = true, class Op = MultiplyAdd, class B = T>
void multiply(const GemmTile<T, B>& t) {
  Vector<T> tile[kRows][kVectors] = {};
  const int64_t steps = t.steps, a_step = t.a_step, b_step = t.b_step;
  const GemmSegment* segment = t.segments;
  for (int64_t segments = t.count; segments > 0; --segments, ++segment) {
    const T* row[kRows];
    const B* column = at_byte(t.b, segment->b);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) row[i] = at_byte(t.a, segment->a[i]);
    const auto add_step = [&](int64_t at) __attribute__((always_inline)) {
      Vector<T> v[kVectors];
#pragma GCC unroll 32
      for (int j = 0; j < kVectors; ++j) v[j] = load_as<T>(column + j * kLanes<T>);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 32
        for (int j = 0; j < kVectors; ++j) Op::add(tile[i][j], row[i] + at, v[j]);
    };
    if constexpr (unrolled) {
#pragma GCC unroll 4
      for (int64_t k = steps, at = 0; k > 0; --k, at += a_step, column += b_step) add_step(at);
    } else {
#pragma GCC unroll 1
      for (int64_t k = steps, at = 0; k > 0; --k, at += a_step, column += b_step) add_step(at);
    }
  }
  T* const to = t.to;
  const int64_t pitch = t.pitch;
  const bool add = t.add;
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 32
    for (int j = 0; j < kVectors; ++j) {
      T* out = to + i * pitch + j * kLanes<T>;
      store(out, add ? load(out) + tile[i][j] : tile[i][j]);
    }
}

// Multiplies a tile of one row with kSegments segments at a time, whose sums are independent.
template <class T, int kSegments, int kVectors>
inline __attribute__((always_inline)) void add_segments(const GemmTile<T>& t, const GemmSegment* segment,
                                                        Vector<T> (&sums)[kVectors]) {
  Vector<T> parts[kSegments][kVectors] = {};
  const T *a[kSegments], *b[kSegments];
#pragma GCC unroll 4
  for (int i = 0; i < kSegments; ++i) {
    a[i] = at_byte(t.a, segment[i].a[0]);
    b[i] = at_byte(t.b, segment[i].b);
  }
  const int64_t a_step = t.a_step, b_step = t.b_step;
  for (int64_t k = t.steps, at_a = 0, at_b = 0; k > 0; --k, at_a += a_step, at_b += b_step)
#pragma GCC unroll 4
    for (int i = 0; i < kSegments; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) parts[i][j] += a[i][at_a] * load(b[i] + at_b + j * kLanes<T>);
#pragma GCC unroll 4
  for (int i = 0; i < kSegments; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) sums[j] += parts[i][j];
}
template <class T, int kVectors> void multiply_row(const GemmTile<T>& t) {
  Vector<T> sums[kVectors];
  for (int j = 0; j < kVectors; ++j) sums[j] = t.add ? load(t.to + j * kLanes<T>) : Vector<T>{};
  int64_t i = 0;
  for (; i + 4 <= t.count; i += 4) add_segments<T, 4>(t, t.segments + i, sums);
  for (; i + 2 <= t.count; i += 2) add_segments<T, 2>(t, t.segments + i, sums);
  if (i < t.count) add_segments<T, 1>(t, t.segments + i, sums);
  for (int j = 0; j < kVectors; ++j) store(t.to + j * kLanes<T>, sums[j]);
}

// Transposes a matrix in blocks of n x n elements, in an order in which writes are consecutive. The last block of a row
// or column may overlap the block before it.
template <class T, class From>
void transpose(const From* from, int64_t pitch, int64_t rows, int64_t columns, T* to, int64_t to_pitch) {
  constexpr int n = kLanes<T>;
  // True if the matrix has fewer columns than a block.
  const bool narrow = sizeof(From) == 4 && columns < n;
  if (rows < n || (columns < n && !narrow)) {
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t i = 0; i < rows; ++i) to[j * to_pitch + i] = T(from[i * pitch + j]);
    return;
  }
  for (int64_t next_j = 0; next_j < columns; next_j += n) {
    const int64_t j = narrow ? 0 : min_of(next_j, columns - n);
    for (int64_t next_i = 0; next_i < rows; next_i += n) {
      const int64_t i = min_of(next_i, rows - n);
      Vector<T> block[n];
#pragma GCC unroll 16
      for (int r = 0; r < n; ++r) {
        if constexpr (sizeof(From) == 4)
          block[r] = narrow ? load_first(from + (i + r) * pitch, columns) : load(from + (i + r) * pitch + j);
        else block[r] = load_as<T>(from + (i + r) * pitch + j);
      }
      transpose_block<T>(block);
#pragma GCC unroll 16
      for (int c = 0; c < n; ++c) {
        if (c == columns) break;
        store(to + (j + c) * to_pitch + i, block[c]);
      }
    }
  }
}

template <class T, class From, int kColumns>
void pack(const From* from, int64_t column, int64_t step, int64_t count, int64_t length, T* to) {
  if (column == 1 && count == kColumns)
    for (int64_t k = 0; k < length; ++k)
#pragma GCC unroll 2
      for (int j = 0; j < kColumns; j += kLanes<T>) store(to + k * kColumns + j, load_as<T>(from + k * step + j));
  else if (step == 1 && count == kColumns) transpose(from, column, kColumns, length, to, kColumns);
  else
    for (int64_t k = 0; k < length; ++k)
      for (int j = 0; j < kColumns; ++j) to[k * kColumns + j] = j < count ? T(from[j * column + k * step]) : T(0);
}

// Packs rows of operand a. A vector store may write beyond a row of `to`, into the next row, which is written later.
template <class T, class From, int kRows>
void pack_rows(const From* from, int64_t row, int64_t step, int64_t count, int64_t length, T* to) {
  constexpr int n = kLanes<T>;
  int64_t k = 0;
  if (kRows <= n && count == kRows && row == 1 && step >= n)
    for (; k < length - 1; ++k) store(to + k * kRows, load_as<T>(from + k * step));
  else if (kRows <= n && count == kRows && step == 1)
    for (; k < length - n; k += n) {
      Vector<T> block[n] = {};
#pragma GCC unroll 16
      for (int i = 0; i < kRows && i < n; ++i) block[i] = load_as<T>(from + i * row + k);
      transpose_block<T>(block);
#pragma GCC unroll 16
      for (int j = 0; j < n; ++j) store(to + (k + j) * kRows, block[j]);
    }
  for (; k < length; ++k)
    for (int i = 0; i < kRows; ++i) to[k * kRows + i] = i < count ? T(from[i * row + k * step]) : T(0);
}

#ifdef __AVX512F__
// The vector of pairs of 16 elements at `from` and of those `step` later.
inline __attribute__((always_inline)) Floats load_pairs(const bfloat16* from, int64_t step) {
  const Words low = __builtin_convertvector(load_halves(from), Words);
  return (Floats)(low | __builtin_convertvector(load_halves(from + step), Words) << 16);
}
// Packs the pairs from `k` on, one element at a time. kUnits rows or columns are `unit` elements apart.
template <int kUnits> void pack_last_pairs(const bfloat16* from, int64_t unit, int64_t step, int64_t count,
                                           int64_t length, float* to, int64_t k) {
  for (; k < length; k += 2)
    for (int i = 0; i < kUnits; ++i) {
      uint32_t pair = 0;
      if (i < count) {
        pair = from[i * unit + k * step].bits;
        if (k + 1 < length) pair |= uint32_t(from[i * unit + (k + 1) * step].bits) << 16;
      }
      __builtin_memcpy(to + k / 2 * kUnits + i, &pair, sizeof pair);
    }
}
// If k is contiguous, pairs are words in memory, which are packed like floats.
template <int kColumns>
void pack_pairs(const bfloat16* from, int64_t column, int64_t step, int64_t count, int64_t length, float* to) {
  int64_t k = 0;
  if (column == 1 && count == kColumns) {
    for (; k + 2 <= length; k += 2)
#pragma GCC unroll 2
      for (int j = 0; j < kColumns; j += kFloats)
        store(to + k / 2 * kColumns + j, load_pairs(from + k * step + j, step));
  } else if (step == 1 && column % 2 == 0) {
    k = length & -2;
    pack<float, float, kColumns>(reinterpret_cast<const float*>(from), column / 2, 1, count, k / 2, to);
  }
  pack_last_pairs<kColumns>(from, column, step, count, length, to, k);
}
template <int kRows>
void pack_rows_of_pairs(const bfloat16* from, int64_t row, int64_t step, int64_t count, int64_t length, float* to) {
  int64_t k = 0;
  if (row == 1 && count == kRows && step >= kFloats) {
    for (; k + 2 < length; k += 2) store(to + k / 2 * kRows, load_pairs(from + k * step, step));
  } else if (step == 1 && row % 2 == 0) {
    k = length & -2;
    pack_rows<float, float, kRows>(reinterpret_cast<const float*>(from), row / 2, 1, count, k / 2, to);
  }
  pack_last_pairs<kRows>(from, row, step, count, length, to, k);
}
#endif

template <class T, class Y> void finish(const Epilogue& f, const EpilogueBlock& block) {
  const auto [sums, pitch, rows, columns, y, y_rows, c, c_rows, bias] = block;
  for (int64_t i = 0; i < rows; ++i) {
    float* v = sums + i * pitch;
    if (f.alpha != 1)
      for (int64_t j = 0; j < columns; ++j) v[j] *= f.alpha;
    if (c) {
      const Y* from = static_cast<const Y*>(c) + c_rows[i];
      if (f.c_column == 1)
        for (int64_t j = 0; j < columns; ++j) v[j] += f.beta * float(from[j]);
      else
        for (int64_t j = 0; j < columns; ++j) v[j] += f.beta * float(from[j * f.c_column]);
    }
    if (bias) {
      const T* from = static_cast<const T*>(bias) + i * f.bias_row;
      if (f.bias_column == 1)
        for (int64_t j = 0; j < columns; ++j) v[j] += float(from[j]);
      else if (f.bias_column == 0)
        for (int64_t j = 0; j < columns; ++j) v[j] += float(from[0]);
      else
        for (int64_t j = 0; j < columns; ++j) v[j] += float(from[j * f.bias_column]);
    }
  }
  if (f.activation.loop) {
    // One call of the activation for all contiguous rows, because a call costs as much as many elements.
    const bool whole = pitch == columns;
    for (int64_t i = 0; i < (whole ? 1 : rows); ++i)
      f.activation.apply(f.activation.loop, sums + i * pitch, nullptr, sums + i * pitch,
                         whole ? rows * columns : columns, f.activation_alpha, false);
  }
  for (int64_t i = 0; i < rows; ++i) {
    const float* v = sums + i * pitch;
    Y* to = static_cast<Y*>(y) + y_rows[i];
    if (f.y_column == 1)
      for (int64_t j = 0; j < columns; ++j) to[j] = Y(v[j]);
    else
      for (int64_t j = 0; j < columns; ++j) to[j * f.y_column] = Y(v[j]);
  }
}

// Computes kColumns dot products. Lanes are added from the first to the last.
template <class T, class From, int kColumns>
void some_dots(const From* a, const From* b, int64_t column, int64_t length, T* to) {
  constexpr int n = kLanes<T>;
  Vector<T> sums[kColumns][2] = {};
  int64_t k = 0;
  for (; k + 2 * n <= length; k += 2 * n)
#pragma GCC unroll 4
    for (int j = 0; j < kColumns; ++j) {
      sums[j][0] += load_as<T>(a + k) * load_as<T>(b + j * column + k);
      sums[j][1] += load_as<T>(a + k + n) * load_as<T>(b + j * column + k + n);
    }
  for (int j = 0; j < kColumns; ++j) {
    const Vector<T> both = sums[j][0] + sums[j][1];
    T sum = 0;
    for (int i = 0; i < n; ++i) sum += both[i];
    for (int64_t rest = k; rest < length; ++rest) sum += T(a[rest]) * T(b[j * column + rest]);
    to[j] = sum;
  }
}
template <class T, class From>
void dots(const From* a, const From* b, int64_t column, int64_t columns, int64_t length, T* to) {
  int64_t j = 0;
  for (; j + 4 <= columns; j += 4) some_dots<T, From, 4>(a, b + j * column, column, length, to + j);
  for (; j < columns; ++j) some_dots<T, From, 1>(a, b + j * column, column, length, to + j);
}

int64_t fma(int64_t n, float* sink) {
  // The number of independent sums. To hide the latency of a multiply-add, it exceeds this latency (in cycles) times
  // the number of multiply-add units.
  constexpr int kChains = 12;
  const Vector<float> a = load(sink), b = a + 1.0f;
  Vector<float> sums[kChains];
  // The sums begin with different values, because the compiler would merge equal sums into one.
  for (int j = 0; j < kChains; ++j) sums[j] = a + float(j);
  for (int64_t i = 0; i < n; ++i)
#pragma GCC unroll 16
    for (int j = 0; j < kChains; ++j) sums[j] = sums[j] * a + b;
  for (int j = 1; j < kChains; ++j) sums[0] += sums[j];
  store(sink, sums[0]);
  return n * kChains * kLanes<float> * 2;
}

template <class T, int kRows, int kVectors> constexpr GemmKernel<T> kernel() {
  return {kRows, kVectors * kLanes<T>, multiply<T, kRows, kVectors>, pack<T, T, kVectors * kLanes<T>>,
          pack_rows<T, T, kRows>};
}
// The number of rows of a tile that is two vectors wide. Its sums, a row of b and an element of a fill the registers.
// Without fused multiply-add, products need a register, too.
constexpr int kRows = kVectorRegisters == 32 ? 8 : kVectorBytes == 32 ? 6 : 4;

template <class From> constexpr GemmPacking<From> packing() {
  return {pack<float, From, 2 * kFloats>, pack_rows<float, From, kRows>};
}
#ifdef __AVX512F__
constexpr GemmPacking<bfloat16> kPairs = {pack_pairs<2 * kFloats>, pack_rows_of_pairs<kRows>};
template <int rows> constexpr auto of_pairs = multiply<float, rows, 2, rows == kRows, PairDots>;
constexpr auto kNarrowPairs = multiply<float, kRows, 1, false, PairDots>;
#else
constexpr GemmPacking<bfloat16> kPairs = {};
template <int rows> constexpr void (*of_pairs)(const GemmTile<float>&) = nullptr;
constexpr void (*kNarrowPairs)(const GemmTile<float>&) = nullptr;
#endif

// Kernels of a single row, whose sums take 3/4 of the vector registers.
constexpr int kWide = kVectorRegisters * 3 / 4;
template <class B> constexpr GemmRowOf<B> row_of() {
  constexpr int kVectors = 8;
  return {kVectors * kFloats, multiply<float, 1, kVectors, false, MultiplyAdd, B>, multiply<float, 1, kVectors, false>,
          dots<float, B>};
}

template <int rows> constexpr auto few() {
  if constexpr (rows == 1) return multiply_row<float, 2>;
  else if constexpr (rows == kRows) return multiply<float, kRows, 2>;
  else if constexpr (rows < kRows) return multiply<float, rows, 2, false>;
  else return nullptr;
}

}  // namespace

extern const GemmKernels gemm_kernels;
const GemmKernels gemm_kernels = {
    kernel<float, kRows, 2>(),
    kernel<double, kRows, 2>(),
    fma,
    {kernel<float, 1, kWide>(), dots<float, float>},
    {kernel<double, 1, kWide>(), dots<double, double>},
    row_of<float16>(),
    row_of<bfloat16>(),
    transpose<float, float>,
    {finish<float, float>, finish<float16, float16>, finish<bfloat16, bfloat16>, finish<float16, float>,
     finish<bfloat16, float>},
    {few<1>(), few<2>(), few<3>(), few<4>(), few<5>(), few<6>(), few<7>(), few<8>()},
    packing<float16>(),
    packing<bfloat16>(),
    {of_pairs<1>, of_pairs<2>, of_pairs<3>, of_pairs<4>, of_pairs<5>, of_pairs<6>, of_pairs<7>, of_pairs<8>},
    multiply<float, kRows, 1>,
    kNarrowPairs,
    kPairs,
};

}  // namespace minidnn::MINIDNN_ISA
