// SPDX-License-Identifier: Apache-2.0
// cpu.pointwise.reference: computes the formulas of pointwise_math.h one element at a time, in several threads, for
// tensors with any strides.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/engine/engine_object.h"
#include "cpp/pointwise/cpu/element_loop.h"
#include "cpp/pointwise/pointwise.h"

namespace minidnn {
namespace cpu::pointwise {
namespace {

constexpr int64_t kGrain = 8192;

}  // namespace

struct Reference final : Engine<PointwiseProblem> {
  std::string name() const override { return "cpu.pointwise.reference"; }
  std::string why_not(const PointwiseProblem&, const Device&) const override { return ""; }
  double estimate_us(const PointwiseProblem& p, const Device& d) const override {
    return roofline_us(pointwise_flop(p), pointwise_bytes(p), d, 0.05);
  }
  std::unique_ptr<Plan<PointwiseProblem>> build(const PointwiseProblem& p, const Device&,
                                                const Config&) const override {
    return make_plan<PointwiseProblem>([p](const PointwiseArgs& args, void*, Stream) {
      with_any(pointwise_dtype(p), [&](auto type) {
        using T = typename decltype(type)::type;
        const int n = arity(info(p.op).group);
        const bool selects = info(p.op).group == PointwiseGroup::select;
        cpu::parallel_for(p.out.numel(), kGrain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            using A = PointwiseType<T>;
            A a = A(), b = A(), c = A(), result = A();
            const int64_t at = p.a.offset_of(i);
            if (selects) a = A(static_cast<const uint8_t*>(args.a)[at] != 0);
            else a = read_element<T>(args.a, at);
            if (n > 1) b = read_element<T>(args.b, p.b.offset_of(i));
            if (n > 2) c = read_element<T>(args.c, p.c.offset_of(i));
            compute<T>(p.op, &a, &b, &c, &result, 1);
            const int64_t to = p.out.offset_of(i);
            if (p.out.dtype == DType::boolean) static_cast<bool*>(args.out)[to] = result != A();
            else write_element<T>(args.out, to, result);
          }
        });
      });
    });
  }

 private:
  template <class T>
  static void compute(Pointwise op, const PointwiseType<T>* a, const PointwiseType<T>* b, const PointwiseType<T>* c,
                      PointwiseType<T>* out, int64_t n) {
    const PointwiseLoop<T> loop{a, b, c, out, n};
    with_pointwise<PointwiseGroup::unary, T>(op, loop);
    with_pointwise<PointwiseGroup::maths1, T>(op, loop);
    with_pointwise<PointwiseGroup::test1, T>(op, loop);
    with_pointwise<PointwiseGroup::binary, T>(op, loop);
    with_pointwise<PointwiseGroup::maths2, T>(op, loop);
    with_pointwise<PointwiseGroup::test2, T>(op, loop);
    with_pointwise<PointwiseGroup::ternary, T>(op, loop);
    with_pointwise<PointwiseGroup::select, T>(op, loop);
  }
};

}  // namespace cpu::pointwise

template const Engine<PointwiseProblem>& engine_object<PointwiseProblem, cpu::pointwise::Reference>();

}  // namespace minidnn
