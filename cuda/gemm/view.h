// SPDX-License-Identifier: Apache-2.0
// What a matrix product and a convolution in any direction look like to every engine that works by tiles:
//   y[b][m, n] = epilogue(sum over k of a[b][m, k] * b[b][n, k])
// Each index is a count of up to four digits, the last one fastest, and an operand has a stride for each digit of its
// indices. A convolution reads x (backward_data: dy) through a window: an element also has a coordinate in each spatial
// dimension, the sum of what its row's and its k's digits contribute, and is zero where a coordinate is out of bounds.
//
//                    m                  n                  k
//   forward          image, position    filter             tap, channel       a = x (windowed), b = w
//   backward_data    image, position    channel            tap, filter        a = dy (windowed), b = w
//   backward_filter  filter             tap, channel       image, position    a = dy, b = x (windowed)
//
// backward_data with a stride falls into phases, positions of dx that meet the same taps: a view each. Std-free.
#pragma once
#include "cpp/activation/activation_math.h"
#include "cpp/core/fast_divmod.h"

namespace minidnn {

constexpr int kDigits = 4;

// An index below `size`, the product of the digits. Leading digits are 1 where fewer are needed.
struct GemmIndex {
  int64_t size = 1;
  int64_t digit[kDigits]{1, 1, 1, 1};
  int64_t first = kDigits - 1;  // those before it are 1
};

struct GemmStrides {
  int64_t of[kDigits]{};  // elements, for each digit
};

// The spatial coordinates of a windowed operand: start[j] + digit * step, for the digit of a row and of k that belongs
// to dimension j: the one after `image` or after nothing, so row_digit and k_digit are 1 and 0 or 0 and 1.
struct GemmWindow {
  int64_t on = 0;
  int64_t row_digit = 0, k_digit = 0;
  int64_t start[3]{}, row_step[3]{}, k_step[3]{};
  int64_t size[3]{1, 1, 1}, stride[3]{};  // of the tensor, in elements
};

struct GemmOperand {
  int64_t offset = 0;  // of its first element, in elements; before the tensor where a window begins in the padding
  GemmStrides row, k, batch;
  GemmWindow window;
};

// Which taps of a window a view meets: `count` of them are the leading digits of k, or of n.
struct GemmTaps {
  int64_t window[3]{1, 1, 1}, first[3]{}, step[3]{1, 1, 1}, count[3]{1, 1, 1};
};

struct GemmView {
  GemmIndex m, n, k, batch;
  GemmOperand a, b;  // rows are m for a, n for b
  GemmTaps taps;
  int64_t y_offset = 0;
  GemmStrides y_m, y_n, y_batch, c_m, c_n, c_batch;  // c: what beta scales, a residual
  GemmStrides bias_m, bias_n, bias_batch;            // one of m and n is all zeros
};

// The scalars and pointers of one call, beside the operands.
struct GemmArgs {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;     // null: none
  const void* bias = nullptr;  // null: none
  void* y = nullptr;
  float alpha = 1, beta = 0, activation_alpha = 0;
  float* sums = nullptr;  // GemmStore::summed: [rows of y by warpgroups, 2, n]: of y's columns, and of their squares
};

struct GemmCoordinates {
  int64_t at[kDigits];
};
MINIDNN_HD GemmCoordinates coordinates_of(const GemmIndex& index, int64_t i) {
  GemmCoordinates d;
  for (int j = kDigits - 1; j >= 0; --j) {
    if (j > index.first) d.at[j] = i % index.digit[j], i /= index.digit[j];
    else d.at[j] = i, i = 0;
  }
  return d;
}
MINIDNN_HD int64_t offset_of(const GemmStrides& s, const GemmCoordinates& d) {
  int64_t offset = 0;
  for (int j = 0; j < kDigits; ++j) offset += d.at[j] * s.of[j];
  return offset;
}

// Whether an element of a windowed operand is in bounds.
MINIDNN_HD bool inside(const GemmWindow& w, const GemmCoordinates& row, const GemmCoordinates& k) {
  if (!w.on) return true;
  bool in = true;
  for (int j = 0; j < 3; ++j) {
    int64_t at = w.start[j] + row.at[w.row_digit + j] * w.row_step[j] + k.at[w.k_digit + j] * w.k_step[j];
    in = in && uint64_t(at) < uint64_t(w.size[j]);
  }
  return in;
}

// What one view writes: where it begins in y, and how many of each of m's digits exist, where the digits are rounded
// up; for GemmStore::phases, of n's.
struct GemmPart {
  int64_t y_offset = 0;
  int64_t limit[kDigits]{1, 1, 1, 1};
};

// How a tile's sums go to y: rows that are lines in memory, by vectors; 16-bit columns, transposed; any strides; float32
// columns, where a lane's rows are neighbours; the same for phases of backward_data, whose columns lie unevenly; lines
// whose columns are also added up.
enum class GemmStore : int64_t { lines, turned, any, columns, phases, summed };
constexpr int kLinesBytes = 16 * 128;  // of shared memory for each warp that stores lines, or turned ones

// Where y, c and the bias lie, by digits of m and n of their own: neighbouring digits that all three walk as one are
// one.
struct GemmOutput {
  GemmIndex m, n, batch;
  FastDivmod m_divisor[kDigits], n_divisor[kDigits], batch_divisor[kDigits];
  int64_t n_limit = 0;  // elements of n's last digit that exist; the digit itself may be rounded up
  GemmPart part;
  GemmStrides y_m, y_n, y_batch, c_m, c_n, c_batch, bias, bias_batch;
  int64_t bias_by_row = 0;   // whether the bias goes with m
  int64_t bias_along_n = 0;  // columns beside each other have neighbours of the bias, or there is none
  // Eight columns from a multiple of eight exist or not as one and are neighbours, aligned as a whole (to 16 bytes, in
  // float32).
  int64_t y_vectors = 0, c_vectors = 0;
  int64_t y_turned = 0;   // 16-bit rows, four by four, are neighbours in y and aligned; columns lie evenly
  int64_t y_columns = 0;  // so are float32 rows, in c too, wherever columns lie
};

// The same product with a and b exchanged: y's rows become its columns.
MINIDNN_HD GemmView transposed(const GemmView& v) {
  GemmView t = v;
  t.m = v.n, t.n = v.m, t.a = v.b, t.b = v.a;
  t.y_m = v.y_n, t.y_n = v.y_m, t.c_m = v.c_n, t.c_n = v.c_m, t.bias_m = v.bias_n, t.bias_n = v.bias_m;
  return t;
}

}  // namespace minidnn
