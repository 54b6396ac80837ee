// SPDX-License-Identifier: Apache-2.0
// Loops over spans of elements, between memory of a dtype and buffers of the C++ type in which elements of this dtype
// are computed (PointwiseType). Each dtype has its own object of ElementSpans.
#pragma once
#include <cstdint>

namespace minidnn {

// The number of elements that are processed at a time. Three operands with this many elements fit the first-level
// cache.
constexpr int64_t kPointwiseSpan = 512;

// Computes a function for n contiguous elements. Operands and result have the type in which elements of a dtype are
// computed (PointwiseType). `out` may be the same memory as an operand.
using PointwiseFunction = void (*)(const void* a, const void* b, const void* c, void* out, int64_t n);

struct ElementSpans {
  void (*read)(const void* from, int64_t stride, int64_t n, void* to);
  // Writes n contiguous elements. If `non_temporal` is set, the stores bypass the caches.
  void (*write)(const void* from, int64_t n, void* to, bool non_temporal);
  void (*write_strided)(const void* from, int64_t n, void* to, int64_t stride);
  // Writes n bools: whether each element of the buffer is not 0.
  void (*write_bool)(const void* from, int64_t n, void* to, int64_t stride);
};

}  // namespace minidnn
