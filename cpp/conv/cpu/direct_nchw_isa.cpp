// SPDX-License-Identifier: Apache-2.0
#include "cpp/conv/cpu/direct_nchw_kernel.h"
#include "cpp/simd/simd.h"

namespace minidnn::MINIDNN_ISA {
namespace {

constexpr int kSums = kVectorRegisters / 2;  // vector registers for sums; the other half holds factors
template <int kFilters> constexpr int kRowsOf = kSums / kFilters < kPlanesRows ? kSums / kFilters : kPlanesRows;
// result lines at a time with columns of taps, for one filter
constexpr int kColumnRows = kSums == 16 ? 2 * kPlanesRows : kPlanesRows;
// From this height of a column of taps on, it pays to keep weights in registers and to skip lines outside the input
// (Zen 5).
constexpr int kSkips = kVectorRegisters == 32 ? 3 : 7;

// Computes kRows lines of one column of vectors. Each vector of x is loaded once for all taps of a window's column.
template <int kFilters, int kHeight, int kRows>
void block(const int64_t* at, int64_t taps, const float* x, int64_t x_row, int64_t first, int64_t end, const float* w,
           float* y, int64_t y_filter, int64_t y_row, int64_t columns) {
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

// The last vector of a line, and the last lines, may overlap the previous ones; the overlap is computed twice.
template <int kFilters, int kHeight, int kRows>
void lines(const int64_t* at, int64_t taps, const float* x, int64_t x_row, int64_t first, int64_t end, const float* w,
           float* y, int64_t y_filter, int64_t y_row, int64_t rows, int64_t columns) {
  auto some = [&](int64_t row) {
    for (int64_t next = 0; next < columns; next += kFloats) {
      const int64_t c = columns < kFloats ? 0 : min_of<int64_t>(next, columns - kFloats);
      block<kFilters, kHeight, kRows>(at, taps, x + row * x_row + c, x_row, first - row, end - row, w,
                                      y + row * y_row + c, y_filter, y_row, columns);
    }
  };
  int64_t row = 0;
  for (; row + kRows <= rows; row += kRows) some(row);
  if (row == rows) return;
  if constexpr (kRows > 1) {
    if (row > 0 && rows - row > kRows / 2) return some(rows - kRows);
    lines<kFilters, kHeight, kRows / 2>(at, taps, x + row * x_row, x_row, first - row, end - row, w, y + row * y_row,
                                        y_filter, y_row, rows - row, columns);
  }
}

void sums(int64_t filters, int64_t height, const int64_t* at, int64_t taps, const float* x, int64_t x_row,
          int64_t first, int64_t end, const float* w, float* y, int64_t y_filter, int64_t y_row, int64_t rows,
          int64_t columns) {
  auto by = [&](auto function) { function(at, taps, x, x_row, first, end, w, y, y_filter, y_row, rows, columns); };
  if (filters == 8) return by(lines<8, 1, kRowsOf<8>>);
  if (filters == 4) return by(lines<4, 1, kRowsOf<4>>);
  if (filters == 2) return by(lines<2, 1, kRowsOf<2>>);
  if (height == 1) return by(lines<1, 1, kPlanesRows>);
  if (height == 3) return by(lines<1, 3, kColumnRows>);
  if (height == 5) return by(lines<1, 5, kColumnRows>);
  return by(lines<1, 7, kColumnRows>);
}

template <int kFilters, int kTaps>
void some_filters(const int64_t* at, const float* x, int64_t x_row, const float* dy, int64_t dy_filter, int64_t dy_row,
                  int64_t rows, int64_t columns, float* sums) {
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
    // Elements after the last pixel are not part of the sum, and may be infinite.
    if (c < columns) add(c, [=](const float* from) { return load_first(from, columns - c); });
  }
#pragma GCC unroll 16
  for (int t = 0; t < kTaps; ++t)
#pragma GCC unroll 8
    for (int j = 0; j < kFilters; ++j) store(sums + (t * kFilters + j) * kFloats, tile[t][j]);
}

template <int kFilters>
void filters_by(const int64_t* at, int64_t taps, const float* x, int64_t x_row, const float* dy, int64_t dy_filter,
                int64_t dy_row, int64_t rows, int64_t columns, float* sums) {
  constexpr int kTaps = kSums / kFilters < 12 ? kSums / kFilters : 12;
  for_balanced_chunks<kTaps>(taps, [&](int64_t first, auto count) {
    some_filters<kFilters, count.value>(at + first, x, x_row, dy, dy_filter, dy_row, rows, columns,
                                        sums + first * kFilters * kFloats);
  });
}
void filters(int64_t filters, const int64_t* at, int64_t taps, const float* x, int64_t x_row, const float* dy,
             int64_t dy_filter, int64_t dy_row, int64_t rows, int64_t columns, float* sums) {
  const auto by = filters == 8   ? filters_by<8>
                  : filters == 4 ? filters_by<4>
                  : filters == 2 ? filters_by<2>
                                 : filters_by<1>;
  by(at, taps, x, x_row, dy, dy_filter, dy_row, rows, columns, sums);
}

// Loads the even elements. Reads nothing after the last of them.
MINIDNN_HD Floats load_even(const float* from) {
  Vector<int32_t> even;
  for (int i = 0; i < kFloats; ++i) even[i] = i < kFloats / 2 ? 2 * i : 2 * i + 1;
  return __builtin_shuffle(load(from), load(from + kFloats - 1), even);
}

MINIDNN_HD void zeros(float* to, int64_t n) {
  for (int64_t i = 0; i < n; i += kFloats) store(to + i, Floats{});
}

template <class T> void copy(const PlanesLines& lines, const void* from, int64_t row, int64_t step, float* to) {
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
  // each line is stored as two vectors
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
