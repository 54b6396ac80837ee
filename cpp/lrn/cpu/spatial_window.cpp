// SPDX-License-Identifier: Apache-2.0
// cpu.lrn.spatial_window: vectorised local contrast norm of dense tensors in the order NCHW or NHWC.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/lrn/cpu/spatial_window_kernel.h"
#include "cpp/lrn/lrn.h"
#include "cpp/simd/typed_kernels.h"

namespace minidnn {
namespace cpu::lrn {
namespace {

constexpr int64_t kGrain = 8192;  // the least number of elements that justifies waking another thread

const char* bytes(const void* p) { return static_cast<const char*>(p); }
char* bytes(void* p) { return static_cast<char*>(p); }

}  // namespace

// The backward function first computes dy s^-beta and the weight g of each element (see lrn_math.h), then sums the
// weights of each element's neighbours.
struct SpatialWindow final : Engine<LrnProblem> {
  std::string name() const override { return "cpu.lrn.spatial_window"; }
  std::string why_not(const LrnProblem& p, const Device&) const override { return why_not_spatial_window(p); }
  double estimate_us(const LrnProblem& p, const Device& d) const override {
    return roofline_us(local_norm_flop(p) / 2, local_norm_bytes(p), d, 0.3);
  }
  size_t workspace_bytes(const LrnProblem& p, const Device&, const Config&) const override {
    return 2 * local_norm_workspace(p);
  }
  std::unique_ptr<Plan<LrnProblem>> build(const LrnProblem& p, const Device&, const Config&) const override {
    const SpatialWindowKernels::Typed k = cpu::typed_kernels(spatial_window_kernels(), p.x.dtype);
    const LocalWindow w(p);
    const int64_t step = is_row_major(p.x) ? 1 : p.x.shape[1], row = p.x.shape[p.x.rank - 1] * step;
    const int64_t height = p.x.rank == 4 ? p.x.shape[2] : 1, rows = p.x.numel() / row;
    const int64_t most = cpu::work_size(kSpatialChunk), chunks = ceil_div(row, most),
                  item = int64_t(itemsize(p.x.dtype));
    const double elements = window_elements(p);
    // Calls body(chunk, row) for each chunk of each row, where `row` is the offset of the row.
    auto each = [=](const LrnArgs& a, int64_t behind, int64_t ahead, auto body) {
      cpu::parallel_for(rows * chunks, cpu::work_size(kGrain) / std::min(row, most) + 1,
                        [&](int64_t begin, int64_t end) {
                          for (int64_t i = begin; i < end; ++i) {
                            const int64_t at = i / chunks, first = i % chunks * most, y = at % height;
                            body(SpatialChunk{first, std::min(first + most, row), row, step, std::min(behind, y),
                                              std::min(ahead, height - 1 - y), behind, ahead, float(a.alpha / elements),
                                              float(a.beta), float(a.k)},
                                 at * row);
                          }
                        });
    };
    if (!p.backward)
      return make_plan<LrnProblem>([=](const LrnArgs& a, void*, Stream) {
        each(a, w.behind, w.ahead, [&](const SpatialChunk& chunk, int64_t at) {
          k.forward(chunk, bytes(a.x) + at * item, a.means ? bytes(a.means) + at * item : nullptr,
                    bytes(a.out) + at * item);
        });
      });
    return make_plan<LrnProblem>([=, count = p.x.numel()](const LrnArgs& a, void* workspace, Stream) {
      float* const g = static_cast<float*>(workspace);
      float* const own = g + count;
      each(a, w.behind, w.ahead, [&](const SpatialChunk& chunk, int64_t at) {
        k.weights(chunk, bytes(a.x) + at * item, a.means ? bytes(a.means) + at * item : nullptr,
                  bytes(a.dy) + at * item, g + at, own + at, a.dmeans ? bytes(a.dmeans) + at * item : nullptr);
      });
      each(a, w.ahead, w.behind, [&](const SpatialChunk& chunk, int64_t at) {
        k.gradients(chunk, bytes(a.x) + at * item, a.means ? bytes(a.means) + at * item : nullptr, g + at, own + at,
                    bytes(a.out) + at * item);
      });
    });
  }
};

}  // namespace cpu::lrn

template const Engine<LrnProblem>& engine_object<LrnProblem, cpu::lrn::SpatialWindow>();

}  // namespace minidnn
