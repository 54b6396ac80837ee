// SPDX-License-Identifier: Apache-2.0
// The random words of cpp/random/random_math.h, with one instruction for each product.
#pragma once
#include "cpp/random/random_math.h"
#include "cuda/device/ptx/math.cuh"

namespace minidnn {

struct MulWide {
  __device__ __forceinline__ static uint64_t of(uint32_t a, uint32_t b) { return mul_wide(a, b); }
};
// The random words of elements 4 * group to 4 * group + 3, as in random_words().
__device__ __forceinline__ Four random_words_of(const PhiloxKeys& keys, uint64_t offset, uint64_t group) {
  return philox<MulWide>({{uint32_t(group), uint32_t(group >> 32), uint32_t(offset), uint32_t(offset >> 32)}}, keys);
}

}  // namespace minidnn
