// SPDX-License-Identifier: Apache-2.0
// cuda.pooling.nchw is the engine for pooling of contiguous planes (NCHW) of one or two dimensions, in shared memory.
#include "cpp/engine/engine_object.h"
#include "cuda/pooling/nchw/nchw_tiling.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::pooling {
namespace {

// The maximum number of elements of x or dx in a block, because the kernels number these elements with 16 bits.
constexpr int64_t kMostElements = 65534;

}  // namespace

struct Nchw final : Engine<PoolingProblem> {
  std::string name() const override { return "cuda.pooling.nchw"; }
  int revision() const override { return 4; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const PoolingProblem& p, const Device& d) const override {
    if (std::string why = why_not_windows(p); !why.empty()) return why;
    const bool reads_x =
        p.direction == PoolingDirection::forward || (p.mode == PoolingMode::max && p.indices.rank == 0);
    for (const TensorDesc& t : {reads_x ? p.x : p.out, p.direction == PoolingDirection::forward ? p.out : p.dy, p.out,
                                p.indices.rank ? p.indices : p.out})
      if (!is_row_major(t)) return "needs x, y, dy, dx and indices to be row-major (NCHW)";
    const NchwTiling t = nchw_tiling(p);
    if (t.block.numbered > kMostElements)
      return cat("supports at most ", kMostElements, " elements of x in a block; got ", t.block.numbered);
    if (t.smem.bytes > d.max_smem_bytes)
      return cat("needs ", t.smem.bytes, " bytes of shared memory for the lines of a window; the device has ",
                 d.max_smem_bytes);
    const int64_t blocks = nchw_params(p, t).blocks();
    if (blocks > 0x7fffffff) return cat("supports at most 2^31 - 1 blocks; got ", blocks);
    return "";
  }
  double estimate_us(const PoolingProblem& p, const Device& d) const override {
    // With large windows, shared memory limits the speed: an SM reads at best 32 elements of it per clock.
    return roofline_us(pooling_flop(p) / 6, pooling_bytes(p), d, 0.7);
  }
  std::unique_ptr<Plan<PoolingProblem>> build(const PoolingProblem& p, const Device& d, const Config&) const override {
    const NchwTiling t = nchw_tiling(p);
    const NchwParams params = nchw_params(p, t);
    auto kernel = cuda::load_kernel(spec_of(p, t), d.place.index, int(t.smem.bytes));
    cuda::LaunchConfig config;
    config.grid = {unsigned(params.blocks())};
    config.block = {unsigned(t.threads)};
    config.smem_bytes = unsigned(t.smem.bytes);
    return make_plan<PoolingProblem>(
        [=](const PoolingArgs& args, void*, Stream stream) { cuda::launch(*kernel, config, stream, params, args); });
  }
  static KernelSpec spec_of(const PoolingProblem& p, const NchwTiling& t) {
    using enum NchwTiling::Method;
    if (t.method == max_backward)
      return max_backward_spec("nchw", p.x.dtype, t.step, p.indices.rank ? int(itemsize(p.indices.dtype)) : 0);
    const char* kind = t.method == forward_tiles                   ? "forward_tiles"
                       : p.direction == PoolingDirection::backward ? "backward"
                                                                   : "forward";
    return spec("nchw", kind, p.x.dtype, p.mode == PoolingMode::max, t.step);
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    each_compiled([&](DType t, bool is_max, StaticStep step) {
      // If the window size is a template argument, nchw_forward computes maxima with indices. nchw_forward_tiles
      // computes maxima without indices, and averages.
      const bool known = step.window > 0;
      if (!known || is_max) all.push_back(spec("nchw", "forward", t, is_max, step));
      if (!known || !is_max) all.push_back(spec("nchw", "backward", t, is_max, step));
      if (known) all.push_back(spec("nchw", "forward_tiles", t, is_max, step));
      for (int index_bytes : {0, 4, 8})
        if (known && is_max) all.push_back(max_backward_spec("nchw", t, step, index_bytes));
    });
    return all;
  }
};

}  // namespace cuda::pooling

template const Engine<PoolingProblem>& engine_object<PoolingProblem, cuda::pooling::Nchw>();

}  // namespace minidnn
