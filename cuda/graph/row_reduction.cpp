// SPDX-License-Identifier: Apache-2.0
// cuda.graph.row_reduction: a region whose results depend on single rows, as one kernel. The kernel's functor is
// generated (cpp/graph/row_source.h).
#include "cpp/engine/engine_object.h"
#include "cpp/graph/row_source.h"
#include "cuda/graph/row_reduction_params.h"
#include "cuda/rows/launch.h"

namespace minidnn {
namespace cuda::graph {
namespace {

bool has_vectors(const ElementIndexing& indexing, const PointwiseAccess& x, int64_t width) {
  if (x.kind == Access::dense) return true;
  const int64_t last = indexing.rank - 1;
  if (indexing.shape[last] % width != 0) return false;
  if (x.strides[last] == 0) return true;
  for (int64_t i = 0; i < last; ++i)
    if (x.strides[i] % width != 0) return false;
  return x.strides[last] == 1;
}
// How the rows of a region are divided among threads.
struct Tiling {
  rows::Shape shape;
  RowVectors vectors;
  bool by_vectors;
};
Tiling tiling_of(const RegionProblem& p, const minidnn::Region& r, const RowRegion& e, const Device& d) {
  Tiling t;
  t.vectors = row_vectors(r, e);
  const int64_t width = t.vectors.width;
  t.by_vectors = p.alignment == 16 && e.cols % width == 0;
  for (const auto* operands : {&e.loads, &e.stores})
    for (const ElementOperand& o : *operands) t.by_vectors = t.by_vectors && has_vectors(e.indexing, o.access, width);
  if (!t.by_vectors) t.vectors.vectors = row_vectors_without_alignment(t.vectors.vectors);
  t.shape = rows::shape_of(e.rows, e.cols, width, t.vectors.vectors, cuda::largest_cluster(d), kMostRowThreads);
  // Blocks of 128 threads or fewer are launched too often.
  if (t.shape.chunks == 1 && t.shape.teams == 1 && 2 * t.shape.threads <= rows::kBlock) t.shape.teams = 2;
  return t;
}

RowGrid grid_of(const RowRegion& e, const Tiling& t) {
  RowGrid g;
  g.rows = t.shape;
  g.indexing = e.indexing;
  g.by_divisors = e.indexing.n < int64_t(1) << 31;
  if (g.by_divisors)
    for (int i = 0; i < e.indexing.rank; ++i) g.shape[i] = FastDivmod(e.indexing.shape[i]);
  size_t broadcasts = 0;
  for (const ElementOperand& o : e.loads) {
    if (row_load_of(e, o) != RowLoad::other) continue;
    g.broadcast[broadcasts] = o.access;
    g.broadcast_varies[broadcasts++] = o.access.strides[e.indexing.rank - 1] != 0;
  }
  const auto is_plain = [&](const PointwiseAccess& x) {
    return x.kind == Access::periodic && x.inner == e.cols && x.length == e.rows && x.stride == 1;
  };
  for (size_t i = 0; i < e.row_loads.size(); ++i) {
    g.row_load[i] = e.row_loads[i].access;
    g.plain_row_loads |= uint32_t(is_plain(g.row_load[i])) << i;
  }
  for (size_t i = 0; i < e.row_stores.size(); ++i) {
    g.row_store[i] = e.row_stores[i].access;
    g.plain_row_stores |= uint32_t(is_plain(g.row_store[i])) << i;
  }
  return g;
}

struct RowReductionPlan final : Plan<RegionProblem> {
  const minidnn::Region& region;
  RowRegion rows;
  GeneratedSource source;
  RowGrid grid;
  std::shared_ptr<const cuda::Kernel> kernel;
  cuda::LaunchConfig config;

  explicit RowReductionPlan(const minidnn::Region& r) : region(r) {}

