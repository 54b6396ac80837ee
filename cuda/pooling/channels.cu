// SPDX-License-Identifier: Apache-2.0
// Pooling by vectors of channels; channels.h and channels_backward.h have the arithmetic and say how. The grid's y are
// images, each block taking those `gridDim.y` apart.
#include "cuda/pooling/channels_backward.h"

namespace minidnn {

template <class T, bool is_max, int kWindow, int kStride>
__global__ void __launch_bounds__(256, kWindow > 0 ? 3 : 2)
    pooling_channels_forward(const __grid_constant__ pooling::Channels s, const __grid_constant__ PoolingArgs a) {
  using Work = pooling::ChannelsForward<T, is_max, pooling::Step<kWindow, kStride>>;
  for (int64_t image = blockIdx.y; image < s.images; image += gridDim.y) {
    if constexpr (kWindow > 0) {
      const int item = int(blockIdx.x * blockDim.x + threadIdx.x);
      if (item >= s.items) return;
      Work{s, a, image, item}.pool();
    } else if (s.down) {
      const int item = int(blockIdx.x * blockDim.x + threadIdx.x);
      if (item >= s.items) return;
      Work{s, a, image, item}.pool_down();
    } else {
      extern __shared__ __align__(16) unsigned char room[];
      const int members = int(blockDim.x) / s.teams, team = int(threadIdx.x) / members;
      const int member = int(threadIdx.x) - team * members, item = int(blockIdx.x) * members + member;
      auto* parts = reinterpret_cast<typename Work::Part*>(room);
      Work work{s, a, image, item};
      if (item < s.items) work.find(team, parts[threadIdx.x]);
      __syncthreads();
      if (item < s.items && team == 0) work.finish(parts + member, members);
      __syncthreads();
    }
  }
}

template <class T, bool is_max, int kWindow, int kStride>
__global__ void __launch_bounds__(256, 3)
    pooling_channels_backward(const __grid_constant__ pooling::Channels s, const __grid_constant__ PoolingArgs a) {
  extern __shared__ __align__(16) unsigned char room[];
  for (int64_t image = blockIdx.y; image < s.images; image += gridDim.y) {
    pooling::ChannelsBackward<T, is_max, pooling::Step<kWindow, kStride>> work{
        s, a, image, room, {int(threadIdx.x), int(blockDim.x)}};
    if constexpr (!is_max && kStride == 1) {
      const int item = int(blockIdx.x * blockDim.x + threadIdx.x);
      if (item >= s.items) return;
      work.pool_shares(item);
      continue;
    }
    work.choose(int(blockIdx.x));
    if (is_max && s.scatter) {
      work.load();
      cp_async_commit_group();
      work.find();
      cp_async_wait_group<0>();
      __syncthreads();
      each_turn(work, s.apart_h, s.apart_w);
      work.store();
    } else if constexpr (!is_max || kWindow == 0) {
      work.find();
      __syncthreads();
      work.gather();
    }
    __syncthreads();
  }
}

// Maxima's gradients by strips, where the compiler knows the windows. Maxima whose indices have no bytes are found here.
template <class T, int kWindow, int kStride, int kIndexBytes>
__global__ void __launch_bounds__(pooling::kStripThreads,
                                  pooling::strip_blocks(kWindow, kStride, sizeof(T), kIndexBytes > 0))
    pooling_channels_maxima(const __grid_constant__ pooling::Channels s, const __grid_constant__ PoolingArgs a) {
  extern __shared__ __align__(16) unsigned char room[];
  const int item = int((blockIdx.x * blockDim.x + threadIdx.x) / 32);  // of a warp
  if (item >= s.items) return;
  using Work = pooling::ChannelsMaxima<T, pooling::Step<kWindow, kStride>, kIndexBytes>;
  for (int64_t image = blockIdx.y; image < s.images; image += gridDim.y)
    Work{s, a, image, room, int(threadIdx.x)}.pool(item);
}

}  // namespace minidnn
