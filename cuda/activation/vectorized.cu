// SPDX-License-Identifier: Apache-2.0
// Activations of dense tensors with equal strides. A thread loads all of its 16-byte vectors before it uses the first
// one. A `switch` between the loads and the stores selects the activation. With a kernel per activation there would be
// 104 kernels.
// - Grid: one block per tile (cuda/device/block_tile.cuh). Block: 256 threads. Shared memory: none.
// - Bytes: x (in backward, x and dy) is read once. The result is written once.
// - Loads in flight on an SM: in forward, 2 in each of 1536 threads (48 KB); in backward, 4 in each of 1024 threads (64
//   KB).
// - Numerics: float32. 16-bit results use the shorter formulas of fast_activation.cuh.
#include "cuda/device/block_tile.cuh"
#include "cuda/device/fast_activation.cuh"

namespace minidnn {

template <class T, bool kBackward, int kVectors, int kWidth> struct ActivateAll {
  const Vec<T, kWidth> (&x)[kVectors];
  const Vec<T, kWidth> (&dy)[kVectors];
  Vec<T, kWidth> (&out)[kVectors];
  Accumulator<T> alpha;
  template <class Mode> __device__ __forceinline__ void operator()(Mode) const {
    using Acc = Accumulator<T>;
    constexpr Activation kMode = Mode::value;
    constexpr Formula kFormula = sizeof(T) == 2 ? Formula::fast : Formula::accurate;
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const Acc at = Acc(x[v].get(i));
        if constexpr (kBackward) out[v].put(i, T(Acc(dy[v].get(i)) * activate_gradient<kMode, kFormula>(at, alpha)));
        else out[v].put(i, T(activate<kMode, kFormula>(at, alpha)));
      }
  }
};

template <class T, bool kBackward>
__global__ void __launch_bounds__(kTileThreads, sizeof(T) == 8 ? 2
                                                : kBackward    ? 4
                                                               : 6)
    activation_vectorized(const ActivationArgs a, int64_t n, int64_t mode, int64_t aligned) {
  constexpr int kVectors = kTileVectors, kWidth = 16 / int(sizeof(T));
  const BlockTile<kVectors, kWidth> tile(n, aligned);
  Vec<T, kWidth> x[kVectors], dy[kVectors], out[kVectors];
  tile.load(a.x, x);
  if constexpr (kBackward) tile.load(a.dy, dy);
  with_activation(Activation(mode), ActivateAll<T, kBackward, kVectors, kWidth>{x, dy, out, Accumulator<T>(a.alpha)});
  tile.store(a.out, out);
}

}  // namespace minidnn
