// SPDX-License-Identifier: Apache-2.0
// cuda.reduce.contiguous_axis: outputs whose elements are contiguous, along one dimension or in several contiguous spans (runs).
// cuda.reduce.strided_axis: outputs that are contiguous themselves. If there are few outputs with many elements, each is
// split into parts, and a second kernel combines their results.
#include "cuda/reduce/dense.h"

#include <bit>

#include "cuda/reduce/engines.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace {

constexpr int64_t kThreads = kReduceThreads, kAhead = kReduceAhead;
constexpr int64_t kBlocksPerSm = 16;  // target for split reductions: two or three rounds, so the last is short
constexpr int64_t kMostPlaces = INT32_MAX - 2 * kThreads * kAhead * 8;  // loop indices run past the end
constexpr const char* kTooMany = "supports fewer than 2^31 elements of x in a thread block; got more";

std::string kernel_type(ReduceKind kind) { return cat("(minidnn::ReduceKind)", int64_t(kind)); }
KernelSpec parts_spec(ReduceKind kind) {
  return {"cuda/reduce/dense.cu", cat("minidnn::reduce_parts<", kernel_type(kind), ">")};
}
KernelSpec rows_spec(DType t, ReduceKind kind) {
  return {"cuda/reduce/dense.cu", cat("minidnn::reduce_rows<", cuda_name(t), ", ", kernel_type(kind), ">")};
}
KernelSpec columns_spec(DType t, ReduceKind kind, bool wide) {
  return {"cuda/reduce/dense.cu",
          cat("minidnn::reduce_columns<", cuda_name(t), ", ", kernel_type(kind), wide ? ", true>" : ", false>")};
}

struct Dense : Engine<ReduceProblem> {
  unsigned traits() const override { return kNeedsJit; }
  virtual void add_kernels(std::vector<KernelSpec>& all, DType t, ReduceKind kind) const = 0;
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (auto kind : {ReduceKind::sum, ReduceKind::prod, ReduceKind::max, ReduceKind::arg}) {
      for (DType t : {DType::float32, DType::float16, DType::bfloat16}) add_kernels(all, t, kind);
      all.push_back(parts_spec(kind));
    }
    return all;
  }
};

std::string refusal(const ReduceProblem& p) {
  if (!is_floating(p.x.dtype) || p.x.dtype == DType::float64)
    return cat("supports float32, float16 and bfloat16 only; got ", minidnn::name(p.x.dtype));
  if (p.x.numel() == 0) return "x is empty";
  return "";
}
CachePolicy policy_of(const ReduceProblem& p, const Device& d) { return policy_of_once(reduce_bytes(p), d.l2_bytes); }
size_t partial_bytes(const ReduceProblem& p) { return kind_of(p.mode) == ReduceKind::arg ? 16 : 4; }
int64_t lanes_for(int64_t vectors) {
  return std::clamp<int64_t>(int64_t(std::bit_ceil(uint64_t(ceil_div(vectors, kAhead)))), 1, kThreads);
}
// Into how many parts, at most `most`, each of `groups` blocks of work is split.
int64_t parts_for(int64_t groups, int64_t most, const Device& d) {
  const int64_t wanted = kBlocksPerSm * d.sm_count;
  return groups * 2 > wanted ? 1 : std::clamp<int64_t>(ceil_div(wanted, groups), 1, max_of<int64_t>(most, 1));
}

template <class Launch>
std::unique_ptr<Plan<ReduceProblem>> two_steps(const ReduceProblem& p, const Device& d, int64_t parts, int64_t outputs,
                                               bool parts_first, Launch launch) {
  ReduceParts r{p.mode, joined(p.y, false), outputs, parts, parts_first ? 1 : parts, parts_first ? outputs : 1, 0, 0};
  r.count = p.x.numel() / outputs, r.lanes = lanes_for(parts);
  const bool early = d.arch >= 90;
  std::shared_ptr<const cuda::Kernel> last;
  if (parts > 1) last = cuda::load_kernel(parts_spec(kind_of(p.mode)), d.place.index);
  return make_plan<ReduceProblem>([=](const ReduceArgs& a, void* workspace, Stream stream) {
    launch(a, workspace, stream);
    if (parts == 1) return;
    cuda::LaunchConfig config;
    config.block = {unsigned(kThreads)};
    config.grid = {unsigned(ceil_div(outputs, kThreads / r.lanes))};
    config.programmatic = early;
    cuda::launch(*last, config, stream, r, static_cast<const void*>(workspace), a.y);
  });
}

