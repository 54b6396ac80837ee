// SPDX-License-Identifier: Apache-2.0
// cpu.loss.strips: cross-entropy of a strip of rows at a time, with any axis of classes and any strides. Each lane of a
// vector computes one row (strips_isa.cpp). Threads share the strips.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/loss/cpu/strips_kernel.h"
#include "cpp/loss/cpu/targets.h"
#include "cpp/loss/loss.h"
#include "cpp/simd/non_temporal.h"

namespace minidnn {
namespace cpu::loss {
namespace {

constexpr int64_t kGrain = 8192;  // the least number of elements that one thread processes
// The classes of a strip are read twice. They should stay in a second-level cache of 512 KB.
constexpr int64_t kStripBytes = 256 << 10;
// Widths are multiples of this number, so that no loop needs a remainder.
constexpr int64_t kWholeRows = 32;

TensorDesc without_axis(const TensorDesc& d, int64_t axis) {
  TensorDesc rows{.dtype = d.dtype, .rank = d.rank - 1};
  for (int64_t i = 0; i < rows.rank; ++i) {
    rows.shape[i] = d.shape[i + (i >= axis)];
    rows.stride[i] = d.stride[i + (i >= axis)];
  }
  return rows;
}

LossTiling tiling_of(const LossProblem& p) {
  const bool backward = p.direction == LossDirection::backward;
  const TensorDesc& dx = backward ? p.dx : p.x;
  LossTiling t{.run = 1, .x_step = 1, .dx_step = 1};
  t.x_rows = without_axis(p.x, p.axis);
  t.dx_rows = without_axis(dx, p.axis);
  for (int64_t i = t.x_rows.rank - 1; i >= 0; --i) {
    const int64_t size = t.x_rows.shape[i], x_step = t.x_rows.stride[i], dx_step = t.dx_rows.stride[i];
    if (size <= 1) continue;
    if (t.run == 1) {
      t.x_step = x_step;
      t.dx_step = dx_step;
    } else if (x_step != t.run * t.x_step || dx_step != t.run * t.dx_step) {
      break;
    }
    t.run *= size;
  }
  const bool gathered = t.x_step != 1 || t.dx_step != 1;
  const int64_t fitting = cpu::work_size(kStripBytes) / (p.cols() * itemsize(p.x.dtype)) / kWholeRows * kWholeRows;
  const int64_t widest = gathered ? kGatheredRows : std::clamp(fitting, 2 * kWholeRows, kWidestLossStrip);
  t.width = round_up(ceil_div(t.run, ceil_div(t.run, widest)), kWholeRows);  // all strips get nearly the same width
  t.strips = ceil_div(t.run, t.width);
  t.items = p.rows() / t.run * t.strips;
  t.row_major_target = is_row_major(p.target);
  t.non_temporal = backward && cpu::non_temporal(double(p.dx.numel() * itemsize(p.dx.dtype)));
  return t;
}

}  // namespace

struct Strips final : Engine<LossProblem> {
  std::string name() const override { return "cpu.loss.strips"; }
  std::string why_not(const LossProblem& p, const Device&) const override {
    if (p.cols() > INT32_MAX) return cat("supports at most ", INT32_MAX, " classes; got ", p.cols());
    return "";
  }
  // Loops compute whole vectors, so the estimate counts the rows that a strip could have. Each row costs as much as 8
  // classes besides. Measured on 2 Zen 4 cores (2026-11): 2 times the rates of the device where rows are adjacent. Where
  // they are gathered, the backward function reaches half of that, and the forward function three quarters or, of 16
  // bits, seven eighths.
  double estimate_us(const LossProblem& p, const Device& d) const override {
    const LossTiling t = tiling_of(p);
    const double threads_at_work = std::clamp(double(t.items) / std::max(d.sm_count, 1), 0.01, 1.0);
    const double useful =
        double(p.rows()) / double(max_of<int64_t>(t.items, 1) * t.width) * double(p.cols()) / double(p.cols() + 8);
    const double narrow = p.x.dtype == DType::float64 ? 0.4 : 1;
    const bool gathers = t.x_step != 1 || t.dx_step != 1, forward = p.direction == LossDirection::forward;
    const double gathered = !gathers ? 1 : !forward ? 0.5 : itemsize(p.x.dtype) == 2 ? 0.875 : 0.75;
    return roofline_us(loss_flop(p), loss_bytes(p), d, 2 * useful * narrow * gathered * threads_at_work);
  }
  size_t workspace_bytes(const LossProblem& p, const Device&, const Config&) const override {
    if (p.direction == LossDirection::backward || p.reduction == LossReduction::none) return 0;
    return size_t(tiling_of(p).items * itemsize(p.lse.dtype));  // the sum of the losses of each strip
  }
  std::unique_ptr<Plan<LossProblem>> build(const LossProblem& p, const Device&, const Config&) const override {
    const LossForwardStrips forward = loss_strip_kernels().forward[int64_t(p.x.dtype)];
    const LossBackwardStrips backward = loss_strip_kernels().backward[int64_t(p.x.dtype)];
    return make_plan<LossProblem>([=, t = tiling_of(p)](const LossArgs& a, void* workspace, Stream) {
      const int64_t grain = ceil_div(cpu::work_size(kGrain), p.cols() * t.width);
      if (p.direction == LossDirection::forward) {
        const bool reduced = p.reduction != LossReduction::none;
        void* const sums = reduced ? workspace : nullptr;
        cpu::parallel_for(t.items, grain, [&](int64_t begin, int64_t end) { forward(p, a, t, sums, begin, end); });
        if (reduced) write_total(p, a, sums, t.items);
        return;
      }
      RowGradient scaled;
      const void* const gradient = row_gradient(p, a, scaled);
      cpu::parallel_for(t.items, grain, [&](int64_t begin, int64_t end) { backward(p, a, t, gradient, begin, end); });
    });
  }
};

}  // namespace cpu::loss

template const Engine<LossProblem>& engine_object<LossProblem, cpu::loss::Strips>();

}  // namespace minidnn
