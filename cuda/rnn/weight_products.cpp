// SPDX-License-Identifier: Apache-2.0
// cuda.rnn.weight_products: gradients of weights as matrix products over all steps: dgates^T x, and dgates^T h, where h is
// the state before each step. Sums of gradients of biases have a kernel of their own.
#include <algorithm>

#include "cpp/engine/engine_object.h"
#include "cuda/rnn/generic.h"
#include "cuda/rnn/products.h"
#include "cuda/rnn/weight_products_params.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::rnn {
namespace {

KernelSpec spec(const char* kernel, DType type) {
  return {"cuda/rnn/weight_products.cu", cat("minidnn::", kernel, "<", cuda_name(type), ">")};
}

// The products of a layer for one direction. M are rows of a matrix of weights, K are all rows of x.
struct LayerProducts {
  bool copies_input = false;
  Product input, state, state_n;  // state_n: the gate n of a GRU, which sees other gradients, or another operand

  LayerProducts() = default;
  LayerProducts(const RnnProblem& p, const Device& d, int64_t layer) {
    const int64_t rows = p.rows(), H = p.hidden, gates = p.gates() * H, inputs = p.input_size(layer);
    const DType type = p.x.dtype;
    const MatrixRows x(p, p.x);
    // Rows that belong to no sequence may have NaN, so they are copied.
    copies_input = p.packed || p.has_lengths || (layer == 0 && (!x.exist || x.by_sequence));
    const int64_t pitch = copies_input || layer ? inputs : x.pitch;
    const auto product = [&](int64_t m, int64_t n, int64_t of_n) {
      return Product(p, d, matrix(type, m, rows, 1, p.gate_gradients() * H), matrix(type, rows, n, of_n),
                     matrix(type, m, n, n));
    };
    const bool gru = p.mode == RnnMode::gru;
    input = product(gates, inputs, pitch);
    state = product(gru ? 2 * H : gates, H, H);
    if (gru) state_n = product(H, H, H);
  }
  void build(const Device& d) {
    for (Product* p : {&input, &state, &state_n}) p->build(d);
  }
  size_t workspace_bytes() const {
    return std::max({input.choice.workspace_bytes, state.choice.workspace_bytes, state_n.choice.workspace_bytes});
  }
  double estimate_us() const {
    return input.choice.estimate_us + state.choice.estimate_us + state_n.choice.estimate_us;
  }
};

struct Layers : WorkspaceParts {
  LayerProducts first, others;
  size_t product_at = 0, input_at = 0, states_at = 0, q_at = 0;

  Layers(const RnnProblem& p, const Device& d) : first(p, d, 0) {
    if (p.layers > 1) others = LayerProducts(p, d, 1);
    const int64_t size = int64_t(itemsize(p.x.dtype)), states = p.directions * p.rows() * p.hidden * size;
    int64_t inputs = first.copies_input ? p.input_size(0) : 0;
    if (others.copies_input) inputs = std::max(inputs, p.input_size(1));
    add(rnn_workspace_bytes(p));
    product_at = add(std::max(first.workspace_bytes(), others.workspace_bytes()));
    input_at = add(size_t(p.rows() * inputs * size));
    states_at = add(size_t(states));
    q_at = add(size_t(p.reset_before ? states : 0));
  }
};

struct WeightProductsPlan final : Plan<RnnProblem> {
  RnnProblem p;
  Layers layers;
  GenericPasses passes;
  std::shared_ptr<const Kernel> copy, bias;
  Device device;

  WeightProductsPlan(const RnnProblem& problem, const Device& d)
      : p(problem), layers(p, d), passes(p, d, is_generic), device(d) {
    layers.first.build(d);
    layers.others.build(d);
    copy = load_kernel(spec("rnn_operand_rows", p.x.dtype), d.place.index);
    if (p.has_bias) bias = load_kernel(spec("rnn_bias_gradient", p.x.dtype), d.place.index);
  }
  static bool is_generic(RnnPass pass) { return pass == RnnPass::begin || pass == RnnPass::drop; }

