// SPDX-License-Identifier: Apache-2.0
#include "cpp/activation/activation_kernels.h"
#include "cpp/cpu/runs.h"

namespace minidnn::MINIDNN_ISA {
namespace {

template <class T, Activation mode, bool backward>
inline __attribute__((always_inline)) void compute(const void* x, const void* dy, void* out, int64_t n, float alpha) {
  each(static_cast<const T*>(x), static_cast<const T*>(dy), static_cast<T*>(out), n,
       [=](float x, float dy) __attribute__((always_inline)) {
         if constexpr (backward) return dy * activate_gradient<mode>(x, alpha);
         else return activate<mode>(x, alpha);
       });
}

template <class T> struct Loops {
  template <Activation mode, bool backward>
  static void loop(const void* x, const void* dy, void* out, int64_t n, float alpha) {
    compute<T, mode, backward>(x, dy, out, n, alpha);
  }
};
template <> struct Loops<bfloat16> {
  // Jumps are not to be threaded: for relu's two branches, twice, GCC 12 would round and blend in four ways.
  template <Activation mode, bool backward>
  __attribute__((optimize("no-thread-jumps"))) static void loop(const void* x, const void* dy, void* out, int64_t n,
                                                                float alpha) {
    compute<bfloat16, mode, backward>(x, dy, out, n, alpha);
  }
};

template <class T>
void apply(ActivationLoop loop, const void* x, const void* dy, void* out, int64_t n, float alpha, bool past_caches) {
  map_all(static_cast<const T*>(x), static_cast<const T*>(dy ? dy : x), static_cast<T*>(out), n, past_caches,
          [=](const T* x, const T* dy, T* out, int64_t n) { loop(x, dy, out, n, alpha); });
  if (past_caches) streams_end();
}

template <class T, int... mode> constexpr ActivationLoops loops() {
  return {{Loops<T>::template loop<Activation(mode), false>...},
          {Loops<T>::template loop<Activation(mode), true>...},
          apply<T>};
}
template <int... mode> constexpr ActivationKernels table() {
  return {{loops<float, mode...>(), {}, loops<float16, mode...>(), loops<bfloat16, mode...>()}};
}

}  // namespace

extern const ActivationKernels activation_kernels;
const ActivationKernels activation_kernels = table<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12>();

}  // namespace minidnn::MINIDNN_ISA
