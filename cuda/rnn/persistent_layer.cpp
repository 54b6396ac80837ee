// SPDX-License-Identifier: Apache-2.0
#include "cuda/rnn/persistent_layer.h"

#include <algorithm>
#include <span>

#include "cuda/rnn/generic.h"

namespace minidnn::cuda::rnn {
namespace {

// Compiled divisions of the product of a step: tiles of 16 rows of a warp, its pairs of steps along k, and parts of k.
struct Division {
  int32_t m_tiles, pairs, parts;
  int32_t units;  // the most units of a slice

  int32_t k_bytes() const { return 64 * pairs * parts; }
};
constexpr Division kForward[] = {{1, 4, 4, 32}, {1, 8, 1, 32},  {1, 8, 2, 32},
                                 {1, 8, 4, 32}, {1, 16, 1, 32}, {2, 8, 4, 16}};
constexpr Division kForwardTf32[] = {{1, 8, 4, 32}, {1, 16, 1, 32}, {1, 16, 4, 32}, {2, 8, 4, 16}};
constexpr Division kBackward[] = {{1, 8, 4, 32}, {1, 8, 8, 16}, {1, 16, 4, 32}, {1, 16, 8, 16}};
constexpr Division kBackwardTf32[] = {{1, 8, 4, 32}, {1, 16, 4, 32}, {1, 16, 8, 16}};
constexpr Division kClusterForward[] = {{1, 4, 1, 32}, {1, 4, 4, 32}, {1, 8, 1, 32}, {1, 16, 1, 32}};
constexpr Division kClusterForwardTf32[] = {{1, 8, 1, 32}, {1, 16, 1, 32}, {1, 8, 4, 32}};
constexpr Division kClusterBackward[] = {{1, 4, 4, 32}, {1, 8, 4, 32}, {1, 16, 4, 32}};
constexpr Division kClusterBackwardTf32[] = {{1, 8, 4, 32}, {1, 16, 4, 32}};
std::span<const Division> divisions(bool forward, DType type, Exchange e) {
  using Divisions = std::span<const Division>;
  if (type == DType::float32) {
    if (e == Exchange::l2) return forward ? Divisions(kForwardTf32) : Divisions(kBackwardTf32);
    return forward ? Divisions(kClusterForwardTf32) : Divisions(kClusterBackwardTf32);
  }
  if (e == Exchange::l2) return forward ? Divisions(kForward) : Divisions(kBackward);
  return forward ? Divisions(kClusterForward) : Divisions(kClusterBackward);
}
constexpr int32_t kRowTiles[] = {1, 2, 4};  // of 8 rows of a group
std::span<const int32_t> row_tiles_of(Exchange e) { return std::span(kRowTiles).first(e == Exchange::l2 ? 3 : 2); }
constexpr DType kTypes[] = {DType::float16, DType::bfloat16, DType::float32};

// The tiles of rows that are in shared memory at a time. Wide rows leave room for one, and a cluster has all of them.
int32_t tiles_at_once(const Division& d, int32_t row_tiles, Exchange e) {
  return std::min(row_tiles, e == Exchange::l2 && d.k_bytes() > 4096 ? 1 : 2);
}

KernelSpec spec(bool forward, DType type, const Division& d, int32_t row_tiles, Exchange e) {
  const int64_t rows_of_thread = ceil_div(8 * row_tiles * d.units, 256);
  const char* const cluster = e == Exchange::cluster ? "true" : "false";
  KernelSpec spec{
      "cuda/rnn/persistent.cu",
      cat("minidnn::rnn_persistent_", forward ? "forward" : "backward", "<", cuda_name(type), ", ", cluster, ", ",
          d.m_tiles, ", ", d.pairs, ", ", d.parts, ", ", rows_of_thread, ", ", tiles_at_once(d, row_tiles, e), ">")};
  if (e == Exchange::cluster) spec.min_arch = 90;
  return spec;
}

// How long a step takes, in microseconds: what passes between blocks, the units of a thread, the bytes that a block receives,
// and its products. Fitted to 60 problems on an H100.
double step_us(const RnnPersistentShape& s) {
  const double units = double(s.rows) * s.units / 256, kib = double(s.rows) * s.k * s.size / 1024;
  const double products = double(s.pairs) * s.m_tiles * s.rows / 8 * 2;
  return (s.clustered ? 0.45 + 0.06 * kib : 1.3 + 0.03 * kib) + 0.35 * units + 0.009 * products;
}
// All blocks that exchange through the L2 run at once, and clusters may run after each other. Large clusters do not fill
// all multiprocessors.
int64_t waves(const RnnPersistentShape& s, const Device& d) {
  const int64_t groups = s.groups * s.directions, all = d.sm_count / s.slices;
  if (!s.clustered) return groups <= all ? 1 : 0;
  return ceil_div(groups, std::max<int64_t>(d.sm_count * 23 / 25 / s.slices, 1));
}

// A shape, the division whose kernel computes it, and how long a step takes.
struct Choice {
  RnnPersistentShape shape;
  Division division{};
  double us = 0;
};

// The fastest choice. slices is 0 if there is none.
Choice choice_of(const RnnProblem& p, const Device& d, Exchange e) {
  const bool forward = p.direction == RnnDirection::forward;
  const int64_t gates = p.gates();
  Choice best;
  best.shape.slices = 0;
  RnnPersistentShape s;
  s.size = int32_t(itemsize(p.x.dtype));
  s.directions = int32_t(p.directions);
  s.clustered = e == Exchange::cluster;
  for (int32_t units : {32, 16, 8}) {
    s.units = units;
    s.slices = int32_t(ceil_div(p.hidden, int64_t(units)));
    if (s.clustered && (s.slices == 1 || s.slices > largest_cluster(d))) continue;
    s.m = int32_t(forward ? gates * units : units);
    s.k = int32_t(forward ? p.hidden : gates * p.hidden);
    for (int32_t row_tiles : row_tiles_of(e)) {
      s.rows = 8 * row_tiles;
      s.groups = int32_t(ceil_div(p.batch, int64_t(s.rows)));
      if (waves(s, d) == 0) continue;
      for (const Division& division : divisions(forward, p.x.dtype, e)) {
        s.m_tiles = division.m_tiles;
        s.pairs = division.pairs;
        s.parts = division.parts;
        s.chunk = 8 * tiles_at_once(division, row_tiles, e);
        if (units > division.units || s.warps() * s.parts > 8 || division.k_bytes() < s.k * s.size) continue;
        const double us = double(waves(s, d)) * step_us(s);
        if (best.shape.slices == 0 || us < best.us) best = {s, division, us};
      }
    }
  }
  return best;
}

// The workspace of a call.
struct Workspace : WorkspaceParts {
  size_t scratch_at = 0, sums_at = 0, exchanged_at = 0, exchanged_bytes = 0;

