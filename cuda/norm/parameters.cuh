// SPDX-License-Identifier: Apache-2.0
// Functions that load scale, bias, mean and inv_std, which are float32 in memory.
#pragma once
#include "cpp/core/host_device/hd.h"

namespace minidnn {

template <class T> __device__ __forceinline__ const T* typed(const void* p) { return static_cast<const T*>(p); }

// Loads the parameters (scale or bias) for the elements of a vector. If `from` is null, sets all of them to `none`.
template <int kVec>
__device__ __forceinline__ void read_parameters(float (&p)[kVec], const void* from, int64_t at, float none) {
  if (!from) {
#pragma unroll
    for (int k = 0; k < kVec; ++k) p[k] = none;
  } else if constexpr (kVec == 1) p[0] = typed<float>(from)[at];
  else {
#pragma unroll
    for (int k = 0; k < kVec; k += 4) {
      const float4 four = __ldg(reinterpret_cast<const float4*>(typed<float>(from) + at + k));
      p[k] = four.x;
      p[k + 1] = four.y;
      p[k + 2] = four.z;
      p[k + 3] = four.w;
    }
  }
}

}  // namespace minidnn
