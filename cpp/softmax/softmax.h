// SPDX-License-Identifier: Apache-2.0
// Softmax and log-softmax along an axis: the public functions, their checks and their problem. Maths: softmax_math.h.
#pragma once
#include "cpp/engine/op.h"
#include "cpp/softmax/softmax_math.h"

namespace minidnn {

template <>
struct Family<SoftmaxProblem> {
  using Args = SoftmaxArgs;
  static constexpr const char* name = "softmax";
  static std::string text(const SoftmaxProblem&);
  static Args scratch(const SoftmaxProblem&, Scratch&);
  static const Engines<SoftmaxProblem>& cpu_engines();
  static const Engines<SoftmaxProblem>& cuda_engines();
};

// `axis` counts from the end when negative. `out` may be x.
// Of scale x + mask, or of scale x where a boolean mask is true; a mask is broadcast to x.
Tensor softmax_forward(const Tensor& x, int64_t axis, bool log, double scale, const std::optional<Tensor>& mask,
                       const Call& call);
// `y` is what softmax_forward returned for the same axis, `log` and scale. `out` may be dy or y.
Tensor softmax_backward(const Tensor& dy, const Tensor& y, int64_t axis, bool log, double scale, const Call& call);

MaskWalk mask_walk(const SoftmaxProblem&);  // of a dense x; dimensions that the mask walks through as one become one

// Bytes and flop for estimates, shared by the engines of both devices.
double softmax_bytes(const SoftmaxProblem&);
double softmax_flop(const SoftmaxProblem&);
const Engine<SoftmaxProblem>& softmax_dense_cpu();  // softmax_cpu.cpp

}  // namespace minidnn
