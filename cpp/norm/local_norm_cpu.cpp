// SPDX-License-Identifier: Apache-2.0
// cpu.norm.across: local response norm of dense tensors, channels first or last, in one pass by vectors.
#include "cpp/cpu/threads.h"
#include "cpp/norm/local_norm.h"
#include "cpp/norm/local_norm_kernels.h"
#include "cpp/norm/row_norm.h"

namespace minidnn {
namespace {

constexpr int64_t kGrain = 8192;  // elements a thread is worth waking for

struct Across final : Engine<LocalNormProblem> {
  std::string name() const override { return "cpu.norm.across"; }
  std::string why_not(const LocalNormProblem& p, const Device&) const override {
    if (p.kind != LocalNorm::lrn) return "has windows across channels, and not in space";
    if (p.x.dtype == DType::float64) return "computes in float32, and x is float64";
    if (p.size > kMostAcross) return cat("has windows of ", kMostAcross, " channels at most; got ", p.size);
    return why_not_across(p);
  }
  double estimate_us(const LocalNormProblem& p, const Device& d) const override {
    return roofline_us(local_norm_flop(p) / 4, local_norm_bytes(p), d, 0.5);
  }
  std::unique_ptr<Plan<LocalNormProblem>> build(const LocalNormProblem& p, const Device&,
                                                const Config&) const override {
    const LocalNormKernels& all = local_norm_kernels();
    const LocalNormKernels::Typed k = p.x.dtype == DType::float32    ? all.f32
                                      : p.x.dtype == DType::bfloat16 ? all.bf16
                                                                     : all.f16;
    const LocalWindow w(p);
    const int64_t samples = p.x.shape[0], channels = p.x.shape[1], plane = plane_of(p.x);
    const int64_t item = int64_t(itemsize(p.x.dtype)), size = p.size, grain = kGrain / channels + 1;
    const bool backward = p.backward != 0;
    auto across_of = [=](const LocalNormArgs& a) {
      return AcrossChannels{channels, w.behind, w.ahead, float(a.alpha / double(size)), float(a.beta), float(a.k)};
    };
    if (!channels_in_order(p.x))
      return make_plan<LocalNormProblem>([=](const LocalNormArgs& a, void*, Stream) {
        const AcrossChannels c = across_of(a);
        cpu::parallel_for(samples * plane, grain, [&](int64_t begin, int64_t end) {
          const int64_t at = begin * channels * item;
          if (backward) k.backward_rows(c, bytes(a.x) + at, bytes(a.dy) + at, end - begin, bytes(a.out) + at);
          else k.forward_rows(c, bytes(a.x) + at, end - begin, bytes(a.out) + at);
        });
      });
    const int64_t runs = ceil_div(plane, kAcrossRun);
    return make_plan<LocalNormProblem>([=](const LocalNormArgs& a, void*, Stream) {
      const AcrossChannels c = across_of(a);
      cpu::parallel_for(samples * runs, grain / kAcrossRun + 1, [&](int64_t begin, int64_t end) {
        for (int64_t run = begin; run < end; ++run) {
          const int64_t first = run % runs * kAcrossRun, n = std::min(kAcrossRun, plane - first);
          const int64_t at = (run / runs * channels * plane + first) * item;
          if (backward) k.backward_run(c, bytes(a.x) + at, bytes(a.dy) + at, plane, n, bytes(a.out) + at);
          else k.forward_run(c, bytes(a.x) + at, plane, n, bytes(a.out) + at);
        }
      });
    });
  }

 private:
  static const char* bytes(const void* p) { return static_cast<const char*>(p); }
  static char* bytes(void* p) { return static_cast<char*>(p); }
};

}  // namespace

std::string why_not_across(const LocalNormProblem& p) {
  const int64_t plane = plane_of(p.x), channels = p.x.shape[1];
  const bool alike = same_strides(p.x, p.out) && (!p.backward || same_strides(p.x, p.dy));
  // Dense, and channels_in_order, or channels innermost with positions behind each other in any order.
  const bool last = channels <= 1 || p.x.stride[1] == 1;
  const bool samples = p.x.shape[0] <= 1 || p.x.stride[0] == channels * plane;
  if (!alike || !is_dense(p.x) || !(channels_in_order(p.x) || (last && samples)))
    return "reads dense tensors, channels first or last, all alike";
  return "";
}

const Engine<LocalNormProblem>& local_norm_across() {
  static const Across engine;
  return engine;
}

}  // namespace minidnn