  void copy_rows(const RnnLayer& l, RnnOperand operand, int64_t directions, void* to, int64_t width,
                 Stream stream) const {
    LaunchConfig config;
    config.block = {unsigned(std::min<int64_t>(round_up(width, int64_t(32)), 256))};
    config.grid = {unsigned(std::min<int64_t>(directions * p.steps * p.batch, 16 * device.sm_count))};
    launch(*copy, config, stream, p, l, operand, to, width, directions);
  }
  void run_layer(const RnnLayer& l, char* workspace, Stream stream) const {
    const LayerProducts& products = l.index ? layers.others : layers.first;
    const int64_t H = p.hidden, size = int64_t(itemsize(p.x.dtype)), K = p.gate_gradients() * H;
    const bool gru = p.mode == RnnMode::gru;
    const void* input = l.in_data;
    char *const states = workspace + layers.states_at, *const q = workspace + layers.q_at;
    void* const scratch = workspace + layers.product_at;
    if (products.copies_input) {
      copy_rows(l, RnnOperand::input, 1, workspace + layers.input_at, p.input_size(l.index), stream);
      input = workspace + layers.input_at;
    }
    copy_rows(l, RnnOperand::state, p.directions, states, H, stream);
    if (p.reset_before) copy_rows(l, RnnOperand::q, p.directions, q, H, stream);
    for (int64_t d = 0; d < p.directions; ++d) {
      const char* const dgates = static_cast<const char*>(l.dgates) + d * p.rows() * K * size;
      const int64_t states_of_direction = d * p.rows() * H * size;
      char* const of_state = static_cast<char*>(l.weights[d][kHiddenWeight]);
      products.input.run(dgates, input, l.weights[d][kInputWeight], p.accumulate, scratch, stream);
      products.state.run(dgates, states + states_of_direction, of_state, p.accumulate, scratch, stream);
      // n of a GRU: U sees r dn, the last gradient, or with reset_before multiplies q.
      if (gru)
        products.state_n.run(dgates + (p.reset_before ? 2 : 3) * H * size,
                             (p.reset_before ? q : states) + states_of_direction, of_state + 2 * H * H * size,
                             p.accumulate, scratch, stream);
    }
    if (!p.has_bias) return;
    LaunchConfig config;
    config.block = {32, 32};
    config.grid = {unsigned(ceil_div(K, int64_t(32))), unsigned(p.directions)};
    launch(*bias, config, stream, p, l);
  }
  void run(const RnnArgs& a, void* workspace, Stream stream) const override {
    run_rnn_passes(p, a, workspace, 1, [&](RnnPass pass, const RnnLayer& l, int64_t step, int64_t items) {
      if (is_generic(pass)) passes.launch(pass, l, step, items, stream);
      else run_layer(l, static_cast<char*>(workspace), stream);
    });
  }
};

}  // namespace

struct WeightProducts final : Engine<RnnProblem> {
  std::string name() const override { return "cuda.rnn.weight_products"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const RnnProblem& p, const Device&) const override {
    return p.direction == RnnDirection::backward_weights ? "" : "it computes gradients of weights only";
  }
  double estimate_us(const RnnProblem& p, const Device& d) const override {
    const Layers layers(p, d);
    const double products = layers.first.estimate_us() + double(p.layers - 1) * layers.others.estimate_us();
    return double(p.directions) * products + double(p.layers) * (20 + rnn_bytes(p) / 1e6);
  }
  size_t workspace_bytes(const RnnProblem& p, const Device& d, const Config&) const override {
    return Layers(p, d).bytes;
  }
  std::unique_ptr<Plan<RnnProblem>> build(const RnnProblem& p, const Device& d, const Config&) const override {
    return std::make_unique<WeightProductsPlan>(p, d);
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType t : kFloatingDTypes)
      for (const char* kernel : {"rnn_operand_rows", "rnn_bias_gradient"}) all.push_back(spec(kernel, t));
    return all;
  }
};

}  // namespace cuda::rnn

template const Engine<RnnProblem>& engine_object<RnnProblem, cuda::rnn::WeightProducts>();

}  // namespace minidnn
