// SPDX-License-Identifier: Apache-2.0
// Activations of dense tensors whose elements correspond by offset: vectors of 16 bytes, all loaded before the first
// use.
// A switch between the loads and the stores selects the mode: a kernel for each mode would make 104 kernels.
// In flight on an SM: forward, 2 loads of each of 1536 threads, 48 KB; backward, 4 loads of each of 1024 threads, 64
// KB.
#include "cpp/activation/activation_math.h"
#include "cuda/activation/approx_16bit.cuh"
#include "cuda/device/elementwise.cuh"

namespace minidnn {

template <class T, bool backward, int vectors, int items> struct ActivateAll {
  const Items<T, items> (&x)[vectors];
  const Items<T, items> (&dy)[vectors];
  Items<T, items> (&out)[vectors];
  Accumulator<T> alpha;
  template <class Mode> __device__ __forceinline__ void operator()(Mode) const {
    using Acc = Accumulator<T>;
    using Maths = ActivationMaths<Mode::value, sizeof(T) == 2>;
#pragma unroll
    for (int v = 0; v < vectors; ++v)
#pragma unroll
      for (int i = 0; i < items; ++i) {
        const Acc at = Acc(x[v].get(i));
        if constexpr (backward) out[v].put(i, T(Acc(dy[v].get(i)) * Maths::gradient(at, alpha)));
        else out[v].put(i, T(Maths::value(at, alpha)));
      }
  }
};

template <class T, bool backward>
__global__ void __launch_bounds__(kSliceThreads, sizeof(T) == 8 ? 2
                                                 : backward     ? 4
                                                                : 6)
    activation_vectorized(const ActivationArgs a, int64_t n, int64_t mode, int64_t aligned) {
  constexpr int kVectors = kSliceVectors, kItems = 16 / int(sizeof(T));
  const Slice<kVectors, kItems> slice(n, aligned);
  Items<T, kItems> x[kVectors], dy[kVectors], out[kVectors];
  slice.load(a.x, x);
  if constexpr (backward) slice.load(a.dy, dy);
  with_activation(Activation(mode), ActivateAll<T, backward, kVectors, kItems>{x, dy, out, Accumulator<T>(a.alpha)});
  slice.store(a.out, out);
}

}  // namespace minidnn
