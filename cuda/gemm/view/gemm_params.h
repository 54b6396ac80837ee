// SPDX-License-Identifier: Apache-2.0
// What the host and the kernels of matrix products share: indices of up to four digits (dimensions), strides, and the
// arguments of a call. This file does not use the standard library, because kernels include it.
#pragma once
#include "cpp/core/host_device/fast_divmod.h"

namespace minidnn {

constexpr int kDigits = 4;

// An index of up to four digits (dimensions). The last digit changes fastest. `digit` are the sizes of the digits, and
// `size` is their product. If an index needs fewer than four digits, the leading digits have size 1.
struct GemmIndex {
  int64_t size = 1;
  int64_t digit[kDigits]{1, 1, 1, 1};
  int64_t first = kDigits - 1;  // the first digit (dimension) that is in use; all digits before it have size 1
};

struct GemmStrides {
  int64_t of[kDigits]{};  // the stride of each digit (dimension) of an index, in elements
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

// The coordinates of an index below 2^31: the values of its digits (dimensions).
struct GemmCoordinates32 {
  uint32_t at[kDigits];
};
// Returns the coordinates of index i. `divisors` are the sizes of the last kCount digits (dimensions) of the index. If
// i is beyond the end of the index, the first coordinate is at least the size of the first digit.
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

// An index of up to four digits (dimensions), whose size is below 2^31. It includes the divisors that compute its
// coordinates.
struct GemmIndex32 {
  uint32_t size = 0;
  // For divisions by the sizes of digits (dimensions) 1, 2 and 3 of the index; digit 0 is the outermost.
  FastDivmod by[kDigits - 1];

  MINIDNN_HD GemmCoordinates32 coordinates(uint32_t i) const { return coordinates_of(by, i); }
};

// The pointers and scalars of one call of a matrix product.
struct GemmArgs {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;     // null if the product has no c, or if beta is 0
  const void* bias = nullptr;  // null if the product has no bias
  void* y = nullptr;
  float alpha = 1, beta = 0, activation_alpha = 0;
  // For GemmStore::summed: the sum of the elements of each column of y, and the sum of their squares. The layout is
  // [warpgroups along m, 2, n].
  float* sums = nullptr;
};

}  // namespace minidnn
