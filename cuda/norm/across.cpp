// SPDX-License-Identifier: Apache-2.0
// cuda.norm.across: local response norm of dense tensors; see across.cu.
#include "cuda/norm/across.h"

#include "cpp/norm/row_norm.h"
#include "cuda/norm/engines.h"
#include "cuda/norm/walk_plan.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace {

struct Cut {
  NormAcross rows;
  WalkCut planes;
  bool whole = false;  // channels innermost: strips are aligned vectors of 16 bytes
  int64_t size = 0;    // the window size, if a kernel is compiled for it; otherwise 0
  int64_t blocks = 0;  // channels innermost: of the grid; 0: planes
};

std::string parse(const LocalNormProblem& p, const Device& d, Cut& c) {
  if (p.kind != LocalNorm::lrn) return "supports lrn only";
  if (p.x.dtype == DType::float64) return "float64 is not supported";
  if (std::string why = why_not_across(p); !why.empty()) return why;
  if (channels_in_order(p.x) && plane_of(p.x) > 1) return cut_walk(p, Along::nothing, d, c.planes);
  const LocalWindow w(p);
  if (w.ahead > kAcrossSide) return cat("supports windows of at most ", 2 * kAcrossSide + 1, " channels; got ", p.size);
  NormAcross& r = c.rows;
  const int64_t wide = 16 / int64_t(itemsize(p.x.dtype));
  r.channels = p.x.shape[1], r.behind = int32_t(w.behind), r.ahead = int32_t(w.ahead);
  c.whole = p.alignment == 16 && r.channels % wide == 0;
  c.size = c.whole && p.size == kWalkSize ? kWalkSize : 0;
  const int64_t of_row = ceil_div(r.channels, c.whole ? wide : kAcrossOwn);
  const int64_t columns = p.x.shape[0] * plane_of(p.x) * of_row;
  r.halo = p.backward ? 1 : 0, r.step = kAcrossThreads - 2 * r.halo;
  r.of_row = FastDivmod(min_of(of_row, int64_t(INT32_MAX)));
  c.blocks = ceil_div(columns, int64_t(r.step));
  constexpr int64_t kMostColumns = int64_t(1) << 30;  // with those of a last, partial block they are below 2^31
  if (columns > kMostColumns || r.channels > INT32_MAX)
    return cat("supports at most 2^30 vectors and 2^31 - 1 channels; got ", columns, " and ", r.channels);
  r.columns = uint32_t(columns);
  return "";
}

KernelSpec rows_spec(DType t, bool backward, bool whole, int64_t size) {
  return {"cuda/norm/across.cu", cat("minidnn::norm_across_", backward ? "backward<" : "forward<", cuda_name(t),
                                     whole ? ", true, " : ", false, ", size, ">")};
}
KernelSpec planes_spec(DType t, bool backward, bool whole, int64_t size) {
  return {"cuda/norm/across.cu", cat("minidnn::norm_across_planes<", cuda_name(t), ", ", walk_vector(t, size, false),
                                     ", ", whole, ", ", size, ", ", backward, ">")};
}

struct Across final : Engine<LocalNormProblem> {
  std::string name() const override { return "cuda.norm.across"; }
  unsigned traits() const override { return kNeedsJit; }
  int revision() const override { return 4; }
  std::string why_not(const LocalNormProblem& p, const Device& d) const override {
    Cut c;
    return parse(p, d, c);
  }
  double estimate_us(const LocalNormProblem& p, const Device& d) const override {
    Cut c;
    parse(p, d, c);
    if (!c.blocks) return walk_estimate_us(p, d, c.planes);
    return roofline_us(local_norm_flop(p), local_norm_bytes(p), d, c.whole ? 0.75 : 0.5);
  }
  std::unique_ptr<Plan<LocalNormProblem>> build(const LocalNormProblem& p, const Device& d,
                                                const Config&) const override {
    Cut c;
    parse(p, d, c);
    const bool backward = p.backward != 0;
    if (!c.blocks) return walk_plan(p, d, c.planes, planes_spec(p.x.dtype, backward, c.planes.whole, c.planes.size));
    auto kernel = cuda::load_kernel(rows_spec(p.x.dtype, backward, c.whole, c.size), d.place.index);
    cuda::LaunchConfig config;
    config.block = {unsigned(kAcrossThreads)}, config.grid = {unsigned(c.blocks)};
    return make_plan<LocalNormProblem>([=, r = c.rows](const LocalNormArgs& a, void*, Stream stream) {
      cuda::launch(*kernel, config, stream, r, a, walk_factors(p, a));
    });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType t : {DType::float32, DType::float16, DType::bfloat16})
      for (bool backward : {false, true}) {
        for (auto [whole, size] : {std::pair(true, kWalkSize), std::pair(true, 0), std::pair(false, 0)})
          all.push_back(rows_spec(t, backward, whole, size));
        for (auto [whole, size] : {std::pair(true, kWalkSize), std::pair(false, kWalkSize), std::pair(false, 0)})
          all.push_back(planes_spec(t, backward, whole, size));
      }
    return all;
  }
};

}  // namespace

const Engine<LocalNormProblem>& norm_across() {
  static const Across engine;
  return engine;
}

}  // namespace minidnn
