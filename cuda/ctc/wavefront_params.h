// SPDX-License-Identifier: Apache-2.0
// What the host and the kernels of cuda.ctc.wavefront agree on: the threads of a block, and the workspace.
#pragma once
#include "cpp/ctc/ctc_math.h"

namespace minidnn {

constexpr int kCtcMostWarps = 16;

// A number m 2^e.
struct alignas(8) CtcWideNumber {
  float m;
  int32_t e;
};

// What ctc_beta tells the kernel that writes rows of dx.
struct CtcSequenceGradient {
  int64_t first;  // as in CtcSequence
  int32_t labels;
  float gradient;  // of the loss of the sequence
  float exponent;  // of the probability of the labels
  int32_t unused;
};
struct CtcSortedLabel {
  int32_t class_, index;
};

// The threads of a block, which computes one sequence: one for each label, and one more. Longer sequences are computed
// in several strips. The lengths of concatenated targets are on the device, so the block is made for twice the usual
// length.
MINIDNN_HD int32_t ctc_threads(const CtcProblem& p) {
  const int64_t twice = 2 * p.all_labels() / max_of(p.batch(), int64_t(1)) + 1;
  const int64_t labels = p.concatenated() ? min_of(p.longest(), twice) : p.longest();
  return int32_t(min_of(round_up(labels + 1, 32), int64_t(32 * kCtcMostWarps)));
}
MINIDNN_HD bool ctc_has_strips(const CtcProblem& p) { return p.longest() >= ctc_threads(p); }

// The workspace. Forward has losses and edges, backward all other arrays.
struct CtcWorkspace {
  float* losses;  // of all sequences
  CtcSequenceGradient* sequences;
  CtcWideNumber* edges;          // for each step of each sequence, what a strip passes on to the next one
  float *beta, *beta_exponents;  // as alpha and exponents
  CtcSortedLabel* sorted;        // the labels of each sequence in the order of their classes

  MINIDNN_HD static CtcWorkspace of(const CtcProblem& p, void* memory) {
    char* const begin = static_cast<char*>(memory);
    float* const beta = reinterpret_cast<float*>(begin + beta_at(p));
    return {static_cast<float*>(memory),
            static_cast<CtcSequenceGradient*>(memory),
            reinterpret_cast<CtcWideNumber*>(begin + edges_at(p)),
            beta,
            beta + p.alpha.numel(),
            reinterpret_cast<CtcSortedLabel*>(begin + sorted_at(p))};
  }
  MINIDNN_HD static int64_t bytes(const CtcProblem& p) {
    const bool backward = p.direction == CtcDirection::backward;
    return backward ? sorted_at(p) + p.all_labels() * int64_t(sizeof(CtcSortedLabel)) : beta_at(p);
  }

 private:
  MINIDNN_HD static int64_t edges_at(const CtcProblem& p) { return p.batch() * int64_t(sizeof(CtcSequenceGradient)); }
  MINIDNN_HD static int64_t beta_at(const CtcProblem& p) {
    const int64_t edges = ctc_has_strips(p) ? p.steps() * p.batch() : 0;
    return edges_at(p) + edges * int64_t(sizeof(CtcWideNumber));
  }
  MINIDNN_HD static int64_t sorted_at(const CtcProblem& p) {
    return beta_at(p) + 2 * p.alpha.numel() * int64_t(sizeof(float));
  }
};

}  // namespace minidnn
