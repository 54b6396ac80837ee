// SPDX-License-Identifier: Apache-2.0
// cuda.loss.thread_per_row is the engine for cross-entropy in which one thread computes each row. It is fast if there
// are few classes, or if the classes are not the innermost dimension, so that neighbouring threads read neighbouring
// elements.
#include "cuda/loss/generic.h"

namespace minidnn {
namespace cuda::loss {

struct ThreadPerRow final : GenericEngine {
  ThreadPerRow() : GenericEngine("loss_thread_per_row") {}
  std::string name() const override { return "cuda.loss.thread_per_row"; }
  cuda::LaunchConfig launch_config(const LossProblem& p, const Device& d) const override {
    return cuda::elementwise_launch(p.rows(), d);
  }
  // The estimate of the time is a guess. cuda.softmax.thread_per_row estimates its time in a similar way.
  double estimate_us(const LossProblem& p, const Device& d) const override {
    double row_bytes = double(p.cols()) * double(itemsize(p.x.dtype));
    double useful = axis_is_innermost(p) ? 0.5 * std::min(1.0, 64 / row_bytes) : 0.5;
    double machine_filled = std::clamp(double(p.rows()) / (1024.0 * d.sm_count), 1e-4, 1.0);
    return 3 + std::max(roofline_us(loss_flop(p), loss_bytes(p), d, useful * machine_filled), 0.3 * double(p.cols()));
  }
};

}  // namespace cuda::loss

template const Engine<LossProblem>& engine_object<LossProblem, cuda::loss::ThreadPerRow>();

}  // namespace minidnn
