// SPDX-License-Identifier: Apache-2.0
// cuda.pooling.nhwc is the engine for pooling of NHWC tensors, by vectors of contiguous channels.
#include "cpp/engine/engine_object.h"
#include "cuda/pooling/nhwc/nhwc_tiling.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::pooling {
struct Nhwc final : Engine<PoolingProblem> {
  std::string name() const override { return "cuda.pooling.nhwc"; }
  int revision() const override { return 4; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const PoolingProblem& p, const Device& d) const override {
    if (std::string why = why_not_windows(p); !why.empty()) return why;
    if (p.alignment < 16) return cat("needs tensors aligned to 16 bytes; got ", p.alignment);
    const bool backward = p.direction == PoolingDirection::backward;
    const int64_t width = 16 / int64_t(itemsize(p.x.dtype)), C = p.x.shape[1];
    if (C % width) return cat("needs a multiple of ", width, " channels; got ", C);
    const bool reads_x = !backward || (p.mode == PoolingMode::max && p.indices.rank == 0);
    for (const TensorDesc& t :
         {reads_x ? p.x : p.out, backward ? p.dy : p.out, p.out, p.indices.rank ? p.indices : p.out}) {
      bool fits = t.stride[1] == 1;
      for (int i = 0; i < t.rank; ++i)
        fits = fits && (i == 1 || (t.stride[i] % width == 0 && t.stride[i] < 0x7fffffff && t.stride[i] > -0x7fffffff));
      if (!fits)
        return cat(
            "needs contiguous channels (NHWC) in x, y, dy, dx and indices, and other strides that are multiples of ",
            width, " below 2^31");
    }
    const NhwcTiling t = nhwc_tiling(p, d.sm_count);
    if (spatial_size(p.out, 0) * spatial_size(p.out, 1) * ceil_div(C, width) >= int64_t(1) << 30)
      return "supports images of fewer than 2^30 vectors of 16 bytes; got more";
    if (t.smem_bytes > d.max_smem_bytes)
      return cat("needs ", t.smem_bytes,
                 " bytes of shared memory for the windows over an element of dx; the device has ", d.max_smem_bytes);
    return "";
  }
  double estimate_us(const PoolingProblem& p, const Device& d) const override {
    return roofline_us(pooling_flop(p) / less_work(p), pooling_bytes(p), d, 0.75);
  }
  std::unique_ptr<Plan<PoolingProblem>> build(const PoolingProblem& p, const Device& d, const Config&) const override {
    constexpr int64_t kMostImages = 65535;  // the maximum y size of a CUDA grid
    const NhwcTiling t = nhwc_tiling(p, d.sm_count);
    auto kernel = cuda::load_kernel(spec_of(p, t), d.place.index, int(t.smem_bytes));
    cuda::LaunchConfig config;
    config.grid = {unsigned(t.blocks), unsigned(min_of(p.x.shape[0], kMostImages))};
    config.block = {unsigned(t.threads)};
    config.smem_bytes = unsigned(t.smem_bytes);
    return make_plan<PoolingProblem>([=, params = nhwc_params(p, t)](const PoolingArgs& args, void*, Stream stream) {
      cuda::launch(*kernel, config, stream, params, args);
    });
  }
  static KernelSpec spec_of(const PoolingProblem& p, const NhwcTiling& t) {
    if (t.method == NhwcTiling::Method::strips)
      return max_backward_spec("nhwc", p.x.dtype, t.step, p.indices.rank ? int(itemsize(p.indices.dtype)) : 0);
    const bool backward = p.direction == PoolingDirection::backward;
    return spec("nhwc", backward ? "backward" : "forward", p.x.dtype, p.mode == PoolingMode::max, t.step);
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    each_compiled([&](DType t, bool is_max, StaticStep step) {
      all.push_back(spec("nhwc", "forward", t, is_max, step));
      if (!is_max || !step.window) all.push_back(spec("nhwc", "backward", t, is_max, step));
      else
        for (int index_bytes : {0, 4, 8}) all.push_back(max_backward_spec("nhwc", t, step, index_bytes));
    });
    return all;
  }
};

}  // namespace cuda::pooling

template const Engine<PoolingProblem>& engine_object<PoolingProblem, cuda::pooling::Nhwc>();

}  // namespace minidnn