  Workspace(const RnnProblem& p, const RnnPersistentShape& shape, const InputProducts& products)
      : exchanged_bytes(shape.clustered ? 0 : size_t(shape.kSlots * p.directions * p.batch * shape.k * shape.size)) {
    add(rnn_workspace_bytes(p));
    scratch_at = add(products.workspace_bytes());
    sums_at = add(products.sums_bytes());
    exchanged_at = add(exchanged_bytes);
  }
};

RnnPersistentParams params_of(const RnnProblem& p, const RnnPersistentShape& s, const Device& d) {
  RnnPersistentParams params;
  params.shape = s;
  params.steps = int32_t(p.steps);
  params.batch = int32_t(p.batch);
  params.hidden = int32_t(p.hidden);
  params.mode = int32_t(p.mode);
  params.gates = int32_t(p.gates());
  params.reserved = int32_t(p.saved_gates());
  params.dgates = int32_t(p.gate_gradients());
  params.has_clip = int32_t(p.has_clip);
  // What all steps read: the input's part of the gates, or the reserve. A fetch costs time if it is in the L2 already.
  const int64_t values = p.rows() * p.directions * p.hidden;
  const int64_t bytes = values * (p.direction == RnnDirection::forward ? p.gates() * 4 : p.saved_gates() * s.size + 8);
  params.ahead = bytes > d.l2_bytes / 2 ? 2 : params.steps;
  return params;
}

struct PersistentPlan final : Plan<RnnProblem> {
  RnnProblem p;
  Choice choice;
  RnnPersistentParams params;
  InputProducts products;
  Workspace at;
  GenericPasses passes;
  std::shared_ptr<const Kernel> kernel;
  LaunchConfig config;
  Place place;

  PersistentPlan(const RnnProblem& problem, const Device& d, Exchange e)
      : p(problem),
        choice(choice_of(p, d, e)),
        params(params_of(p, choice.shape, d)),
        products(p, d),
        at(p, choice.shape, products),
        passes(p, d, is_generic),
        place(d.place) {
    products.build();
    const RnnPersistentShape& shape = choice.shape;
    config.grid = {unsigned(shape.blocks())};
    config.block = {256};
    config.smem_bytes = unsigned(shape.smem_bytes());
    if (shape.clustered) config.cluster = {unsigned(shape.slices)};
    config.cooperative = !shape.clustered;
    config.instead = "cuda.rnn.stepwise_gemm";
    kernel = load_kernel(spec(p.direction == RnnDirection::forward, p.x.dtype, choice.division, shape.rows / 8, e),
                         d.place.index, shape.smem_bytes());
    allow_cluster(*kernel, config);
  }

  // The passes that the kernels of generic.cu compute.
  static bool is_generic(RnnPass pass) {
    return pass == RnnPass::begin || pass == RnnPass::drop || pass == RnnPass::clear_unused;
  }

