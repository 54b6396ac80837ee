// SPDX-License-Identifier: Apache-2.0
// cpu.rnn.packed_gemm: recurrent layers as matrix products. W x of all steps is one product. w_hh is packed once for each
// layer, so that its panels stay in the caches during all steps. A thread owns some units and all their gates: at each
// step, it multiplies h by its panels and computes its units, and then waits for the other threads. Sums are float32;
// operands of 16 bits become float32 while they are packed. Results do not depend on the number of threads.
#include "cpp/rnn/cpu/packed_gemm.h"

#include <cstring>

#include "cpp/engine/engine_object.h"

namespace minidnn {
namespace cpu::rnn {
namespace {

// The number of steps of k that are added up in registers. It is constant for a call, so the rounding of a sum does not
// depend on the number of rows. A single row needs several independent sums, so it has short segments.
constexpr int64_t kSegment = 256, kShortSegment = 64;
// A step is divided among threads if it has this number of multiply-adds (some microseconds).
constexpr int64_t kTeamProducts = 65536;
// Threads form a team anew after this number of multiply-adds of one thread (some milliseconds), so that a thread that
// was late can join.
constexpr int64_t kRoundProducts = 1 << 27;
constexpr double kProductsPerUs = 40000;  // of a thread, roughly

}  // namespace

HiddenWeights hidden_weights_of(const RnnProblem& p) {
  constexpr int64_t kFewProducts = 4;  // of a vector and w_hh
  if (p.direction == RnnDirection::forward && p.steps == 1 && !p.has_h0) return HiddenWeights::unused;
  if (p.direction == RnnDirection::forward && p.x.dtype == DType::float32 && p.steps * p.batch <= kFewProducts)
    return HiddenWeights::in_place;
  return HiddenWeights::packed;
}

PackedLayout::PackedLayout(const RnnProblem& p, const ChunkProducts& products, size_t of_other_products) {
  const UnitBlocks blocks(p);
  const bool forward = p.direction == RnnDirection::forward;
  const auto floats = [](int64_t n) { return size_t(n) * sizeof(float); };
  const int64_t D = p.directions, gates = p.gates(), states = D * p.batch * p.hidden;
  add(rnn_workspace_bytes(p));
  scratch_at = add(std::max(products.scratch_bytes(), of_other_products));
  if (p.direction == RnnDirection::backward_weights) return;
  order_at = add(size_t(p.batch) * 8);
  active_at = add(size_t(p.steps + 1) * 8);
  before_at = add(size_t(p.steps + 1) * 8);
  pointers_at = add(size_t(D * blocks.count * p.batch) * sizeof(void*));
  if (hidden_weights_of(p) == HiddenWeights::packed) weights_at = add(floats(D * gates * p.hidden * blocks.units()));
  sums_at = add(floats(D * p.batch * (blocks.units() * (forward ? gates : 1) + blocks.count * kPadding)));
  temporaries_at = add(floats(D * blocks.units() * kTemporaries));
  if (forward) {
    bias_at = add(floats(D * 4 * p.hidden));
    states_at = add(floats(2 * states));
    operand_at = add(products.operand_bytes());
    inputs_at = add(floats(D * products.rows() * products.pitch()));
  } else {
    if (p.has_c0) cells_at = add(floats(states));
    if (p.x.dtype != DType::float32) states_at = add(floats(2 * states * p.gate_gradients()));
  }
}

void copy_elements(const void* from, int64_t stride, int64_t n, int64_t size, char* to) {
  const char* const bytes = static_cast<const char*>(from);
  if (stride == 1) std::memcpy(to, bytes, size_t(n * size));
  else
    for (int64_t i = 0; i < n; ++i) std::memcpy(to + i * size, bytes + i * stride * size, size_t(size));
}

void PackedCall::make_order() const {
  for (int64_t n = 0; n < p.batch; ++n) order[n] = n;
  std::sort(order, order + p.batch,
            [&](int64_t a, int64_t b) { return l.lengths[a] != l.lengths[b] ? l.lengths[a] > l.lengths[b] : a < b; });
  int64_t count = p.batch;
  before[0] = 0;
  for (int64_t step = 0; step < p.steps; ++step) {
    while (count && l.lengths[order[count - 1]] <= step) --count;
    active[step] = count;
    before[step + 1] = before[step] + count;
  }
  active[p.steps] = 0;
}

void PackedCall::pack(const void* w, int64_t offset, bool transposed, int64_t count, int64_t length, float* to) const {
  const int64_t H = p.hidden, C = blocks.columns;
  if (is_float) {
    const float* const from = static_cast<const float*>(w) + offset;
    return transposed ? gemm.f32.pack(from, 1, H, count, length, to) : gemm.f32.pack(from, H, 1, count, length, to);
  }
  if (transposed) {
    for (int64_t k = 0; k < length; ++k) {
      spans.read(element(w, offset + k * H), 1, count, to + k * C);
      std::fill(to + k * C + count, to + k * C + C, 0.0f);
    }
    return;
  }
  constexpr int64_t kMostColumns = 32;
  float some[kMostColumns * kSegment];
  for (int64_t k = 0; k < length; k += kSegment) {
    const int64_t n = std::min(kSegment, length - k);
    for (int64_t j = 0; j < count; ++j) spans.read(element(w, offset + j * H + k), 1, n, some + j * kSegment);
    gemm.f32.pack(some, kSegment, 1, count, n, to + k * C);
  }
}

void PackedCall::multiply(std::span<const float* const> row, int64_t from, const float* panel, float* to, int64_t pitch,
                          bool add) const {
  const int64_t length = p.batch == 1 ? kShortSegment : kSegment;
  const auto rows = int64_t(row.size()), H = p.hidden, whole = H / length * length;
  const auto bytes = [&](int64_t i) {
    return int64_t(reinterpret_cast<intptr_t>(row[size_t(i)]) - reinterpret_cast<intptr_t>(row[0]));
  };
  GemmTile<float> tile{nullptr, 1, length, row[0] + from, 1, panel, blocks.columns, to, pitch, add};
  if (rows == 1) {
    constexpr int64_t kMost = 16;
    GemmSegment some[kMost];
    const auto run = [&](int64_t k, int64_t count, int64_t steps) {
      for (int64_t i = 0; i < count; ++i) {
        some[i].a[0] = (k + i * length) * int64_t(sizeof(float));
        some[i].b = some[i].a[0] * blocks.columns;
      }
      tile.segments = some;
      tile.count = count;
      tile.steps = steps;
      gemm.few_rows[0](tile);
      tile.add = true;
    };
    for (int64_t k = 0; k < whole; k += kMost * length) run(k, std::min(kMost, (whole - k) / length), length);
    if (whole < H) run(whole, 1, H - whole);
    return;
  }
  const int64_t chunks = ceil_div(rows, gemm.f32.rows);
  GemmSegment segment{};
  tile.segments = &segment;
  for (int64_t k = 0; k < H; k += length) {
    tile.steps = std::min(length, H - k);
    tile.add = add || k > 0;
    segment.b = k * blocks.columns * int64_t(sizeof(float));
    for (int64_t i = 0; i < chunks; ++i) {
      const int64_t first = rows * i / chunks, count = rows * (i + 1) / chunks - first;
      for (int64_t j = 0; j < count; ++j) segment.a[j] = bytes(first + j) + k * int64_t(sizeof(float));
      tile.to = to + first * pitch;
      gemm.few_rows[count - 1](tile);
    }
  }
}

void PackedCall::run_all_steps(int64_t count, int64_t threads, StepCall call, const void* step) const {
  const int64_t D = p.directions, products = p.batch * p.gates() * p.hidden * p.hidden;
  const auto most = int(D * products < cpu::work_size(kTeamProducts) ? 1 : std::min(threads, D * blocks.count));
  const int64_t of_thread = std::max<int64_t>(D * products / most, 1);
  const int64_t of_round = std::clamp<int64_t>(cpu::work_size(kRoundProducts) / of_thread, 1, count);
  for (int64_t first = 0; first < count; first += of_round) {
    cpu::check_interrupt();
    const int64_t end = std::min(count, first + of_round);
    Barrier barriers[kRnnMostDirections];
    const auto member = [&](int i, int members) {
      // An even number of threads computes both directions at once.
      const bool divides = D == 2 && members % 2 == 0;
      const int group = divides ? i % 2 : 0, of_group = divides ? members / 2 : members, index = divides ? i / 2 : i;
      const int64_t begin = blocks.count * index / of_group, last = blocks.count * (index + 1) / of_group;
      for (int64_t d = 0; d < D; ++d) {
        if (divides && d != group) continue;
        for (int64_t s = first; s < end; ++s) {
          if (begin < last) call(step, d, s, begin, last);
          barriers[group].wait(of_group);
        }
      }
    };
    if (most == 1) member(0, 1);
    else cpu::parallel_team(most, std::min(200.0, double((end - first) * of_thread) / kProductsPerUs / 4), member);
  }
}

namespace {

struct PackedPlan final : Plan<RnnProblem> {
  RnnProblem p;
  int64_t threads;
  ChunkProducts chunks;
  InputGradients of_inputs;
  WeightGradients of_weights;
  PackedLayout layout;
  size_t sums_at = 0;

