// SPDX-License-Identifier: Apache-2.0
// cuda.loss.block_per_row is the engine for cross-entropy in which one block of threads computes each row.
#include "cuda/loss/generic.h"
#include "cuda/rows/launch.h"

namespace minidnn {
namespace cuda::loss {

struct BlockPerRow final : GenericEngine {
  BlockPerRow() : GenericEngine("loss_block_per_row") {}
  std::string name() const override { return "cuda.loss.block_per_row"; }
  cuda::LaunchConfig launch_config(const LossProblem& p, const Device& d) const override {
    return rows::block_per_row_launch(p.rows(), p.cols(), d);
  }
  double estimate_us(const LossProblem& p, const Device& d) const override {
    const rows::AnyStrides work{p.rows(),     p.cols(),     int64_t(itemsize(p.x.dtype)), axis_is_innermost(p),
                                loss_flop(p), loss_bytes(p)};
    return 3 + rows::block_per_row_us(work, d);
  }
};

}  // namespace cuda::loss

template const Engine<LossProblem>& engine_object<LossProblem, cuda::loss::BlockPerRow>();

}  // namespace minidnn
