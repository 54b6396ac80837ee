// SPDX-License-Identifier: Apache-2.0
// cpu.batch_norm.reference: the formulas of batch_norm_math.h. First, threads share the channels: one thread computes
// the statistics of a channel. Then threads share the elements of the result, and compute one contiguous span at a
// time.
#include "cpp/batch_norm/batch_norm.h"
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/engine/engine_object.h"

namespace minidnn {
namespace cpu::batch_norm {
namespace {

constexpr int64_t kGrain = 16384;  // the least number of elements that one thread processes

template <class T, NormDirection direction>
void map_span(const NormSpaces& s, const BatchNormArgs& a, const NormOffsets& at, const NormOffsets& step,
              int64_t span) {
  auto c = norm_coefficients<T, direction>(s, a, at.parameter);
  if (step.parameter == 0 && step.x == 1 && step.dy == 1 && step.out == 1 && step.other == 1 && step.dresidual == 1) {
    // The strides are compile-time constants here, so that compilers vectorise the loop.
    constexpr NormOffsets kOne{1, 1, 1, 0, 1, 1};
    for (int64_t i = 0; i < span; ++i) norm_element<T, direction>(a, at.plus(i, kOne), c);
    return;
  }
  for (int64_t i = 0; i < span; ++i) {
    NormOffsets now = at.plus(i, step);
    if (step.parameter != 0) c = norm_coefficients<T, direction>(s, a, now.parameter);
    norm_element<T, direction>(a, now, c);
  }
}

template <class T, NormDirection direction>
void compute(const NormSpaces& s, const BatchNormArgs& a) {
  if constexpr (direction != NormDirection::inference) {
    NormOffsets step = s.members.span_step();
    bool packed = step.x == 1 && step.dy == 1 && step.other == 1;
    int64_t grain = std::max<int64_t>(kGrain / std::max<int64_t>(s.members.size, 1), 1);
    cpu::parallel_for(s.groups.size, grain, [&](int64_t begin, int64_t end) {
      for (int64_t group = begin; group < end; ++group) {
        if (packed) norm_sums<T, direction>(s, a, PackedSingleThread{}, group);
        else norm_sums<T, direction>(s, a, SingleThread{}, group);
      }
    });
  }
  cpu::parallel_for(s.all.size, kGrain, [&](int64_t begin, int64_t end) {
    NormOffsets step = s.all.span_step();
    for (int64_t i = begin; i < end;) {
      int64_t span = std::min(end - i, s.all.span() - i % s.all.span());
      map_span<T, direction>(s, a, s.all.offsets_of(i), step, span);
      i += span;
    }
  });
}

template <class T> void compute(NormDirection direction, const NormSpaces& s, const BatchNormArgs& a) {
  switch (direction) {
    case NormDirection::training:
      return compute<T, NormDirection::training>(s, a);
    case NormDirection::inference:
      return compute<T, NormDirection::inference>(s, a);
    case NormDirection::backward:
      return compute<T, NormDirection::backward>(s, a);
  }
}

}  // namespace

struct Reference final : Engine<BatchNormProblem> {
  std::string name() const override { return "cpu.batch_norm.reference"; }
  std::string why_not(const BatchNormProblem&, const Device&) const override { return ""; }
  double estimate_us(const BatchNormProblem& p, const Device& d) const override {
    return roofline_us(norm_flop(p), norm_bytes(p), d, 0.2);
  }
  std::unique_ptr<Plan<BatchNormProblem>> build(const BatchNormProblem& p, const Device&,
                                                const Config&) const override {
    return make_plan<BatchNormProblem>(
        [s = norm_spaces(p), dtype = p.x.dtype, direction = p.direction](const BatchNormArgs& a, void*, Stream) {
          with_floating(dtype, [&](auto type) {
            using T = typename decltype(type)::type;
            compute<T>(direction, s, a);
          });
        });
  }
};

}  // namespace cpu::batch_norm

template const Engine<BatchNormProblem>& engine_object<BatchNormProblem, cpu::batch_norm::Reference>();

}  // namespace minidnn
