// SPDX-License-Identifier: Apache-2.0
// cuda.softmax.block_per_row is the engine for softmax in which one block of threads computes each row.
#include "cuda/rows/launch.h"
#include "cuda/softmax/generic.h"

namespace minidnn {
namespace cuda::softmax {

struct BlockPerRow final : GenericEngine {
  BlockPerRow() : GenericEngine("softmax_block_per_row") {}
  std::string name() const override { return "cuda.softmax.block_per_row"; }
  cuda::LaunchConfig launch_config(const SoftmaxProblem& p, const Device& d) const override {
    return rows::block_per_row_launch(p.rows(), p.cols(), d);
  }
  double estimate_us(const SoftmaxProblem& p, const Device& d) const override {
    const rows::AnyStrides work{p.rows(),        p.cols(),        int64_t(itemsize(p.in.dtype)), axis_is_innermost(p),
                                softmax_flop(p), softmax_bytes(p)};
    return rows::block_per_row_us(work, d);
  }
};

}  // namespace cuda::softmax

template const Engine<SoftmaxProblem>& engine_object<SoftmaxProblem, cuda::softmax::BlockPerRow>();

}  // namespace minidnn
