// SPDX-License-Identifier: Apache-2.0
// cuda.rnn.persistent: a launch for each layer, in which all blocks keep their weights in registers. The products with the
// inputs of all steps come before it, and those for their gradients after it.
#include <algorithm>
#include <span>

#include "cpp/engine/engine_object.h"
#include "cuda/rnn/generic.h"
#include "cuda/rnn/persistent_params.h"
#include "cuda/rnn/products.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::rnn {
namespace {

// Compiled divisions of the product of a step: pairs of steps of a warp along k, and parts of k.
struct Division {
  int32_t pairs, parts;
};
constexpr Division kForward[] = {{4, 4}, {8, 1}, {8, 2}, {8, 4}, {16, 1}, {16, 2}};
constexpr Division kBackward[] = {{8, 4}, {8, 8}, {16, 4}, {16, 8}};
constexpr int32_t kRowTiles[] = {1, 2, 4};  // of 8 rows of a group
constexpr DType kTypes[] = {DType::float16, DType::bfloat16};

// The tiles of rows that are in shared memory at a time. Wide rows leave room for one.
int32_t tiles_at_once(Division d, int32_t row_tiles) { return std::min(row_tiles, d.pairs * d.parts > 64 ? 1 : 2); }

KernelSpec spec(bool forward, DType type, Division d, int32_t row_tiles) {
  return {"cuda/rnn/persistent.cu",
          cat("minidnn::rnn_persistent_", forward ? "forward" : "backward", "<", cuda_name(type), ", ", d.pairs, ", ",
              d.parts, ", ", row_tiles, ", ", tiles_at_once(d, row_tiles), ">")};
}

// How long a step takes, in microseconds: a round trip through the L2, the words that a block reads, and its products.
// Fitted to 20 problems on an H100.
double step_us(const RnnPersistentShape& s) { return 1.5 + s.rows * s.k * 4 / 35e3 + s.pairs * 0.03 * s.rows / 8; }

// The fastest shape. slices is 0 if the device has too few SMs.
RnnPersistentShape shape_of(const RnnProblem& p, const Device& d) {
  const bool forward = p.direction == RnnDirection::forward;
  const int64_t gates = p.gates();
  RnnPersistentShape best;
  best.slices = 0;
  for (int32_t units : {32, 16, 8}) {
    RnnPersistentShape s;
    s.units = units;
    s.directions = int32_t(p.directions);
    const int64_t slices = ceil_div(p.hidden, int64_t(units)), most = d.sm_count / (slices * p.directions);
    if (most == 0) continue;
    s.slices = int32_t(slices);
    int32_t row_tiles = 0;
    for (int32_t tiles : kRowTiles)
      if (!row_tiles && ceil_div(p.batch, int64_t(8 * tiles)) <= most) row_tiles = tiles;
    if (!row_tiles) continue;
    s.rows = 8 * row_tiles;
    s.groups = int32_t(ceil_div(p.batch, int64_t(s.rows)));
    s.m = int32_t(forward ? gates * units : units);
    s.k = int32_t(forward ? p.hidden : gates * p.hidden);
    for (Division division : forward ? std::span<const Division>(kForward) : std::span<const Division>(kBackward)) {
      s.pairs = division.pairs;
      s.parts = division.parts;
      if (s.tiles() * s.parts > 8 || 32 * s.pairs * s.parts < s.k) continue;
      s.chunk = 8 * tiles_at_once(division, row_tiles);
      if (best.slices == 0 || step_us(s) < step_us(best)) best = s;
    }
  }
  return best;
}

// The workspace of a call.
struct Workspace : WorkspaceParts {
  size_t scratch_at = 0, sums_at = 0, exchanged_at = 0, exchanged_bytes = 0;

  Workspace(const RnnProblem& p, const RnnPersistentShape& shape, const InputProducts& products)
      : exchanged_bytes(size_t(2 * p.directions * p.batch * shape.k / 2 * 8)) {
    add(rnn_workspace_bytes(p));
    scratch_at = add(products.workspace_bytes());
    sums_at = add(products.sums_bytes());
    exchanged_at = add(exchanged_bytes);
  }
};

RnnPersistentParams params_of(const RnnProblem& p, const RnnPersistentShape& s) {
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
  return params;
}

struct PersistentPlan final : Plan<RnnProblem> {
  RnnProblem p;
  RnnPersistentShape shape;
  InputProducts products;
  Workspace at;
  GenericPasses passes;
  std::shared_ptr<const Kernel> kernel;
  LaunchConfig config;
  Place place;

  PersistentPlan(const RnnProblem& problem, const Device& d)
      : p(problem),
        shape(shape_of(p, d)),
        products(p, d),
        at(p, shape, products),
        passes(p, d, is_generic),
        place(d.place) {
    products.build();
    config.grid = {unsigned(shape.blocks())};
    config.block = {256};
    config.smem_bytes = unsigned(shape.smem_bytes());
    config.cooperative = true;
    kernel =
        load_kernel(spec(p.direction == RnnDirection::forward, p.x.dtype, {shape.pairs, shape.parts}, shape.rows / 8),
                    d.place.index, shape.smem_bytes());
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
    memory_of(place).fill(a.exchanged, 0, at.exchanged_bytes, stream);
    RnnPersistentParams params = params_of(p, shape);
    params.clip = float(l.clip);
    launch(*kernel, config, stream, params, a);
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

struct Persistent final : Engine<RnnProblem> {
  std::string name() const override { return "cuda.rnn.persistent"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const RnnProblem& p, const Device& d) const override {
    if (p.direction == RnnDirection::backward_weights) return "it computes no gradients of weights";
    if (p.x.dtype != DType::float16 && p.x.dtype != DType::bfloat16) return "it is for float16 and bfloat16";
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
    if (shape_of(p, d).slices == 0) {
      const double bytes = 2.0 * double(p.directions * p.gates() * p.hidden * p.hidden);
      return cat("weights of ", bytes_text(bytes), " or a batch of ", p.batch, " are too large for the registers of ",
                 d.sm_count, " multiprocessors");
    }
    return "";
  }
  double estimate_us(const RnnProblem& p, const Device& d) const override {
    return double(p.layers) * (10 + double(p.steps) * step_us(shape_of(p, d))) + InputProducts(p, d).estimate_us();
  }
  size_t workspace_bytes(const RnnProblem& p, const Device& d, const Config&) const override {
    return Workspace(p, shape_of(p, d), InputProducts(p, d)).bytes;
  }
  std::unique_ptr<Plan<RnnProblem>> build(const RnnProblem& p, const Device& d, const Config&) const override {
    return std::make_unique<PersistentPlan>(p, d);
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all = InputProducts::kernels(kTypes);
    for (DType t : kTypes)
      for (int32_t tiles : kRowTiles) {
        for (Division d : kForward) all.push_back(spec(true, t, d, tiles));
        for (Division d : kBackward) all.push_back(spec(false, t, d, tiles));
      }
    return all;
  }
};

}  // namespace cuda::rnn

template const Engine<RnnProblem>& engine_object<RnnProblem, cuda::rnn::Persistent>();

}  // namespace minidnn
