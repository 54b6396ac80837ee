// SPDX-License-Identifier: Apache-2.0
// cpu.transform.gather_reference: one element at a time, any strides, threaded. For backward, one thread counts and
// sorts the indices.
#include "cpp/core/thread_pool.h"
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

size_t gather_cpu_bytes(const GatherProblem& p) {
  const bool backward = p.direction == GatherDirection::backward;
  return gather_order_bytes(p) + (backward ? size_t(p.index.numel()) * sizeof(int32_t) : 0);
}

GatherOrder put_in_order(const GatherProblem& p, const GatherArgs& a, void* workspace) {
  const int64_t n = p.index.numel();
  const GatherOrder o = gather_order(p, workspace);
  int32_t* const rows = o.order + n;  // the row of each index; -1 if there is no such row
  std::fill(o.starts, o.starts + p.rows() + 1, 0);
  for (int64_t k = 0; k < n; ++k)
    if ((rows[k] = int32_t(gather_row(p, a.index, k))) >= 0) ++o.starts[rows[k]];
  int32_t sum = 0;
  for (int64_t r = 0; r <= p.rows(); ++r) sum += std::exchange(o.starts[r], sum);
  // After this loop, starts[r] is the end of row r, which is the start of row r + 1.
  for (int64_t k = 0; k < n; ++k)
    if (rows[k] >= 0) o.order[o.starts[rows[k]]++] = int32_t(k);
  std::move_backward(o.starts, o.starts + p.rows(), o.starts + p.rows() + 1);
  o.starts[0] = 0;
  return o;
}

namespace {

struct Reference final : Engine<GatherProblem> {
  std::string name() const override { return "cpu.transform.gather_reference"; }
  std::string why_not(const GatherProblem&, const Device&) const override { return ""; }
  double estimate_us(const GatherProblem& p, const Device& d) const override {
    return roofline_us(0, gather_bytes(p), d, 0.1);
  }
  size_t workspace_bytes(const GatherProblem& p, const Device&, const Config&) const override {
    return gather_cpu_bytes(p);
  }
  std::unique_ptr<Plan<GatherProblem>> build(const GatherProblem& p, const Device&, const Config&) const override {
    return make_plan<GatherProblem>([p, bytes = itemsize(p.x.dtype)](const GatherArgs& a, void* workspace, Stream) {
      if (p.direction == GatherDirection::backward) {
        const GatherOrder o = put_in_order(p, a, workspace);
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
