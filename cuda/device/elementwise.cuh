// SPDX-License-Identifier: Apache-2.0
// Former names of vec.cuh, for kernels that still use them.
#pragma once
#include "cuda/device/vec.cuh"

namespace minidnn {

template <class T, int kItems> using Items = Vec<T, kItems>;

template <class T, int N>
__device__ __forceinline__ Vec<T, N> cut(const Vec<T, N>& low, const Vec<T, N>& high, uint32_t first) {
  return extract<T, N>(low, high, first);
}

}  // namespace minidnn
