// SPDX-License-Identifier: Apache-2.0
// cpu.transform.reference: copies, casts or scales one element at a time, for any strides and any two dtypes. The
// elements are divided among threads.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/engine/engine_object.h"
#include "cpp/transform/transform.h"

namespace minidnn {
namespace cpu::transform {
namespace {

constexpr int64_t kGrain = 16384;

template <class From, class To> void compute(const TransformProblem& p, const TransformArgs& a) {
  bool dense = is_dense(p.x) && same_strides(p.x, p.y);
  cpu::parallel_for(p.y.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      transform_element<From, To>(p, a, dense ? i : p.x.offset_of(i), dense ? i : p.y.offset_of(i));
  });
}

}  // namespace

struct Reference final : Engine<TransformProblem> {
  std::string name() const override { return "cpu.transform.reference"; }
  std::string why_not(const TransformProblem&, const Device&) const override { return ""; }
  double estimate_us(const TransformProblem& p, const Device& d) const override {
    return roofline_us(0, transform_bytes(p), d, 0.3);
  }
  std::unique_ptr<Plan<TransformProblem>> build(const TransformProblem& p, const Device&,
                                                const Config&) const override {
    return make_plan<TransformProblem>([p](const TransformArgs& a, void*, Stream) {
      with_any(p.x.dtype, [&](auto from) {
        with_any(p.y.dtype,
                 [&](auto to) { compute<typename decltype(from)::type, typename decltype(to)::type>(p, a); });
      });
    });
  }
};

}  // namespace cpu::transform

template const Engine<TransformProblem>& engine_object<TransformProblem, cpu::transform::Reference>();

}  // namespace minidnn
