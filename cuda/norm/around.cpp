// SPDX-License-Identifier: Apache-2.0
// cuda.norm.around: local contrast norm of dense tensors; see around.cu.
#include "cuda/norm/around.h"

#include "cuda/norm/engines.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace {

struct Cut {
  NormAround around;
  int64_t vector = 1, blocks = 0;
};

std::string parse(const LocalNormProblem& p, Cut& c) {
  if (std::string why = why_not_around(p); !why.empty()) return why;
  const bool last = !is_row_major(p.x);
  const int64_t wide = 16 / int64_t(itemsize(p.x.dtype)), channels = p.x.shape[1];
  NormAround& r = c.around;
  const LocalWindow w(p);
  r.behind = int32_t(w.behind), r.ahead = int32_t(w.ahead);
  r.width = p.x.shape[p.x.rank - 1], r.height = p.x.rank == 4 ? p.x.shape[2] : 1;
  r.step = last ? channels : 1, r.row = r.width * r.step;
  c.vector = last && p.alignment == 16 && channels % wide == 0 ? wide : 1;
  const int64_t images = p.x.shape[0] * (last ? 1 : channels), rows = c.vector == 1 ? 8 : c.vector == 4 ? 4 : 2;
  const int64_t vectors = r.row / c.vector, groups = ceil_div(r.height, rows), threads = images * groups * vectors;
  constexpr int64_t kMost = int64_t(1) << 30;  // threads, and what a Divisor divides
  if (threads > kMost || r.row > kMost) return cat("counts 2^30 vectors at most; there are ", threads);
  r.threads = uint32_t(threads);
  r.by_vectors = Divisor(vectors), r.by_groups = Divisor(groups), r.by_step = Divisor(r.step / c.vector);
  c.blocks = ceil_div(threads, int64_t(kAroundThreads));
  return "";
}

KernelSpec forward_spec(DType t, int64_t vector, bool weights) {
  return {"cuda/norm/around.cu",
          cat("minidnn::norm_around_forward<", cuda_name(t), ", ", vector, weights ? ", true>" : ", false>")};
}
KernelSpec gradient_spec(DType t, int64_t vector) {
  return {"cuda/norm/around.cu", cat("minidnn::norm_around_gradient<", cuda_name(t), ", ", vector, ">")};
}

struct Around final : Engine<LocalNormProblem> {
  std::string name() const override { return "cuda.norm.around"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const LocalNormProblem& p, const Device&) const override {
    Cut c;
    return parse(p, c);
  }
  double estimate_us(const LocalNormProblem& p, const Device& d) const override {
    Cut c;
    parse(p, c);
    // Backward moves g and dy s^-beta, in float32, there and back, and x twice.
    const double bytes = local_norm_bytes(p) + (p.backward ? double(p.x.numel()) * (16. + 4) : 0);
    return roofline_us(local_norm_flop(p), bytes, d, c.vector > 1 ? 0.7 : 0.4);
  }
  size_t workspace_bytes(const LocalNormProblem& p, const Device&, const Config&) const override {
    return 2 * local_norm_workspace(p);
  }
  std::unique_ptr<Plan<LocalNormProblem>> build(const LocalNormProblem& p, const Device& d,
                                                const Config&) const override {
    Cut c;
    parse(p, c);
    auto first = cuda::load_kernel(forward_spec(p.x.dtype, c.vector, p.backward != 0), d.place.index);
    std::shared_ptr<const cuda::Kernel> second;
    if (p.backward) second = cuda::load_kernel(gradient_spec(p.x.dtype, c.vector), d.place.index);
    cuda::LaunchConfig config;
    config.block = {unsigned(kAroundThreads)}, config.grid = {unsigned(c.blocks)};
    const double elements = p.x.rank == 4 ? double(p.size) * double(p.size) : double(p.size);
    return make_plan<LocalNormProblem>(
        [=, r = c.around, half = local_norm_workspace(p)](const LocalNormArgs& a, void* workspace, Stream stream) {
          cuda::LaunchConfig now = config;
          now.stream = stream;
          const double scale = a.alpha / elements;
          const AroundFactors f{float(scale), float(a.beta), float(a.k), float(2 * a.beta * scale)};
          void* const own = static_cast<char*>(workspace) + half;
          cuda::launch(*first, now, r, a, f, workspace, own);
          if (second) cuda::launch(*second, now, r, a, f, workspace, own);
        });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType t : {DType::float32, DType::float16, DType::bfloat16})
      for (int64_t vector : {int64_t(16 / itemsize(t)), int64_t(1)}) {
        for (bool weights : {false, true}) all.push_back(forward_spec(t, vector, weights));
        all.push_back(gradient_spec(t, vector));
      }
    return all;
  }
};

}  // namespace

const Engine<LocalNormProblem>& norm_around() {
  static const Around engine;
  return engine;
}

}  // namespace minidnn
