// SPDX-License-Identifier: Apache-2.0
// cpu.attention.reference: the formulas of attention_math.h, for all options and any strides. A thread computes one row
// at a time.
#include "cpp/attention/attention.h"
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/engine/engine_object.h"

namespace minidnn {
namespace cpu::attention {
namespace {

template <class Acc> struct Team : SingleThread {
  static constexpr int kElements = kAttentionMostHead;
  Acc numbers[2 * AttentionTeam::kColumns];
  Acc* scratch() { return numbers; }
  void sync() {}
};

template <class T, class Body> void each(int64_t n, Body body) {
  cpu::parallel_for(n, 1, [&](int64_t begin, int64_t end) {
    Team<Accumulator<T>> team;
    for (int64_t i = begin; i < end; ++i) body(i, team);
  });
}

template <class T> void compute(const AttentionProblem& p, const AttentionArgs& a) {
  each<T>(p.q.numel() / p.head_size(), [&](int64_t row, auto& team) { attention_q_row<T>(p, a, row, team); });
  if (p.direction != AttentionDirection::backward) return;
  each<T>(p.k.numel() / p.head_size(), [&](int64_t row, auto& team) { attention_kv_row<T>(p, a, row, team); });
  if (p.dbias.rank)
    each<T>(p.dbias.numel(), [&](int64_t index, auto& team) { attention_dbias_element<T>(p, a, index, team); });
  if (p.has_sink) each<T>(p.heads(), [&](int64_t h, auto& team) { attention_dsink<T>(p, a, h, team); });
}

}  // namespace

struct Reference final : Engine<AttentionProblem> {
  std::string name() const override { return "cpu.attention.reference"; }
  std::string why_not(const AttentionProblem&, const Device&) const override { return ""; }
  double estimate_us(const AttentionProblem& p, const Device& d) const override {
    // Scores are computed twice, and each product waits for the sum before it.
    return roofline_us(2 * attention_flop(p), attention_bytes(p), d, 0.01);
  }
  std::unique_ptr<Plan<AttentionProblem>> build(const AttentionProblem& p, const Device&,
                                                const Config&) const override {
    return make_plan<AttentionProblem>([p](const AttentionArgs& a, void*, Stream) {
      with_floating(p.q.dtype, [&](auto type) { compute<typename decltype(type)::type>(p, a); });
    });
  }
};

}  // namespace cpu::attention

template const Engine<AttentionProblem>& engine_object<AttentionProblem, cpu::attention::Reference>();

}  // namespace minidnn
