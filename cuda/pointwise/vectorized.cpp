// SPDX-License-Identifier: Apache-2.0
// cuda.pointwise.vectorized is the engine for any pointwise function, dtype, broadcasting and strides. It reads dense
// operands by 16-byte vectors.
#include "cuda/pointwise/pointwise_params.h"

#include "cpp/engine/engine_object.h"
#include "cpp/pointwise/pointwise.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::pointwise {
namespace {

constexpr PointwiseGroup kGroups[] = {PointwiseGroup::unary,   PointwiseGroup::maths1, PointwiseGroup::test1,
                                      PointwiseGroup::binary,  PointwiseGroup::maths2, PointwiseGroup::test2,
                                      PointwiseGroup::ternary, PointwiseGroup::select};

// Returns the dtype for which a kernel is compiled. `select` only copies bits, so all dtypes of one size share a
// kernel. The 16-bit dtypes have a kernel each, because they are converted to float.
DType type_of_kernel(PointwiseGroup group, DType t) {
  if (group != PointwiseGroup::select || itemsize(t) == 2) return t;
  return itemsize(t) == 1 ? DType::uint8 : itemsize(t) == 4 ? DType::int32 : DType::int64;
}

KernelSpec spec(PointwiseGroup group, DType t) {
  KernelSpec s{"cuda/pointwise/vectorized.cu",
               cat("minidnn::pointwise_vectorized<", cuda_name(t), ", (minidnn::PointwiseGroup)", int64_t(group), ">")};
  // These compiler options allow divisions and square roots an error of two ulp of float32, which is negligible in
  // 16-bit results.
  if (itemsize(t) == 2) s.options = {"--prec-div=false", "--prec-sqrt=false"};
  return s;
}

}  // namespace

struct Vectorized final : Engine<PointwiseProblem> {
  std::string name() const override { return "cuda.pointwise.vectorized"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const PointwiseProblem&, const Device&) const override { return ""; }
  double estimate_us(const PointwiseProblem& p, const Device& d) const override {
    const PointwiseIndexing w = indexing_of(p);
    const bool strided = w.a.kind == Access::strided || w.b.kind == Access::strided || w.c.kind == Access::strided ||
                         w.out.kind == Access::strided;
    return roofline_us(pointwise_flop(p), pointwise_bytes(p), d, strided ? 0.3 : 0.9);
  }
  std::unique_ptr<Plan<PointwiseProblem>> build(const PointwiseProblem& p, const Device& d,
                                                const Config&) const override {
    const PointwiseGroup group = info(p.op).group;
    const DType type = type_of_kernel(group, pointwise_dtype(p));
    auto kernel = cuda::load_kernel(spec(group, type), d.place.index);
    PointwiseGrid g;
    g.indexing = indexing_of(p);
    g.by_divisors = g.indexing.n < int64_t(1) << 31;
    if (g.by_divisors) {
      auto period = [](const PointwiseAccess& x) { return PointwisePeriod{FastDivmod(x.inner), FastDivmod(x.length)}; };
      g.a = period(g.indexing.a);
      g.b = period(g.indexing.b);
      g.c = period(g.indexing.c);
      for (int i = 0; i < g.indexing.rank; ++i) g.shape[i] = FastDivmod(g.indexing.shape[i]);
    }
    const int64_t items = 16 / int64_t(itemsize(type)), op = int64_t(p.op);
    const int operands = arity(group);
    cuda::LaunchConfig config;
    config.block = {unsigned(kTileThreads)};
    config.grid = {unsigned(ceil_div(g.indexing.n, kTileThreads * pointwise_vectors_of(int(itemsize(type))) * items))};
    return make_plan<PointwiseProblem>([=](const PointwiseArgs& a, void*, Stream stream) {
      // 16-byte loads and stores need addresses that are multiples of 16.
      uintptr_t bits = reinterpret_cast<uintptr_t>(a.out);
      bool fits = g.indexing.out.kind == Access::dense;
      auto look = [&](const PointwiseAccess& x, const void* data) {
        const bool vectors = x.kind == Access::dense || (x.inner == 1 && x.length > 1);
        if (vectors) bits |= reinterpret_cast<uintptr_t>(data);
        if (x.kind == Access::strided) fits = false;
        if (x.kind == Access::periodic && x.length > 1)
          fits = fits && g.by_divisors &&
                 (x.inner % items == 0 || (x.inner == 1 && x.stride == 1 && x.length % items == 0));
      };
      look(g.indexing.a, a.a);
      if (operands > 1) look(g.indexing.b, a.b);
      if (operands > 2) look(g.indexing.c, a.c);
      const int64_t by_vectors = fits && bits % 16 == 0;
      cuda::launch(*kernel, config, stream, g, a, op, by_vectors);
    });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (PointwiseGroup group : kGroups)
      for (DType t : kDTypes) {
        int takes = 0;
        for (int i = 0; i < int(pointwise_names().size()); ++i)
          if (info(Pointwise(i)).group == group) takes |= info(Pointwise(i)).operands;
        const int kind = is_floating(t) ? 1 : t == DType::boolean ? 4 : 2;
        KernelSpec s = spec(group, type_of_kernel(group, t));
        if (takes & kind && std::ranges::find(all, s) == all.end()) all.push_back(std::move(s));
      }
    return all;
  }
};

}  // namespace cuda::pointwise

template const Engine<PointwiseProblem>& engine_object<PointwiseProblem, cuda::pointwise::Vectorized>();

}  // namespace minidnn
