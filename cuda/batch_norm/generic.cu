// SPDX-License-Identifier: Apache-2.0
// Batch norm of tensors with any strides, in two launches. The first launch computes the sums of each channel, by a
// block or a thread, and stores the results in the output tensors saved_mean and saved_inv_std (forward) or dscale and
// dbias (backward). The second launch computes all elements of y or dx. Inference needs only the second launch.
#include "cpp/batch_norm/batch_norm_math.h"
#include "cuda/device/grid.cuh"
#include "cuda/device/reduce.cuh"

namespace minidnn {

template <class T, NormDirection kDirection>
__global__ void __launch_bounds__(1024) norm_block_sums(const __grid_constant__ NormSpaces s, BatchNormArgs a) {
  int64_t groups = s.groups.size;
  for (int64_t group = blockIdx.x; group < groups; group += gridDim.x)
    norm_sums<T, kDirection>(s, a, BlockReduce{}, group);
}

template <class T, NormDirection kDirection>
__global__ void __launch_bounds__(256) norm_thread_sums(const __grid_constant__ NormSpaces s, BatchNormArgs a) {
  grid_stride(s.groups.size, [&](int64_t group) { norm_sums<T, kDirection>(s, a, SingleThread{}, group); });
}

template <class T, NormDirection kDirection>
__global__ void __launch_bounds__(256) norm_map(const __grid_constant__ NormSpaces s, BatchNormArgs a) {
  grid_stride(s.all.size, [&](int64_t i) {
    NormOffsets at = s.all.offsets_of(i);
    norm_element<T, kDirection>(a, at, norm_coefficients<T, kDirection>(s, a, at.parameter));
  });
}

}  // namespace minidnn
