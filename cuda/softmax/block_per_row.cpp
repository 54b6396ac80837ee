// SPDX-License-Identifier: Apache-2.0
// cuda.softmax.block_per_row: a block per row.
#include <bit>

#include "cuda/softmax/generic.h"

namespace minidnn {
namespace cuda::softmax {
namespace {

// About four elements per thread.
int64_t block_threads(int64_t cols) {
  return std::clamp<int64_t>(int64_t(std::bit_ceil(uint64_t(ceil_div<int64_t>(cols, 4)))), 32, 1024);
}

}  // namespace

struct BlockPerRow final : GenericEngine {
  BlockPerRow() : GenericEngine("softmax_block_per_row") {}
  std::string name() const override { return "cuda.softmax.block_per_row"; }
  cuda::LaunchConfig launch_config(const SoftmaxProblem& p, const Device& d) const override {
    int64_t threads = block_threads(p.cols()), resident = 2048 / threads * d.sm_count;
    cuda::LaunchConfig config;
    config.block = {unsigned(threads)};
    config.grid = {unsigned(min_of(p.rows(), 4 * resident))};
    return config;
  }
  // Guesses: a row costs its block about a microsecond of barriers. Where the axis is strided, an element costs a
  // sector of 32 bytes, half of which serves another row from the L2.
  double estimate_us(const SoftmaxProblem& p, const Device& d) const override {
    int64_t threads = block_threads(p.cols());
    double at_once = std::min<double>(double(p.rows()), 2048.0 / double(threads) * d.sm_count);
    double barriers_us = double(p.rows()) / at_once;
    double machine_filled = std::min(1.0, at_once * double(threads) / (1024.0 * d.sm_count));
    double useful = axis_is_innermost(p) ? 0.5 : 0.5 * double(itemsize(p.in.dtype)) / 16;
    return roofline_us(softmax_flop(p), softmax_bytes(p), d, useful * machine_filled) + barriers_us;
  }
};

}  // namespace cuda::softmax

template const Engine<SoftmaxProblem>& engine_object<SoftmaxProblem, cuda::softmax::BlockPerRow>();

}  // namespace minidnn
