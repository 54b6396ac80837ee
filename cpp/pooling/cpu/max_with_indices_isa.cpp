// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.pooling.max_with_indices, compiled once per instruction set.
#include "cpp/pooling/cpu/max_with_indices_kernel.h"
#include "cpp/simd/simd.h"

namespace minidnn::MINIDNN_ISA {
namespace {

using Ints = Vector<int32_t>;

template <class T>
void update_maxima(float* largest, int32_t* indices, int64_t n, const void* from, int64_t step, int32_t index,
                   int32_t index_step) {
  const T* x = static_cast<const T*>(from);
  Ints lane{};
  for (int e = 0; e < kFloats; ++e) lane[e] = e;
  // Lanes after the n-th element may overflow, so the computation is unsigned.
  using Unsigned = Vector<uint32_t>;
  for (int64_t i = 0; i < n; i += kFloats) {
    const int32_t left = int32_t(min_of<int64_t>(n - i, kFloats));
    Floats v{};
    if (step == 1) v = left == kFloats ? load_floats(x + i) : load_first(x + i, left);
    else
      for (int e = 0; e < left; ++e) v[e] = float(x[(i + e) * step]);
    const Floats most = load(largest + i);
    Ints at;
    __builtin_memcpy(&at, indices + i, sizeof at);
    const Ints larger = ((v > most) | ((v != v) & (most == most)) | (at < 0)) & (lane < left);
    store(largest + i, select(larger, v, most));
    const auto here = Ints(uint32_t(index) + (uint32_t(i) + Unsigned(lane)) * uint32_t(index_step));
    at = (larger & here) | (~larger & at);
    __builtin_memcpy(indices + i, &at, sizeof at);
  }
}

}  // namespace

extern const MaxWithIndicesKernels max_with_indices_kernels;
const MaxWithIndicesKernels max_with_indices_kernels = {update_maxima<float>, update_maxima<bfloat16>,
                                                        update_maxima<float16>};

}  // namespace minidnn::MINIDNN_ISA
