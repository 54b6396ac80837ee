// SPDX-License-Identifier: Apache-2.0
// The CTC loss with a warp for each sequence. A lane holds kOwn neighbouring blanks and labels in registers, and gets
// those of its neighbours by shuffles. So a step has no barrier and reads no result of the step before from memory.
// - Grid: a block for each sequence. Block: one warp.
// - Shared memory: backward, 3 KB: the posteriors of the labels, and which labels are equal.
// - Bytes: x at the labels and the blank, and alpha once. Loads run four steps ahead of the sums.
// - Numerics: those of ctc_math.h in float32. Numbers are normalised every eighth step.
// A sequence of more than 255 labels is computed by the functions of ctc_math.h, with the lanes as their team.
#include "cpp/ctc/ctc_math.h"
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/device/reduce.cuh"

namespace minidnn {
namespace {

using Number = CtcNumber<float>;
// The steps that loads run ahead. The loop over steps is unrolled as often.
template <int kOwn> constexpr int kAhead = kOwn <= 2 ? 4 : 2;
constexpr int kMostLabels = 255;  // in registers: 8 for each lane, and the last lane has a blank more

struct Team {
  __device__ int64_t rank() const { return threadIdx.x; }
  __device__ int64_t size() const { return 32; }
  __device__ void sync() { __syncwarp(); }
  template <class V> __device__ V sum(V v) {
    for (int offset = 16; offset > 0; offset /= 2) v += shuffle_xor(v, offset);
    return v;
  }
};

__device__ __forceinline__ Number up(Number v) { return {shuffle_up(v.m, 1), shuffle_up(v.e, 1)}; }
__device__ __forceinline__ Number down(Number v) { return {shuffle_down(v.m, 1), shuffle_down(v.e, 1)}; }

// The labels of a lane, and what it has read of x for some steps.
template <class T, int kOwn> struct Lane {
  const CtcProblem& p;
  const CtcArgs& a;
  const CtcSequence& s;
  int first;                         // its first blank and label
  int64_t classes[kOwn];             // of its labels; the blank where there is no label
  uint32_t skip = 0;                 // bit k: a path may go from label first + k - 1 to the next one without a blank
  T scores[kAhead<kOwn>][kOwn + 1];  // the last one is that of the blank
  float lse[kAhead<kOwn>];

  __device__ Lane(const CtcProblem& problem, const CtcArgs& args, const CtcSequence& sequence)
      : p(problem), a(args), s(sequence), first(int(threadIdx.x) * kOwn) {
#pragma unroll
    for (int k = 0; k < kOwn; ++k)
      classes[k] = is_label(k) ? ctc::class_of(p, a, s, s.labels + 1 + first + k) : p.blank;
#pragma unroll
    for (int k = 0; k <= kOwn; ++k) skip |= uint32_t(ctc::skips(p, a, s, first + k)) << k;
  }
  __device__ bool is_label(int k) const { return first + k < s.labels; }
  __device__ bool is_blank(int k) const { return first + k <= s.labels; }
  __device__ bool skips(int k) const { return skip >> k & 1; }

  __device__ void load(int64_t t, int slot) {
    if (t < 0 || t >= s.steps) return;
    const T* const x = static_cast<const T*>(a.x) + t * p.x.stride[0] + s.b * p.x.stride[1];
#pragma unroll
    for (int k = 0; k < kOwn; ++k) scores[slot][k] = x[classes[k] * p.x.stride[2]];
    scores[slot][kOwn] = x[p.blank * p.x.stride[2]];
    lse[slot] = p.logits ? static_cast<const float*>(a.lse)[t * p.batch() + s.b] : 0.0f;
  }
  // The probability of label k, or of the blank if k is kOwn, at a step that was loaded.
  __device__ Number probability(int slot, int k) const { return ctc::exponential(float(scores[slot][k]) - lse[slot]); }
  __device__ int64_t blank_at(int64_t t, int k) const { return s.alpha + t * s.states() + first + k; }
  __device__ int64_t label_at(int64_t t, int k) const { return blank_at(t, k) + s.labels + 1; }
};

// Calls step(t, slot) for all steps in the order of `sign`, after load(t, slot) of the steps ahead. Calls rest() now and
// then, at least every eighth step.
template <int kSlots, class Load, class Step, class Rest>
__device__ __forceinline__ void each_step(int64_t steps, int sign, Load load, Step step, Rest rest) {
  const int64_t begin = sign > 0 ? 0 : steps - 1;
#pragma unroll
  for (int u = 0; u < kSlots; ++u) load(begin + sign * u, u);
  for (int64_t i = 0; i < steps; i += kSlots) {
#pragma unroll
    for (int u = 0; u < kSlots; ++u) {
      const int64_t t = begin + sign * (i + u);
      if (i + u < steps) step(t, u);
      load(t + sign * kSlots, u);
    }
    if ((i + kSlots) % 8 == 0) rest();
  }
}

template <int kOwn> __device__ __forceinline__ void normalize(Number (&blanks)[kOwn], Number (&labels)[kOwn]) {
#pragma unroll
  for (int k = 0; k < kOwn; ++k) {
    blanks[k] = ctc::normalized(blanks[k]);
    labels[k] = ctc::normalized(labels[k]);
  }
}

template <class T, int kOwn>
__device__ void forward(const CtcProblem& p, const CtcArgs& a, const CtcSequence& s) {
  Lane<T, kOwn> lane(p, a, s);
  Number blanks[kOwn], labels[kOwn];
#pragma unroll
  for (int k = 0; k < kOwn; ++k) blanks[k] = labels[k] = ctc::zero<float>();
  if (threadIdx.x == 0) blanks[0] = {1, 0};  // what comes before the first step
  float *const m = static_cast<float*>(a.alpha), *const e = static_cast<float*>(a.exponents);
  each_step<kAhead<kOwn>>(
      s.steps, 1, [&](int64_t t, int slot) { lane.load(t, slot); },
      [&](int64_t t, int slot) {
        const Number p_blank = lane.probability(slot, kOwn);
        Number before = up(labels[kOwn - 1]);
        if (threadIdx.x == 0) before = ctc::zero<float>();
#pragma unroll
        for (int k = 0; k < kOwn; ++k) {
          const Number both = ctc::sum(blanks[k], before), own = labels[k];
          const Number from = lane.skips(k) ? both : blanks[k];
          const Number p_label = lane.is_label(k) ? lane.probability(slot, k) : ctc::zero<float>();
          before = own;
          labels[k] = ctc::product(ctc::sum(own, from), p_label);
          blanks[k] = ctc::product(both, p_blank);
        }
#pragma unroll
        for (int k = 0; k < kOwn; ++k) {
          if (lane.is_blank(k)) {
            m[lane.blank_at(t, k)] = blanks[k].m;
            e[lane.blank_at(t, k)] = blanks[k].e;
          }
          if (lane.is_label(k)) {
            m[lane.label_at(t, k)] = labels[k].m;
            e[lane.label_at(t, k)] = labels[k].e;
          }
        }
      },
      [&] { normalize(blanks, labels); });
}

// What backward shares between lanes.
struct Shared {
  float posteriors[kMostLabels + 1];  // of the labels
  int32_t next[kMostLabels + 1];      // the next label of the same class, or -1
  int32_t leads[kMostLabels + 1];     // whether no label before has the same class
};

// beta, alpha and the posteriors of one step. They are those of this lane.
template <int kOwn> struct Step {
  Number blanks[kOwn], labels[kOwn];  // beta times p of the step behind, then of this step
  __device__ void to_beta(uint32_t skip) {
    Number beta[kOwn];
#pragma unroll
    for (int k = 0; k < kOwn; ++k) beta[k] = ctc::sum(blanks[k], labels[k]);
    const Number next_beta = down(beta[0]), next_blank = down(blanks[0]);
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      const bool last = k == kOwn - 1, skips = skip >> (k + 1) & 1;
      const Number without = last ? next_blank : blanks[last ? 0 : k + 1];
      const Number with = last ? next_beta : beta[last ? 0 : k + 1];
      labels[k] = ctc::sum(labels[k], skips ? with : without);
    }
#pragma unroll
    for (int k = 0; k < kOwn; ++k) blanks[k] = beta[k];
  }
};

// Finds equal labels. Each lane does it for the labels at its index, and at 32 steps from there.
__device__ void link_labels(const CtcProblem& p, const CtcArgs& a, const CtcSequence& s, Shared& shared) {
  for (int i = threadIdx.x; i < s.labels; i += 32) {
    const int64_t own = ctc::label(p, a, s, i);
    int after = i + 1, before = i - 1;
    while (after < s.labels && ctc::label(p, a, s, after) != own) ++after;
    while (before >= 0 && ctc::label(p, a, s, before) != own) --before;
    shared.next[i] = after < s.labels ? after : -1;
    shared.leads[i] = before < 0;
  }
  __syncwarp();
}

template <class T, int kOwn>
__device__ void backward(const CtcProblem& p, const CtcArgs& a, const CtcSequence& s, float g, Shared& shared) {
  Lane<T, kOwn> lane(p, a, s);
  link_labels(p, a, s, shared);
  const Number whole = ctc::probability<float>(a, s);
  const float *const m = static_cast<const float*>(a.alpha), *const e = static_cast<const float*>(a.exponents);
  Number alpha_blanks[kAhead<kOwn>][kOwn], alpha_labels[kAhead<kOwn>][kOwn];
  Step<kOwn> step;
#pragma unroll
  for (int k = 0; k < kOwn; ++k) {
    step.labels[k] = ctc::zero<float>();
    step.blanks[k] = lane.first + k == s.labels ? Number{1, 0} : ctc::zero<float>();  // what comes behind the last step
  }
  Team team;
  T* const dx = static_cast<T*>(a.dx) + s.b * p.dx.stride[1];
  const auto load = [&](int64_t t, int slot) {
    lane.load(t, slot);
    if (t < 0) return;
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      const int64_t blank = lane.blank_at(t, k), label = lane.label_at(t, k);
      alpha_blanks[slot][k] = lane.is_blank(k) ? Number{m[blank], e[blank]} : ctc::zero<float>();
      alpha_labels[slot][k] = lane.is_label(k) ? Number{m[label], e[label]} : ctc::zero<float>();
    }
  };
  const auto compute = [&](int64_t t, int slot) {
    step.to_beta(lane.skip);
    const Number p_blank = lane.probability(slot, kOwn);
    const auto posterior = [&](Number alpha, Number beta) {
      return alpha.m * beta.m * ctc::power(alpha.e + beta.e - whole.e);
    };
    float own_blanks = 0, own_labels = 0, softmax[kOwn];
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      const Number p_label = lane.is_label(k) ? lane.probability(slot, k) : ctc::zero<float>();
      softmax[k] = p_label.m * ctc::power(p_label.e);
      const float of_label = posterior(alpha_labels[slot][k], step.labels[k]);
      own_blanks += posterior(alpha_blanks[slot][k], step.blanks[k]);
      own_labels += of_label;
      if (lane.is_label(k)) shared.posteriors[lane.first + k] = of_label;
      step.blanks[k] = ctc::product(step.blanks[k], p_blank);
      step.labels[k] = ctc::product(step.labels[k], p_label);
    }
    const float blanks = team.sum(own_blanks), all = blanks + team.sum(own_labels);
    __syncwarp();
    T* const row = dx + t * p.dx.stride[0];
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      if (!lane.is_label(k) || !shared.leads[lane.first + k]) continue;
      float sum = 0;
      for (int j = lane.first + k; j >= 0; j = shared.next[j]) sum += shared.posteriors[j];
      row[lane.classes[k] * p.dx.stride[2]] = T(g * (softmax[k] - sum / all));
    }
    if (threadIdx.x == 0) row[p.blank * p.dx.stride[2]] = T(g * (p_blank.m * ctc::power(p_blank.e) - blanks / all));
    __syncwarp();
  };
  each_step<kAhead<kOwn>>(s.steps, -1, load, compute, [&] { normalize(step.blanks, step.labels); });
}

