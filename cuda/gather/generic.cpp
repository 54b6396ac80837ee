// SPDX-License-Identifier: Apache-2.0
// cuda.gather.generic: an engine for any strides. In the backward direction, it first sorts the indices by the row of
// dx that they select.
#include "cpp/engine/engine_object.h"
#include "cpp/gather/gather.h"
#include "cuda/gather/index_sort.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::gather {
namespace {

constexpr const char* kFile = "cuda/gather/generic.cu";

KernelSpec word_spec(const char* kernel, int64_t bytes) {
  return {kFile, cat("minidnn::", kernel, "<", bytes == 16 ? "uint4" : cat("uint", 8 * bytes, "_t"), ">")};
}
KernelSpec sum_spec(const char* kernel, DType t) { return {kFile, cat("minidnn::", kernel, "<", cuda_name(t), ">")}; }

}  // namespace

struct Generic final : Engine<GatherProblem> {
  std::string name() const override { return "cuda.gather.generic"; }
  unsigned traits() const override { return kNeedsJit; }
  size_t workspace_bytes(const GatherProblem& p, const Device&, const Config&) const override {
    return gather_order_bytes(p);
  }
  std::string why_not(const GatherProblem&, const Device&) const override { return ""; }
  double estimate_us(const GatherProblem& p, const Device& d) const override {
    return roofline_us(0, gather_bytes(p), d, 0.1) + index_sort_us(p, d);
  }
  std::unique_ptr<Plan<GatherProblem>> build(const GatherProblem& p, const Device& d, const Config&) const override {
    if (!is_backward(p))
      return cuda::kernel_plan(word_spec("gather_generic", int64_t(itemsize(p.x.dtype))), p, d,
                               cuda::elementwise_launch(p.y.numel(), d));
    auto kernel = cuda::load_kernel(sum_spec("gather_sum_generic", p.x.dtype), d.place.index);
    return make_plan<GatherProblem>([=, sort = IndexSort(p, d), config = cuda::elementwise_launch(p.x.numel(), d)](
                                        const GatherArgs& a, void* workspace, Stream stream) {
      const GatherOrder order = sort.run(a, workspace, stream);
      cuda::launch(*kernel, config, stream, p, a, order);
    });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all{IndexSort::spec(true), IndexSort::spec(false)};
    for (int64_t item : {1, 2, 4, 8}) all.push_back(word_spec("gather_generic", item));
    for (DType t : kFloatingDTypes) all.push_back(sum_spec("gather_sum_generic", t));
    return all;
  }
};

}  // namespace cuda::gather

template const Engine<GatherProblem>& engine_object<GatherProblem, cuda::gather::Generic>();

}  // namespace minidnn