struct Rows final : Dense {
  std::string name() const override { return "cuda.reduce.contiguous_axis"; }
  void add_kernels(std::vector<KernelSpec>& all, DType t, ReduceKind kind) const override {
    all.push_back(rows_spec(t, kind));
  }

  static std::string parse(const ReduceProblem& p, const Device& d, ReduceRows& r) {
    const ReduceView v = reduce_view(p);
    r.mode = p.mode, r.policy = policy_of(p, d), r.y = joined(p.y, false), r.kept = joined(v.kept, false);
    r.runs = joined(v.reduced, kind_of(p.mode) != ReduceKind::arg);
    if (r.runs.rank == 0 || r.runs.stride[r.runs.rank - 1] != 1)
      return "needs a reduced dimension of x to be contiguous";
    r.run = r.runs.shape[--r.runs.rank];
    const int64_t vector = 16 / int64_t(itemsize(p.x.dtype)), outputs = p.y.numel(), runs = r.runs.numel();
    r.count = runs * r.run;
    r.lanes = lanes_for(ceil_div(r.run, vector));
    r.slices = 1, r.slice = r.run, r.runs_a_part = runs, r.parts = 1;
    const int64_t step = kThreads * kAhead * vector;  // elements that a block has in flight
    const int64_t parts = parts_for(ceil_div(outputs * r.lanes, kThreads), r.count / step, d);
    if (parts > 1) {
      r.runs_a_part = ceil_div(runs, min_of(runs, parts));
      const int64_t groups = ceil_div(runs, r.runs_a_part);
      r.slice = ceil_div(ceil_div(r.run, max_of<int64_t>(parts / groups, 1)), step) * step;
      r.slice = min_of(r.slice, r.run), r.slices = ceil_div(r.run, r.slice);
      r.parts = groups * r.slices;
      r.lanes = lanes_for(ceil_div(r.slice, vector));
    } else {  // with enough outputs, a warp each: no block-wide barrier
      const int64_t enough = ceil_div(int64_t(2048) * d.sm_count, outputs);
      r.lanes = min_of(r.lanes, max_of(int64_t(std::bit_ceil(uint64_t(enough))), int64_t(32)));
    }
    r.items = outputs * r.parts;
    if (ceil_div(r.items, kThreads / r.lanes) > 0x7fffffff) return "supports at most 2^31 - 1 blocks; got more";
    if ((r.runs_a_part - 1) * r.run + r.slice > kMostPlaces) return kTooMany;
    return "";
  }
  std::string why_not(const ReduceProblem& p, const Device& d) const override {
    ReduceRows r;
    std::string why = refusal(p);
    return why.empty() ? parse(p, d, r) : why;
  }
  // Counted, not measured: four loads of 16 bytes in flight per thread saturate memory; runs shorter than a line waste
  // bandwidth.
  double estimate_us(const ReduceProblem& p, const Device& d) const override {
    ReduceRows r;
    parse(p, d, r);
    const double line = std::min(1.0, double(r.run) * double(itemsize(p.x.dtype)) / (r.runs.rank ? 256 : 16));
    return roofline_us(0, reduce_bytes(p), d, 0.92 * line) + (r.parts > 1 ? 3 : 0);
  }
  size_t workspace_bytes(const ReduceProblem& p, const Device& d, const Config&) const override {
    ReduceRows r;
    parse(p, d, r);
    return r.parts > 1 ? size_t(r.items) * partial_bytes(p) : 0;
  }
  std::unique_ptr<Plan<ReduceProblem>> build(const ReduceProblem& p, const Device& d, const Config&) const override {
    ReduceRows r;
    parse(p, d, r);
    cuda::LaunchConfig config;
    config.block = {unsigned(kThreads)};
    config.grid = {unsigned(ceil_div(r.items, kThreads / r.lanes))};
    auto first = cuda::load_kernel(rows_spec(p.x.dtype, kind_of(p.mode)), d.place.index);
    return two_steps(p, d, r.parts, p.y.numel(), false, [=](const ReduceArgs& a, void* workspace, Stream stream) {
      cuda::launch(*first, config, stream, r, a.x, a.y, workspace);
    });
  }
};

