// SPDX-License-Identifier: Apache-2.0
// Recurrent layers: the public functions. They check their arguments and describe a call as an RnnProblem. The formulas
// are in rnn_math.h.
#pragma once
#include <functional>

#include "cpp/engine/op.h"
#include "cpp/rnn/rnn_math.h"

namespace minidnn {

template <> struct Family<RnnProblem> {
  using Args = RnnArgs;
  static constexpr const char* name = "rnn";
  static std::string text(const RnnProblem&);
  static void ports(const RnnProblem&, Args&, Ports&);
  static const Engines<RnnProblem>& cpu_engines();
  static const Engines<RnnProblem>& cuda_engines();
};

struct RnnOptions {
  using OptionalTensor = std::optional<Tensor>;
  std::string mode;  // "relu", "tanh", "lstm" or "gru"
  int64_t hidden_size = 0, layers = 1;
  bool bidirectional = false, bias = true;
  OptionalTensor h0, c0;  // zeros if they are not given
  OptionalTensor lengths, batch_sizes;
  std::optional<int64_t> batch;  // the number of packed sequences; that of h0 if it is not given
  bool reset_after = true;
  double dropout = 0;
  int64_t seed = 0, offset = 0;
  std::optional<double> clip;
  std::string layout = "tnc";
};

// The weights of all layers and directions (w_ih, w_hh, b_ih, b_hh of each), or a vector of one tensor that has them
// all: the matrices in that order, then the biases.
using RnnWeights = std::vector<Tensor>;

struct RnnResults {
  Tensor y, hn;
  std::optional<Tensor> cn, reserve;
};
RnnResults rnn_forward(const Tensor& x, const RnnWeights&, bool training, const RnnOptions&, const Call&);

struct RnnDataGradients {
  Tensor dx, dh0;
  std::optional<Tensor> dc0;
  Tensor dgates;
};
struct RnnOutputGradients {
  const Tensor& dy;
  std::optional<Tensor> dhn, dcn;  // zeros if they are not given
};
RnnDataGradients rnn_backward_data(const RnnOutputGradients&, const Tensor& y, const RnnWeights&, const Tensor& reserve,
                                   const RnnOptions&, const Call&);

struct RnnWeightGradients {
  RnnWeights out;           // where the gradients are written; new tensors if it is empty
  bool flat = false;        // whether the new tensor is a single one
  bool accumulate = false;  // whether the gradients are added to `out`
};
// h0 is that of the options. Returns the gradients in the form of `to`.
RnnWeights rnn_backward_weights(const Tensor& x, const Tensor& y, const Tensor& dgates, const Tensor& reserve,
                                const RnnWeightGradients& to, const RnnOptions&, const Call&);

// One tensor with copies of all weights, and views of the weights in it.
Tensor rnn_pack(const RnnWeights&, const RnnOptions&, const Call&);
RnnWeights rnn_unpack(const Tensor&, const RnnOptions&);

// The parts of the reserve, in bytes from its begin: gates [layers, directions, rows, saved_gates() H] of x's dtype, c
// [layers, directions, rows, H] of the dtype of sums (LSTM), y of all layers but the last [layers - 1, rows, directions
// H] of x's dtype.
struct RnnReserve {
  int64_t gates = 0, cells = 0, outputs = 0, bytes = 0;
  explicit RnnReserve(const RnnProblem&);
};

// Calls run(pass, layer, step, items) for all passes (rnn_math.h) of a call, in order. `units` is the template argument
// kUnits of rnn_item().
using RunRnnPass = std::function<void(RnnPass, const RnnLayer&, int64_t step, int64_t items)>;
void run_rnn_passes(const RnnProblem&, const RnnArgs&, void* workspace, int64_t units, const RunRnnPass& run);
size_t rnn_workspace_bytes(const RnnProblem&);

double rnn_flop(const RnnProblem&);
double rnn_bytes(const RnnProblem&);  // counts each tensor once

}  // namespace minidnn
