// SPDX-License-Identifier: Apache-2.0
#include "cpp/activation/activation_kernels.h"
#include "cpp/cpu/runs.h"

namespace minidnn::MINIDNN_ISA {
namespace {

template <Activation mode> void forward(const float* x, const float*, float* out, int64_t n, float alpha) {
  n &= -kStep;
#pragma GCC ivdep  // out is x or apart from it
  for (int64_t i = 0; i < n; ++i) out[i] = activate<mode>(x[i], alpha);
}
template <Activation mode> void backward(const float* x, const float* dy, float* out, int64_t n, float alpha) {
  n &= -kStep;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = dy[i] * activate_gradient<mode>(x[i], alpha);
}

template <class T>
void apply(ActivationLoop loop, const void* x_data, const void* dy_data, void* out_data, int64_t n, float alpha,
           bool past_caches) {
  auto x = static_cast<const T*>(x_data), dy = static_cast<const T*>(dy_data);
  alignas(64) float xs[kRun], dys[kRun];
  write_all(static_cast<T*>(out_data), n, past_caches, [&](int64_t i, int64_t run, float* out) {
    const float* from = read_run(x + i, xs, run);
    loop(from, dy ? read_run(dy + i, dys, run) : nullptr, out, whole_steps(run), alpha);
  });
  if (past_caches) streams_end();
}

template <int... mode> constexpr ActivationKernels table() {
  return {{forward<Activation(mode)>...}, {backward<Activation(mode)>...},
          {apply<float>, nullptr, apply<float16>, apply<bfloat16>}};
}

}  // namespace

extern const ActivationKernels activation_kernels;
const ActivationKernels activation_kernels = table<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12>();

}  // namespace minidnn::MINIDNN_ISA
