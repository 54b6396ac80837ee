// SPDX-License-Identifier: Apache-2.0
// Code that nchw.cu and nchw_filter.cu share. It copies a tile of planes (NCHW) to shared memory, and reads rows of
// that tile.
#pragma once
#include "cuda/conv/depthwise/group_conv.cuh"
#include "cuda/conv/depthwise/nchw/nchw_params.h"
#include "cuda/device/ptx/griddep.cuh"

namespace minidnn {

constexpr int kMaxThreads = 256;

// Reads n floats from shared memory. `from` must be aligned to 16 bytes.
template <int n> __device__ __forceinline__ void read_row(float (&v)[n], const float* from) {
#pragma unroll
  for (int i = 0; i + 4 <= n; i += 4) read_quad(reinterpret_cast<float(&)[4]>(v[i]), from + i);
  constexpr int kDone = n / 4 * 4;
  if constexpr (n % 4 >= 2) {
    const float2 two = *reinterpret_cast<const float2*>(from + kDone);
    v[kDone] = two.x;
    v[kDone + 1] = two.y;
  }
  if constexpr (n % 2 == 1) v[n - 1] = from[n - 1];
}

// Reads the inputs of 4 adjacent outputs in one row, for kS columns of the window. At stride 2 (kHop = 2), even and odd
// columns are stored apart, `half` floats from each other, to avoid bank conflicts.
template <int kS, int kHop> __device__ __forceinline__ void read_reach(float (&v)[3 * kHop + kS], const float* from,
                                                                       int32_t half) {
  if constexpr (kHop == 2) {
    constexpr int kEven = (6 + kS + 1) / 2, kOdd = (6 + kS) / 2;
    float even[kEven == 7 ? 8 : kEven], odd[kOdd];
    read_row(even, from);
    read_row(odd, from + half);
#pragma unroll
    for (int i = 0; i < 6 + kS; ++i) v[i] = i % 2 ? odd[i / 2] : even[i / 2];
  } else {
    read_row(v, from);
  }
}

// the part of a plane that a tile contains; strides in elements
struct PlaneRegion {
  StridedIndex height, width;
  int32_t row_stride, column_stride;
};

// Copies planes to a tile in shared memory. Zeros stand for the padding, and for the gaps of an upsampled dy. 16
// threads copy a row.
template <class T, bool kHalves> struct PlaneLoader {
  int32_t rows, columns;
  // the distances of rows and planes in shared memory, in floats
  int32_t pitch, plane;
  // If kHalves, the tile's rows have their even columns first. The odd columns begin at float `half`.
  int32_t half;
  // A thread copies kPasses elements of a row, at distances of kLanes columns in `in` and kStep floats in shared
  // memory.
  static constexpr int kLanes = 16, kStep = kHalves ? kLanes / 2 : kLanes;
  // kPasses * kLanes is 80 columns, enough for 64 outputs and windows up to 17 columns wide.
  static constexpr int kPasses = 5;

  // from_plane(i) returns the address of the i-th plane, or null if it does not exist and is not copied.
  template <class FromPlane>
  __device__ __forceinline__ void load(float* to, int32_t planes, FromPlane from_plane, const PlaneRegion& from) const {
    const StridedIndex &height = from.height, &width = from.width;
    const int32_t row_stride = from.row_stride, column_stride = from.column_stride;
    const int32_t lane = threadIdx.x % kLanes, rows_at_once = blockDim.x / kLanes;
    const bool whole = width.step == 1 && width.up == 1 && height.up == 1;
    const uint32_t shared = cvta_to_shared(to);
#pragma unroll 1
    for (int32_t column = lane; column < columns; column += kLanes * kPasses) {
      // Bit j: whether the image (`inside`) and the tile (`wanted`) have the column that the thread copies in iteration
      // j.
      uint32_t inside = 0, wanted = 0;
#pragma unroll
      for (int j = 0; j < kPasses; ++j) {
        inside |= uint32_t(uint32_t(width.first + column + j * kLanes) < uint32_t(width.size)) << j;
        wanted |= uint32_t(column + j * kLanes < columns) << j;
      }
      int32_t of_plane = 0, found = -1, row = threadIdx.x / kLanes;
      const T* first = nullptr;
#pragma unroll 1
      for (;; row += rows_at_once) {
        while (row >= rows) {
          row -= rows;
          ++of_plane;
        }
        if (of_plane >= planes) break;
        if (of_plane != found) {
          first = from_plane(found = of_plane);
          if (whole && first) first += int64_t(width.first + column) * column_stride;
        }
        if (!first) continue;
        const int32_t target = of_plane * plane + row * pitch + (kHalves ? column % 2 * half + column / 2 : column);
        if (whole) {
          const int32_t at = height.first + row * height.step;
          const uint32_t bits = uint32_t(at) < uint32_t(height.size) ? inside : 0;
          // This address may be outside of the image; nothing is read from it then.
          const T* line = first + int32_t(uint32_t(at) * uint32_t(row_stride));
          const auto load_row = [&](int32_t next) {
            if constexpr (sizeof(T) == 4) {
#pragma unroll
              for (int j = 0; j < kPasses; ++j)
                cp_async<4>(shared + (target + j * kStep) * 4, line + j * next, bits & 1u << j, wanted & 1u << j);
            } else {
              float v[kPasses];
#pragma unroll
              for (int j = 0; j < kPasses; ++j) v[j] = bits & 1u << j ? float(line[j * next]) : 0.0f;
#pragma unroll
              for (int j = 0; j < kPasses; ++j)
                if (wanted & 1u << j) to[target + j * kStep] = v[j];
            }
          };
          if (column_stride == 1) load_row(kLanes);
          else load_row(kLanes * column_stride);
        } else {
          const int32_t at = height.index(row);
          const T* line = first + max_of(at, 0) * row_stride;
#pragma unroll 1
          for (int j = 0; j < kPasses && wanted >> j; ++j) {
            const int32_t index = width.index(column + j * kLanes);
            const T* element = line + max_of(index, 0) * column_stride;
            const bool exists = (at | index) >= 0;
            if constexpr (sizeof(T) == 4) cp_async<4>(shared + (target + j * kStep) * 4, element, exists);
            else to[target + j * kStep] = exists ? float(*element) : 0.0f;
          }
        }
      }
    }
  }
};

}  // namespace minidnn