  void run(const RegionArgs& a, void*, Stream stream) const override {
    RowArgs args;
    size_t dense = 0, columns = 0, others = 0;
    for (const ElementOperand& o : rows.loads) {
      const RowLoad kind = row_load_of(rows, o);
      const void*& to = kind == RowLoad::dense    ? args.load[dense++]
                        : kind == RowLoad::column ? args.column[columns++]
                                                  : args.broadcast[others++];
      to = region.address(o.value, a);
    }
    for (size_t i = 0; i < rows.stores.size(); ++i) args.store[i] = region.address(rows.stores[i].value, a);
    for (size_t i = 0; i < rows.row_loads.size(); ++i) args.row_load[i] = region.address(rows.row_loads[i].value, a);
    for (size_t i = 0; i < rows.row_stores.size(); ++i) args.row_store[i] = region.address(rows.row_stores[i].value, a);
    source.set_numbers(a, args);
    args.per_col = float(1 / double(rows.cols));
    cuda::launch(*kernel, config, stream, grid, args);
  }
};

}  // namespace

struct RowReduction final : Engine<RegionProblem> {
  std::string name() const override { return "cuda.graph.row_reduction"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const RegionProblem& p, const Device& d) const override {
    const minidnn::Region& r = region_of(p);
    RowRegion e;
    if (std::string why = row_region(r, e); !why.empty()) return why;
    if (p.rounding_each) return "rounding='each' is not supported: sums of rows would have another order";
    if (e.cols > 1 << 30) return cat("supports rows of at most 2^30 elements; got ", e.cols);
    const Tiling t = tiling_of(p, r, e, d);
    constexpr int kMostKept = 2;
    if (t.vectors.kept > kMostKept)
      return cat(t.vectors.kept, " values of each element are used before and after a statistic; registers hold ",
                 kMostKept);
    if (t.shape.chunks > 1 && !t.shape.clustered)
      return cat("supports rows that fit the registers of up to ", cuda::largest_cluster(d), " blocks; got ", e.cols,
                 " elements");
    if (rows::blocks_of(t.shape) > INT32_MAX) return "supports at most 2^31 - 1 blocks; got more";
    return too_many_numbers(r, e.steps);
  }
  // The estimate of the time is a guess: 0.92 of the copy rate. The rate is lower without vectors, mostly with dropout,
  // which then computes four random words for each element, and if there are too few blocks to fill the GPU.
  double estimate_us(const RegionProblem& p, const Device& d) const override {
    const minidnn::Region& r = region_of(p);
    RowRegion e;
    row_region(r, e);
    const Tiling t = tiling_of(p, r, e, d);
    const double filled = std::min(1.0, 3 * double(rows::blocks_of(t.shape)) / d.sm_count);
    bool random = false;
    for (const RegionNode& n : r.nodes) random = random || n.as<RandomProblem>();
    const double useful = t.by_vectors ? 0.92 : random ? 0.12 : 0.35;
    // Among equals, a call of the library is better, because it needs no compilation.
    return 1.5 + roofline_us(row_region_flop(r), r.bytes_together(), d, useful * filled);
  }
  std::unique_ptr<Plan<RegionProblem>> build(const RegionProblem& p, const Device& d, const Config&) const override {
    auto plan = std::make_unique<RowReductionPlan>(region_of(p));
    row_region(plan->region, plan->rows);
    plan->source = row_source(plan->region, plan->rows);
    const Tiling t = tiling_of(p, plan->region, plan->rows, d);
    plan->grid = grid_of(plan->rows, t);
    KernelSpec spec{"cuda/graph/row_reduction.cu",
                    cat("minidnn::graph_rows<minidnn::Region, ", t.by_vectors ? "true" : "false", ">")};
    spec.generated = plan->source.text;
    if (only_16_bit(plan->region)) spec.options = {"--prec-div=false", "--prec-sqrt=false"};
    plan->kernel = cuda::load_kernel(spec, d.place.index);
    plan->config = rows::launch_config(t.shape, rows::blocks_of(t.shape));
    if (t.shape.clustered) cuda::allow_cluster(*plan->kernel, plan->config);
    return plan;
  }
};

}  // namespace cuda::graph

template const Engine<RegionProblem>& engine_object<RegionProblem, cuda::graph::RowReduction>();

}  // namespace minidnn
