// SPDX-License-Identifier: Apache-2.0
// cuda.lrn.cross_channel is the engine for local response norm (windows over channels) of dense tensors. The kernels
// are in cross_channel.cu.
#include "cuda/lrn/cross_channel_params.h"

#include "cpp/engine/engine_object.h"
#include "cpp/lrn/lrn.h"
#include "cuda/lrn/sliding_window.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::lrn {
namespace {

struct Tiling {
  CrossChannelParams rows;
  SlidingWindowTiling planes;
  bool whole = false;  // for NHWC: whether a thread loads its channels as one aligned vector of 16 bytes
  int64_t size = 0;    // the window size if it is a template argument of the kernel, else 0
  int64_t blocks = 0;  // the number of blocks in the grid for NHWC tensors, or 0 for NCHW
};

// Fills in the tiling. Returns "" if the engine supports the problem. If not, returns the reason.
std::string tile(const LrnProblem& p, const Device& d, Tiling& c) {
  if (p.kind != LocalNorm::lrn) return "supports lrn only";
  if (p.x.dtype == DType::float64) return "float64 is not supported";
  if (std::string why = why_not_cross_channel(p); !why.empty()) return why;
  if (channels_in_order(p.x) && plane_of(p.x) > 1) return tile_sliding_window(p, Axis::none, d, c.planes);
  const LocalWindow w(p);
  if (w.ahead > kMaxSide) return cat("supports windows of at most ", 2 * kMaxSide + 1, " channels; got ", p.size);
  CrossChannelParams& r = c.rows;
  const int64_t wide = 16 / int64_t(itemsize(p.x.dtype));
  r.channels = p.x.shape[1];
  r.behind = int32_t(w.behind);
  r.ahead = int32_t(w.ahead);
  c.whole = p.alignment == 16 && r.channels % wide == 0;
  c.size = c.whole && p.size == kCompiledSize ? kCompiledSize : 0;
  const int64_t of_row = ceil_div(r.channels, c.whole ? wide : kStripChannels);
  const int64_t columns = p.x.shape[0] * plane_of(p.x) * of_row;
  r.halo = p.backward ? 1 : 0;
  r.step = kCrossChannelThreads - 2 * r.halo;
  r.of_row = FastDivmod(min_of(of_row, int64_t(INT32_MAX)));
  c.blocks = ceil_div(columns, int64_t(r.step));
  // The kernel numbers strips with 32 bits. At most 2^30 strips leave room for the threads beyond the last strip.
  constexpr int64_t kMostColumns = int64_t(1) << 30;
  if (columns > kMostColumns || r.channels > INT32_MAX)
    return cat("supports at most 2^30 vectors and 2^31 - 1 channels; got ", columns, " and ", r.channels);
  r.columns = uint32_t(columns);
  return "";
}

KernelSpec rows_spec(DType t, bool backward, bool whole, int64_t size) {
  return {"cuda/lrn/cross_channel.cu", cat("minidnn::lrn_cross_channel_", backward ? "backward<" : "forward<",
                                           cuda_name(t), whole ? ", true, " : ", false, ", size, ">")};
}
KernelSpec planes_spec(DType t, bool backward, bool whole, int64_t size) {
  return {"cuda/lrn/cross_channel.cu",
          cat("minidnn::lrn_cross_channel_planes<", cuda_name(t), ", ", window_vector(t, size, false), ", ", whole,
              ", ", size, ", ", backward, ">")};
}

}  // namespace

struct CrossChannel final : Engine<LrnProblem> {
  std::string name() const override { return "cuda.lrn.cross_channel"; }
  unsigned traits() const override { return kNeedsJit; }
  int revision() const override { return 4; }
  std::string why_not(const LrnProblem& p, const Device& d) const override {
    Tiling c;
    return tile(p, d, c);
  }
  double estimate_us(const LrnProblem& p, const Device& d) const override {
    Tiling c;
    tile(p, d, c);
    if (!c.blocks) return sliding_window_us(p, d, c.planes);
    return roofline_us(local_norm_flop(p), local_norm_bytes(p), d, c.whole ? 0.75 : 0.5);
  }
  std::unique_ptr<Plan<LrnProblem>> build(const LrnProblem& p, const Device& d, const Config&) const override {
    Tiling c;
    tile(p, d, c);
    const bool backward = p.backward != 0;
    if (!c.blocks)
      return sliding_window_plan(p, d, c.planes, planes_spec(p.x.dtype, backward, c.planes.whole, c.planes.size));
    auto kernel = cuda::load_kernel(rows_spec(p.x.dtype, backward, c.whole, c.size), d.place.index);
    cuda::LaunchConfig config;
    config.block = {unsigned(kCrossChannelThreads)};
    config.grid = {unsigned(c.blocks)};
    return make_plan<LrnProblem>([=, r = c.rows](const LrnArgs& a, void*, Stream stream) {
      cuda::launch(*kernel, config, stream, r, a, lrn_factors(p, a));
    });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType t : {DType::float32, DType::float16, DType::bfloat16})
      for (bool backward : {false, true}) {
        for (auto [whole, size] : {std::pair(true, kCompiledSize), std::pair(true, 0), std::pair(false, 0)})
          all.push_back(rows_spec(t, backward, whole, size));
        for (auto [whole, size] :
             {std::pair(true, kCompiledSize), std::pair(false, kCompiledSize), std::pair(false, 0)})
          all.push_back(planes_spec(t, backward, whole, size));
      }
    return all;
  }
};

}  // namespace cuda::lrn

template const Engine<LrnProblem>& engine_object<LrnProblem, cuda::lrn::CrossChannel>();

}  // namespace minidnn
