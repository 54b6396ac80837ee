// SPDX-License-Identifier: Apache-2.0
// cpu.transform.gather_reference: an element at a time, any strides, threaded. Backward, indices are counted and put in
// order by one thread.
#include "cpp/cpu/threads.h"
#include "cpp/transform/gather.h"

namespace minidnn {
namespace {

constexpr int64_t kGrain = 16384;

template <class T> void compute(const GatherProblem& p, const GatherArgs& a) {
  cpu::parallel_for(p.y.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) gather_element<T>(p, a, i);
  });
}

}  // namespace

void put_in_order(const GatherProblem& p, const GatherArgs& a, const GatherOrder& o) {
  std::fill(o.starts, o.starts + p.rows() + 1, 0);
  for (int64_t k = 0; k < p.index.numel(); ++k)
    if (const int64_t row = gather_row(p, a.index, k); row >= 0) ++o.starts[row];
  int32_t sum = 0;
  for (int64_t r = 0; r <= p.rows(); ++r) sum += std::exchange(o.starts[r], sum);
  // Each start moves to its end, which is the next one's start.
  for (int64_t k = 0; k < p.index.numel(); ++k)
    if (const int64_t row = gather_row(p, a.index, k); row >= 0) o.order[o.starts[row]++] = int32_t(k);
  std::move_backward(o.starts, o.starts + p.rows(), o.starts + p.rows() + 1);
  o.starts[0] = 0;
}

namespace {

struct Reference final : Engine<GatherProblem> {
  std::string name() const override { return "cpu.transform.gather_reference"; }
  std::string why_not(const GatherProblem&, const Device&) const override { return ""; }
  double estimate_us(const GatherProblem& p, const Device& d) const override {
    return roofline_us(0, gather_bytes(p), d, 0.1);
  }
  size_t workspace_bytes(const GatherProblem& p, const Device&, const Config&) const override {
    return gather_order_bytes(p);
  }
  std::unique_ptr<Plan<GatherProblem>> build(const GatherProblem& p, const Device&, const Config&) const override {
    return make_plan<GatherProblem>([p, bytes = itemsize(p.x.dtype)](const GatherArgs& a, void* workspace, Stream) {
      if (p.direction == GatherDirection::backward) {
        const GatherOrder o = gather_order(p, workspace);
        put_in_order(p, a, o);
        with_floating(p.x.dtype, [&](auto type) {
          cpu::parallel_for(p.x.numel(), kGrain, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) gather_sum<typename decltype(type)::type>(p, a, o, i);
          });
        });
        return;
      }
      with_word(bytes, [&](auto type) { compute<typename decltype(type)::type>(p, a); });
    });
  }
};

}  // namespace

const Engines<GatherProblem>& Family<GatherProblem>::cpu_engines() {
  static const Reference reference;
  static const Engines<GatherProblem> all{&gather_rows_cpu(), &reference};
  return all;
}

}  // namespace minidnn
