// SPDX-License-Identifier: Apache-2.0
// cuda.softmax.thread_per_row is the engine for softmax in which one thread computes each row. It is fast if there are
// many short rows, or if the axis is not the innermost dimension, so that neighbouring threads read neighbouring
// elements.
#include "cuda/softmax/generic.h"

namespace minidnn {
namespace cuda::softmax {

struct ThreadPerRow final : GenericEngine {
  ThreadPerRow() : GenericEngine("softmax_thread_per_row") {}
  std::string name() const override { return "cuda.softmax.thread_per_row"; }
  cuda::LaunchConfig launch_config(const SoftmaxProblem& p, const Device& d) const override {
    return cuda::elementwise_launch(p.rows(), d);
  }
  // The estimate of the time is a guess. Adjacent threads use whole sectors of 32 bytes if they read adjacent elements,
  // or if the rows of a warp fit in the L1 cache. A thread waits about half a microsecond for each element of its row.
  double estimate_us(const SoftmaxProblem& p, const Device& d) const override {
    double row_bytes = double(p.cols()) * double(itemsize(p.in.dtype));
    double useful = axis_is_innermost(p) ? 0.2 * std::min(1.0, 64 / row_bytes) : 0.5;
    double machine_filled = std::min(1.0, double(p.rows()) / (1024.0 * d.sm_count));
    return std::max(roofline_us(softmax_flop(p), softmax_bytes(p), d, useful * machine_filled), 0.5 * double(p.cols()));
  }
};

}  // namespace cuda::softmax

template const Engine<SoftmaxProblem>& engine_object<SoftmaxProblem, cuda::softmax::ThreadPerRow>();

}  // namespace minidnn
