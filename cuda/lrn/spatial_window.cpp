// SPDX-License-Identifier: Apache-2.0
// cuda.lrn.spatial_window is the engine for local contrast norm of dense tensors. The kernel is in spatial_window.cu.
#include "cpp/engine/engine_object.h"
#include "cpp/lrn/lrn.h"
#include "cuda/lrn/sliding_window.h"

namespace minidnn {
namespace cuda::lrn {
namespace {

std::string tile(const LrnProblem& p, const Device& d, SlidingWindowTiling& c) {
  if (std::string why = why_not_spatial_window(p); !why.empty()) return why;
  return tile_sliding_window(p, is_row_major(p.x) ? Axis::contiguous : Axis::strided, d, c);
}

KernelSpec spec(DType t, Axis axis, bool centered, int64_t size, bool backward) {
  return {"cuda/lrn/spatial_window.cu",
          cat("minidnn::lrn_spatial_window<", cuda_name(t), ", ", window_vector(t, size, centered && backward),
              ", minidnn::Axis::", axis == Axis::strided ? "strided, " : "contiguous, ", centered, ", ", size, ", ",
              backward, ">")};
}

}  // namespace

struct SpatialWindow final : Engine<LrnProblem> {
  std::string name() const override { return "cuda.lrn.spatial_window"; }
  int revision() const override { return 4; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const LrnProblem& p, const Device& d) const override {
    SlidingWindowTiling c;
    return tile(p, d, c);
  }
  double estimate_us(const LrnProblem& p, const Device& d) const override {
    SlidingWindowTiling c;
    tile(p, d, c);
    return sliding_window_us(p, d, c);
  }
  std::unique_ptr<Plan<LrnProblem>> build(const LrnProblem& p, const Device& d, const Config&) const override {
    SlidingWindowTiling c;
    tile(p, d, c);
    return sliding_window_plan(p, d, c, spec(p.x.dtype, c.axis, c.centered, c.size, p.backward));
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType t : {DType::float32, DType::float16, DType::bfloat16})
      for (bool backward : {false, true})
        for (Axis axis : {Axis::contiguous, Axis::strided}) {
          for (bool centered : {false, true}) all.push_back(spec(t, axis, centered, kCompiledSize, backward));
          all.push_back(spec(t, axis, true, 0, backward));
        }
    return all;
  }
};

}  // namespace cuda::lrn

template const Engine<LrnProblem>& engine_object<LrnProblem, cuda::lrn::SpatialWindow>();

}  // namespace minidnn
