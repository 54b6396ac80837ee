// SPDX-License-Identifier: Apache-2.0
// Attention: the public functions. They check their arguments and describe a call as an AttentionProblem. The formulas
// are in attention_math.h.
#pragma once
#include "cpp/attention/attention_math.h"
#include "cpp/engine/op.h"

namespace minidnn {

template <> struct Family<AttentionProblem> {
  using Args = AttentionArgs;
  static constexpr const char* name = "attention";
  static std::string text(const AttentionProblem&);
  static void ports(const AttentionProblem&, Args&, Ports&);
  static const Engines<AttentionProblem>& cpu_engines();
  static const Engines<AttentionProblem>& cuda_engines();
};

struct AttentionOptions {
  using OptionalTensor = std::optional<Tensor>;
  std::optional<double> scale;  // 1 / sqrt(head size) if it is not given
  bool causal = false;
  std::string align = "top_left";
  std::optional<int64_t> left, right;  // the window; no limit if it is not given
  OptionalTensor bias, alibi, sink;
  double softcap = 0, dropout = 0;
  int64_t seed = 0, offset = 0;
  OptionalTensor q_lengths, kv_lengths, cu_q, cu_kv;
  std::optional<int64_t> max_q, max_kv;
  OptionalTensor pages;  // of decode
  std::string layout = "bhsd";
};

// Returns o and lse.
std::pair<Tensor, Tensor> attention_forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions&,
                                            const Call&);
// Decode: rows of q at the end of each sequence. `lengths` are the lengths of k and v.
std::pair<Tensor, Tensor> attention_decode(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& lengths,
                                           const AttentionOptions&, const Call&);
struct AttentionGradients {
  Tensor dq, dk, dv;
  std::optional<Tensor> dbias, dsink;
};
struct AttentionForward {  // the operands and results of attention_forward
  const Tensor &q, &k, &v, &o, &lse;
};
AttentionGradients attention_backward(const Tensor& d_o, const AttentionForward&, bool bias_gradient,
                                      const AttentionOptions&, const Call&);

// The pairs of rows and columns that see each other if all sequences have their full length, and the bytes and FLOP of
// a call. Engines estimate their time from these numbers.
double attention_pairs(const AttentionProblem&);
double attention_sequences(const AttentionProblem&);  // of the largest size; together they have all rows of q
double attention_bytes(const AttentionProblem&);
double attention_flop(const AttentionProblem&);

}  // namespace minidnn
