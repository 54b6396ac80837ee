// SPDX-License-Identifier: Apache-2.0
// Pooling of planes in shared memory; planes.h and planes_backward.h have the arithmetic and say how. A block a grid
// position.
#include "cuda/pooling/planes_backward.h"

namespace minidnn {

template <class T, bool is_max, int kWindow, int kStride>
__global__ void __launch_bounds__(pooling::kThreads, pooling::kBlocks)
    pooling_planes_forward(const __grid_constant__ pooling::Planes s, const __grid_constant__ PoolingArgs a) {
  extern __shared__ __align__(16) unsigned char room[];
  using Step = pooling::Step<kWindow, kStride>;
  pooling::PlanesForward<T, is_max, Step> work{
      s, a, {s, int64_t(blockIdx.x), false}, room, {int(threadIdx.x), int(blockDim.x)}};
  work.load();
  cp_async_wait_group<0>();
  __syncthreads();
  if constexpr (kWindow > 0) work.pool_with_indices();
  else work.pool_any();
}

// Windows that the compiler knows, without indices.
template <class T, bool is_max, int kWindow, int kStride>
__global__ void __launch_bounds__(pooling::kKnownThreads, pooling::kTileBlocks)
    pooling_planes_tiles(const __grid_constant__ pooling::Planes s, const __grid_constant__ PoolingArgs a) {
  extern __shared__ __align__(16) unsigned char room[];
  pooling::PlanesForward<T, is_max, pooling::Step<kWindow, kStride>> work{
      s, a, {s, int64_t(blockIdx.x), false}, room, {int(threadIdx.x), int(blockDim.x)}};
  work.load();
  cp_async_wait_group<0>();
  __syncthreads();
  work.pool_tiles();
  __syncthreads();
  work.store();
}

template <class T, bool is_max, int kWindow, int kStride>
__global__ void __launch_bounds__(kWindow > 0 ? pooling::kKnownThreads : pooling::kThreads,
                                  kWindow == 0                      ? pooling::kBlocks
                                  : pooling::gathers_tiles(kStride) ? pooling::kTileBlocks
                                                                    : pooling::kKnownBlocks)
    pooling_planes_backward(const __grid_constant__ pooling::Planes s, const __grid_constant__ PoolingArgs a) {
  extern __shared__ __align__(16) unsigned char room[];
  using Step = pooling::Step<kWindow, kStride>;
  pooling::PlanesBackward<T, is_max, Step> work{
      s, a, {s, int64_t(blockIdx.x), true}, room, {int(threadIdx.x), int(blockDim.x)}};
  work.load();
  const bool given = is_max && s.index_bytes;
  if (given) work.find();  // while dy is on its way
  cp_async_wait_group<0>();
  __syncthreads();
  if (!given) {
    work.find();
    __syncthreads();
  }
  if constexpr (kWindow == 0)
    if (s.whole) return work.spread();
  work.gather();
  __syncthreads();
  work.store(work.dx());
}

// Gradients of maxima where the compiler knows the windows. Those whose indices have no bytes are found here.
template <class T, int kWindow, int kStride, int kIndexBytes>
__global__ void __launch_bounds__(pooling::kKnownThreads, pooling::maxima_blocks(kIndexBytes > 0))
    pooling_planes_maxima(const __grid_constant__ pooling::Planes s, const __grid_constant__ PoolingArgs a) {
  extern __shared__ __align__(16) unsigned char room[];
  pooling::PlanesBackward<T, true, pooling::Step<kWindow, kStride>> work{
      s, a, {s, int64_t(blockIdx.x), true}, room, {int(threadIdx.x), int(blockDim.x)}};
  work.load();
  if constexpr (kIndexBytes > 0) work.template load_indices<typename pooling::IndexOf<kIndexBytes>::type>();
  work.clear_sums();
  cp_async_wait_group<0>();
  __syncthreads();
  work.template pool_maxima<kIndexBytes>();
  work.store_sums();
}

}  // namespace minidnn
