// SPDX-License-Identifier: Apache-2.0
// cuda.transform.batched_memcpy: an engine for copies between tensors that are contiguous along the same dimension.
// Examples are copies of slices, and concatenation.
#include "cuda/transform/batched_memcpy_params.h"

#include "cpp/engine/engine_object.h"
#include "cpp/transform/transform.h"
#include "cuda/runtime/plan.h"
#include "cuda/transform/copy_dimensions.h"

namespace minidnn {
namespace cuda::transform {
namespace {

struct MemcpyTiling {
  BatchedMemcpyParams params;
  // The number of bytes of a word. A thread copies words.
  int64_t word = 16;
  // Empty if the kernel can run the problem. If not, a sentence that names the limit.
  std::string why_not;
};

MemcpyTiling tiling_of(const TransformProblem& p) {
  MemcpyTiling c;
  const auto refuse = [&](std::string why) {
    c.why_not = std::move(why);
    return c;
  };
  const std::vector<CopyDimension> dims = copy_dimensions(p);
  if (!dims.empty() && (dims.back().x != 1 || dims.back().y != 1))
    return refuse("needs x and the result to be contiguous along the same dimension");
  if (dims.size() > kMemcpyOuters + 1)
    return refuse(
        cat("supports at most ", kMemcpyOuters, " dimensions besides the contiguous one; got ", dims.size() - 1));
  const int64_t item = int64_t(itemsize(p.x.dtype)), span = dims.empty() ? 1 : dims.back().size;
  int64_t all = span * item | p.alignment;
  for (size_t i = 0; i + 1 < dims.size(); ++i) all |= dims[i].x * item | dims[i].y * item;
  c.word = word_bytes_of(all);
  if (p.y.numel() >= int64_t(1) << 31) return refuse(cat("supports at most 2^31 - 1 elements; got ", p.y.numel()));
  c.params.words = uint32_t(p.y.numel() * item / c.word);
  c.params.span = FastDivmod(span * item / c.word);
  for (size_t i = 0; i + 1 < dims.size(); ++i) {
    const CopyDimension& d = dims[dims.size() - 2 - i];
    c.params.outer[i] = FastDivmod(d.size);
    c.params.x_outer[i] = d.x * item / c.word;
    c.params.y_outer[i] = d.y * item / c.word;
  }
  return c;
}

KernelSpec spec(int64_t word) {
  const std::string type = word == 16 ? "uint4" : cat("uint", 8 * word, "_t");
  return {"cuda/transform/batched_memcpy.cu", cat("minidnn::transform_batched_memcpy<", type, ">")};
}

}  // namespace

struct BatchedMemcpy final : Engine<TransformProblem> {
  std::string name() const override { return "cuda.transform.batched_memcpy"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const TransformProblem& p, const Device&) const override {
    if (p.x.dtype != p.y.dtype || p.scaled) return "casts and scaling are not supported";
    if (p.y.numel() == 0) return "the result is empty";
    return tiling_of(p).why_not;
  }
  // The efficiencies are estimates, not measurements. Shorter words need proportionally more instructions.
  double estimate_us(const TransformProblem& p, const Device& d) const override {
    const MemcpyTiling c = tiling_of(p);
    const double efficiency = c.word >= 8 ? 0.88 : c.word == 4 ? 0.7 : c.word == 2 ? 0.4 : 0.2;
    return roofline_us(0, transform_bytes(p), d, efficiency);
  }
  std::unique_ptr<Plan<TransformProblem>> build(const TransformProblem& p, const Device& d,
                                                const Config&) const override {
    const MemcpyTiling c = tiling_of(p);
    auto kernel = cuda::load_kernel(spec(c.word), d.place.index);
    cuda::LaunchConfig config;
    config.block = {kMemcpyThreads};
    config.grid = {unsigned(ceil_div<int64_t>(c.params.words, kMemcpyThreads * kMemcpyAhead))};
    return make_plan<TransformProblem>([=, params = c.params](const TransformArgs& a, void*, Stream stream) {
      cuda::launch(*kernel, config, stream, params, a.x, a.y);
    });
  }
  std::vector<KernelSpec> kernels() const override { return {spec(1), spec(2), spec(4), spec(8), spec(16)}; }
};

}  // namespace cuda::transform

template const Engine<TransformProblem>& engine_object<TransformProblem, cuda::transform::BatchedMemcpy>();

}  // namespace minidnn
