// SPDX-License-Identifier: Apache-2.0
// Local contrast norm of dense tensors over one or two spatial dimensions, in one launch (see sliding_window.cuh).
#include "cuda/lrn/sliding_window.cuh"

namespace minidnn {

// The kernel of local contrast norm. kSize is the window size. If kSize is 0, the kernel supports any window size,
// unaligned rows and absent means.
template <class T, int kVec, Axis kAxis, bool kCentered, int kSize, bool kBackward>
__global__ void __launch_bounds__(window_threads(kAxis, is_register_heavy(kCentered, kBackward, kSize)),
                                  window_threads_per_sm(is_register_heavy(kCentered, kBackward, kSize)) /
                                      window_threads(kAxis, is_register_heavy(kCentered, kBackward, kSize)))
    lrn_spatial_window(const __grid_constant__ SlidingWindowParams r, const __grid_constant__ SmemLayout smem,
                       LrnArgs a, LrnFactors f) {
  extern __shared__ __align__(16) unsigned char shared[];
  SlidingWindow<T, kVec, kAxis, kSize != 0, kCentered, kSize, kBackward>(r, smem, shared).run(a, f);
}

}  // namespace minidnn
