// SPDX-License-Identifier: Apache-2.0
// cpu.attention.flash: attention by tiles of scores (Dao et al. 2022), whose products are those of the micro-kernel of
// matrix products. Operands of 16 bits become float32 while they are packed; all arithmetic is float32. With AMX,
// products of bfloat16 are those of bf16_products.h, for which probabilities and gradients of scores are rounded. The
// workspace has a fixed size for each thread; backward adds float32 sums of dq. A result depends neither on the number of
// threads nor on the order of their work.
#include "cpp/attention/cpu/flash.h"
#include "cpp/engine/engine_object.h"

namespace minidnn {
namespace cpu::attention {
namespace {

// Writes zeros to the rows of packed tensors that belong to no sequence.
template <class T> void clear_gaps(const AttentionProblem& p, const AttentionArgs& a) {
  SingleThread team;
  const auto is_gap = [&](int64_t t, bool of_q) { return minidnn::attention::locate(p, a, 0, t, of_q).of.b < 0; };
  for (int64_t t = 0; t < p.q.shape[2]; ++t)
    if (is_gap(t, true))
      for (int64_t h = 0; h < p.heads(); ++h) attention_empty_q_row<T>(p, a, h, t, team);
  if (p.direction != AttentionDirection::backward) return;
  for (int64_t t = 0; t < p.k.shape[2]; ++t)
    if (is_gap(t, false))
      for (int64_t h = 0; h < p.kv_heads(); ++h) attention_empty_kv_row<T>(p, a, h, t, team);
}

FlashMemory memory_of(const AttentionProblem& p, const Device& d) {
  return (p.direction == AttentionDirection::backward ? backward_memory : forward_memory)(p, std::max(d.sm_count, 1));
}

}  // namespace

struct Flash final : Engine<AttentionProblem> {
  std::string name() const override { return "cpu.attention.flash"; }
  std::string why_not(const AttentionProblem& p, const Device&) const override {
    return p.q.dtype == DType::float64 ? "float64 is not supported" : "";
  }
  double estimate_us(const AttentionProblem& p, const Device& d) const override {
    const bool backward = p.direction == AttentionDirection::backward;
    const int64_t columns = gemm_kernels().f32.columns;
    double flop = attention_flop(p) * wasted(p.head_size() + p.value_size(), 2 * columns) / 10;
    if (p.dbias.rank) flop *= 1.6;
    // Packing and short tiles take this time for each head of k, however small it is.
    const double heads_us = double(p.batch() * p.kv_heads()) * (backward ? 2.5 : 0.6) / std::max(d.sm_count, 1);
    if (FlashCall{p, {}}.bf16) flop *= 0.3;
    return roofline_us(flop, attention_bytes(p), d, 0.75) + heads_us + (backward ? 2 : 1);
  }
  size_t workspace_bytes(const AttentionProblem& p, const Device& d, const Config&) const override {
    return memory_of(p, d).bytes();
  }
  std::unique_ptr<Plan<AttentionProblem>> build(const AttentionProblem& p, const Device& d,
                                                const Config&) const override {
    return make_plan<AttentionProblem>([p, memory = memory_of(p, d)](const AttentionArgs& a, void* workspace, Stream) {
      const bool backward = p.direction == AttentionDirection::backward;
      (backward ? flash_backward : flash_forward)(p, a, memory, workspace);
      with_floating(p.q.dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        if (p.packed) clear_gaps<T>(p, a);
        SingleThread team;
        if (backward && p.has_sink)
          cpu::parallel_for(p.heads(), 1, [&](int64_t begin, int64_t end) {
            for (int64_t h = begin; h < end; ++h) attention_dsink<T>(p, a, h, team);
          });
      });
    });
  }
};

}  // namespace cpu::attention

template const Engine<AttentionProblem>& engine_object<AttentionProblem, cpu::attention::Flash>();

}  // namespace minidnn
