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

// A ring of `count` slots (buffers for pixels of a row) in shared memory, and the slot that one producer or consumer
// uses next. Each slot has two mbarriers. The mbarrier full() completes when the slot is loaded, and empty() when all
// consumers have released the slot. In memory, kHaloSlots mbarriers for full() precede those for empty().
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
  // Advances by `slots` slots (buffers) of the ring. `slots` must be less than `count`, the number of slots in the
  // ring.
  __device__ __forceinline__ void skip(int slots) {
    at += slots;
    if (at >= count) {
      at -= count;
      parity ^= 1;
    }
  }
};

// Returns the wgmma descriptor of a matrix in a swizzled tile. The matrix may start at any row of the tile; a row has
// 128 bytes (64 columns). If the matrix has more than 64 columns, each further group of 64 columns starts `columns`
// bytes after the group before.
__device__ __forceinline__ uint64_t halo_matrix(uint32_t address, uint32_t columns) {
  return make_smem_descriptor<true>(address, columns, 1024);
}

// Lines of one image, one below the other. A line is 64 or 128 neighbouring positions of an image row. An image row
// consists of several lines, and `segment` is the index of a line within its image row. All lines of a LineSpan have
// the same segment. `count` is the number of lines of the LineSpan.
struct LineSpan {
  int image, segment, line, count;

  // Takes as many lines as possible, from line `at` to the line before `last`. The span ends at the bottom of the image
  // at the latest.
  __device__ LineSpan(const HaloLines& w, int at, int last) {
    const uint32_t column = w.per_image.quotient(uint32_t(at));
    line = at - int(column * w.per_image.divisor);
    count = min_of(int(w.per_image.divisor) - line, last - at);
    image = int(w.segments.quotient(column));
    segment = int(column - uint32_t(image) * w.segments.divisor);
  }
};

}  // namespace minidnn
