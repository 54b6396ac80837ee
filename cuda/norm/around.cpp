// SPDX-License-Identifier: Apache-2.0
// cuda.norm.around: local contrast norm of dense tensors; see around.cu.
#include "cuda/norm/engines.h"
#include "cuda/norm/walk_plan.h"

namespace minidnn {
namespace {

std::string parse(const LocalNormProblem& p, const Device& d, WalkCut& c) {
  if (std::string why = why_not_around(p); !why.empty()) return why;
  return cut_walk(p, is_row_major(p.x) ? Along::beside : Along::apart, d, c);
}

KernelSpec spec(DType t, Along along, bool centered, int64_t size, bool backward) {
  return {"cuda/norm/around.cu",
          cat("minidnn::norm_around<", cuda_name(t), ", ", walk_vector(t, size, centered && backward),
              ", minidnn::Along::", along == Along::apart ? "apart, " : "beside, ", centered, ", ", size, ", ",
              backward, ">")};
}

struct Around final : Engine<LocalNormProblem> {
  std::string name() const override { return "cuda.norm.around"; }
  int revision() const override { return 4; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const LocalNormProblem& p, const Device& d) const override {
    WalkCut c;
    return parse(p, d, c);
  }
  double estimate_us(const LocalNormProblem& p, const Device& d) const override {
    WalkCut c;
    parse(p, d, c);
    return walk_estimate_us(p, d, c);
  }
  std::unique_ptr<Plan<LocalNormProblem>> build(const LocalNormProblem& p, const Device& d,
                                                const Config&) const override {
    WalkCut c;
    parse(p, d, c);
    return walk_plan(p, d, c, spec(p.x.dtype, c.along, c.centered, c.size, p.backward));
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType t : {DType::float32, DType::float16, DType::bfloat16})
      for (bool backward : {false, true})
        for (Along along : {Along::beside, Along::apart}) {
          for (bool centered : {false, true}) all.push_back(spec(t, along, centered, kWalkSize, backward));
          all.push_back(spec(t, along, true, 0, backward));
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
