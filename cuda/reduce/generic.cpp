// SPDX-License-Identifier: Apache-2.0
// cuda.reduce.generic is the engine for reductions of tensors with any strides and dtypes.
#include <bit>

#include "cpp/engine/engine_object.h"
#include "cpp/reduce/reduce.h"
#include "cuda/reduce/reduce_params.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::reduce {
namespace {

constexpr int64_t kThreads = kReduceThreads;

KernelSpec spec(ReduceKind kind, const char* acc) {
  return {"cuda/reduce/generic.cu",
          cat("minidnn::reduce_generic<(minidnn::ReduceKind)", int64_t(kind), ", ", acc, ">")};
}
constexpr const char* kAccumulators[] = {"float", "double", "int64_t"};

}  // namespace

struct Generic final : Engine<ReduceProblem> {
  std::string name() const override { return "cuda.reduce.generic"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const ReduceProblem&, const Device&) const override { return ""; }
  // The factor 0.1 of the peak bandwidth is a guess. Each element takes a 64-bit division per dimension and a load of
  // its own.
  double estimate_us(const ReduceProblem& p, const Device& d) const override {
    const double filled = std::min(1.0, double(p.y.numel()) * double(lanes_of(p)) / (1024.0 * d.sm_count));
    return roofline_us(0, reduce_bytes(p), d, 0.1 * filled);
  }
  static int64_t lanes_of(const ReduceProblem& p) {
    const int64_t count = p.x.numel() / max_of<int64_t>(p.y.numel(), 1);
    return std::clamp<int64_t>(int64_t(std::bit_ceil(uint64_t(ceil_div<int64_t>(count, 4)))), 1, kThreads);
  }
  std::unique_ptr<Plan<ReduceProblem>> build(const ReduceProblem& p, const Device& d, const Config&) const override {
    const int lanes = int(lanes_of(p));
    cuda::LaunchConfig config;
    config.block = {unsigned(kThreads)};
    config.grid = {unsigned(min_of<int64_t>(ceil_div(p.y.numel(), kThreads / lanes), 32 * d.sm_count))};
    auto kernel =
        cuda::load_kernel(spec(kind_of(p.mode), kAccumulators[int64_t(reduced_in(p.mode, p.x.dtype))]), d.place.index);
    return make_plan<ReduceProblem>([=, view = reduce_view(p)](const ReduceArgs& a, void*, Stream stream) {
      cuda::launch(*kernel, config, stream, p, view, a, lanes);
    });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (auto kind : {ReduceKind::sum, ReduceKind::prod, ReduceKind::max, ReduceKind::arg})
      for (const char* acc : kAccumulators) all.push_back(spec(kind, acc));
    return all;
  }
};

}  // namespace cuda::reduce

template const Engine<ReduceProblem>& engine_object<ReduceProblem, cuda::reduce::Generic>();

}  // namespace minidnn
