// SPDX-License-Identifier: Apache-2.0
// Softmax of blocks of several rows. Blocks are used for short rows, and if too few columns are adjacent for
// strips_isa.cpp. Contiguous short rows of float32 or bfloat16 are computed in registers. Other blocks are transposed
// to a strip (a buffer in which the elements at one index of the axis are adjacent), and the results are transposed
// back.
#include "cpp/simd/transpose.h"
#include "cpp/softmax/cpu/strip_loops.h"

namespace minidnn::MINIDNN_ISA {
namespace {

template <class T> constexpr bool kHasShortRows = true;
template <> constexpr bool kHasShortRows<float16> = false;

constexpr int64_t kLane = kLanes<float>;

// Returns the last vector of a row of `cols` elements. Lanes after the end of the row are set to `fill`.
inline __attribute__((always_inline)) V row_end(V v, int64_t cols, float fill) {
  Vector<int32_t> lane;
  for (int i = 0; i < kLane; ++i) lane[i] = i;
  return lane < int32_t(cols % kLane) ? v : V{} + fill;
}
// load_row() loads a row as vectors, applies `map`, and sets lanes after its end to `fill` in a register: reloading a
// masked store would stall. store_row() may store whole vectors beyond the end of the row unless `exact`.
template <class F> inline __attribute__((always_inline)) void load_row(const float* from, V* to, int64_t cols,
                                                                       float fill, F map) {
  int64_t i = 0;
  for (; i < cols; i += kLane) to[i / kLane] = map(load(from + i));
  if (cols % kLane) to[i / kLane - 1] = row_end(map(load(from + i - kLane)), cols, fill);
}
inline __attribute__((always_inline)) void store_row(float* to, const V* from, int64_t cols, bool exact) {
  int64_t i = 0;
  for (const int64_t end = exact ? cols / kLane * kLane : cols; i < end; i += kLane) store(to + i, from[i / kLane]);
  if (i < cols) store_first(to + i, cols - i, from[i / kLane]);
}
template <class F> inline __attribute__((always_inline)) void load_row(const bfloat16* from, V* to, int64_t cols,
                                                                       float fill, F map) {
  int64_t i = 0;
  for (; i + 2 * kLane <= cols; i += 2 * kLane) {
    Pair p = load_pair(from + i);
    to[i / kLane] = map(p.first);
    to[i / kLane + 1] = map(p.second);
  }
  for (; i < cols; i += kLane) to[i / kLane] = map(load_floats(from + i));
  if (cols % kLane) to[i / kLane - 1] = row_end(map(load_floats(from + i - kLane)), cols, fill);
}
inline __attribute__((always_inline)) void store_row(bfloat16* to, const V* from, int64_t cols, bool exact) {
  int64_t i = 0;
  for (; i + 2 * kLane <= cols; i += 2 * kLane) store_pair(to + i, {from[i / kLane], from[i / kLane + 1]});
  for (const int64_t end = exact ? cols / kLane * kLane : cols; i < end; i += kLane)
    store_floats(to + i, from[i / kLane]);
  if (i < cols) store_first(to + i, cols - i, from[i / kLane]);
}

// The number of rows whose reciprocals or logarithms of sums are computed together.
constexpr int64_t kGroup = 16;

// Contiguous rows in memory. Memory after the rows may be read, too, up to `end`.
template <class T> struct Rows {
  const T *first, *end;
  int64_t cols;
  T copy[kGroup * kLongestShortRow + kLane];

  const T* group(int64_t row, int64_t count) {
    const T* at = first + row * cols;
    if (cols % kLane == 0 || end - at >= count * cols + kLane) return at;
    __builtin_memcpy(copy, at, size_t(count * cols) * sizeof(T));
    return copy;
  }
};
// Calls f(first row, number of rows, address of their results) for each group of rows. f must not store after the
// group, because the result may overwrite x.
template <class T, class F>
inline __attribute__((always_inline)) void each_group(T* out, int64_t rows, int64_t cols, bool non_temporal, F f) {
  alignas(64) T stage[kGroup * kLongestShortRow + kLane];
  for (int64_t row = 0; row < rows; row += kGroup) {
    const int64_t count = min_of(kGroup, rows - row);
    f(row, count, non_temporal ? stage : out + row * cols);
    if (non_temporal) copy_span(stage, out + row * cols, count * cols, true);
  }
}
// Returns the number of rows at the end of a group for which a store of whole vectors would extend beyond the group.
int64_t rows_at_the_end(int64_t cols) { return (ceil_div(cols, kLane) * kLane - 1) / cols; }

template <class T> void forward_short_rows(Rows<T>& x, T* y, int64_t rows, bool log, float scale, bool non_temporal) {
  const int64_t cols = x.cols, vectors = ceil_div(cols, kLane), exact_rows = rows_at_the_end(cols);
  each_group(y, rows, cols, non_temporal, [&](int64_t row, int64_t count, T* to) __attribute__((always_inline)) {
    V values[kGroup * kLongestShortRow / kLane];
    float amount[kGroup];
    for (float& a : amount) a = 1;
    const T* from = x.group(row, count);
    for (int64_t r = 0; r < count; ++r) {
      V* const v = values + r * vectors;
      load_row(from + r * cols, v, cols, -INFINITY, [=](V w) __attribute__((always_inline)) { return w * scale; });
      V largest = v[0], sum{};
      // The maximum may miss a NaN, but then the sum of the exponentials is NaN.
      for (int64_t i = 1; i < vectors; ++i) largest = largest > v[i] ? largest : v[i];
      largest = V{} + reduce_lanes(largest, [](V a, V b) __attribute__((always_inline)) { return a > b ? a : b; });
      for (int64_t i = 0; i < vectors; ++i) {
        const V x_minus_largest = v[i] - largest, e = elementary::exp_of_negative(x_minus_largest);
        sum += e;
        v[i] = log ? x_minus_largest : e;
      }
      amount[r] = reduce_lanes(sum, [](V a, V b) __attribute__((always_inline)) { return a + b; });
    }
    if (log)
      for (float& a : amount) a = maths::log(a);
    else
      for (float& a : amount) a = 1.0f / a;
    for (int64_t r = 0; r < count; ++r) {
      V* const v = values + r * vectors;
      for (int64_t i = 0; i < vectors; ++i) v[i] = log ? v[i] - amount[r] : v[i] * amount[r];
      store_row(to + r * cols, v, cols, r >= count - exact_rows);
    }
  });
}
template <class T> void backward_short_rows(Rows<T>& y, Rows<T>& dy, T* dx, int64_t rows, bool log, float scale,
                                            bool non_temporal) {
  const int64_t cols = y.cols, vectors = ceil_div(cols, kLane);
  // If dx overwrites y or dy, storing a row must not change the next row.
  const bool in_place = dx == y.first || dx == dy.first;
  const int64_t exact_rows = in_place ? kGroup : rows_at_the_end(cols);
  each_group(dx, rows, cols, non_temporal, [&](int64_t row, int64_t count, T* to) __attribute__((always_inline)) {
    const T *values = y.group(row, count), *gradients = dy.group(row, count);
    for (int64_t r = 0; r < count; ++r) {
      V p[kLongestShortRow / kLane], g[kLongestShortRow / kLane], sum{};
      auto same = [](V v) __attribute__((always_inline)) { return v; };
      load_row(values + r * cols, p, cols, 0, same);
      load_row(gradients + r * cols, g, cols, 0, same);
      if (log)
        for (int64_t i = 0; i < vectors; ++i) sum += g[i];
      else
        for (int64_t i = 0; i < vectors; ++i) sum += g[i] * p[i];
      const float all = reduce_lanes(sum, [](V a, V b) __attribute__((always_inline)) { return a + b; });
      if (log)
        for (int64_t i = 0; i < vectors; ++i) g[i] = log_gradient(p[i], g[i], all) * scale;
      else
        for (int64_t i = 0; i < vectors; ++i) g[i] = p[i] * (g[i] - all) * scale;
      store_row(to + r * cols, g, cols, r >= count - exact_rows);
    }
  });
}

// A contiguous block: `outers` outer indices, all `cols` indices of the axis, and all `inner` inner indices.
struct Block {
  int64_t cols, inner, outers;
  int64_t width() const { return outers * inner; }
  int64_t elements() const { return cols * width(); }
};

// Whether the rows are computed in registers. Rows of less than two vectors leave many lanes unused unless they are one
// whole vector, so they are transposed: forward rows of 2 to 12 elements then take a third of the time (2026-11).
bool are_short_rows(const Block& b) {
  return b.inner == 1 && b.cols <= kLongestShortRow && (b.cols >= 2 * kLane || b.cols == kLane);
}

// Calls f(index in the block, index in its transposed copy) for all elements. Inner loops shorter than kLongSpan are
// not vectorised, which is faster.
template <class F> inline __attribute__((always_inline)) void each_of_block(const Block& b, int64_t pitch, F f) {
  constexpr int64_t kLongSpan = 8;
  int64_t i = 0;
  if (b.inner < kLongSpan)
    for (int64_t column = 0; column < b.width(); column += b.inner)
      for (int64_t c = 0; c < b.cols; ++c)
        for (int64_t j = 0; j < b.inner; ++j) f(i++, c * pitch + column + j);
  else
    for (int64_t column = 0; column < b.width(); column += b.inner)
      for (int64_t c = 0; c < b.cols; ++c, i += b.inner)
#pragma GCC ivdep  // the block and the strip do not overlap in memory
        for (int64_t j = 0; j < b.inner; ++j) f(i + j, c * pitch + column + j);
}
// Transpose a block to a buffer and back. They are not inlined, because GCC 12 makes their loops slower next to
// conversions of 16-bit types.
__attribute__((noinline)) void to_strip(const float* x, const Block& b, int64_t pitch, float* strip) {
  if (b.inner == 1) transpose_tile(x, b.cols, strip, pitch, b.width(), b.cols);
  else each_of_block(b, pitch, [&](int64_t i, int64_t at) __attribute__((always_inline)) { strip[at] = x[i]; });
}
__attribute__((noinline)) void from_strip(const float* strip, const Block& b, int64_t pitch, float* x) {
  if (b.inner == 1) transpose_tile(strip, pitch, x, b.cols, b.cols, b.width());
  else each_of_block(b, pitch, [&](int64_t i, int64_t at) __attribute__((always_inline)) { x[i] = strip[at]; });
}
template <class T> void read_block(const T* from, const Block& b, int64_t pitch, float* strip, float* stage) {
  if constexpr (sizeof(T) == 4) return to_strip(from, b, pitch, strip);
  const int64_t n = b.elements();
  for (int64_t i = 0; i < n; i += kSpan) read_span<Order::memory>(from + i, stage + i, min_of(kSpan, n - i));
  to_strip(stage, b, pitch, strip);
}
template <class T>
void write_block(const float* strip, T* to, const Block& b, int64_t pitch, float* stage, bool non_temporal) {
  const int64_t n = b.elements();
  from_strip(strip, b, pitch, stage);
  for (int64_t i = 0; i < n; i += kSpan)
    write_span<Order::memory>(stage + i, to + i, min_of(kSpan, n - i), non_temporal);
}

struct BlockItem {
  int64_t at;  // offset of the block's first element in the tensor
  Block block;
};
inline __attribute__((always_inline)) BlockItem block_of(const SoftmaxTiling& tiling, int64_t item) {
  const int64_t outers = tiling.width / tiling.inner, first = item * outers;
  return {first * tiling.cols * tiling.inner, {tiling.cols, tiling.inner, min_of(outers, tiling.outer - first)}};
}

template <class T>
void forward_block(const SoftmaxTiling& tiling, const SoftmaxArgs& a, float* scratch, int64_t item) {
  const float scale = float(a.scale);
  auto x = static_cast<const T*>(a.in);
  auto y = static_cast<T*>(a.out);
  const auto [at, b] = block_of(tiling, item);
  if constexpr (kHasShortRows<T>)
    if (!scratch || are_short_rows(b)) {
      Rows<T> rows{x + at, end_of(tiling, x, x == y), b.cols};
      return forward_short_rows(rows, y + at, b.outers, tiling.log, scale, tiling.non_temporal);
    }
  const int64_t pitch = whole_steps(tiling.width), floats = tiling.cols * pitch;
  float *strip = scratch + floats, *stage = strip + floats + kStep;
  read_block(x + at, b, pitch, strip, stage);
  Strip<float> block{strip, pitch, pitch, nullptr};
  forward_strip(block, strip, pitch, tiling.cols, tiling.log, scale, false, scratch);
  write_block(strip, y + at, b, pitch, stage, tiling.non_temporal);
}

template <class T>
void backward_block(const SoftmaxTiling& tiling, const SoftmaxArgs& a, float* scratch, int64_t item) {
  const float scale = float(a.scale);
  auto y = static_cast<const T*>(a.in), dy = static_cast<const T*>(a.dy);
  auto dx = static_cast<T*>(a.out);
  const auto [at, b] = block_of(tiling, item);
  if constexpr (kHasShortRows<T>)
    if (!scratch || are_short_rows(b)) {
      Rows<T> values{y + at, end_of(tiling, y, y == dx), b.cols};
      Rows<T> gradients{dy + at, end_of(tiling, dy, dy == dx), b.cols};
      return backward_short_rows(values, gradients, dx + at, b.outers, tiling.log, scale, tiling.non_temporal);
    }
  const int64_t pitch = whole_steps(tiling.width), floats = tiling.cols * pitch;
  float *strip = scratch, *gradients = strip + floats + kStep, *stage = gradients + floats + kStep;
  read_block(y + at, b, pitch, strip, stage);
  read_block(dy + at, b, pitch, gradients, stage);
  Strip<float> values{strip, pitch, pitch, nullptr}, dys{gradients, pitch, pitch, nullptr};
  backward_strip(values, dys, strip, pitch, tiling.cols, tiling.log, scale, false);
  write_block(strip, dx + at, b, pitch, stage, tiling.non_temporal);
}

template <class T>
void forward(const SoftmaxTiling& tiling, const SoftmaxArgs& a, void* scratch, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) forward_block<T>(tiling, a, static_cast<float*>(scratch), i);
  if (tiling.non_temporal) store_fence();
}
template <class T>
void backward(const SoftmaxTiling& tiling, const SoftmaxArgs& a, void* scratch, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) backward_block<T>(tiling, a, static_cast<float*>(scratch), i);
  if (tiling.non_temporal) store_fence();
}

}  // namespace

extern const SoftmaxLoops softmax_block_loops;
const SoftmaxLoops softmax_block_loops = {{forward<float>, nullptr, forward<float16>, forward<bfloat16>},
                                          {backward<float>, nullptr, backward<float16>, backward<bfloat16>}};

}  // namespace minidnn::MINIDNN_ISA
