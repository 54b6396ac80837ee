// SPDX-License-Identifier: Apache-2.0
// cpu.conv.direct: the arithmetic of conv_math.h in plain loops, for any strides. Each thread computes some elements of
// the output.
#include "cpp/conv/conv.h"
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/engine/engine_object.h"

namespace minidnn {
namespace cpu::conv {
namespace {

// The smallest number of FLOP for which it is worth waking another thread.
constexpr double kGrainFlop = 32768;

template <class T, class Y> void compute(const ConvGeometry& g, ConvDirection direction, double flop,
                                         const ConvArgs& a) {
  bool of_points = direction == ConvDirection::forward || direction == ConvDirection::backward_data;
  int64_t n = of_points                                     ? conv_out_numel(g)
              : direction == ConvDirection::backward_filter ? conv_weights(g)
                                                            : g.groups * g.y.channels;
  int64_t grain = int64_t(kGrainFlop * double(n) / std::max(flop, 1.0)) + 1;
  cpu::parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    SingleThread solo;
    if (of_points) {
      ConvPoint point(g, conv_out(g), begin);
      ConvWindow window;
      for (int64_t i = begin; i < end; ++i, point.count.advance()) {
        window.move_to(g, point);
        conv_element<T, Y>(g, a, point, window);
      }
    } else if (direction == ConvDirection::backward_filter) {
      for (int64_t i = begin; i < end; ++i) conv_filter_element<T, Y>(g, a, i, solo);
    } else {
      for (int64_t i = begin; i < end; ++i) conv_bias_element<T>(g, a, i, solo);
    }
  });
}

}  // namespace

struct Direct final : Engine<ConvProblem> {
  std::string name() const override { return "cpu.conv.direct"; }
  std::string why_not(const ConvProblem&, const Device&) const override { return ""; }
  double estimate_us(const ConvProblem& p, const Device& d) const override {
    // A channel of backward_bias takes its elements one by one, with several divisions each.
    const double efficiency = p.direction == ConvDirection::backward_bias ? 0.005 : 0.1;
    return roofline_us(conv_flop(p), conv_bytes(p), d, efficiency);
  }
  std::unique_ptr<Plan<ConvProblem>> build(const ConvProblem& p, const Device&, const Config&) const override {
    return make_plan<ConvProblem>([p, g = conv_geometry(p)](const ConvArgs& a, void*, Stream) {
      with_conv_types(p, [&](auto from, auto to) {
        compute<typename decltype(from)::type, typename decltype(to)::type>(g, p.direction, conv_flop(p), a);
      });
    });
  }
};

}  // namespace cpu::conv

template const Engine<ConvProblem>& engine_object<ConvProblem, cpu::conv::Direct>();

}  // namespace minidnn
