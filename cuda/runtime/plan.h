// SPDX-License-Identifier: Apache-2.0
// kernel_plan() makes the plan of an engine that launches one kernel. The kernel has two parameters: the description of
// the call (Problem) and its arguments (Args).
#pragma once
#include "cpp/engine/engine.h"
#include "cuda/runtime/launch.h"

namespace minidnn::cuda {

// The launch configuration for a grid-stride loop over the indices 0 to `items` - 1. A block has 256 threads, and each
// thread processes one index per iteration. The grid has at most 32 blocks per SM.
inline LaunchConfig elementwise_launch(int64_t items, const Device& d) {
  constexpr int64_t kThreads = 256, kBlocksPerSm = 32;
  LaunchConfig config;
  config.block = {unsigned(kThreads)};
  config.grid = {unsigned(min_of(ceil_div(items, kThreads), kBlocksPerSm * d.sm_count))};
  return config;
}

template <class P> std::unique_ptr<Plan<P>> kernel_plan(const KernelSpec& spec, const P& p, const Device& d,
                                                        LaunchConfig config) {
  auto kernel = load_kernel(spec, d.place.index, int(config.smem_bytes));
  return make_plan<P>(
      [kernel, config, p](const ArgsOf<P>& args, void*, Stream stream) { launch(*kernel, config, stream, p, args); });
}

}  // namespace minidnn::cuda
