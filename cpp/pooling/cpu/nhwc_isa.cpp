// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.pooling.nhwc for contiguous channels, compiled once per instruction set.
#include "cpp/pooling/cpu/nhwc_backward.h"

namespace minidnn::MINIDNN_ISA {
namespace {

template <class T>
void channels_forward(const PoolingProblem& p, const PoolingArgs& args, const PoolingChunk& chunk, float* scratch) {
  const int64_t P0 = spatial_size(p.out, 0), P1 = spatial_size(p.out, 1), P2 = spatial_size(p.out, 2);
  for (int64_t item = chunk.begin; item < chunk.end; ++item) {
    const int64_t image = item / P1 / P0;
    const T* x = static_cast<const T*>(args.x) + image * p.x.stride[0] + chunk.first_channel;
    T* out = static_cast<T*>(args.out) + image * p.out.stride[0] + chunk.first_channel;
    forward_line(p, x, out, item / P1 % P0, item % P1, {0, P2}, chunk.channels, scratch);
  }
}

template <class T> constexpr PoolingNhwcKernels::Typed typed() { return {channels_forward<T>, channels_backward<T>}; }

}  // namespace

extern const PoolingNhwcKernels pooling_nhwc_kernels;
const PoolingNhwcKernels pooling_nhwc_kernels = {typed<float>(), typed<bfloat16>(), typed<float16>()};

}  // namespace minidnn::MINIDNN_ISA
