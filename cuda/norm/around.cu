// SPDX-License-Identifier: Apache-2.0
// Local contrast norm of dense tensors over one or two spatial dimensions, in one launch; see walk.cuh.
#include "cuda/norm/walk.cuh"

namespace minidnn {

// size: the window size; 0: any size, rows that need not be aligned, and means that may be absent.
template <class T, int V, Along along, bool centered, int size, bool backward>
__global__ void __launch_bounds__(walk_threads(along, walk_is_heavy(centered, backward, size)),
                                  walk_residents(walk_is_heavy(centered, backward, size)) /
                                      walk_threads(along, walk_is_heavy(centered, backward, size)))
    norm_around(const __grid_constant__ NormWalk r, const __grid_constant__ SmemLayout room, LocalNormArgs a,
                WalkFactors f) {
  extern __shared__ __align__(16) unsigned char shared[];
  Walk<T, V, along, size != 0, centered, size, backward>(r, room, shared).run(a, f);
}

}  // namespace minidnn
