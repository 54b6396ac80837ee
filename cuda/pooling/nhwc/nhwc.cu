// SPDX-License-Identifier: Apache-2.0
// Pooling of tensors with contiguous channels (NHWC), forward and backward. A thread has 16 bytes of channels, or one
// 32-bit word of channels. Windows of compile-time size are those whose size is a template argument of the kernel.
// Grid: the first dimension is the blocks of an image, and the second dimension the images (a block processes every
// gridDim.y-th image). Block: 256 threads; 128 threads in max_backward.
// Shared memory (dynamic). Forward with windows of any size: the partial results of teams of threads. Backward: see
// NhwcBackward. max_backward: see StripLayout.
// Memory: y or dx is written once. Elements of x or dy that are in several windows are read several times, mostly from
// the L1 or L2 cache.
// Numerics: sums are in float32. Sums of more than 64 terms are compensated. Of several equal maxima, the first one
// counts. NaN is larger than every number.
#include "cuda/pooling/nhwc/nhwc_backward.cuh"
#include "cuda/pooling/nhwc/nhwc_max_backward.cuh"

namespace minidnn::cuda::pooling {

// The forward kernel, which computes y and indices. A thread computes several windows if the window size is a template
// argument or s.several_windows is set. Otherwise, s.teams teams of threads divide the rows of each window, and the
// first team combines their results.
template <class T, bool kIsMax, int kWindow, int kStride>
__global__ void __launch_bounds__(256, kWindow > 0 ? 3 : 2)
    nhwc_forward(const __grid_constant__ NhwcParams s, const __grid_constant__ PoolingArgs a) {
  using Work = NhwcForward<T, kIsMax, Step<kWindow, kStride>>;
  for (int64_t image = blockIdx.y; image < s.images; image += gridDim.y) {
    if constexpr (kWindow > 0) {
      const int item = int(blockIdx.x * blockDim.x + threadIdx.x);
      if (item >= s.items) return;
      Work{s, a, image, item}.pool();
    } else if (s.several_windows) {
      const int item = int(blockIdx.x * blockDim.x + threadIdx.x);
      if (item >= s.items) return;
      Work{s, a, image, item}.pool_down();
    } else {
      extern __shared__ __align__(16) unsigned char smem[];
      const int members = int(blockDim.x) / s.teams, team = int(threadIdx.x) / members;
      const int member = int(threadIdx.x) - team * members, item = int(blockIdx.x) * members + member;
      auto* partials = reinterpret_cast<typename Work::Partial*>(smem);
      Work work{s, a, image, item};
      if (item < s.items) work.find(team, partials[threadIdx.x]);
      __syncthreads();
      if (item < s.items && team == 0) work.finish(partials + member, members);
      __syncthreads();
    }
  }
}

// The backward kernel, which computes dx in one of three ways.
// - Averages at a compile-time stride of 1: a thread computes a tile of dx, without shared memory.
// - Maxima if s.scatter is set: a block computes a tile of dx. Windows add their dy to sums in shared memory.
// - All other problems: a block computes a tile of dx. Each element of dx sums the contributions of the windows that
//   contain it.
template <class T, bool kIsMax, int kWindow, int kStride>
__global__ void __launch_bounds__(256, 3)
    nhwc_backward(const __grid_constant__ NhwcParams s, const __grid_constant__ PoolingArgs a) {
  extern __shared__ __align__(16) unsigned char smem[];
  for (int64_t image = blockIdx.y; image < s.images; image += gridDim.y) {
    NhwcBackward<T, kIsMax, Step<kWindow, kStride>> work{s, a, image, smem, {int(threadIdx.x), int(blockDim.x)}};
    if constexpr (!kIsMax && kStride == 1) {
      const int item = int(blockIdx.x * blockDim.x + threadIdx.x);
      if (item >= s.items) return;
      work.pool_scaled_dy(item);
      continue;
    }
    work.choose(int(blockIdx.x));
    if (kIsMax && s.scatter) {
      work.load();
      cp_async_commit_group();
      work.find();
      cp_async_wait_group<0>();
      __syncthreads();
      each_phase(work, s.phases_down, s.phases_across);
      work.store();
    } else if constexpr (!kIsMax || kWindow == 0) {
      work.find();
      __syncthreads();
      work.gather();
    }
    __syncthreads();
  }
}

// The backward kernel for maxima with windows of compile-time size. A warp computes a strip of dx: some adjacent
// columns, row by row. kIndexBytes is the number of bytes of a given index, or 0 if the kernel finds the maxima.
template <class T, int kWindow, int kStride, int kIndexBytes>
__global__ void __launch_bounds__(kStripThreads, strip_blocks(kWindow, kStride, sizeof(T), kIndexBytes > 0))
    nhwc_max_backward(const __grid_constant__ NhwcParams s, const __grid_constant__ PoolingArgs a) {
  extern __shared__ __align__(16) unsigned char smem[];
  // the index of the strip that this warp computes
  const int item = int((blockIdx.x * blockDim.x + threadIdx.x) / 32);
  if (item >= s.items) return;
  using Work = NhwcMaxBackward<T, Step<kWindow, kStride>, kIndexBytes>;
  for (int64_t image = blockIdx.y; image < s.images; image += gridDim.y)
    Work{s, a, image, smem, int(threadIdx.x)}.pool(item);
}

}  // namespace minidnn::cuda::pooling