struct Columns final : Dense {
  std::string name() const override { return "cuda.reduce.strided_axis"; }
  void add_kernels(std::vector<KernelSpec>& all, DType t, ReduceKind kind) const override {
    for (bool wide : {false, true}) all.push_back(columns_spec(t, kind, wide));
  }

  static std::string parse(const ReduceProblem& p, const Device& d, ReduceColumns& c) {
    const ReduceView v = reduce_view(p);
    const TensorDesc rows = joined(v.reduced, kind_of(p.mode) != ReduceKind::arg);
    c.mode = p.mode, c.policy = policy_of(p, d), c.y = joined(p.y, false), c.outer = joined(v.kept, false);
    if (c.outer.rank == 0 || c.outer.stride[c.outer.rank - 1] != 1)
      return "needs a kept dimension of x to be contiguous";
    if (rows.rank > 1) return cat("needs reduced dimensions that join into one with a single stride; got ", rows.rank);
    c.columns = c.outer.shape[--c.outer.rank];
    c.rows = rows.rank ? rows.shape[0] : 1, c.pitch = rows.rank ? rows.stride[0] : 0;
    c.outputs = p.y.numel();
    const int64_t vector = 16 / int64_t(itemsize(p.x.dtype));
    int64_t aligned = c.columns | c.pitch;
    for (int i = 0; i < c.outer.rank; ++i) aligned |= c.outer.stride[i];
    c.wide = aligned % vector == 0 && p.alignment == 16;
    c.whole_rows = c.pitch > 0 ? max_of<int64_t>(c.rows - ceil_div(2 * vector, c.pitch), 0) : 0;
    const int64_t vectors = ceil_div(c.columns, vector);
    c.lanes = std::clamp<int64_t>(int64_t(std::bit_ceil(uint64_t(vectors))), 1, 32);
    c.column_blocks = ceil_div(vectors, c.lanes);
    const int64_t groups = c.column_blocks * c.outer.numel(), high = kThreads / c.lanes;
    c.rows_a_part = ceil_div(c.rows, parts_for(groups, c.rows / (kAhead * high), d));
    c.parts = ceil_div(c.rows, c.rows_a_part);
    if (double(groups) * double(c.parts) > 0x7fffffff) return "supports at most 2^31 - 1 blocks; got more";
    if (c.rows_a_part > kMostPlaces) return kTooMany;
    return "";
  }
  std::string why_not(const ReduceProblem& p, const Device& d) const override {
    ReduceColumns c;
    std::string why = refusal(p);
    return why.empty() ? parse(p, d, c) : why;
  }
  // Counted, not measured, as for rows. A vector extracted from two takes two accesses to L1 and twice the
  // instructions.
  double estimate_us(const ReduceProblem& p, const Device& d) const override {
    ReduceColumns c;
    parse(p, d, c);
    const double line = std::min(1.0, double(c.columns) * double(itemsize(p.x.dtype)) / 128);
    return roofline_us(0, reduce_bytes(p), d, (c.wide ? 0.92 : 0.8) * line) + (c.parts > 1 ? 3 : 0);
  }
  size_t workspace_bytes(const ReduceProblem& p, const Device& d, const Config&) const override {
    ReduceColumns c;
    parse(p, d, c);
    return c.parts > 1 ? size_t(c.outputs * c.parts) * partial_bytes(p) : 0;
  }
  std::unique_ptr<Plan<ReduceProblem>> build(const ReduceProblem& p, const Device& d, const Config&) const override {
    ReduceColumns c;
    parse(p, d, c);
    cuda::LaunchConfig config;
    config.block = {unsigned(kThreads)};
    config.grid = {unsigned(c.column_blocks * c.outer.numel() * c.parts)};
    auto first = cuda::load_kernel(columns_spec(p.x.dtype, kind_of(p.mode), c.wide), d.place.index);
    return two_steps(p, d, c.parts, c.outputs, true, [=](const ReduceArgs& a, void* workspace, Stream stream) {
      cuda::launch(*first, config, stream, c, a.x, a.y, workspace);
    });
  }
};

}  // namespace

const Engine<ReduceProblem>& reduce_rows() {
  static const Rows engine;
  return engine;
}
const Engine<ReduceProblem>& reduce_columns() {
  static const Columns engine;
  return engine;
}

}  // namespace minidnn
