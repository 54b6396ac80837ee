// SPDX-License-Identifier: Apache-2.0
// Implements the loops of packed_gemm_kernel.h. This file is compiled once per instruction set.
#include "cpp/rnn/cpu/packed_gemm_kernel.h"

#include "cpp/core/host_device/elementary.h"
#include "cpp/simd/simd.h"

namespace minidnn::MINIDNN_ISA {
namespace {

using V = Floats;

// Loads and stores the first n floats of a vector; n may be larger than a vector.
inline __attribute__((always_inline)) V load_some(const float* from, int64_t n) {
  return n >= kFloats ? load(from) : load_first(from, n);
}
inline __attribute__((always_inline)) void store_some(float* to, int64_t n, V v) {
  if (n >= kFloats) store(to, v);
  else store_first(to, n, v);
}

inline __attribute__((always_inline)) V sigmoid(V x) {
  const V e = elementary::exp_of_negative(-elementary::magnitude(x)), one = floats(1);
  return (x >= 0.0f ? one : e) / (one + e);
}
// The slopes of the functions where their values are v.
inline __attribute__((always_inline)) V tanh_slope(V v) { return (1.0f - v) * (1.0f + v); }
inline __attribute__((always_inline)) V sigmoid_slope(V v) { return v * (1.0f - v); }

template <RnnMode mode> constexpr int64_t kGates = mode == RnnMode::lstm ? 4 : mode == RnnMode::gru ? 3 : 1;
template <RnnMode mode> constexpr int64_t kSavedGates = kGates<mode> + (mode == RnnMode::gru);

template <RnnMode mode> void forward(const RnnForwardUnits& f) {
  for (int64_t u = 0; u < f.units; u += kFloats) {
    const int64_t n = f.units - u;
    for (int64_t k = 0; k < kGates<mode>; ++k) __builtin_prefetch(f.next_input + k * f.input_pitch + u);
    const auto input = [&](int64_t k) __attribute__((always_inline)) {
      return load_some(f.input + k * f.input_pitch + u, n) + load_some(f.bias + k * f.bias_pitch + u, n);
    };
    const auto hidden = [&](int64_t k)
                            __attribute__((always_inline)) { return load_some(f.hidden + k * f.hidden_pitch + u, n); };
    const auto save = [&](int64_t k, V v) __attribute__((always_inline)) {
      if (f.saved) store_some(f.saved + k * f.saved_pitch + u, n, v);
    };
    V h;
    if constexpr (mode == RnnMode::lstm) {
      const V in = sigmoid(input(0) + hidden(0)), forget = sigmoid(input(1) + hidden(1));
      const V cell = elementary::tanh(input(2) + hidden(2)), out = sigmoid(input(3) + hidden(3));
      V c = forget * load_some(f.c + u, n) + in * cell;
      c = elementary::at_most(elementary::at_least(c, -f.clip), f.clip);
      store_some(f.c + u, n, c);
      if (f.cells) store_some(f.cells + u, n, c);
      h = out * elementary::tanh(c);
      save(0, in);
      save(1, forget);
      save(2, cell);
      save(3, out);
    } else if constexpr (mode == RnnMode::gru) {
      const V r = sigmoid(input(0) + hidden(0)), z = sigmoid(input(1) + hidden(1));
      const V q = hidden(2) + load_some(f.bias + 3 * f.bias_pitch + u, n);
      const V candidate = elementary::tanh(input(2) + r * q);
      h = (1.0f - z) * candidate + z * load_some(f.h + u, n);
      save(0, r);
      save(1, z);
      save(2, candidate);
      save(3, q);
    } else {
      const V sum = input(0) + hidden(0);
      h = mode == RnnMode::tanh ? elementary::tanh(sum) : sum < 0.0f ? V{} : sum;  // relu keeps NaN
      save(0, h);
    }
    store_some(f.to + u, n, h);
  }
}

template <RnnMode mode> void backward(const RnnBackwardUnits& b) {
  for (int64_t u = 0; u < b.units; u += kFloats) {
    const int64_t n = b.units - u;
    for (int64_t k = 0; k < kSavedGates<mode>; ++k) __builtin_prefetch(b.next_saved + k * b.saved_pitch + u);
    const auto saved = [&](int64_t k)
                           __attribute__((always_inline)) { return load_some(b.saved + k * b.saved_pitch + u, n); };
    const auto put = [&](int64_t k, V v)
                         __attribute__((always_inline)) { store_some(b.dgates + k * b.dgates_pitch + u, n, v); };
    V dh = load_some(b.dh + u, n) + load_some(b.dy + u, n);
    if constexpr (mode == RnnMode::lstm) {
      const V in = saved(0), forget = saved(1), cell = saved(2), out = saved(3);
      const V c = load_some(b.c + u, n), squashed = elementary::tanh(c);
      const V c_before = b.c_before ? load_some(b.c_before + u, n) : V{};
      V dc = load_some(b.state + u, n) + dh * out * tanh_slope(squashed);
      dc = elementary::magnitude(c) >= b.clip ? V{} : dc;
      put(0, dc * cell * sigmoid_slope(in));
      put(1, dc * c_before * sigmoid_slope(forget));
      put(2, dc * in * tanh_slope(cell));
      put(3, dh * squashed * sigmoid_slope(out));
      store_some(b.state + u, n, dc * forget);
    } else if constexpr (mode == RnnMode::gru) {
      dh += load_some(b.state + u, n);
      const V r = saved(0), z = saved(1), candidate = saved(2);
      const V h_before = b.h_before ? load_some(b.h_before + u, n) : V{};
      const V dn = dh * (1.0f - z) * tanh_slope(candidate);
      put(0, dn * saved(3) * sigmoid_slope(r));
      put(1, dh * (h_before - candidate) * sigmoid_slope(z));
      put(2, dn);
      put(3, dn * r);
      store_some(b.state + u, n, dh * z);
    } else {
      const V h = saved(0);
      put(0, mode == RnnMode::tanh ? dh * tanh_slope(h) : h <= 0.0f ? V{} : dh);
    }
  }
}

void add(const float* from, float* to, int64_t n) {
  for (int64_t u = 0; u < n; u += kFloats)
    store_some(to + u, n - u, load_some(to + u, n - u) + load_some(from + u, n - u));
}

}  // namespace

extern const RnnKernels rnn_kernels;
const RnnKernels rnn_kernels = {
    {forward<RnnMode::relu>, forward<RnnMode::tanh>, forward<RnnMode::lstm>, forward<RnnMode::gru>},
    {backward<RnnMode::relu>, backward<RnnMode::tanh>, backward<RnnMode::lstm>, backward<RnnMode::gru>},
    add,
};

}  // namespace minidnn::MINIDNN_ISA