template <int kOwn> __device__ bool is_in_range(const CtcProblem& p, const CtcSequence& s) {
  if (!p.concatenated()) return true;
  if (kOwn == 0) return s.labels > kMostLabels;
  return s.labels < 32 * kOwn && (kOwn == 1 || s.labels >= 16 * kOwn);
}

}  // namespace

// kOwn is the number of labels of a lane, or 0 for more labels than lanes can have. Each launch computes the sequences of
// its range. If targets are not concatenated, all sequences are in the range of one launch.
template <class T, int kOwn> __global__ void __launch_bounds__(32)
    ctc_warp_forward(const __grid_constant__ CtcProblem p, CtcArgs a, float* losses) {
  griddep_wait();
  Team team;
  const CtcSequence s = ctc::sequence(p, a, blockIdx.x, team);
  if (!is_in_range<kOwn>(p, s)) return;
  if constexpr (kOwn == 0) {
    ctc_forward_sequence<float>(p, a, blockIdx.x, losses, team);
  } else {
    forward<T, kOwn>(p, a, s);
    const bool valid = ctc::valid(p, a, s, team);
    __syncwarp();  // all lanes have stored the last step
    if (threadIdx.x == 0) losses[blockIdx.x] = ctc_loss(p, s, ctc::probability<float>(a, s), valid);
  }
}

template <class T, int kOwn> __global__ void __launch_bounds__(32)
    ctc_warp_backward(const __grid_constant__ CtcProblem p, CtcArgs a, float* gradients) {
  griddep_wait();
  Team team;
  const CtcSequence s = ctc::sequence(p, a, blockIdx.x, team);
  const float g = gradients[blockIdx.x];
  if (!is_in_range<kOwn>(p, s) || g == 0 || g != g) return;
  if constexpr (kOwn == 0) {
    ctc_backward_sequence<float>(p, a, g, s, CtcScratch<float>::of(p, gradients + p.batch()), team);
  } else {
    __shared__ Shared shared;
    backward<T, kOwn>(p, a, s, g, shared);
  }
}

}  // namespace minidnn
