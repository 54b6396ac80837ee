// SPDX-License-Identifier: Apache-2.0
// cuda.transform.gather (row-major tensors) and cuda.transform.gather_generic (any strides). Backward, both first run a
// kernel that sorts the indices by row.
#include "cuda/transform/gather.h"

#include "cuda/runtime/plan.h"
#include "cuda/transform/dimensions.h"
#include "cuda/transform/engines.h"

namespace minidnn {
namespace {

constexpr const char* kFile = "cuda/transform/gather.cu";

KernelSpec word_spec(const char* kernel, int64_t bytes) {
  return {kFile, cat("minidnn::", kernel, "<", bytes == 16 ? "uint4" : cat("uint", 8 * bytes, "_t"), ">")};
}
KernelSpec sum_spec(const char* kernel, DType t) { return {kFile, cat("minidnn::", kernel, "<", cuda_name(t), ">")}; }
KernelSpec order_spec(bool contiguous) {
  return {kFile, cat("minidnn::transform_gather_order<", contiguous ? "true" : "false", ">")};
}

bool is_backward(const GatherProblem& p) { return p.direction == GatherDirection::backward; }

// Launches the sort of the indices by row. One block per SM, if there are enough rows: each block reads all indices.
struct Ordering {
  GatherProblem problem;
  std::shared_ptr<const cuda::Kernel> kernel;
  cuda::LaunchConfig config;
  int32_t rows;

