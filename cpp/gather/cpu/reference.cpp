// SPDX-License-Identifier: Apache-2.0
// cpu.gather.reference: gathers one element at a time, for any strides. The elements are divided among threads. For the
// gradient, one thread first sorts the indices by counting.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/engine/engine_object.h"
#include "cpp/gather/gather.h"

namespace minidnn {
namespace cpu::gather {
namespace {

constexpr int64_t kGrain = 16384;

template <class T> void compute(const GatherProblem& p, const GatherArgs& a) {
  cpu::parallel_for(p.y.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) gather_element<T>(p, a, i);
  });
}

}  // namespace

struct Reference final : Engine<GatherProblem> {
  std::string name() const override { return "cpu.gather.reference"; }
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
        const GatherOrder o = sort_indices(p, a, workspace);
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

}  // namespace cpu::gather

template const Engine<GatherProblem>& engine_object<GatherProblem, cpu::gather::Reference>();

}  // namespace minidnn
