// SPDX-License-Identifier: Apache-2.0
// cpu.norm.reference: the shared maths. One thread computes each statistic; then threads divide all elements into
// chunks and map them one contiguous span at a time.
#include "cpp/core/thread_pool.h"
#include "cpp/norm/norm.h"

namespace minidnn {
namespace {

constexpr int64_t kGrain = 16384;  // elements that justify waking one more thread

template <class T, NormDirection direction>
void map_run(const NormSpaces& s, const NormArgs& a, const NormOffsets& at, const NormOffsets& step, int64_t run) {
  auto c = norm_coefficients<T, direction>(s, a, at.parameter);
  if (step.parameter == 0 && step.x == 1 && step.dy == 1 && step.out == 1 && step.other == 1 && step.dresidual == 1) {
    constexpr NormOffsets kOne{1, 1, 1, 0, 1, 1};  // constant steps, so that compilers vectorise the loop
    for (int64_t i = 0; i < run; ++i) norm_element<T, direction>(a, at.plus(i, kOne), c);
    return;
  }
  for (int64_t i = 0; i < run; ++i) {
    NormOffsets now = at.plus(i, step);
    if (step.parameter != 0) c = norm_coefficients<T, direction>(s, a, now.parameter);
    norm_element<T, direction>(a, now, c);
  }
}

template <class T, NormDirection direction>
void compute(const NormSpaces& s, const NormArgs& a) {
  if constexpr (direction != NormDirection::inference) {
    NormOffsets step = s.members.run_step();
    bool packed = step.x == 1 && step.dy == 1 && step.other == 1;
    int64_t grain = std::max<int64_t>(kGrain / std::max<int64_t>(s.members.size, 1), 1);
    cpu::parallel_for(s.groups.size, grain, [&](int64_t begin, int64_t end) {
      for (int64_t group = begin; group < end; ++group) {
        if (packed) norm_sums<T, direction>(s, a, PackedSolo{}, group);
        else norm_sums<T, direction>(s, a, SingleThread{}, group);
      }
    });
  }
  cpu::parallel_for(s.all.size, kGrain, [&](int64_t begin, int64_t end) {
    NormOffsets step = s.all.run_step();
    for (int64_t i = begin; i < end;) {
      int64_t run = std::min(end - i, s.all.run() - i % s.all.run());
      map_run<T, direction>(s, a, s.all.offsets_of(i), step, run);
      i += run;
    }
  });
}

struct Reference final : Engine<NormProblem> {
  std::string name() const override { return "cpu.norm.reference"; }
  std::string why_not(const NormProblem&, const Device&) const override { return ""; }
  double estimate_us(const NormProblem& p, const Device& d) const override {
    return roofline_us(norm_flop(p), norm_bytes(p), d, 0.2);
  }
  std::unique_ptr<Plan<NormProblem>> build(const NormProblem& p, const Device&, const Config&) const override {
    return make_plan<NormProblem>(
        [s = norm_spaces(p), dtype = p.x.dtype, direction = p.direction](const NormArgs& a, void*, Stream) {
          with_floating(dtype, [&](auto type) {
            using T = typename decltype(type)::type;
            switch (direction) {
              case NormDirection::training:
                return compute<T, NormDirection::training>(s, a);
              case NormDirection::inference:
                return compute<T, NormDirection::inference>(s, a);
              case NormDirection::backward:
                return compute<T, NormDirection::backward>(s, a);
            }
          });
        });
  }
};

}  // namespace

const Engines<NormProblem>& Family<NormProblem>::cpu_engines() {
  static const Reference reference;
  static const Engines<NormProblem> all{&norm_streamed(), &reference};
  return all;
}

}  // namespace minidnn
