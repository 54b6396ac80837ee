// SPDX-License-Identifier: Apache-2.0
// Local contrast norm of dense tensors over one or two spatial dimensions, in one launch; see sliding_window.cuh.
#include "cuda/lrn/sliding_window.cuh"

namespace minidnn {

// size: the window size; 0: any size, rows that need not be aligned, and means that may be absent.
template <class T, int kVec, Axis axis, bool centered, int size, bool backward>
__global__ void __launch_bounds__(window_threads(axis, is_register_heavy(centered, backward, size)),
                                  window_threads_per_sm(is_register_heavy(centered, backward, size)) /
                                      window_threads(axis, is_register_heavy(centered, backward, size)))
    lrn_spatial_window(const __grid_constant__ SlidingWindowParams r, const __grid_constant__ SmemLayout smem,
                       LrnArgs a, LrnFactors f) {
  extern __shared__ __align__(16) unsigned char shared[];
  SlidingWindow<T, kVec, axis, size != 0, centered, size, backward>(r, smem, shared).run(a, f);
}

}  // namespace minidnn
