// SPDX-License-Identifier: Apache-2.0
// GemmView: a matrix product, or a convolution in any direction, as every tiled engine reads it:
//   y[b][m, n] = epilogue(sum over k of a[b][m, k] * b[b][n, k])
// An index is a number of up to four digits, the last one fastest. An operand has a stride for each digit of its
// indices. A convolution reads x (backward_data: dy) through a window. An element then also has a coordinate in each
// spatial dimension, the sum of contributions of the digits of its row and of its k. It is zero if a coordinate is out
// of bounds. "Rows" are m for a and n for b.
//
//                    m                  n                  k
//   forward          image, position    filter             tap, channel       a = x (windowed), b = w
//   backward_data    image, position    channel            tap, filter        a = dy (windowed), b = w
//   backward_filter  filter             tap, channel       image, position    a = dy, b = x (windowed)
//
// backward_data with a stride consists of phases: the positions of dx that use the same taps. Each phase is a view.
// Std-free.
#pragma once
#include "cpp/activation/activation_math.h"
#include "cpp/core/fast_divmod.h"

namespace minidnn {

constexpr int kDigits = 4;

// An index below `size`, which is the product of the digits. Leading digits are 1 if fewer are needed.
struct GemmIndex {
  int64_t size = 1;
  int64_t digit[kDigits]{1, 1, 1, 1};
  int64_t first = kDigits - 1;  // the digits before `first` are 1
};

struct GemmStrides {
  int64_t of[kDigits]{};  // elements, for each digit
};

// The spatial coordinates of a windowed operand: start[j] + (digit of the row) * row_step[j] + (digit of k) *
// k_step[j]. Dimension j uses row digit row_digit + j and k digit k_digit + j. The side that counts positions has
// `image` as digit 0, so row_digit and k_digit are 1 and 0, or 0 and 1.
struct GemmWindow {
  int64_t on = 0;
  int64_t row_digit = 0, k_digit = 0;
  int64_t start[3]{}, row_step[3]{}, k_step[3]{};
  int64_t size[3]{1, 1, 1}, stride[3]{};  // sizes and strides of the tensor, in elements
};

struct GemmOperand {
  int64_t offset = 0;  // of the first element, in elements; before the tensor if the window begins in the padding
  GemmStrides row, k, batch;
  GemmWindow window;
};

// The taps of a window that a view uses. `count` are the leading digits of k, or of n.
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

// The pointers and scalars of one call.
struct GemmArgs {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;     // null: none
  const void* bias = nullptr;  // null: none
  void* y = nullptr;
  float alpha = 1, beta = 0, activation_alpha = 0;
  // GemmStore::summed: [warpgroups along m, 2, n]: sums of the columns of y, and of their squares.
  float* sums = nullptr;
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

// The output of one view: its offset in y, and how many of each digit of m exist (digits may be rounded up). For
// GemmStore::phases, the limits are those of n.
struct GemmPart {
  int64_t y_offset = 0;
  int64_t limit[kDigits]{1, 1, 1, 1};
};

// How the sums of a tile are stored in y:
//   lines    rows are contiguous in memory; stored by vectors
//   turned   16-bit columns are contiguous; transposed through shared memory
//   any      any strides
//   columns  float32 columns are contiguous, and a lane has neighbouring rows
//   phases   like columns, for the phases of backward_data, whose columns have no common stride
//   summed   like lines; the columns are also added up
enum class GemmStore : int64_t { lines, turned, any, columns, phases, summed };
constexpr int kLinesBytes = 16 * 128;  // bytes of shared memory for each warp that stores `lines` or `turned`

// The layout of y, c and the bias, by digits of m and n that may differ from the view's: neighbouring digits are joined
// if all three tensors have one stride over them.
struct GemmOutput {
  GemmIndex m, n, batch;
  FastDivmod m_divisor[kDigits], n_divisor[kDigits], batch_divisor[kDigits];
  int64_t n_limit = 0;  // how much of n's last digit exists; the digit itself may be rounded up
  GemmPart part;
  GemmStrides y_m, y_n, y_batch, c_m, c_n, c_batch, bias, bias_batch;
  int64_t bias_by_row = 0;   // 1: the bias has one element for each m, else for each n
  int64_t bias_along_n = 0;  // 1: neighbouring columns have neighbouring elements of the bias, or there is no bias
  // 1: eight columns from a multiple of eight on are neighbours in memory, all exist or none does, and they are aligned
  // as a whole (float32: to 16 bytes).
  int64_t y_vectors = 0, c_vectors = 0;
  int64_t y_turned = 0;   // 1: 16-bit rows are neighbours in y, four by four, and aligned; columns have one stride
  int64_t y_columns = 0;  // 1: the same for float32 rows, in c too; columns have any strides
};

// The same product with a and b exchanged: the rows of y become its columns.
MINIDNN_HD GemmView transposed(const GemmView& v) {
  GemmView t = v;
  t.m = v.n, t.n = v.m, t.a = v.b, t.b = v.a;
  t.y_m = v.y_n, t.y_n = v.y_m, t.c_m = v.c_n, t.c_n = v.c_m, t.bias_m = v.bias_n, t.bias_n = v.bias_m;
  return t;
}

}  // namespace minidnn
