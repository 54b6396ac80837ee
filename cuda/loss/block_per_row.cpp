// SPDX-License-Identifier: Apache-2.0
// cuda.loss.block_per_row: a block per row.
#include <bit>

#include "cuda/loss/generic.h"

namespace minidnn {
namespace cuda::loss {
namespace {

// About four elements per thread.
int64_t block_threads(int64_t cols) {
  return std::clamp<int64_t>(int64_t(std::bit_ceil(uint64_t(ceil_div<int64_t>(cols, 4)))), 32, 1024);
}

}  // namespace

struct BlockPerRow final : GenericEngine {
  BlockPerRow() : GenericEngine("loss_block_per_row") {}
  std::string name() const override { return "cuda.loss.block_per_row"; }
  cuda::LaunchConfig launch_config(const LossProblem& p, const Device& d) const override {
    int64_t threads = block_threads(p.cols()), resident = 2048 / threads * d.sm_count;
    cuda::LaunchConfig config;
    config.block = {unsigned(threads)};
    config.grid = {unsigned(min_of(p.rows(), 4 * resident))};
    return config;
  }
  // A guess, like that of softmax.
  double estimate_us(const LossProblem& p, const Device& d) const override {
    int64_t threads = block_threads(p.cols());
    double at_once = std::min<double>(double(std::max<int64_t>(p.rows(), 1)), 2048.0 / double(threads) * d.sm_count);
    double machine_filled = std::min(1.0, at_once * double(threads) / (1024.0 * d.sm_count));
    double useful = axis_is_innermost(p) ? 0.5 : 0.5 * double(itemsize(p.x.dtype)) / 16;
    return 3 + roofline_us(loss_flop(p), loss_bytes(p), d, useful * machine_filled) + double(p.rows()) / at_once;
  }
};

}  // namespace cuda::loss

template const Engine<LossProblem>& engine_object<LossProblem, cuda::loss::BlockPerRow>();

}  // namespace minidnn
