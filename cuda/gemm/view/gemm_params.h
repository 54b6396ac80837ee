// SPDX-License-Identifier: Apache-2.0
// What the host and the kernels of matrix products share: multi-dimensional indices, strides, and the arguments of a
// call. This file does not use the standard library, because kernels include it.
#pragma once
#include "cpp/core/host_device/fast_divmod.h"

namespace minidnn {

constexpr int kDigits = 4;

// An index of up to four dimensions, called digits; the last one changes fastest. In a convolution, for example, m is
// (image, depth, row, column). `digit` are the sizes of the dimensions; unused leading dimensions have size 1.
struct GemmIndex {
  int64_t size = 1;
  int64_t digit[kDigits]{1, 1, 1, 1};
  int64_t first = kDigits - 1;  // the first dimension in use
};

struct GemmStrides {
  int64_t of[kDigits]{};  // the stride of each dimension, in elements
};

struct GemmCoordinates {
  int64_t at[kDigits];
};
MINIDNN_HD GemmCoordinates coordinates_of(const GemmIndex& index, int64_t i) {
  GemmCoordinates d;
  for (int j = kDigits - 1; j >= 0; --j) {
    if (j > index.first) {
      d.at[j] = i % index.digit[j];
      i /= index.digit[j];
    } else {
      d.at[j] = i;
      i = 0;
    }
  }
  return d;
}
MINIDNN_HD int64_t offset_of(const GemmStrides& s, const GemmCoordinates& d) {
  int64_t offset = 0;
  for (int j = 0; j < kDigits; ++j) offset += d.at[j] * s.of[j];
  return offset;
}

// The coordinates of an index below 2^31.
struct GemmCoordinates32 {
  uint32_t at[kDigits];
};
// The coordinates of index i. `divisors` are the sizes of the last kCount dimensions. If i is past the end, the first
// coordinate is too large.
template <int kCount> MINIDNN_HD GemmCoordinates32 coordinates_of(const FastDivmod (&divisors)[kCount], uint32_t i) {
  GemmCoordinates32 d;
#ifdef __CUDACC__
#pragma unroll
#endif
  for (int j = kDigits - 1; j > 0; --j) d.at[j] = uint32_t(divisors[j - kDigits + kCount].divmod(i));
  d.at[0] = i;
  return d;
}
MINIDNN_HD int64_t offset_of(const GemmStrides& s, const GemmCoordinates32& d) {
  int64_t offset = 0;
#ifdef __CUDACC__
#pragma unroll
#endif
  for (int j = 0; j < kDigits; ++j) offset += int64_t(d.at[j]) * s.of[j];
  return offset;
}

// An index below 2^31 of up to four dimensions, with fast divisors.
struct GemmIndex32 {
  uint32_t size = 0;
  // Divide by the sizes of dimensions 1 to 3; dimension 0 is the outermost.
  FastDivmod by[kDigits - 1];

  MINIDNN_HD GemmCoordinates32 coordinates(uint32_t i) const { return coordinates_of(by, i); }
};

// The pointers and scalars of one call of a matrix product.
struct GemmArgs {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;     // null without c, or if beta is 0
  const void* bias = nullptr;  // null without bias
  void* y = nullptr;
  float alpha = 1, beta = 0, activation_alpha = 0;
  // For GemmStore::summed: sums and sums of squares of y's columns, [warpgroups along m, 2, n].
  float* sums = nullptr;
};

}  // namespace minidnn