  Ordering(const GatherProblem& p, const Device& d)
      : problem(p), kernel(cuda::load_kernel(order_spec(is_row_major(p.index)), d.place.index)) {
    rows = int32_t(min_of<int64_t>(ceil_div<int64_t>(p.rows(), d.sm_count), kOrderRows));
    config.block = {kOrderThreads};
    config.grid = {unsigned(ceil_div<int64_t>(p.rows(), rows))};
  }
  GatherOrder run(const GatherArgs& a, void* workspace, Stream stream) const {
    const GatherOrder order = gather_order(problem, workspace);
    cuda::launch(*kernel, config, stream, problem, a.index, order, rows);
    return order;
  }
};

// The time of the sort: each block reads all indices twice from L2, at 2.5 TB/s, half of L2's bandwidth.
double order_us(const GatherProblem& p, const Device& d) {
  if (!is_backward(p)) return 0;
  const double blocks = max_of(double(d.sm_count), double(p.rows()) / kOrderRows);
  return 5 + 2 * blocks * double(p.index.numel()) * double(itemsize(p.index.dtype)) / 2.5e6;
}

struct GatherEngine : Engine<GatherProblem> {
  unsigned traits() const override { return kNeedsJit; }
  size_t workspace_bytes(const GatherProblem& p, const Device&, const Config&) const override {
    return gather_order_bytes(p);
  }
};

struct Rows final : GatherEngine {
  std::string name() const override { return "cuda.transform.gather"; }
  std::string why_not(const GatherProblem& p, const Device&) const override {
    GatherRows g;
    std::string why = gather_rows(p, g);
    if (!why.empty()) return why;
    if (g.outer * max_of(g.rows, g.indices) > 0x7fffffff)
      return cat("supports at most 2^31 - 1 lines; got ", g.outer * max_of(g.rows, g.indices));
    if (g.run * int64_t(itemsize(p.x.dtype)) > 0x7fffffff)
      return cat("supports lines of at most 2^31 - 1 bytes; got ", g.run * int64_t(itemsize(p.x.dtype)));
    if (double(max_of(p.x.numel(), p.y.numel())) * double(g.run) >= 0x1p63)
      return cat("supports tensors whose elements times the elements of a line are below 2^63; got ",
                 max_of(p.x.numel(), p.y.numel()), " and ", g.run);
    if (is_backward(p) && (p.alignment < 16 || g.run * int64_t(itemsize(p.x.dtype)) % 16 != 0))
      return cat("gather_backward needs lines of a multiple of 16 bytes, aligned to 16 bytes; got ",
                 g.run * int64_t(itemsize(p.x.dtype)), " bytes, aligned to ", p.alignment);
    if (is_backward(p) && (p.x.numel() >> 40) != 0) return "supports at most 2^31 - 1 blocks; got more";
    return "";
  }
  double estimate_us(const GatherProblem& p, const Device& d) const override {
    return roofline_us(0, gather_bytes(p), d, 0.8) + order_us(p, d);
  }
  std::unique_ptr<Plan<GatherProblem>> build(const GatherProblem& p, const Device& d, const Config&) const override {
    GatherRows g;
    gather_rows(p, g);
    const int64_t line = g.run * int64_t(itemsize(p.x.dtype)), word = divides(line | p.alignment);
    GatherWalk w;
    const int64_t inner = is_backward(p) ? g.rows : g.indices;
    w.words = g.outer * inner * (line / word);
    w.run = LongDivisor(line / word), w.inner = FastDivmod(inner), w.rows = g.rows, w.indices = g.indices;
    cuda::LaunchConfig config;
    config.block = {kGatherThreads};
    if (is_backward(p)) {
      config.grid = {unsigned(ceil_div<int64_t>(w.words, kGatherThreads))};
      auto kernel = cuda::load_kernel(sum_spec("transform_gather_sum", p.x.dtype), d.place.index);
      return make_plan<GatherProblem>(
          [=, ordering = Ordering(p, d)](const GatherArgs& a, void* workspace, Stream stream) {
            const GatherOrder order = ordering.run(a, workspace, stream);
            cuda::launch(*kernel, config, stream, w, order, a.from, a.to);
          });
    }
    config.grid = {unsigned(ceil_div<int64_t>(w.words, kGatherThreads * kGatherAhead))};
    auto kernel = cuda::load_kernel(word_spec("transform_gather", word), d.place.index);
    return make_plan<GatherProblem>([=](const GatherArgs& a, void*, Stream stream) {
      cuda::launch(*kernel, config, stream, w, p, a.from, a.index, a.to);
    });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all{order_spec(true)};
    for (int64_t word : {1, 2, 4, 8, 16}) all.push_back(word_spec("transform_gather", word));
    for (DType t : kFloatingDTypes) all.push_back(sum_spec("transform_gather_sum", t));
    return all;
  }
};

struct Generic final : GatherEngine {
  std::string name() const override { return "cuda.transform.gather_generic"; }
  std::string why_not(const GatherProblem&, const Device&) const override { return ""; }
  double estimate_us(const GatherProblem& p, const Device& d) const override {
    return roofline_us(0, gather_bytes(p), d, 0.1) + order_us(p, d);
  }
  std::unique_ptr<Plan<GatherProblem>> build(const GatherProblem& p, const Device& d, const Config&) const override {
    if (!is_backward(p))
      return cuda::kernel_plan(word_spec("transform_gather_generic", int64_t(itemsize(p.x.dtype))), p, d,
                               cuda::elementwise_launch(p.y.numel(), d));
    auto kernel = cuda::load_kernel(sum_spec("transform_gather_sum_generic", p.x.dtype), d.place.index);
    return make_plan<GatherProblem>([=, ordering = Ordering(p, d), config = cuda::elementwise_launch(p.x.numel(), d)](
                                        const GatherArgs& a, void* workspace, Stream stream) {
      const GatherOrder order = ordering.run(a, workspace, stream);
      cuda::launch(*kernel, config, stream, p, a, order);
    });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all{order_spec(true), order_spec(false)};
    for (int64_t item : {1, 2, 4, 8}) all.push_back(word_spec("transform_gather_generic", item));
    for (DType t : kFloatingDTypes) all.push_back(sum_spec("transform_gather_sum_generic", t));
    return all;
  }
};

}  // namespace

const Engine<GatherProblem>& gather_rows() {
  static const Rows engine;
  return engine;
}
const Engine<GatherProblem>& gather_generic() {
  static const Generic engine;
  return engine;
}

}  // namespace minidnn
