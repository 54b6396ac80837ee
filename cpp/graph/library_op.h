// SPDX-License-Identifier: Apache-2.0
// The engines cpu.graph.library_op and cuda.graph.library_op run a region as one call of a library function with
// options. The engines cpu.graph.folded_conv and cuda.graph.folded_conv run a convolution and the batch norm behind it
// as one convolution, with weights and a bias that two calls of batch norm compute before. A config is an engine of the
// last call with one of its configs, so find() measures all of them.
#pragma once
#include "cpp/graph/region.h"

namespace minidnn::graph {

// A call of a library function.
struct LibraryCall {
  // A word of the Args: word number `from` of RegionArgs, or `constant` if `from` is negative. If `factor` is not
  // negative, the word is a double, and it is multiplied by the double in word number `factor` of RegionArgs. If
  // `in_workspace` is set, `constant` is an offset in the workspace, and the word is an address.
  struct Word {
    int64_t from = -1;
    uint64_t constant = 0;
    int64_t factor = -1;
    bool in_workspace = false;
  };
  const NodeKind* kind = nullptr;
  std::vector<uint64_t> problem;
  std::vector<Word> words;  // at most kMostWords
};
constexpr size_t kMostWords = 64;

// The calls that compute a region, in the order in which they run.
struct LibraryCalls {
  std::vector<LibraryCall> calls{};
  size_t bytes = 0;  // of the tensors that the calls keep in the workspace
  size_t zeros = 0;  // the first bytes of the workspace that are set to zero before the calls
};

// Finds the call that equals a region: the formula of its documentation is that of the region. Intermediate results
// stay in the type of its sums, where separate calls round them to the dtype of the tensors. Returns "", or the reason
// why there is no such call.
//   matmul, then mul by a number, then add of a row or of a matrix, then an activation: the options alpha, bias, c with
//     beta = 1, activation
//   conv_forward, then add of a vector of channels, then add of a tensor like y, then an activation: bias, residual,
//     activation
//     In both, casts of a 16-bit operand of add to float32 are left out, and the result may be cast to or from float32.
//   batch_norm_forward_training or _inference, then add of a tensor like x, then relu: residual, relu
//   mul by a number, then add, then softmax_forward: scale, mask
std::string library_call(const RegionProblem&, LibraryCalls&);

// Finds the calls that equal a convolution with a bias or without, then batch_norm_forward_inference, then the options
// that library_call() finds for a convolution: batch norm of the weights and of the bias, then the convolution. Returns
// "", or the reason why there are no such calls.
//   s = scale / sqrt(var + eps),  weights' = s * weights,  bias' = s * (bias - mean) + bias of batch norm
// weights' and bias' are rounded to the dtype of the weights. They are computed in each run.
std::string folded_conv(const RegionProblem&, LibraryCalls&);

struct LibraryOpEngine : Engine<RegionProblem> {
  // Finds the calls that compute a region. Returns "", or the reason why there are none.
  virtual std::string find_calls(const RegionProblem& p, LibraryCalls& to) const { return library_call(p, to); }
  std::string why_not(const RegionProblem&, const Device&) const override;
  double estimate_us(const RegionProblem&, const Device&) const override;
  std::vector<Config> configs(const RegionProblem&, const Device&) const override;
  size_t workspace_bytes(const RegionProblem&, const Device&, const Config&) const override;
  std::unique_ptr<Plan<RegionProblem>> build(const RegionProblem&, const Device&, const Config&) const override;
};

struct FoldedConvEngine : LibraryOpEngine {
  std::string find_calls(const RegionProblem& p, LibraryCalls& to) const override { return folded_conv(p, to); }
};

}  // namespace minidnn::graph
