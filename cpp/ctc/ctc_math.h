// SPDX-License-Identifier: Apache-2.0
// The CTC loss of one sequence, and its gradient (Graves et al. 2006). A team of threads (one thread on a CPU) computes
// a sequence. Its L labels make 2 L + 1 states: a blank before each label and one behind the last. They are numbered
// with all blanks first: blank i is state i, label i is state L + 1 + i.
//   alpha_t(s) = p_t(s) (sum of alpha_t-1 over s and the states before it);  P = sum of the last alpha over both ends
//   loss = -log P;  dx_t(c) = g (softmax_t(c) - sum over states s of class c of alpha_t(s) beta_t(s) / P)
// beta is alpha of the reversed sequence, without p_t(s): nothing divides by a probability, which may be 0.
// Probabilities of paths are numbers m 2^e with a wide exponent. So they neither underflow nor lose digits as their
// logarithms would: the relative error of P is some roundings for each step, however large the loss is.
#pragma once
#include "cpp/core/host_device/desc.h"
#include "cpp/core/host_device/half.h"
#include "cpp/core/host_device/maths.h"
#include "cpp/core/host_device/team.h"

namespace minidnn {

enum class CtcDirection : int64_t { forward, backward };
enum class CtcReduction : int64_t { none, sum, mean };

// T steps, N sequences, C classes.
struct CtcProblem {
  CtcDirection direction{};
  CtcReduction reduction{};
  int64_t blank = 0;
  int64_t logits = 0, zero_infinity = 0;     // 1 or 0
  TensorDesc x, dx;                          // [T, N, C]; only the backward function uses dx
  TensorDesc targets;                        // [N, S], or the labels of all sequences one after the other
  TensorDesc input_lengths, target_lengths;  // [N], contiguous. These three are int32 or int64
  TensorDesc alpha;                          // of `alpha` and `exponents`: rows of 2 L + 1 states for each step
  TensorDesc lse;                            // [T, N]; used if x are logits
  TensorDesc loss;                           // [N], or a scalar if losses are reduced

