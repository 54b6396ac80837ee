// SPDX-License-Identifier: Apache-2.0
// The engines cpu.graph.library_op and cuda.graph.library_op run a region as one call of a library function with
// options. A config is an engine of that function with one of its configs, so find() measures all of them.
#pragma once
#include "cpp/graph/region.h"

namespace minidnn::graph {

// A call that computes a region.
struct LibraryCall {
  // A word of the Args: word number `from` of RegionArgs, or `constant` if `from` is negative. If `factor` is not
  // negative, the word is a double, and it is multiplied by the double in word number `factor` of RegionArgs.
  struct Word {
    int64_t from = -1;
    uint64_t constant = 0;
    int64_t factor = -1;
  };
  const NodeKind* kind = nullptr;
  std::vector<uint64_t> problem;
  std::vector<Word> words;  // at most kMostWords
};
constexpr size_t kMostWords = 64;

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
std::string library_call(const RegionProblem&, LibraryCall&);

struct LibraryOpEngine : Engine<RegionProblem> {
  std::string why_not(const RegionProblem&, const Device&) const override;
  double estimate_us(const RegionProblem&, const Device&) const override;
  std::vector<Config> configs(const RegionProblem&, const Device&) const override;
  size_t workspace_bytes(const RegionProblem&, const Device&, const Config&) const override;
  std::unique_ptr<Plan<RegionProblem>> build(const RegionProblem&, const Device&, const Config&) const override;
};

}  // namespace minidnn::graph
