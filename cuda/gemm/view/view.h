// SPDX-License-Identifier: Apache-2.0
// GemmView: a matrix product, or a convolution in any direction, as every tiled engine reads it:
//   y[b][m, n] = epilogue(sum over k of a[b][m, k] * b[b][n, k])
// An index (m, n, k or b) has up to four dimensions (digits); the last one changes fastest. The row index is m for
// operand a, and n for operand b. A convolution reads x or, in backward_data, dy through a window. The coordinate of an
// element in the tensor is then a sum over its row and its k; outside of the tensor, the element is zero.
//
//                    m                  n                  k
//   forward          image, position    filter             tap, channel       a = x (windowed), b = w
//   backward_data    image, position    channel            tap, filter        a = dy (windowed), b = w
//   backward_filter  filter             tap, channel       image, position    a = dy, b = x (windowed)
//
// Strided backward_data consists of phases, with a GemmView each. A phase is the positions of dx that use the same
// taps. Only host code includes this file.
#pragma once
#include <initializer_list>

#include "cuda/gemm/view/gemm_params.h"

namespace minidnn {

// The window through which an operand is read. In spatial dimension j, the coordinate of an element is start[j] + r *
// row_step[j] + q * k_step[j], where r and q are dimensions row_digit + j of its row and k_digit + j of its k. An index
// (image, position) begins its positions at dimension 1, an index (tap, channel) begins its taps at dimension 0.
struct GemmWindow {
  int64_t on = 0;
  int64_t row_digit = 0, k_digit = 0;
  int64_t start[3]{}, row_step[3]{}, k_step[3]{};
  // the spatial sizes and strides (in elements) of the tensor
  int64_t size[3]{1, 1, 1}, stride[3]{};
};

struct GemmOperand {
  int64_t offset = 0;  // the offset of row 0 at k = 0, in elements; negative if the window begins in the padding
  GemmStrides row, k, batch;
  GemmWindow window;
};

// The taps of a filter window that a GemmView uses: `count` taps, from tap `first` on, `step` taps apart. `window` is
// the size of the whole window.
struct GemmTaps {
  int64_t window[3]{1, 1, 1}, first[3]{}, step[3]{1, 1, 1}, count[3]{1, 1, 1};
};

struct GemmView {
  GemmIndex m, n, k, batch;
  GemmOperand a, b;
  GemmTaps taps;
  int64_t y_offset = 0;
  GemmStrides y_m, y_n, y_batch, c_m, c_n, c_batch;  // c is multiplied by beta, for example a residual
  // The bias varies along m or along n; its other stride is zero.
  GemmStrides bias_m, bias_n, bias_batch;
};

// Whether an element of a windowed operand is inside of the tensor. If not, it is zero.
inline bool inside(const GemmWindow& w, const GemmCoordinates& row, const GemmCoordinates& k) {
  if (!w.on) return true;
  bool in = true;
  for (int j = 0; j < 3; ++j) {
    int64_t at = w.start[j] + row.at[w.row_digit + j] * w.row_step[j] + k.at[w.k_digit + j] * w.k_step[j];
    in = in && uint64_t(at) < uint64_t(w.size[j]);
  }
  return in;
}

// Removes dimensions of size 1 from an index, and joins dimensions that all tensors store at a single stride.
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