  MINIDNN_HD int64_t steps() const { return x.shape[0]; }
  MINIDNN_HD int64_t batch() const { return x.shape[1]; }
  MINIDNN_HD int64_t classes() const { return x.shape[2]; }
  MINIDNN_HD bool concatenated() const { return targets.rank == 1; }
  // The most labels of a sequence, and of all sequences together.
  MINIDNN_HD int64_t longest() const { return targets.shape[targets.rank - 1]; }
  MINIDNN_HD int64_t all_labels() const { return targets.numel(); }
};

struct CtcArgs {
  const void* x = nullptr;
  const void *targets = nullptr, *input_lengths = nullptr, *target_lengths = nullptr;
  // alpha is `alpha` times two to the power of `exponents`. The forward function writes both, and lse.
  void *alpha = nullptr, *exponents = nullptr, *lse = nullptr;
  void* loss = nullptr;  // the loss, which the forward function writes, or dloss, which the backward function reads
  void* dx = nullptr;
};

struct CtcSequence {
  int64_t b, steps, labels;
  int64_t first;  // the labels of all sequences before this one
  int64_t alpha;  // where its rows of alpha begin
  MINIDNN_HD int64_t states() const { return 2 * labels + 1; }
};

// The number m 2^e. The exponent is an integer. 0 has an exponent below all others.
template <class Acc> struct CtcNumber {
  Acc m, e;
};

namespace ctc {

constexpr double kZeroExponent = -1e30;
// exp(x) counts as 0 if x is below -kMostLog, and as NaN if x is above kMostLog.
constexpr double kMostLog = 2097152;
constexpr double kLog2E = 1.44269504088896340736;
// The sum of both is log 2. The first one has few digits, so that multiples of it are exact.
constexpr double kLn2High = 0.693359375, kLn2Low = -2.121944400546905827679e-4;

MINIDNN_HD int64_t clamp(int64_t v, int64_t least, int64_t most) { return v < least ? least : v > most ? most : v; }
template <class Acc> MINIDNN_HD Acc nan() { return Acc(INFINITY) - Acc(INFINITY); }

// 2^k for an integer k. It is 0 if it is below the normal numbers.
MINIDNN_HD float power(float k) {
  if (!(k >= -126)) return 0;
  return k > 127 ? float(INFINITY) : minidnn::detail::float_of(uint32_t(int32_t(k) + 127) << 23);
}
MINIDNN_HD double power(double k) {
  if (!(k >= -1022)) return 0;
  return k > 1023 ? double(INFINITY) : ::ldexp(1.0, int(k));
}

MINIDNN_HD float nearest_integer(float x) { return ::floorf(x + 0.5f); }
MINIDNN_HD double nearest_integer(double x) { return ::floor(x + 0.5); }

template <class Acc> MINIDNN_HD CtcNumber<Acc> zero() { return {0, Acc(kZeroExponent)}; }
template <class Acc> MINIDNN_HD CtcNumber<Acc> exponential(Acc x) {
  if (x < Acc(-kMostLog)) return zero<Acc>();
  if (!(x <= Acc(kMostLog))) return {nan<Acc>(), 0};
  const Acc n = nearest_integer(x * Acc(kLog2E));
  return {maths::exp(x - n * Acc(kLn2High) - n * Acc(kLn2Low)), n};
}
template <class Acc> MINIDNN_HD CtcNumber<Acc> sum(CtcNumber<Acc> a, CtcNumber<Acc> b) {
  const Acc e = max_of(a.e, b.e);
  return {a.m * power(a.e - e) + b.m * power(b.e - e), e};
}
template <class Acc> MINIDNN_HD CtcNumber<Acc> product(CtcNumber<Acc> a, CtcNumber<Acc> b) {
  return {a.m * b.m, a.e + b.e};
}
// Returns the same number with m in [0.5, 1), or 0.
MINIDNN_HD CtcNumber<float> normalized(CtcNumber<float> v) {
  int e = 0;
  const float m = ::frexpf(v.m, &e);
  return {m, v.m == v.m ? v.e + float(e) : 0};
}
MINIDNN_HD CtcNumber<double> normalized(CtcNumber<double> v) {
  int e = 0;
  const double m = ::frexp(v.m, &e);
  return {m, v.m == v.m ? v.e + double(e) : 0};
}
// Returns -log(v).
template <class Acc> MINIDNN_HD Acc negative_log(CtcNumber<Acc> v) {
  const Acc log = maths::log(v.m) + v.e * Acc(kLn2Low);
  return -(log + v.e * Acc(kLn2High));
}

MINIDNN_HD int64_t integer(const TensorDesc& d, const void* data, int64_t at) {
  return d.dtype == DType::int32 ? int64_t(static_cast<const int32_t*>(data)[at])
                                 : static_cast<const int64_t*>(data)[at];
}
MINIDNN_HD int64_t steps_of(const CtcProblem& p, const CtcArgs& a, int64_t b) {
  return clamp(integer(p.input_lengths, a.input_lengths, b), 0, p.steps());
}
MINIDNN_HD int64_t labels_of(const CtcProblem& p, const CtcArgs& a, int64_t b) {
  return clamp(integer(p.target_lengths, a.target_lengths, b), 0, p.longest());
}
// Label i of a sequence, which need not be a class.
MINIDNN_HD int64_t label(const CtcProblem& p, const CtcArgs& a, const CtcSequence& s, int64_t i) {
  const int64_t at =
      p.concatenated() ? (s.first + i) * p.targets.stride[0] : s.b * p.targets.stride[0] + i * p.targets.stride[1];
  return integer(p.targets, a.targets, at);
}
MINIDNN_HD bool is_label(const CtcProblem& p, int64_t label) {
  return 0 <= label && label < p.classes() && label != p.blank;
}
// The class of a state. A label that is no class has a class, too, so that nothing leaves x.
MINIDNN_HD int64_t class_of(const CtcProblem& p, const CtcArgs& a, const CtcSequence& s, int64_t state) {
  return state <= s.labels ? p.blank : clamp(label(p, a, s, state - s.labels - 1), 0, p.classes() - 1);
}
// Whether a path may go from label i - 1 to label i without a blank between them.
MINIDNN_HD bool skips(const CtcProblem& p, const CtcArgs& a, const CtcSequence& s, int64_t i) {
  return 0 < i && i < s.labels && label(p, a, s, i - 1) != label(p, a, s, i);
}

// An element of x or dx, whose dtype is float64 if Acc is double. Otherwise the dtype is known at run time, which saves
// code.
template <class Acc> MINIDNN_HD Acc load(DType t, const void* data, int64_t at) {
  if constexpr (sizeof(Acc) == sizeof(double)) return static_cast<const double*>(data)[at];
  else
    return t == DType::float32   ? static_cast<const float*>(data)[at]
           : t == DType::float16 ? float(static_cast<const float16*>(data)[at])
                                 : float(static_cast<const bfloat16*>(data)[at]);
}
template <class Acc> MINIDNN_HD void store(DType t, void* data, int64_t at, Acc v) {
  if constexpr (sizeof(Acc) == sizeof(double)) static_cast<double*>(data)[at] = v;
  else if (t == DType::float32) static_cast<float*>(data)[at] = v;
  else if (t == DType::float16) static_cast<float16*>(data)[at] = float16(v);
  else static_cast<bfloat16*>(data)[at] = bfloat16(v);
}

template <class Acc>
MINIDNN_HD Acc log_probability(const CtcProblem& p, const CtcArgs& a, int64_t t, int64_t b, int64_t c) {
  const Acc x = load<Acc>(p.x.dtype, a.x, t * p.x.stride[0] + b * p.x.stride[1] + c * p.x.stride[2]);
  return p.logits ? x - static_cast<const Acc*>(a.lse)[t * p.batch() + b] : x;
}

template <class Acc> MINIDNN_HD CtcNumber<Acc> alpha_at(const CtcArgs& a, const CtcSequence& s, int64_t t,
                                                        int64_t state) {
  const int64_t at = s.alpha + t * s.states() + state;
  return {static_cast<const Acc*>(a.alpha)[at], static_cast<const Acc*>(a.exponents)[at]};
}
// The probability of the labels: both ends of the last step.
template <class Acc> MINIDNN_HD CtcNumber<Acc> probability(const CtcArgs& a, const CtcSequence& s) {
  if (s.steps == 0) return s.labels == 0 ? CtcNumber<Acc>{1, 0} : zero<Acc>();
  const CtcNumber<Acc> blank = alpha_at<Acc>(a, s, s.steps - 1, s.labels);
  return s.labels == 0 ? blank : sum(blank, alpha_at<Acc>(a, s, s.steps - 1, 2 * s.labels));
}
// A sequence with its lengths. The team adds up the lengths before its own if targets are concatenated.
template <class Team>
MINIDNN_HD CtcSequence sequence(const CtcProblem& p, const CtcArgs& a, int64_t b, Team& team) {
  CtcSequence s{b, steps_of(p, a, b), labels_of(p, a, b), b * p.longest(), 0};
  if (p.concatenated()) {
    int64_t before = 0;
    for (int64_t i = team.rank(); i < b; i += team.size()) before += labels_of(p, a, i);
    s.first = clamp(team.sum(before), 0, p.longest());
    s.labels = clamp(s.labels, 0, p.longest() - s.first);
  }
  s.alpha = p.steps() * (2 * s.first + b);
  return s;
}
// Whether all labels are classes other than the blank.
template <class Team>
MINIDNN_HD bool valid(const CtcProblem& p, const CtcArgs& a, const CtcSequence& s, Team& team) {
  int64_t wrong = 0;
  for (int64_t i = team.rank(); i < s.labels; i += team.size()) wrong += !is_label(p, label(p, a, s, i));
  return team.sum(wrong) == 0;
}

// The factor of a mean, which divides by the numbers of labels and of sequences.
template <class Acc> MINIDNN_HD Acc weight(const CtcProblem& p, int64_t labels) {
  return p.reduction == CtcReduction::mean ? 1 / (Acc(max_of(labels, int64_t(1))) * Acc(p.batch())) : Acc(1);
}

}  // namespace ctc

// The loss of a sequence whose labels have the probability v, divided by their number for a mean.
template <class Acc> MINIDNN_HD Acc ctc_loss(const CtcProblem& p, const CtcSequence& s, CtcNumber<Acc> v, bool valid) {
  if (!valid) return ctc::nan<Acc>();
  if (v.m == 0) return p.zero_infinity ? Acc(0) : Acc(INFINITY);
  Acc loss = ctc::negative_log(v);
  // A probability of logits is at most 1. Its rounding error must not make the loss negative.
  if (p.logits) loss = max_or_nan(Acc(0), loss);
  return p.reduction == CtcReduction::mean ? loss / Acc(max_of(s.labels, int64_t(1))) : loss;
}

// A team for the functions below adds sync() to team.h, which waits for all threads of the team.

// Stores lse = log(sum(exp(x))) of a row of x. Row t N + b is step t of sequence b.
template <class Acc, class Team>
MINIDNN_HD void ctc_row_lse(const CtcProblem& p, const CtcArgs& a, int64_t row, Team& team) {
  const int64_t t = row / p.batch(), b = row % p.batch();
  if (t >= ctc::steps_of(p, a, b)) return;
  const int64_t begin = t * p.x.stride[0] + b * p.x.stride[1];
  Acc largest = -INFINITY;
  for (int64_t c = team.rank(); c < p.classes(); c += team.size())
    largest = max_or_nan(largest, ctc::load<Acc>(p.x.dtype, a.x, begin + c * p.x.stride[2]));
  largest = team.max(largest);
  CompensatedSum<Acc> partial;
  for (int64_t c = team.rank(); c < p.classes(); c += team.size())
    partial.add(maths::exp(ctc::load<Acc>(p.x.dtype, a.x, begin + c * p.x.stride[2]) - largest));
  const Acc sum = team.sum(partial.value());
  if (team.rank() == 0) static_cast<Acc*>(a.lse)[row] = largest + maths::log(sum);
}

// Computes alpha and the loss of sequence b. The rows of lse must be there.
template <class Acc, class Team>
MINIDNN_HD void ctc_forward_sequence(const CtcProblem& p, const CtcArgs& a, int64_t b, Acc* losses, Team& team) {
  using Number = CtcNumber<Acc>;
  const CtcSequence s = ctc::sequence(p, a, b, team);
  const int64_t labels = s.labels;
  const bool valid = ctc::valid(p, a, s, team);
  for (int64_t t = 0; t < s.steps; ++t) {
    for (int64_t i = team.rank(); i < s.states(); i += team.size()) {
      Number v = ctc::zero<Acc>();
      const int64_t label = i - labels - 1;
      if (t == 0) {
        if (i == 0 || label == 0) v = {1, 0};
      } else {
        v = ctc::alpha_at<Acc>(a, s, t - 1, i);
        if (label >= 0) v = ctc::sum(v, ctc::alpha_at<Acc>(a, s, t - 1, label));
        // The label before a blank, or before a label without a blank between them.
        const int64_t before = label < 0 ? i - 1 : ctc::skips(p, a, s, label) ? label - 1 : -1;
        if (before >= 0) v = ctc::sum(v, ctc::alpha_at<Acc>(a, s, t - 1, labels + 1 + before));
      }
      const Acc log_p = ctc::log_probability<Acc>(p, a, t, b, ctc::class_of(p, a, s, i));
      v = ctc::normalized(ctc::product(v, ctc::exponential(log_p)));
      const int64_t at = s.alpha + t * s.states() + i;
      static_cast<Acc*>(a.alpha)[at] = v.m;
      static_cast<Acc*>(a.exponents)[at] = v.e;
    }
    team.sync();
  }
  if (team.rank() == 0) losses[b] = ctc_loss(p, s, ctc::probability<Acc>(a, s), valid);
}

// Where the losses of all sequences are: in the workspace, if they are reduced to one number.
template <class Acc> MINIDNN_HD Acc* ctc_losses(const CtcProblem& p, const CtcArgs& a, void* workspace) {
  return static_cast<Acc*>(p.reduction == CtcReduction::none ? a.loss : workspace);
}
// Writes the sum or the mean of the losses of all sequences. The mean of no sequences is NaN.
template <class Acc, class Team>
MINIDNN_HD void ctc_total(const CtcProblem& p, const CtcArgs& a, const Acc* losses, Team& team) {
  CompensatedSum<Acc> partial;
  for (int64_t b = team.rank(); b < p.batch(); b += team.size()) partial.add(losses[b]);
  const Acc sum = team.sum(partial.value());
  if (team.rank() == 0) *static_cast<Acc*>(a.loss) = p.reduction == CtcReduction::mean ? sum / Acc(p.batch()) : sum;
}

// Returns the gradient g of the loss of a sequence: NaN if it has no gradient, and 0 if zero_infinity says so.
template <class Acc, class Team>
MINIDNN_HD Acc ctc_gradient(const CtcProblem& p, const CtcArgs& a, const CtcSequence& s, Team& team) {
  const bool valid = ctc::valid(p, a, s, team);
  if (valid && ctc::probability<Acc>(a, s).m == 0 && p.zero_infinity) return 0;
  if (!valid || ctc::probability<Acc>(a, s).m == 0) return ctc::nan<Acc>();
  return static_cast<const Acc*>(a.loss)[p.reduction == CtcReduction::none ? s.b : 0] * ctc::weight<Acc>(p, s.labels);
}

// Computes dx = g softmax of a row, 0 beyond the length of its sequence or if g is 0. Row t N + b is step t of sequence
// b; g is gradients[b].
template <class Acc, class Team> MINIDNN_HD void ctc_backward_row(const CtcProblem& p, const CtcArgs& a, int64_t row,
                                                                  const Acc* gradients, Team& team) {
  const int64_t t = row / p.batch(), b = row % p.batch();
  const Acc g = t < ctc::steps_of(p, a, b) ? gradients[b] : Acc(0);
  const int64_t begin = t * p.dx.stride[0] + b * p.dx.stride[1];
  for (int64_t c = team.rank(); c < p.classes(); c += team.size())
    ctc::store(p.dx.dtype, a.dx, begin + c * p.dx.stride[2],
               g == 0 ? Acc(0) : g * maths::exp(ctc::log_probability<Acc>(p, a, t, b, c)));
}

// The memory of ctc_backward_sequence for all sequences, of which each takes a part.
template <class Acc> struct CtcScratch {
  Acc* numbers;   // kNumbers for each of 2 L + 1 states
  int32_t* next;  // the next label of the same class for each label, or -1; and then whether it is the first one
  static constexpr int64_t kNumbers = 5;
  MINIDNN_HD static int64_t states(const CtcProblem& p) { return 2 * p.all_labels() + p.batch(); }
  MINIDNN_HD static int64_t bytes(const CtcProblem& p) {
    return states(p) * kNumbers * int64_t(sizeof(Acc)) + 2 * p.all_labels() * int64_t(sizeof(int32_t));
  }
  MINIDNN_HD static CtcScratch of(const CtcProblem& p, void* memory) {
    Acc* const numbers = static_cast<Acc*>(memory);
    return {numbers, reinterpret_cast<int32_t*>(numbers + states(p) * kNumbers)};
  }
};

// Completes dx of sequence b, in which ctc_backward_row has stored g softmax: it computes beta from the last step to
// the first, and writes the classes of the labels and the blank again. States of one class are added in their order.
template <class Acc, class Team>
MINIDNN_HD void ctc_backward_sequence(const CtcProblem& p, const CtcArgs& a, Acc g, const CtcSequence& s,
                                      CtcScratch<Acc> scratch, Team& team) {
  using Number = CtcNumber<Acc>;
  if (g == 0 || g != g) return;
  const int64_t b = s.b, labels = s.labels, states = s.states();
  Acc* const numbers = scratch.numbers + (2 * s.first + b) * CtcScratch<Acc>::kNumbers;
  Number* const buffers[2] = {reinterpret_cast<Number*>(numbers), reinterpret_cast<Number*>(numbers) + states};
  Acc* const posteriors = numbers + 4 * states;
  int32_t *const next = scratch.next + 2 * s.first, *const leads = next + labels;
  for (int64_t i = team.rank(); i < labels; i += team.size()) {
    const int64_t own = ctc::label(p, a, s, i);
    int64_t after = i + 1, before = i - 1;
    while (after < labels && ctc::label(p, a, s, after) != own) ++after;
    while (before >= 0 && ctc::label(p, a, s, before) != own) --before;
    next[i] = after < labels ? int32_t(after) : -1;
    leads[i] = before < 0;
  }
  const Number whole = ctc::probability<Acc>(a, s);
  for (int64_t t = s.steps - 1; t >= 0; --t) {
    Number *const now = buffers[t % 2], *const later = buffers[(t + 1) % 2];  // beta times p
    Acc own_blanks = 0, own_labels = 0;
    for (int64_t i = team.rank(); i < states; i += team.size()) {
      Number v = ctc::zero<Acc>();
      const int64_t label = i - labels - 1;
      if (t == s.steps - 1) {
        if (i == labels || i == 2 * labels) v = {1, 0};
      } else {
        v = later[i];
        if (label >= 0) v = ctc::sum(v, later[label + 1]);
        const int64_t behind = label < 0 ? i : ctc::skips(p, a, s, label + 1) ? label + 1 : labels;
        if (behind < labels) v = ctc::sum(v, later[labels + 1 + behind]);
      }
      const Number before = ctc::alpha_at<Acc>(a, s, t, i);
      posteriors[i] = before.m * v.m * ctc::power(before.e + v.e - whole.e);
      (label < 0 ? own_blanks : own_labels) += posteriors[i];
      const Acc log_p = ctc::log_probability<Acc>(p, a, t, b, ctc::class_of(p, a, s, i));
      now[i] = ctc::normalized(ctc::product(v, ctc::exponential(log_p)));
    }
    const Acc blanks = team.sum(own_blanks), all = blanks + team.sum(own_labels);
    team.sync();
    // The posteriors of a step have the sum 1. To divide by their sum removes what their rounding errors have in common.
    const auto store = [&](int64_t c, Acc posterior) {
      const Acc softmax = maths::exp(ctc::log_probability<Acc>(p, a, t, b, c));
      const int64_t at = t * p.dx.stride[0] + b * p.dx.stride[1] + c * p.dx.stride[2];
      ctc::store(p.dx.dtype, a.dx, at, g * (softmax - posterior / all));
    };
    for (int64_t i = team.rank(); i < labels; i += team.size()) {
      if (!leads[i]) continue;
      Acc posterior = 0;
      for (int64_t j = i; j >= 0; j = next[j]) posterior += posteriors[labels + 1 + j];
      store(ctc::label(p, a, s, i), posterior);
    }
    if (team.rank() == 0) store(p.blank, blanks);
    team.sync();
  }
}

}  // namespace minidnn
