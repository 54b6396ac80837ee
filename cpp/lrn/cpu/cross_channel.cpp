// SPDX-License-Identifier: Apache-2.0
// cpu.lrn.cross_channel: vectorised local response norm of dense tensors in the order NCHW or NHWC.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/lrn/cpu/cross_channel_kernel.h"
#include "cpp/lrn/lrn.h"
#include "cpp/simd/typed_kernels.h"

namespace minidnn {
namespace cpu::lrn {
namespace {

constexpr int64_t kGrain = 8192;  // the least number of elements that justifies waking another thread

const char* bytes(const void* p) { return static_cast<const char*>(p); }
char* bytes(void* p) { return static_cast<char*>(p); }

}  // namespace

struct CrossChannel final : Engine<LrnProblem> {
  std::string name() const override { return "cpu.lrn.cross_channel"; }
  std::string why_not(const LrnProblem& p, const Device&) const override {
    if (p.kind != LocalNorm::lrn) return "supports lrn only";
    if (p.x.dtype == DType::float64) return "float64 is not supported";
    if (p.size > kMaxChannelWindow)
      return cat("supports windows of at most ", kMaxChannelWindow, " channels; got ", p.size);
    return why_not_cross_channel(p);
  }
  double estimate_us(const LrnProblem& p, const Device& d) const override {
    return roofline_us(local_norm_flop(p) / 4, local_norm_bytes(p), d, 0.5);
  }
  std::unique_ptr<Plan<LrnProblem>> build(const LrnProblem& p, const Device&, const Config&) const override {
    const CrossChannelKernels::Typed k = cpu::typed_kernels(cross_channel_kernels(), p.x.dtype);
    const LocalWindow w(p);
    const int64_t samples = p.x.shape[0], channels = p.x.shape[1], plane = plane_of(p.x);
    const int64_t item = int64_t(itemsize(p.x.dtype)), size = p.size, grain = cpu::work_size(kGrain) / channels + 1;
    const bool backward = p.backward != 0;
    auto window_of = [=](const LrnArgs& a) {
      return ChannelWindow{channels, w.behind, w.ahead, float(a.alpha / double(size)), float(a.beta), float(a.k)};
    };
    if (!channels_in_order(p.x))
      return make_plan<LrnProblem>([=](const LrnArgs& a, void*, Stream) {
        const ChannelWindow c = window_of(a);
        cpu::parallel_for(samples * plane, grain, [&](int64_t begin, int64_t end) {
          const int64_t at = begin * channels * item;
          if (backward) k.backward_channels(c, bytes(a.x) + at, bytes(a.dy) + at, end - begin, bytes(a.out) + at);
          else k.forward_channels(c, bytes(a.x) + at, end - begin, bytes(a.out) + at);
        });
      });
    const int64_t most = cpu::work_size(kChannelSpan), spans = ceil_div(plane, most);
    return make_plan<LrnProblem>([=](const LrnArgs& a, void*, Stream) {
      const ChannelWindow c = window_of(a);
      cpu::parallel_for(samples * spans, grain / most + 1, [&](int64_t begin, int64_t end) {
        for (int64_t span = begin; span < end; ++span) {
          const int64_t first = span % spans * most, n = std::min(most, plane - first);
          const int64_t at = (span / spans * channels * plane + first) * item;
          if (backward) k.backward_planes(c, bytes(a.x) + at, bytes(a.dy) + at, plane, n, bytes(a.out) + at);
          else k.forward_planes(c, bytes(a.x) + at, plane, n, bytes(a.out) + at);
        }
      });
    });
  }
};

}  // namespace cpu::lrn

template const Engine<LrnProblem>& engine_object<LrnProblem, cpu::lrn::CrossChannel>();

}  // namespace minidnn