  PackedPlan(const RnnProblem& problem, const Device& d)
      : p(problem),
        threads(d.sm_count),
        chunks(p.direction == RnnDirection::forward ? ChunkProducts(p, d) : ChunkProducts()),
        of_inputs(p.direction == RnnDirection::backward_data ? InputGradients(p, d) : InputGradients()),
        of_weights(p.direction == RnnDirection::backward_weights ? WeightGradients(p, d) : WeightGradients()),
        layout(p, chunks, std::max(of_inputs.scratch_bytes(), of_weights.scratch_bytes())) {
    sums_at = layout.add(std::max(of_inputs.sums_bytes(), of_weights.operand_bytes()));
  }

  void run(const RnnArgs& a, void* workspace, Stream) const override {
    char* const bytes = static_cast<char*>(workspace);
    void* const scratch = bytes + layout.scratch_at;
    run_rnn_passes(p, a, workspace, 1, [&](RnnPass pass, const RnnLayer& l, int64_t step, int64_t items) {
      // All steps of a layer are computed at the first one.
      const bool is_step = pass == RnnPass::forward_unit || pass == RnnPass::backward_units;
      if (is_step && step != (p.direction == RnnDirection::forward ? 0 : p.steps - 1)) return;
      const PackedCall call{p, l, layout, bytes};
      switch (pass) {
        case RnnPass::forward_unit:
          return forward_layer(call, chunks, threads);
        case RnnPass::backward_units:
          return backward_steps(call, threads);
        case RnnPass::input_gradient:
          return of_inputs.run(call, bytes + sums_at, scratch);
        case RnnPass::weight_gradient:
          return of_weights.run(l, bytes + sums_at, scratch);
        default:
          run_reference_pass(pass, p, l, step, items);
          if (pass == RnnPass::begin && p.direction != RnnDirection::backward_weights) call.make_order();
      }
    });
  }
};

}  // namespace

struct PackedGemm final : Engine<RnnProblem> {
  std::string name() const override { return "cpu.rnn.packed_gemm"; }
  std::string why_not(const RnnProblem& p, const Device&) const override {
    if (p.x.dtype == DType::float64) return "float64 is not supported";
    if (p.reset_before && p.direction != RnnDirection::backward_weights) return "it is for GRUs with reset_after";
    return "";
  }
  double estimate_us(const RnnProblem& p, const Device& d) const override {
    const double layers = double(p.layers), D = double(p.directions), H = double(p.hidden), rows = double(p.rows());
    const double threads = std::max(d.sm_count, 1), copies = rows * D * H * double(itemsize(p.x.dtype));
    if (p.direction == RnnDirection::backward_weights)
      return WeightGradients(p, d).estimate_us() + layers * (2 + 2 * copies / (d.copy_gb_s * 1e3));
    const bool forward = p.direction == RnnDirection::forward;
    const double of_inputs = forward ? ChunkProducts(p, d).estimate_us() : InputGradients(p, d).estimate_us();
    // A thread reads weights at 50 GB/s, packs 1,000 of them in a microsecond, and computes as many gates.
    const double weights = double(p.gates()) * H * double(UnitBlocks(p).units()), values = double(p.gates()) * H;
    const double products = weights * rows / double(p.steps);
    const double step = std::max(products / kProductsPerUs, 4 * weights / 5e4) + values * rows / double(p.steps) / 1e3;
    const double team = D * products < kTeamProducts ? 1 : std::min(threads, D * double(UnitBlocks(p).count));
    const double packing = hidden_weights_of(p) == HiddenWeights::packed ? weights / 1e3 : 0;
    return of_inputs + layers * (2 + D * packing / threads + double(p.steps) * (0.5 + D * step / team));
  }
  size_t workspace_bytes(const RnnProblem& p, const Device& d, const Config&) const override {
    return PackedPlan(p, d).layout.bytes;
  }
  std::unique_ptr<Plan<RnnProblem>> build(const RnnProblem& p, const Device& d, const Config&) const override {
    return std::make_unique<PackedPlan>(p, d);
  }
};

}  // namespace cpu::rnn

template const Engine<RnnProblem>& engine_object<RnnProblem, cpu::rnn::PackedGemm>();

}  // namespace minidnn
