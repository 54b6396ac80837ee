// SPDX-License-Identifier: Apache-2.0
// Pooling of contiguous planes (NCHW), forward and backward. A block has either several whole planes, or several rows
// of one plane. Windows of compile-time size are those whose size is a template argument of the kernel.
// Grid: one-dimensional. Block: 256 threads; at most 128 threads in forward_tiles, in max_backward and in backward with
// windows of compile-time size.
// Shared memory (dynamic): x, then dy or y. In backward, one value for each window follows: the index of its maximum or
// the scaled dy (dy / divisor). In max_backward: x or indices, then dy, then the sums of dx.
// Memory: a block reads its rows of x and dy once, and writes its rows of y or dx once. If two blocks of a plane need
// the same row, both read it.
// Numerics: sums are in float32. Sums of more than 64 terms are compensated. Of several equal maxima, the first one
// counts. NaN is larger than every number.
#include "cuda/pooling/nchw/nchw_backward.cuh"

namespace minidnn::cuda::pooling {

// The forward kernel that computes y and indices. If kWindow > 0, it computes maxima with indices, for windows of this
// size. If kWindow = 0, it computes maxima or averages, for windows of any size.
template <class T, bool kIsMax, int kWindow, int kStride>
__global__ void __launch_bounds__(kNchwThreads, kNchwBlocks)
    nchw_forward(const __grid_constant__ NchwParams s, const __grid_constant__ PoolingArgs a) {
  extern __shared__ __align__(16) unsigned char smem[];
  using Step = Step<kWindow, kStride>;
  NchwForward<T, kIsMax, Step> work{s, a, {s, int64_t(blockIdx.x), false}, smem, {int(threadIdx.x), int(blockDim.x)}};
  work.load();
  cp_async_wait_group<0>();
  __syncthreads();
  if constexpr (kWindow > 0) work.pool_with_indices();
  else work.pool_any();
}

// The forward kernel that computes y without indices, for windows of compile-time size. A thread computes a tile of y
// at a time.
template <class T, bool kIsMax, int kWindow, int kStride>
__global__ void __launch_bounds__(kStaticThreads, kTileBlocks)
    nchw_forward_tiles(const __grid_constant__ NchwParams s, const __grid_constant__ PoolingArgs a) {
  extern __shared__ __align__(16) unsigned char smem[];
  NchwForward<T, kIsMax, Step<kWindow, kStride>> work{
      s, a, {s, int64_t(blockIdx.x), false}, smem, {int(threadIdx.x), int(blockDim.x)}};
  work.load();
  cp_async_wait_group<0>();
  __syncthreads();
  work.pool_tiles();
  __syncthreads();
  work.store();
}

// The backward kernel for averages. It also computes the gradients of maxima if the window size is not a template
// argument.
template <class T, bool kIsMax, int kWindow, int kStride>
__global__ void __launch_bounds__(kWindow > 0 ? kStaticThreads : kNchwThreads, kWindow == 0             ? kNchwBlocks
                                                                               : gathers_tiles(kStride) ? kTileBlocks
                                                                                                        : kStaticBlocks)
    nchw_backward(const __grid_constant__ NchwParams s, const __grid_constant__ PoolingArgs a) {
  extern __shared__ __align__(16) unsigned char smem[];
  using Step = Step<kWindow, kStride>;
  NchwBackward<T, kIsMax, Step> work{s, a, {s, int64_t(blockIdx.x), true}, smem, {int(threadIdx.x), int(blockDim.x)}};
  work.load();
  const bool given = kIsMax && s.index_bytes;
  if (given) work.find();  // Reads the given indices while the copy of dy is in flight.
  cp_async_wait_group<0>();
  __syncthreads();
  if (!given) {
    work.find();
    __syncthreads();
  }
  if constexpr (kWindow == 0)
    if (s.one_window) return work.store_one_window();
  work.gather();
  __syncthreads();
  work.store(work.dx());
}

// The backward kernel for maxima with windows of compile-time size. kIndexBytes is the number of bytes of a given
// index, or 0 if the kernel finds the maxima.
template <class T, int kWindow, int kStride, int kIndexBytes>
__global__ void __launch_bounds__(kStaticThreads, max_backward_blocks(kIndexBytes > 0))
    nchw_max_backward(const __grid_constant__ NchwParams s, const __grid_constant__ PoolingArgs a) {
  extern __shared__ __align__(16) unsigned char smem[];
  NchwBackward<T, true, Step<kWindow, kStride>> work{
      s, a, {s, int64_t(blockIdx.x), true}, smem, {int(threadIdx.x), int(blockDim.x)}};
  work.load();
  if constexpr (kIndexBytes > 0) work.template load_indices<typename IndexOf<kIndexBytes>::type>();
  work.clear_sums();
  cp_async_wait_group<0>();
  __syncthreads();
  work.template pool_maxima<kIndexBytes>();
  work.store_sums();
}

}  // namespace minidnn::cuda::pooling
