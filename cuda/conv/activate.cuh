// SPDX-License-Identifier: Apache-2.0
// A run-time activation of the n values that a thread holds in registers. Thirteen formulas n times over would be most of
// a kernel, so only relu is unrolled; for the others the values go round in a ring, four at a time past one copy of them.
#pragma once
#include "cpp/activation/activation_math.h"

namespace minidnn {

namespace detail {
struct ActivateFour {
  float (&v)[4];
  float alpha;
  template <class Mode> __device__ void operator()(Mode) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = activate<Mode::value>(v[i], alpha);
  }
};
}  // namespace detail

template <int n> __device__ __forceinline__ void activate_all(Activation mode, float (&v)[n], float alpha) {
  static_assert(n % 4 == 0);
  if (mode == Activation::identity) return;
  if (mode == Activation::relu) {
#pragma unroll
    for (int i = 0; i < n; ++i) v[i] = activate<Activation::relu>(v[i], alpha);
    return;
  }
#pragma unroll 1
  for (int i = 0; i < n; i += 4) {
    float four[4] = {v[0], v[1], v[2], v[3]};
    with_activation(mode, detail::ActivateFour{four, alpha});
#pragma unroll
    for (int j = 4; j < n; ++j) v[j - 4] = v[j];
#pragma unroll
    for (int j = 0; j < 4; ++j) v[n - 4 + j] = four[j];
  }
}

}  // namespace minidnn
