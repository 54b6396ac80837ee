// SPDX-License-Identifier: Apache-2.0
// Implements the loops of flash_kernel.h. This file is compiled once per instruction set.
#include "cpp/attention/cpu/flash_kernel.h"

#include "cpp/core/host_device/maths.h"
#include "cpp/random/random_math.h"
#include "cpp/simd/simd.h"

namespace minidnn::MINIDNN_ISA {
namespace {

using V = Floats;
constexpr int64_t kLane = kFloats;

inline __attribute__((always_inline)) float total(V v) {
  return reduce_lanes(v, [](V a, V b) __attribute__((always_inline)) { return a + b; });
}

// The columns from `begin` to `end`, rounded to whole vectors.
struct Whole {
  int64_t begin, end;
  MINIDNN_HD explicit Whole(const FlashRow& row) : begin(row.begin & -kLane), end((row.end + kLane - 1) & -kLane) {}
};

// Hides the columns of the first and the last vector that the row does not see.
inline __attribute__((always_inline)) void hide(const FlashRow& row, float* z) {
  const Whole whole(row);
  for (int64_t j = whole.begin; j < row.begin; ++j) z[j] = -INFINITY;
  for (int64_t j = row.end; j < whole.end; ++j) z[j] = -INFINITY;
}

// Adds the bias in the columns [begin, end). A boolean bias that is false hides its column.
void add_bias(const FlashScores& f, const FlashRow& row, float* z) {
  const int64_t step = f.bias_step, begin = row.begin, end = row.end;
  if (f.bias_type == DType::boolean) {
    const auto from = static_cast<const uint8_t*>(row.bias);
    if (step == 1)
      for (int64_t j = begin; j < end; ++j) z[j] = from[j] ? z[j] : -INFINITY;
    else
      for (int64_t j = begin; j < end; ++j) z[j] = from[j * step] ? z[j] : -INFINITY;
  } else if (f.bias_type == DType::float32) {
    const auto from = static_cast<const float*>(row.bias);
    if (step == 1)
#pragma GCC ivdep
      for (int64_t j = begin; j < end; ++j) z[j] += from[j];
    else
      for (int64_t j = begin; j < end; ++j) z[j] += from[j * step];
  } else if (f.bias_type == DType::bfloat16) {
    const auto from = static_cast<const bfloat16*>(row.bias);
    int64_t j = begin;
    for (; step == 1 && j + kLane <= end; j += kLane) store(z + j, load(z + j) + load_floats(from + j));
    for (; j < end; ++j) z[j] += float(from[j * step]);
  } else {
    const auto from = static_cast<const float16*>(row.bias);
    int64_t j = begin;
    for (; step == 1 && j + kLane <= end; j += kLane) store(z + j, load(z + j) + load_floats(from + j));
    for (; j < end; ++j) z[j] += float(from[j * step]);
  }
}

// Replaces products by scores, -inf in the hidden columns of their vectors. If `slopes` is not null, writes the
// derivative of the softcap to it.
inline __attribute__((always_inline)) void make_scores(const FlashScores& f, const FlashRow& row, float* z,
                                                       float* slopes) {
  const Whole whole(row);
  if (f.softcap > 0) {
    const float inverse = f.scale / f.softcap;
    for (int64_t j = whole.begin; j < whole.end; j += kLane) {
      const V t = elementary::tanh(load(z + j) * inverse);
      store(z + j, t * f.softcap);
      if (slopes) store(slopes + j, 1.0f - t * t);
    }
  } else {
    for (int64_t j = whole.begin; j < whole.end; j += kLane) store(z + j, load(z + j) * f.scale);
  }
  if (row.bias) add_bias(f, row, z);
  if (row.has_slope) {
    const float slope = row.slope;
    const int32_t position = int32_t(row.position);
#pragma GCC ivdep
    for (int64_t j = row.begin; j < row.end; ++j) {
      const int32_t far = position - int32_t(j);
      z[j] -= slope * float(far < 0 ? -far : far);
    }
  }
  hide(row, z);
}

void clear(float* v, int64_t from, int64_t to) {
  for (int64_t j = from; j < to; j += kLane) store(v + j, V{});
}

// Multiplies by 0 or 1, but a dropped column becomes 0 even if it is NaN or Inf.
inline __attribute__((always_inline)) V only_kept(V v, const float* kept) { return load(kept) != 0.0f ? v : V{}; }

// Returns exp(x) for x <= 0. It is elementary::exp_of_negative() with fewer instructions: results below 2^-126 are 0.
inline __attribute__((always_inline)) V exp_or_zero(V x) {
  namespace e = elementary;
  const V shifted = x * e::kLog2E + e::kShift, n = shifted - e::kShift;
  const V r = x - n * e::kLn2High - n * e::kLn2Low;
  // The low bits of `shifted` are n, and its other bits do not survive the shift.
  const V power = (V)(((Vector<int32_t>)shifted << 23) + (127 << 23));
  const V result = (r * (r * e::exp_tail(r) + 1.0f) + 1.0f) * power;
  return x < -87.0f ? V{} : result;
}

// Replaces scores scale * z by exp(scale * z - less) in the columns [begin, end), and returns the sum.
inline __attribute__((always_inline)) float exponentials(float* z, int64_t begin, int64_t end, float scale,
                                                         float less) {
  const V scales = floats(scale), all_less = floats(less);
  V sum{}, other{};
  int64_t j = begin;
  for (; j + 2 * kLane <= end; j += 2 * kLane) {
    const V e = exp_or_zero(load(z + j) * scales - all_less),
            next = exp_or_zero(load(z + j + kLane) * scales - all_less);
    sum += e;
    other += next;
    store(z + j, e);
    store(z + j + kLane, next);
  }
  for (; j < end; j += kLane) {
    const V e = exp_or_zero(load(z + j) * scales - all_less);
    sum += e;
    store(z + j, e);
  }
  return total(sum + other);
}

float forward(const FlashScores& f, const FlashRow& row, float* z, int64_t from, int64_t to, FlashSums& sums) {
  const Whole whole(row);
  // A positive scale does not change which score is the largest, so it is applied later.
  const bool plain = !row.bias && !row.has_slope && !(f.softcap > 0) && f.scale > 0;
  const float scale = plain ? f.scale : 1;
  if (plain) hide(row, z);
  else make_scores(f, row, z, nullptr);
  V most = V{} - INFINITY, also = most;
  int64_t j = whole.begin;
  for (; j + 2 * kLane <= whole.end; j += 2 * kLane) {
    const V here = load(z + j), next = load(z + j + kLane);
    most = most > here ? most : here;
    also = also > next ? also : next;
  }
  for (; j < whole.end; j += kLane) {
    const V here = load(z + j);
    most = most > here ? most : here;
  }
  // The maximum may miss a NaN, but then the sum of exponentials is NaN.
  most = most > also ? most : also;
  const float here = reduce_lanes(most, [](V a, V b) __attribute__((always_inline)) { return a > b ? a : b; }) * scale;
  const float before = sums.largest, largest = before > here ? before : here;
  const float less = largest == -INFINITY ? 0 : largest;
  const float sum = exponentials(z, whole.begin, whole.end, scale, less);
  if (row.kept)
    for (j = whole.begin; j < whole.end; j += kLane) store(z + j, only_kept(load(z + j), row.kept + j));
  clear(z, from, whole.begin);
  clear(z, whole.end, to);
  const float factor = before == largest ? 1 : maths::exp_of_negative(before - less);
  sums.largest = largest;
  sums.sum = sums.sum * factor + sum;
  return factor;
}

void backward(const FlashScores& f, const FlashRow& row, float* z, float* d_p, int64_t columns,
              const FlashGradients& of_row) {
  const auto [lse, delta, dz] = of_row;
  const Whole whole(row);
  const V keep = floats(f.keep), all_lse = floats(lse), all_delta = floats(delta), hidden = V{} - INFINITY;
  if (!row.bias && !row.has_slope && !(f.softcap > 0) && f.scale > 0 && !row.kept && !dz) {
    const V scale = floats(f.scale);
    hide(row, z);
#pragma GCC unroll 2
    for (int64_t j = whole.begin; j < whole.end; j += kLane) {
      const V score = load(z + j);
      const V p = score == hidden ? V{} : elementary::exp(score * scale - all_lse);
      store(z + j, p);
      store(d_p + j, score == hidden ? V{} : p * (load(d_p + j) - all_delta));
    }
  } else {
    alignas(64) float slopes[kFlashColumns];
    make_scores(f, row, z, f.softcap > 0 ? slopes : nullptr);
    for (int64_t j = whole.begin; j < whole.end; j += kLane) {
      const V score = load(z + j);
      const V p = score == hidden ? V{} : elementary::exp(score - all_lse);
      V of_p = load(d_p + j) * keep;
      if (row.kept) of_p = only_kept(of_p, row.kept + j);
      V of_z = score == hidden ? V{} : p * (of_p - all_delta);
      store(z + j, row.kept ? only_kept(p, row.kept + j) : p);
      if (dz) store(dz + j, load(dz + j) + of_z);
      if (f.softcap > 0) of_z = score == hidden ? V{} : of_z * load(slopes + j);
      store(d_p + j, of_z);
    }
  }
  clear(z, 0, whole.begin);
  clear(z, whole.end, columns);
  clear(d_p, 0, whole.begin);
  clear(d_p, whole.end, columns);
}

template <class T> void widen(const void* from, int64_t step, int64_t n, float* to, int64_t padded) {
  const T* x = static_cast<const T*>(from);
  int64_t i = 0;
  if (step == 1)
    for (; i + kLane <= n; i += kLane) store(to + i, load_floats(x + i));
  for (; i < n; ++i) to[i] = float(x[i * step]);
  for (; i < padded; ++i) to[i] = 0;
}

template <class T> void narrow(const float* from, float factor, int64_t n, void* to, int64_t step) {
  T* y = static_cast<T*>(to);
  int64_t i = 0;
  if (step == 1)
    for (; i + kLane <= n; i += kLane) store_floats(y + i, load(from + i) * factor);
  for (; i < n; ++i) y[i * step] = T(from[i] * factor);
}

void keep(const FlashDropout& d, uint64_t first, int64_t groups, float* kept) {
  for (int64_t g = 0; g < groups; ++g) {
    const Four words = random_words(d.seed, d.offset, first + uint64_t(g));
    for (int i = 0; i < 4; ++i) kept[4 * g + i] = words.word[i] >= d.threshold ? 1.0f : 0.0f;
  }
}

void multiply_by(float* v, float factor, int64_t padded) {
  for (int64_t i = 0; i < padded; i += kLane) store(v + i, load(v + i) * factor);
}
void add(const float* from, float factor, float* to, int64_t padded) {
  for (int64_t i = 0; i < padded; i += kLane) store(to + i, load(to + i) + load(from + i) * factor);
}
float dot(const float* x, const float* y, int64_t padded) {
  V sum{};
  for (int64_t i = 0; i < padded; i += kLane) sum += load(x + i) * load(y + i);
  return total(sum);
}

// Returns the sums of the lanes of kFloats vectors: lane i is the sum of v[i]. Each stage adds the halves of two vectors
// and interleaves the results.
inline __attribute__((always_inline)) V totals(V (&v)[kFloats]) {
  Vector<int32_t> low, high;
  for (int i = 0; i < kFloats; ++i) {
    low[i] = i / 2 + i % 2 * kFloats;
    high[i] = low[i] + kFloats / 2;
  }
#pragma GCC unroll 4
  for (int n = kFloats / 2; n > 0; n /= 2)
#pragma GCC unroll 8
    for (int i = 0; i < n; ++i) v[i] = __builtin_shuffle(v[i], v[i + n], low) + __builtin_shuffle(v[i], v[i + n], high);
  return v[0];
}

// Computes the products of kRows rows with several columns, whose sums fill one vector. Returns the number of columns.
template <int kRows> int64_t score_tile(const FlashFew& t, int64_t row, int64_t first) {
  constexpr int kColumns = kFloats / (kRows == 3 ? 4 : kRows);
  const float *const q = t.of_rows + row * t.padded, *const k = t.of_columns + first * t.padded;
  V sums[kFloats] = {};
  for (int64_t d = 0; d < t.padded; d += kLane) {
    V rows[kRows];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) rows[i] = load(q + i * t.padded + d);
#pragma GCC unroll 16
    for (int j = 0; j < kColumns; ++j) {
      const V column = load(k + j * t.padded + d);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) sums[i * kColumns + j] += rows[i] * column;
    }
  }
  const V all = totals(sums);
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i)
    __builtin_memcpy(t.products + (row + i) * t.pitch + first, reinterpret_cast<const float*>(&all) + i * kColumns,
                     kColumns * sizeof(float));
  return kColumns;
}
// The most rows whose sums fit in the registers.
constexpr int kPairRows = kVectorRegisters == 32 && kFloats == 16 ? 4 : 2;
void score_rows(const FlashFew& t) {
  for_balanced_chunks<kPairRows>(t.rows, [&](int64_t i, auto count) {
    for (int64_t j = 0; j < t.columns;) j += score_tile<decltype(count)::value>(t, i, j);
  });
}

