// SPDX-License-Identifier: Apache-2.0
// GemmView: a matrix product, or a convolution in any direction, as every tiled engine reads it:
//   y[b][m, n] = epilogue(sum over k of a[b][m, k] * b[b][n, k])
// An index (m, n, k or b) consists of up to four digits (dimensions); the last digit changes fastest. An operand has a
// stride for each digit of its indices. The row index is m for operand a, and n for operand b.
// A convolution reads one operand through a window: x or, in backward_data, dy. Each element of this operand has a
// coordinate in each spatial dimension, which is a sum over the digits of its row and of its k. The element is zero if
// one of its coordinates is outside the tensor.
//
//                    m                  n                  k
//   forward          image, position    filter             tap, channel       a = x (windowed), b = w
//   backward_data    image, position    channel            tap, filter        a = dy (windowed), b = w
//   backward_filter  filter             tap, channel       image, position    a = dy, b = x (windowed)
//
// If backward_data has a stride, it consists of phases. A phase is the set of positions of dx that use the same taps.
// Each phase is a GemmView. Only host code includes this file.
#pragma once
#include <initializer_list>

#include "cuda/gemm/view/gemm_params.h"

namespace minidnn {

// The window through which an operand is read. In spatial dimension j, an element of the operand has the coordinate
// start[j] + r * row_step[j] + q * k_step[j]. Here, r is digit row_digit + j of the element's row index, and q is digit
// k_digit + j of its index k. If rows are (image, position), then row_digit is 1 and k_digit is 0. If k is (image,
// position), then row_digit is 0 and k_digit is 1.
struct GemmWindow {
  int64_t on = 0;
  int64_t row_digit = 0, k_digit = 0;
  int64_t start[3]{}, row_step[3]{}, k_step[3]{};
  // The size and the stride of each spatial dimension of the tensor that the window reads. Strides are in elements.
  int64_t size[3]{1, 1, 1}, stride[3]{};
};

struct GemmOperand {
  int64_t offset = 0;  // the offset of row 0 at k = 0, in elements; negative if the window begins in the padding
  GemmStrides row, k, batch;
  GemmWindow window;
};

// The taps (elements) of a filter window that a GemmView uses. In each dimension, there are `count` taps, from tap
// `first` on, at a distance of `step` taps. `window` is the size of the whole window. The taps are the leading digits
// (dimensions) of index k or, in backward_filter, of index n.
struct GemmTaps {
  int64_t window[3]{1, 1, 1}, first[3]{}, step[3]{1, 1, 1}, count[3]{1, 1, 1};
};

struct GemmView {
  GemmIndex m, n, k, batch;
  GemmOperand a, b;  // the row index of a is m, the row index of b is n
  GemmTaps taps;
  int64_t y_offset = 0;
  GemmStrides y_m, y_n, y_batch, c_m, c_n, c_batch;  // c is the tensor that is multiplied by beta, such as a residual
  // The bias varies either along m or along n; its strides along the other index are zero.
  GemmStrides bias_m, bias_n, bias_batch;
};

// Whether an element of an operand that is read through a window is inside the tensor. An element outside the tensor is
// zero.
inline bool inside(const GemmWindow& w, const GemmCoordinates& row, const GemmCoordinates& k) {
  if (!w.on) return true;
  bool in = true;
  for (int j = 0; j < 3; ++j) {
    int64_t at = w.start[j] + row.at[w.row_digit + j] * w.row_step[j] + k.at[w.k_digit + j] * w.k_step[j];
    in = in && uint64_t(at) < uint64_t(w.size[j]);
  }
  return in;
}

// Simplifies an index and its strides in several tensors. It removes digits (dimensions) of size 1. It joins
// neighbouring digits if each of the tensors has a single stride over the joined digit.
void join(GemmIndex&, std::initializer_list<GemmStrides*>);

// The transposed product: operands a and b are exchanged, and the rows of y become its columns.
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
