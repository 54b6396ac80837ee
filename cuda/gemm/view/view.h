// SPDX-License-Identifier: Apache-2.0
// GemmView: a matrix product, or a convolution in any direction, as every tiled engine reads it:
//   y[b][m, n] = epilogue(sum over k of a[b][m, k] * b[b][n, k])
// An index is a number of up to four digits (dimensions), the last one fastest. An operand has a stride for each digit
// of its indices. "Rows" are m for a, and n for b. A convolution reads x (backward_data: dy) through a window. Each
// element of that operand then has a coordinate in each spatial dimension: a sum over the digits of its row and of its
// k. The element is zero if one of its coordinates is outside the tensor.
//
//                    m                  n                  k
//   forward          image, position    filter             tap, channel       a = x (windowed), b = w
//   backward_data    image, position    channel            tap, filter        a = dy (windowed), b = w
//   backward_filter  filter             tap, channel       image, position    a = dy, b = x (windowed)
//
// If backward_data has a stride, it consists of phases. A phase is the set of positions of dx that use the same taps.
// Each phase is a view. Host only.
#pragma once
#include <initializer_list>

#include "cuda/gemm/view/gemm_params.h"

namespace minidnn {

// The window through which an operand is read. An element has a coordinate in each spatial dimension j: start[j] + r *
// row_step[j] + q * k_step[j], where r is digit row_digit + j of its row, and q is digit k_digit + j of its k. If rows
// are (image, position), row_digit is 1 and k_digit is 0. If k is (image, position), they are 0 and 1.
struct GemmWindow {
  int64_t on = 0;
  int64_t row_digit = 0, k_digit = 0;
  int64_t start[3]{}, row_step[3]{}, k_step[3]{};
  // size and stride of each spatial dimension of the tensor; strides are in elements
  int64_t size[3]{1, 1, 1}, stride[3]{};
};

struct GemmOperand {
  int64_t offset = 0;  // offset of row 0 at k = 0 in elements; negative if the window begins in the padding
  GemmStrides row, k, batch;
  GemmWindow window;
};

// The taps of a window that a view uses: in each dimension, `count` taps, from tap `first` on, with step `step`.
// `window` is the size of the window. The taps are the leading digits (dimensions) of index k or, in backward_filter,
// of index n.
struct GemmTaps {
  int64_t window[3]{1, 1, 1}, first[3]{}, step[3]{1, 1, 1}, count[3]{1, 1, 1};
};

struct GemmView {
  GemmIndex m, n, k, batch;
  GemmOperand a, b;  // the rows of a are m, the rows of b are n
  GemmTaps taps;
  int64_t y_offset = 0;
  GemmStrides y_m, y_n, y_batch, c_m, c_n, c_batch;  // c is the tensor that beta scales, such as a residual
  GemmStrides bias_m, bias_n, bias_batch;            // bias strides of m or n; those of the other are all zero
};

// Whether an element of a windowed operand is inside the tensor. Elements outside are zero.
inline bool inside(const GemmWindow& w, const GemmCoordinates& row, const GemmCoordinates& k) {
  if (!w.on) return true;
  bool in = true;
  for (int j = 0; j < 3; ++j) {
    int64_t at = w.start[j] + row.at[w.row_digit + j] * w.row_step[j] + k.at[w.k_digit + j] * w.k_step[j];
    in = in && uint64_t(at) < uint64_t(w.size[j]);
  }
  return in;
}

// Simplifies an index and its strides in several tensors. Removes digits (dimensions) of size 1, and joins neighbouring
// digits if each tensor has one stride over the joined digit.
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