// Adds the products of kRows rows with kVectors vectors of each column.
template <int kRows, int kVectors> void value_tile(const FlashFew& t, int64_t row, int64_t d) {
  const float *const p = t.products + row * t.pitch, *v = t.of_columns + d;
  float* const o = t.of_rows + row * t.padded + d;
  V sums[kRows][kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int e = 0; e < kVectors; ++e) sums[i][e] = load(o + i * t.padded + e * kLane);
  for (int64_t j = 0; j < t.columns; ++j, v += t.padded)
#pragma GCC unroll 4
    for (int e = 0; e < kVectors; ++e) {
      const V column = load(v + e * kLane);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) sums[i][e] += p[i * t.pitch + j] * column;
    }
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int e = 0; e < kVectors; ++e) store(o + i * t.padded + e * kLane, sums[i][e]);
}
void value_rows(const FlashFew& t) {
  for_balanced_chunks<kPairRows>(t.rows, [&](int64_t i, auto count) {
    int64_t d = 0;
    for (; d + 4 * kLane <= t.padded; d += 4 * kLane) value_tile<decltype(count)::value, 4>(t, i, d);
    for (; d < t.padded; d += 2 * kLane) value_tile<decltype(count)::value, 2>(t, i, d);
  });
}

}  // namespace

extern const FlashKernels flash_kernels;
const FlashKernels flash_kernels = {
    forward,
    backward,
    {widen<float>, nullptr, widen<float16>, widen<bfloat16>},
    {narrow<float>, nullptr, narrow<float16>, narrow<bfloat16>},
    keep,
    multiply_by,
    add,
    dot,
    score_rows,
    value_rows,
};

}  // namespace minidnn::MINIDNN_ISA
