// SPDX-License-Identifier: Apache-2.0
#include "cpp/conv/cpu/depthwise/direct_nchw_kernel.h"
#include "cpp/simd/simd.h"

namespace minidnn::MINIDNN_ISA {
namespace {

// The kernels keep sums in half of the vector registers, and factors of products in the other half.
constexpr int kSums = kVectorRegisters / 2;
template <int kFilters> constexpr int kRowsOf = kSums / kFilters < kDirectNchwRows ? kSums / kFilters : kDirectNchwRows;
// The number of result rows that are computed together if the window height is 3, 5 or 7.
constexpr int kColumnRows = kSums == 16 ? 2 * kDirectNchwRows : kDirectNchwRows;
// From this window height on, the kernel keeps the weights in registers, and skips rows outside the image. For smaller
// windows, that is slower (measured on Zen 5).
constexpr int kSkips = kVectorRegisters == 32 ? 3 : 7;

// Computes kRows image rows of one vector of results. Each vector of x is loaded once for a whole column of the window.
template <int kFilters, int kHeight, int kRows>
void block(const DirectNchwSums& o, int64_t row_of_block, int64_t c) {
  const int64_t *at = o.at, taps = o.taps, x_row = o.x_row, first = o.first - row_of_block, end = o.end - row_of_block;
  const int64_t y_filter = o.y_filter, y_row = o.y_row, columns = o.columns;
  const float *x = o.x + row_of_block * x_row + c, *w = o.w;
  float* y = o.y + row_of_block * y_row + c;
  Floats sums[kFilters][kRows] = {};
  for (int64_t t = 0; t < taps; ++t, w += kHeight * kFilters) {
    const float* from = x + at[t];
    Floats weights[kHeight * kFilters];
#pragma GCC unroll 8
    for (int i = 0; i < kHeight * kFilters; ++i) {
      weights[i] = floats(w[i]);
      if (kHeight >= kSkips) weights[i] = keep_in_register(weights[i]);
    }
#pragma GCC unroll 32
    for (int line = 0; line < kRows + kHeight - 1; ++line) {
      if (kHeight >= kSkips && (line < first || line >= end)) continue;
      const Floats v = load(from + line * x_row);
#pragma GCC unroll 8
      for (int i = 0; i < kHeight; ++i) {
        const int row = line - i;
        if (row < 0 || row >= kRows) continue;
#pragma GCC unroll 8
        for (int j = 0; j < kFilters; ++j) sums[j][row] += weights[i * kFilters + j] * v;
      }
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < kFilters; ++j)
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      float* to = y + j * y_filter + row * y_row;
      if (columns < kFloats) store_first(to, columns, sums[j][row]);
      else store(to, sums[j][row]);
    }
}

// Computes results in blocks of kRows image rows and one vector of pixels. The last blocks may overlap the blocks
// before them. Results in the overlap are computed twice.
template <int kFilters, int kHeight, int kRows>
void lines(DirectNchwSums o) {
  auto block_row = [&](int64_t row) {
    for (int64_t next = 0; next < o.columns; next += kFloats)
      block<kFilters, kHeight, kRows>(o, row, o.columns < kFloats ? 0 : min_of<int64_t>(next, o.columns - kFloats));
  };
  int64_t row = 0;
  for (; row + kRows <= o.rows; row += kRows) block_row(row);
  if (row == o.rows) return;
  if constexpr (kRows > 1) {
    if (row > 0 && o.rows - row > kRows / 2) return block_row(o.rows - kRows);
    o.x += row * o.x_row;
    o.y += row * o.y_row;
    o.first -= row;
    o.end -= row;
    o.rows -= row;
    lines<kFilters, kHeight, kRows / 2>(o);
  }
}

void sums(int64_t filters, int64_t height, const DirectNchwSums& o) {
  if (filters == 8) return lines<8, 1, kRowsOf<8>>(o);
  if (filters == 4) return lines<4, 1, kRowsOf<4>>(o);
  if (filters == 2) return lines<2, 1, kRowsOf<2>>(o);
  if (height == 1) return lines<1, 1, kDirectNchwRows>(o);
  if (height == 3) return lines<1, 3, kColumnRows>(o);
  if (height == 5) return lines<1, 5, kColumnRows>(o);
  return lines<1, 7, kColumnRows>(o);
}

template <int kFilters, int kTaps>
void some_filters(const DirectNchwFilterSums& o, int64_t first) {
  const int64_t *at = o.at + first, x_row = o.x_row, dy_filter = o.dy_filter, dy_row = o.dy_row, columns = o.columns;
  const float *x = o.x, *dy = o.dy;
  float* sums = o.sums + first * kFilters * kFloats;
  int64_t rows = o.rows;
  Floats tile[kTaps][kFilters];
#pragma GCC unroll 16
  for (int t = 0; t < kTaps; ++t)
#pragma GCC unroll 8
    for (int j = 0; j < kFilters; ++j) tile[t][j] = load(sums + (t * kFilters + j) * kFloats);
  auto add = [&](int64_t c, auto load_x) __attribute__((always_inline)) {
    Floats v[kTaps];
#pragma GCC unroll 16
    for (int t = 0; t < kTaps; ++t) v[t] = load_x(x + at[t] + c);
#pragma GCC unroll 8
    for (int j = 0; j < kFilters; ++j) {
      const Floats gradient = keep_in_register(load(dy + j * dy_filter + c));
#pragma GCC unroll 16
      for (int t = 0; t < kTaps; ++t) tile[t][j] += v[t] * gradient;
    }
  };
  for (; rows > 0; --rows, x += x_row, dy += dy_row) {
    int64_t c = 0;
    for (; c + kFloats <= columns; c += kFloats) add(c, [](const float* from) { return load(from); });
    // Elements of x after the last pixel must not enter the sum, even if they are multiplied by zero. They may be
    // infinite, and infinity times zero is NaN.
    if (c < columns) add(c, [=](const float* from) { return load_first(from, columns - c); });
  }
#pragma GCC unroll 16
  for (int t = 0; t < kTaps; ++t)
#pragma GCC unroll 8
    for (int j = 0; j < kFilters; ++j) store(sums + (t * kFilters + j) * kFloats, tile[t][j]);
}

template <int kFilters> void filters_by(const DirectNchwFilterSums& o) {
  constexpr int kTaps = kSums / kFilters < 12 ? kSums / kFilters : 12;
  for_balanced_chunks<kTaps>(o.taps, [&](int64_t first, auto count) { some_filters<kFilters, count.value>(o, first); });
}
void filters(int64_t filters, const DirectNchwFilterSums& o) {
  const auto by = filters == 8   ? filters_by<8>
                  : filters == 4 ? filters_by<4>
                  : filters == 2 ? filters_by<2>
                                 : filters_by<1>;
  by(o);
}

// Loads the elements 0, 2, 4, ... of `from` into a vector. The function reads no memory after the last element that it
// loads.
MINIDNN_HD Floats load_even(const float* from) {
  Vector<int32_t> even;
  for (int i = 0; i < kFloats; ++i) even[i] = i < kFloats / 2 ? 2 * i : 2 * i + 1;
  return __builtin_shuffle(load(from), load(from + kFloats - 1), even);
}

MINIDNN_HD void zeros(float* to, int64_t n) {
  for (int64_t i = 0; i < n; i += kFloats) store(to + i, Floats{});
}

template <class T> void copy(const PaddedLines& lines, const void* from, int64_t row, int64_t step, float* to) {
  const int64_t n = lines.count, length = lines.before + n + lines.after;
  auto each = [&](auto elements) {
    const T* x = static_cast<const T*>(from);
    for (int64_t r = 0; r < lines.rows; ++r, x += row, to += length) {
      zeros(to, lines.before);
      elements(x, to + lines.before);
      zeros(to + lines.before + n, lines.after);
    }
  };
  zeros(to, lines.above * length);
  to += lines.above * length;
  // Fast case: one vector store writes a row, and a second one the zeros between it and the next row.
  if (sizeof(T) == 4 && step == 1 && n <= kFloats && lines.before + lines.after <= kFloats) {
    const T* x = static_cast<const T*>(from);
    store(to, Floats{});
    for (int64_t r = 0; r < lines.rows; ++r, x += row, to += length) {
      store(to + lines.before, load_first(x, n));
      store(to + lines.before + n, Floats{});
    }
  } else if (step == 1)
    each([=](const T* x, float* y) {
      int64_t i = 0;
      for (; i + kFloats <= n; i += kFloats) store(y + i, load_floats(x + i));
      if (i < n) store(y + i, load_first(x + i, n - i));
    });
  else if (sizeof(T) == 4 && step == 2 && n >= kFloats)
    each([=](const T* x, float* y) {
      for (int64_t next = 0; next < n; next += kFloats) {
        const int64_t i = min_of<int64_t>(next, n - kFloats);
        store(y + i, load_even(reinterpret_cast<const float*>(x) + 2 * i));
      }
    });
  else
    each([=](const T* x, float* y) {
      for (int64_t i = 0; i < n; ++i) y[i] = float(x[i * step]);
    });
  zeros(to, lines.below * length);
}

float total(const float* vector) { return sum_lanes(load(vector)); }

}  // namespace

extern const DirectNchwKernels direct_nchw_kernels;
const DirectNchwKernels direct_nchw_kernels = {
    kFloats, kSkips, sums, filters, {copy<float>, copy<float16>, copy<bfloat16>}, total};

}  // namespace minidnn::MINIDNN_ISA