  void run_layer(const RnnLayer& l, char* workspace, Stream stream) const {
    const bool forward = p.direction == RnnDirection::forward;
    const InputProducts::Rows rows = products.rows_of(l);
    void* const sums = workspace + at.sums_at;
    if (forward) products.run_forward(l, sums, workspace + at.scratch_at, stream);
    RnnPersistentArgs a;
    for (int64_t d = 0; d < p.directions; ++d) {
      a.weights[d] = l.weights[d][kHiddenWeight];
      a.biases[d][0] = l.weights[d][kInputBias];
      a.biases[d][1] = l.weights[d][kHiddenBias];
    }
    a.lengths = l.lengths;
    a.offsets = p.packed ? l.first_rows : nullptr;
    a.input = static_cast<const float*>(sums);
    a.input_step = int32_t(rows.step);
    a.input_row = int32_t(rows.row);
    a.y = l.out_data;
    a.dy = l.dy_data;
    a.dy_is_float = int32_t(l.dy_is_sum);
    a.y_step = int32_t(l.out.stride[0]);
    a.y_row = int32_t(l.out.stride[p.packed ? 0 : 1]);
    a.dy_step = int32_t(l.dy.stride[0]);
    a.dy_row = int32_t(l.dy.stride[p.packed ? 0 : 1]);
    a.rows = int32_t(p.rows());
    a.h0 = l.h0;
    a.c0 = l.c0;
    a.hn = l.hn;
    a.cn = l.cn;
    a.dhn = l.dhn;
    a.dcn = l.dcn;
    a.dh0 = l.dh0;
    a.dc0 = l.dc0;
    const bool has_reserve = !forward || p.training;
    a.gates = has_reserve ? l.gates : nullptr;
    a.cells = has_reserve && p.mode == RnnMode::lstm ? static_cast<float*>(l.cells) : nullptr;
    a.dgates = l.dgates;
    a.exchanged = workspace + at.exchanged_at;
    if (at.exchanged_bytes) memory_of(place).fill(a.exchanged, 0xff, at.exchanged_bytes, stream);
    RnnPersistentParams of_layer = params;
    of_layer.clip = float(l.clip);
    launch(*kernel, config, stream, of_layer, a);
  }
  void run(const RnnArgs& a, void* workspace, Stream stream) const override {
    char* const bytes = static_cast<char*>(workspace);
    run_rnn_passes(p, a, workspace, 1, [&](RnnPass pass, const RnnLayer& l, int64_t step, int64_t items) {
      if (is_generic(pass)) passes.launch(pass, l, step, items, stream);
      else if (pass == RnnPass::forward_unit ? step == 0 : pass == RnnPass::backward_units && step == p.steps - 1)
        run_layer(l, bytes, stream);
      else if (pass == RnnPass::input_gradient)
        products.run_backward(l, bytes + at.sums_at, bytes + at.scratch_at, stream);
    });
  }
};

}  // namespace

std::string persistent_why_not(const RnnProblem& p, const Device& d) {
  if (p.direction == RnnDirection::backward_weights) return "it computes no gradients of weights";
  if (p.x.dtype == DType::float64) return "float64 is not supported";
  if (p.x.dtype == DType::float32 && p.ieee) return "its products of float32 are TF32";
  if (d.arch < 80) return "it needs compute capability 8.0";
  if (p.reset_before) return "it is for GRUs with reset_after";
  if (p.hidden % 8 != 0 || p.alignment < 16)
    return "hidden_size must be a multiple of 8, and all tensors must begin at multiples of 16 bytes";
  if (p.rows() >= int64_t(1) << 31 || p.steps >= (int64_t(1) << 31) - 1) return "it counts rows with 32 bits";
  if (!MatrixRows(p, p.x).exist) return std::string("the rows of x or dx are not those of a matrix");
  for (const TensorDesc& t : {p.y, p.dy}) {
    if (t.rank && t.stride[t.rank - 1] != 1 && t.shape[t.rank - 1] != 1)
      return cat("the features of y or dy have stride ", t.stride[t.rank - 1], ", which must be 1");
    for (int64_t i = 0; i + 1 < t.rank; ++i)
      if (t.stride[i] >= int64_t(1) << 31 || t.stride[i] < 0) return "strides of y and dy must be below 2^31";
  }
  return "";
}
RnnPersistentShape persistent_shape(const RnnProblem& p, const Device& d, Exchange e) {
  return choice_of(p, d, e).shape;
}
double persistent_estimate_us(const RnnProblem& p, const Device& d, Exchange e) {
  return double(p.layers) * (10 + double(p.steps) * choice_of(p, d, e).us) + InputProducts(p, d).estimate_us();
}
size_t persistent_workspace_bytes(const RnnProblem& p, const Device& d, Exchange e) {
  return Workspace(p, persistent_shape(p, d, e), InputProducts(p, d)).bytes;
}
std::unique_ptr<Plan<RnnProblem>> persistent_plan(const RnnProblem& p, const Device& d, Exchange e) {
  return std::make_unique<PersistentPlan>(p, d, e);
}
std::vector<KernelSpec> persistent_kernels(Exchange e) {
  std::vector<KernelSpec> all = InputProducts::kernels(kTypes);
  for (DType t : kTypes)
    for (int32_t tiles : row_tiles_of(e))
      for (bool forward : {true, false})
        for (const Division& d : divisions(forward, t, e)) all.push_back(spec(forward, t, d, tiles, e));
  return all;
}

}  // namespace minidnn::cuda::rnn
