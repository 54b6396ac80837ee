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
// Host only.
#pragma once
#include <initializer_list>

#include "cuda/gemm/view/gemm_params.h"

namespace minidnn {

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

// Whether an element of a windowed operand is in bounds.
inline bool inside(const GemmWindow& w, const GemmCoordinates& row, const GemmCoordinates& k) {
  if (!w.on) return true;
  bool in = true;
  for (int j = 0; j < 3; ++j) {
    int64_t at = w.start[j] + row.at[w.row_digit + j] * w.row_step[j] + k.at[w.k_digit + j] * w.k_step[j];
    in = in && uint64_t(at) < uint64_t(w.size[j]);
  }
  return in;
}

// Simplifies an index and its strides in several tensors: removes digits of size 1 and joins neighbouring digits over
// which every tensor has one stride.
void join(GemmIndex&, std::initializer_list<GemmStrides*>);

// The same product with a and b exchanged: the rows of y become its columns.
inline GemmView transposed(const GemmView& v) {
  GemmView t = v;
  t.m = v.n;
  t.n = v.m;
  t.a = v.b;
  t.b = v.a;
  t.y_m = v.y_n;
  t.y_n = v.y_m;
  t.c_m = v.c_n;
  t.c_n = v.c_m;
  t.bias_m = v.bias_n;
  t.bias_n = v.bias_m;
  return t;
}

}  // namespace minidnn
