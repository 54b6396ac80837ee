// SPDX-License-Identifier: Apache-2.0
// cpu.norm.across and cpu.norm.around: vectorised local response norm and local contrast norm of dense tensors,
// channels first or last.
#include "cpp/core/thread_pool.h"
#include "cpp/core/work_size.h"
#include "cpp/norm/local_norm.h"
#include "cpp/norm/local_norm_kernels.h"
#include "cpp/norm/row_norm.h"
#include "cpp/simd/typed_kernels.h"

namespace minidnn {
namespace {

constexpr int64_t kGrain = 8192;  // elements that justify waking one more thread

const char* bytes(const void* p) { return static_cast<const char*>(p); }
char* bytes(void* p) { return static_cast<char*>(p); }

struct Across final : Engine<LocalNormProblem> {
  std::string name() const override { return "cpu.norm.across"; }
  std::string why_not(const LocalNormProblem& p, const Device&) const override {
    if (p.kind != LocalNorm::lrn) return "supports lrn only";
    if (p.x.dtype == DType::float64) return "float64 is not supported";
    if (p.size > kMostAcross) return cat("supports windows of at most ", kMostAcross, " channels; got ", p.size);
    return why_not_across(p);
  }
  double estimate_us(const LocalNormProblem& p, const Device& d) const override {
    return roofline_us(local_norm_flop(p) / 4, local_norm_bytes(p), d, 0.5);
  }
  std::unique_ptr<Plan<LocalNormProblem>> build(const LocalNormProblem& p, const Device&,
                                                const Config&) const override {
    const LocalNormKernels::Typed k = cpu::typed_kernels(local_norm_kernels(), p.x.dtype);
    const LocalWindow w(p);
    const int64_t samples = p.x.shape[0], channels = p.x.shape[1], plane = plane_of(p.x);
    const int64_t item = int64_t(itemsize(p.x.dtype)), size = p.size, grain = cpu::work_size(kGrain) / channels + 1;
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
    const int64_t most = cpu::work_size(kAcrossRun), runs = ceil_div(plane, most);
    return make_plan<LocalNormProblem>([=](const LocalNormArgs& a, void*, Stream) {
      const AcrossChannels c = across_of(a);
      cpu::parallel_for(samples * runs, grain / most + 1, [&](int64_t begin, int64_t end) {
        for (int64_t run = begin; run < end; ++run) {
          const int64_t first = run % runs * most, n = std::min(most, plane - first);
          const int64_t at = (run / runs * channels * plane + first) * item;
          if (backward) k.backward_run(c, bytes(a.x) + at, bytes(a.dy) + at, plane, n, bytes(a.out) + at);
          else k.forward_run(c, bytes(a.x) + at, plane, n, bytes(a.out) + at);
        }
      });
    });
  }
};

// Backward has two passes over all elements: the first computes g and dy s^-beta, the second adds up g of the
// neighbours.
struct Around final : Engine<LocalNormProblem> {
  std::string name() const override { return "cpu.norm.around"; }
  std::string why_not(const LocalNormProblem& p, const Device&) const override { return why_not_around(p); }
  double estimate_us(const LocalNormProblem& p, const Device& d) const override {
    return roofline_us(local_norm_flop(p) / 2, local_norm_bytes(p), d, 0.3);
  }
  size_t workspace_bytes(const LocalNormProblem& p, const Device&, const Config&) const override {
    return 2 * local_norm_workspace(p);
  }
  std::unique_ptr<Plan<LocalNormProblem>> build(const LocalNormProblem& p, const Device&,
                                                const Config&) const override {
    const LocalNormKernels::Typed k = cpu::typed_kernels(local_norm_kernels(), p.x.dtype);
    const LocalWindow w(p);
    const int64_t step = is_row_major(p.x) ? 1 : p.x.shape[1], row = p.x.shape[p.x.rank - 1] * step;
    const int64_t height = p.x.rank == 4 ? p.x.shape[2] : 1, rows = p.x.numel() / row;
    const int64_t most = cpu::work_size(kAroundPiece), pieces = ceil_div(row, most),
                  item = int64_t(itemsize(p.x.dtype));
    const double elements = window_elements(p);
    // Calls body(piece, row) for all chunks of all rows: `row` is the offset of the row's first element, and windows
    // reach `behind` and `ahead` positions in each dimension.
    auto each = [=](const LocalNormArgs& a, int64_t behind, int64_t ahead, auto body) {
      cpu::parallel_for(rows * pieces, cpu::work_size(kGrain) / std::min(row, most) + 1,
                        [&](int64_t begin, int64_t end) {
                          for (int64_t i = begin; i < end; ++i) {
                            const int64_t at = i / pieces, first = i % pieces * most, y = at % height;
                            body(AroundPiece{first, std::min(first + most, row), row, step, std::min(behind, y),
                                             std::min(ahead, height - 1 - y), behind, ahead, float(a.alpha / elements),
                                             float(a.beta), float(a.k)},
                                 at * row);
                          }
                        });
    };
    if (!p.backward)
      return make_plan<LocalNormProblem>([=](const LocalNormArgs& a, void*, Stream) {
        each(a, w.behind, w.ahead, [&](const AroundPiece& piece, int64_t at) {
          k.around(piece, bytes(a.x) + at * item, a.means ? bytes(a.means) + at * item : nullptr,
                   bytes(a.out) + at * item);
        });
      });
    return make_plan<LocalNormProblem>([=, count = p.x.numel()](const LocalNormArgs& a, void* workspace, Stream) {
      float* const g = static_cast<float*>(workspace);
      float* const own = g + count;
      each(a, w.behind, w.ahead, [&](const AroundPiece& piece, int64_t at) {
        k.around_weights(piece, bytes(a.x) + at * item, a.means ? bytes(a.means) + at * item : nullptr,
                         bytes(a.dy) + at * item, g + at, own + at, a.dmeans ? bytes(a.dmeans) + at * item : nullptr);
      });
      each(a, w.ahead, w.behind, [&](const AroundPiece& piece, int64_t at) {
        k.around_gradient(piece, bytes(a.x) + at * item, a.means ? bytes(a.means) + at * item : nullptr, g + at,
                          own + at, bytes(a.out) + at * item);
      });
    });
  }
};

}  // namespace

std::string why_not_across(const LocalNormProblem& p) {
  const bool alike = same_strides(p.x, p.out) && (!p.backward || same_strides(p.x, p.dy));
  if (!alike || !is_dense(p.x) || !(channels_in_order(p.x) || channels_innermost(p.x)))
    return "needs dense tensors with equal strides, channels first or last";
  return "";
}

std::string why_not_around(const LocalNormProblem& p) {
  if (p.kind != LocalNorm::lcn) return "supports lcn only";
  if (p.x.dtype == DType::float64) return "float64 is not supported";
  if (p.x.rank > 4) return cat("supports one or two spatial dimensions only; got ", p.x.rank - 2);
  auto like_x = [&](const TensorDesc& t) { return !t.rank || same_strides(p.x, t); };
  const bool last = same_strides(p.x, dense(p.x.dtype, shape_of(p.x), Layout::channels_last, "norm: x"));
  if (!(last || is_row_major(p.x)) || !like_x(p.out) || !like_x(p.dy) || !like_x(p.means) || !like_x(p.dmeans))
    return "needs dense tensors with equal strides, channels first or last";
  return "";
}

const Engine<LocalNormProblem>& local_norm_around() {
  static const Around engine;
  return engine;
}
const Engine<LocalNormProblem>& local_norm_across() {
  static const Across engine;
  return engine;
}

}  // namespace minidnn
