// SPDX-License-Identifier: Apache-2.0
// cuda.gather.contiguous_rows: an engine for row-major tensors. In the backward direction, it first sorts the indices
// by the row of dx that they select.
#include "cpp/engine/engine_object.h"
#include "cpp/gather/gather.h"
#include "cpp/transform/transform_math.h"
#include "cuda/gather/gather_params.h"
#include "cuda/gather/index_sort.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::gather {
namespace {

constexpr const char* kFile = "cuda/gather/contiguous_rows.cu";

KernelSpec word_spec(const char* kernel, int64_t bytes) {
  return {kFile, cat("minidnn::", kernel, "<", bytes == 16 ? "uint4" : cat("uint", 8 * bytes, "_t"), ">")};
}
KernelSpec sum_spec(const char* kernel, DType t) { return {kFile, cat("minidnn::", kernel, "<", cuda_name(t), ">")}; }

}  // namespace

struct ContiguousRows final : Engine<GatherProblem> {
  std::string name() const override { return "cuda.gather.contiguous_rows"; }
  unsigned traits() const override { return kNeedsJit; }
  size_t workspace_bytes(const GatherProblem& p, const Device&, const Config&) const override {
    return gather_order_bytes(p);
  }
  std::string why_not(const GatherProblem& p, const Device&) const override {
    GatherRows g;
    std::string why = gather_rows(p, g);
    if (!why.empty()) return why;
    if (g.outer * max_of(g.rows, g.indices) > 0x7fffffff)
      return cat("supports at most 2^31 - 1 lines; got ", g.outer * max_of(g.rows, g.indices));
    if (g.span * int64_t(itemsize(p.x.dtype)) > 0x7fffffff)
      return cat("supports lines of at most 2^31 - 1 bytes; got ", g.span * int64_t(itemsize(p.x.dtype)));
    if (double(max_of(p.x.numel(), p.y.numel())) * double(g.span) >= 0x1p63)
      return cat("supports tensors whose elements times the elements of a line are below 2^63; got ",
                 max_of(p.x.numel(), p.y.numel()), " and ", g.span);
    if (is_backward(p) && (p.alignment < 16 || g.span * int64_t(itemsize(p.x.dtype)) % 16 != 0))
      return cat("gather_backward needs lines of a multiple of 16 bytes, aligned to 16 bytes; got ",
                 g.span * int64_t(itemsize(p.x.dtype)), " bytes, aligned to ", p.alignment);
    if (is_backward(p) && (p.x.numel() >> 40) != 0) return "supports at most 2^31 - 1 blocks; got more";
    return "";
  }
  double estimate_us(const GatherProblem& p, const Device& d) const override {
    return roofline_us(0, gather_bytes(p), d, 0.8) + index_sort_us(p, d);
  }
  std::unique_ptr<Plan<GatherProblem>> build(const GatherProblem& p, const Device& d, const Config&) const override {
    GatherRows g;
    gather_rows(p, g);
    const int64_t line = g.span * int64_t(itemsize(p.x.dtype)), word = word_bytes_of(line | p.alignment);
    GatherParams w;
    const int64_t inner = is_backward(p) ? g.rows : g.indices;
    w.words = g.outer * inner * (line / word);
    w.span = LongDivisor(line / word);
    w.inner = FastDivmod(inner);
    w.rows = g.rows;
    w.indices = g.indices;
    cuda::LaunchConfig config;
    config.block = {kGatherThreads};
    if (is_backward(p)) {
      config.grid = {unsigned(ceil_div<int64_t>(w.words, kGatherThreads))};
      auto kernel = cuda::load_kernel(sum_spec("gather_sum_contiguous_rows", p.x.dtype), d.place.index);
      return make_plan<GatherProblem>([=, sort = IndexSort(p, d)](const GatherArgs& a, void* workspace, Stream stream) {
        const GatherOrder order = sort.run(a, workspace, stream);
        cuda::launch(*kernel, config, stream, w, order, a.from, a.to);
      });
    }
    config.grid = {unsigned(ceil_div<int64_t>(w.words, kGatherThreads * kGatherAhead))};
    auto kernel = cuda::load_kernel(word_spec("gather_contiguous_rows", word), d.place.index);
    return make_plan<GatherProblem>([=](const GatherArgs& a, void*, Stream stream) {
      cuda::launch(*kernel, config, stream, w, p, a.from, a.index, a.to);
    });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all{IndexSort::spec(true)};
    for (int64_t word : {1, 2, 4, 8, 16}) all.push_back(word_spec("gather_contiguous_rows", word));
    for (DType t : kFloatingDTypes) all.push_back(sum_spec("gather_sum_contiguous_rows", t));
    return all;
  }
};

}  // namespace cuda::gather

template const Engine<GatherProblem>& engine_object<GatherProblem, cuda::gather::ContiguousRows>();

}  // namespace minidnn
