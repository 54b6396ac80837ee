// SPDX-License-Identifier: Apache-2.0
// Code that wgmma_halo.cu and wgmma_halo_filter.cu share: a ring of lines in shared memory, wgmma descriptors of
// matrices that start at any pixel, and the order of the lines that a block processes. A line is 64 or 128 neighbouring
// positions of an image row.
#pragma once
#include "cuda/conv/wgmma_halo/wgmma_halo_params.h"
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/device/ptx/setmaxnreg.cuh"
#include "cuda/device/ptx/tma.cuh"
#include "cuda/device/ptx/wgmma.cuh"

namespace minidnn {

// A ring of `count` slots in shared memory, and the slot that a producer or a consumer uses next. A slot is a buffer
// for a row of pixels. Its barriers are full() (loaded) and empty() (released by all consumers).
struct HaloRing {
  uint32_t slots, pitch, barriers;
  int count, at = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ uint32_t slot() const { return slots + uint32_t(at) * pitch; }
  __device__ __forceinline__ uint32_t full() const { return barriers + 8 * uint32_t(at); }
  __device__ __forceinline__ uint32_t empty() const { return full() + 8 * kHaloSlots; }
  __device__ __forceinline__ void wait_full() const { mbarrier_wait_parity(full(), parity); }
  __device__ __forceinline__ void wait_empty() const { mbarrier_wait_parity(empty(), parity ^ 1); }
  __device__ __forceinline__ void next() {
    if (++at == count) {
      at = 0;
      parity ^= 1;
    }
  }
  // Advances by fewer slots than the ring has.
  __device__ __forceinline__ void skip(int slots) {
    at += slots;
    if (at >= count) {
      at -= count;
      parity ^= 1;
    }
  }
};

// The wgmma descriptor of a matrix that starts at any row (128 bytes) of a tile with 128-byte swizzle. Beyond 64
// columns, each next 64 columns start `columns` bytes later.
__device__ __forceinline__ uint64_t halo_matrix(uint32_t address, uint32_t columns) {
  return make_smem_descriptor<true>(address, columns, 1024);
}

// `count` consecutive lines (HaloLines) of one segment of an image, from `line` on.
struct LineSpan {
  int image, segment, line, count;

  // The lines from `at` on: up to the end of the segment, but not past line `last` - 1.
  __device__ LineSpan(const HaloLines& w, int at, int last) {
    const uint32_t column = w.per_image.quotient(uint32_t(at));
    line = at - int(column * w.per_image.divisor);
    count = min_of(int(w.per_image.divisor) - line, last - at);
    image = int(w.segments.quotient(column));
    segment = int(column - uint32_t(image) * w.segments.divisor);
  }
};

}  // namespace minidnn
