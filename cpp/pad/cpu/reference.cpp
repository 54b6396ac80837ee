// SPDX-License-Identifier: Apache-2.0
// cpu.pad.reference: pads a tensor one element at a time, for any strides. The elements are divided among threads.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/engine/engine_object.h"
#include "cpp/pad/pad.h"

namespace minidnn {
namespace cpu::pad {
namespace {

constexpr int64_t kGrain = 16384;

template <class T> void compute(const PadProblem& p, const PadArgs& a) {
  cpu::parallel_for(p.y.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) pad_element<T>(p, a, i);
  });
}

}  // namespace

struct Reference final : Engine<PadProblem> {
  std::string name() const override { return "cpu.pad.reference"; }
  std::string why_not(const PadProblem&, const Device&) const override { return ""; }
  double estimate_us(const PadProblem& p, const Device& d) const override {
    return roofline_us(0, pad_bytes(p), d, 0.1);
  }
  std::unique_ptr<Plan<PadProblem>> build(const PadProblem& p, const Device&, const Config&) const override {
    return make_plan<PadProblem>([p, bytes = itemsize(p.x.dtype)](const PadArgs& a, void*, Stream) {
      with_word(bytes, [&](auto type) { compute<typename decltype(type)::type>(p, a); });
    });
  }
};

}  // namespace cpu::pad

template const Engine<PadProblem>& engine_object<PadProblem, cpu::pad::Reference>();

}  // namespace minidnn
