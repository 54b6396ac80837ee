// SPDX-License-Identifier: Apache-2.0
// cuda.graph.elementwise: a region whose results depend on single elements, as one kernel. The kernel's functor is
// generated (cpp/graph/element_source.h).
#include "cpp/engine/engine_object.h"
#include "cpp/graph/element_source.h"
#include "cuda/graph/elementwise_params.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::graph {
namespace {

bool any_16_bit(const minidnn::Region& r) {
  for (const RegionNode& n : r.nodes)
    for (const RegionPort& p : n.ports)
      if (itemsize(p.desc.dtype) == 2) return true;
  return false;
}

// Whether a compiler may fuse products and sums in the formula of an activation in more than one way. Then two kernels
// may give results that differ in the last bit.
bool may_contract(const ActivationProblem& p) {
  using enum Activation;
  const bool forward = p.direction == ActivationDirection::forward;
  switch (p.mode) {
    case identity:
    case relu:
    case clipped_relu:
    case leaky_relu:
      return false;
    case gelu_tanh:
    case mish:
      return true;
    default:
      return !forward;
  }
}

KernelSpec spec(const minidnn::Region& r, std::string generated) {
  KernelSpec s{"cuda/graph/elementwise.cu", "minidnn::graph_elementwise<minidnn::Region>"};
  s.generated = std::move(generated);
  // As in cuda.pointwise.vectorized: an error of two ulp of float32 is negligible in 16-bit results.
  if (only_16_bit(r)) s.options = {"--prec-div=false", "--prec-sqrt=false"};
  return s;
}

ElementwiseGrid grid_of(const ElementRegion& e) {
  ElementwiseGrid g;
  g.indexing = e.indexing;
  for (size_t i = 0; i < e.loads.size(); ++i) g.load[i] = e.loads[i].access;
  for (size_t i = 0; i < e.stores.size(); ++i) g.store[i] = e.stores[i].access;
  g.by_divisors = g.indexing.n < int64_t(1) << 31;
  if (g.by_divisors) {
    for (size_t i = 0; i < e.loads.size(); ++i)
      g.period[i] = {FastDivmod(g.load[i].inner), FastDivmod(g.load[i].length)};
    for (int i = 0; i < g.indexing.rank; ++i) g.shape[i] = FastDivmod(g.indexing.shape[i]);
  }
  return g;
}

struct ElementwisePlan final : Plan<RegionProblem> {
  const minidnn::Region& region;
  ElementRegion elements;
  GeneratedSource source;
  ElementwiseGrid grid;
  int width;
  std::shared_ptr<const cuda::Kernel> kernel;
  cuda::LaunchConfig config;

  explicit ElementwisePlan(const minidnn::Region& r) : region(r) {}

  // Whether a whole vector of an operand can be loaded or stored in one access, or is one value.
  bool has_vectors(const ElementOperand& o, const void* address) const {
    const int64_t bytes = min_of(int64_t(16), width * int64_t(itemsize(o.desc.dtype)));
    const bool aligned = reinterpret_cast<uintptr_t>(address) % uintptr_t(bytes) == 0;
    const PointwiseAccess& x = o.access;
    if (x.kind == Access::dense) return aligned;
    if (x.kind == Access::strided) return false;
    if (x.length == 1) return true;
    if (!grid.by_divisors) return false;
    return x.inner % width == 0 || (x.inner == 1 && x.stride == 1 && x.length % width == 0 && aligned);
  }

  void run(const RegionArgs& a, void*, Stream stream) const override {
    ElementwiseArgs args;
    bool by_vectors = true;
    for (size_t i = 0; i < elements.loads.size(); ++i) {
      args.load[i] = region.address(elements.loads[i].value, a);
      by_vectors = by_vectors && has_vectors(elements.loads[i], args.load[i]);
    }
    for (size_t i = 0; i < elements.stores.size(); ++i) {
      args.store[i] = region.address(elements.stores[i].value, a);
      by_vectors = by_vectors && elements.stores[i].access.kind == Access::dense &&
                   has_vectors(elements.stores[i], args.store[i]);
    }
    source.set_numbers(a, args);
    cuda::launch(*kernel, config, stream, grid, args, int64_t(by_vectors));
  }
};

}  // namespace

struct Elementwise final : Engine<RegionProblem> {
  std::string name() const override { return "cuda.graph.elementwise"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const RegionProblem& p, const Device&) const override {
    const minidnn::Region& r = region_of(p);
    ElementRegion e;
    if (std::string why = element_region(r, e); !why.empty()) return why;
    // The kernels of pointwise divide with another precision in 16 bits than in 32 bits.
    if (p.rounding_each && any_16_bit(r) && !only_16_bit(r))
      return "rounding='each' does not support 16-bit and wider floating dtypes in one kernel";
    for (const RegionNode& n : r.nodes)
      if (const auto* a = n.as<ActivationProblem>(); a && p.rounding_each && may_contract(*a))
        return cat("rounding='each': ", minidnn::name(a->mode),
                   " has products and sums that another kernel may fuse otherwise");
    return too_many_numbers(r, e.steps);
  }
  double estimate_us(const RegionProblem& p, const Device& d) const override {
    const minidnn::Region& r = region_of(p);
    ElementRegion e;
    element_region(r, e);
    bool strided = false;
    for (const auto* operands : {&e.loads, &e.stores})
      for (const ElementOperand& o : *operands) strided = strided || o.access.kind == Access::strided;
    return roofline_us(element_flop(r), r.bytes_together(), d, strided ? 0.3 : 0.9);
  }
  std::unique_ptr<Plan<RegionProblem>> build(const RegionProblem& p, const Device& d, const Config&) const override {
    auto plan = std::make_unique<ElementwisePlan>(region_of(p));
    element_region(plan->region, plan->elements);
    plan->source = element_source(plan->region, plan->elements, p.rounding_each);
    plan->grid = grid_of(plan->elements);
    const auto [vectors, width] = element_vectors(plan->region, plan->elements);
    plan->width = width;
    plan->kernel = cuda::load_kernel(spec(plan->region, plan->source.text), d.place.index);
    plan->config.block = {unsigned(kTileThreads)};
    plan->config.grid = {unsigned(ceil_div(plan->grid.indexing.n, int64_t(kTileThreads) * vectors * width))};
    return plan;
  }
};

}  // namespace cuda::graph

template const Engine<RegionProblem>& engine_object<RegionProblem, cuda::graph::Elementwise>();

}  // namespace minidnn
