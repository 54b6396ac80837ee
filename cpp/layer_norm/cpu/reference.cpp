// SPDX-License-Identifier: Apache-2.0
// cpu.layer_norm.reference: the formulas of layer_norm_math.h. A thread computes y or dx one row at a time, and dscale
// and dbias one element at a time.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/engine/engine_object.h"
#include "cpp/layer_norm/layer_norm.h"

namespace minidnn {
namespace cpu::layer_norm {
namespace {

constexpr int64_t kGrain = 16384;  // the least number of elements that one thread processes

// Calls body(i) for each index i of `items`, on several threads. Each call processes members.size elements.
template <class Body> void each(const NormSpace& items, const NormSpace& members, Body body) {
  cpu::parallel_for(items.size, std::max<int64_t>(kGrain / std::max<int64_t>(members.size, 1), 1),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) body(i);
                    });
}

}  // namespace

struct Reference final : Engine<LayerNormProblem> {
  std::string name() const override { return "cpu.layer_norm.reference"; }
  std::string why_not(const LayerNormProblem&, const Device&) const override { return ""; }
  double estimate_us(const LayerNormProblem& p, const Device& d) const override {
    return roofline_us(row_norm_flop(p), row_norm_bytes(p), d, 0.1);
  }
  std::unique_ptr<Plan<LayerNormProblem>> build(const LayerNormProblem& p, const Device&,
                                                const Config&) const override {
    return make_plan<LayerNormProblem>(
        [s = row_norm_spaces(p), dtype = p.x.dtype, backward = p.backward](const LayerNormArgs& a, void*, Stream) {
          with_floating(dtype, [&](auto type) {
            using T = typename decltype(type)::type;
            if (!backward)
              return each(s.rows, s.members, [&](int64_t i) { norm_row_forward<T>(s, a, SingleThread{}, i); });
            each(s.rows, s.members, [&](int64_t i) { norm_row_backward<T>(s, a, SingleThread{}, i); });
            each(s.parameters, s.others, [&](int64_t i) { norm_parameter_sums<T>(s, a, SingleThread{}, i); });
          });
        });
  }
};

}  // namespace cpu::layer_norm

template const Engine<LayerNormProblem>& engine_object<LayerNormProblem, cpu::layer_norm::Reference>();

}  // namespace minidnn
