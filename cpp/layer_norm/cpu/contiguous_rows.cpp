// SPDX-License-Identifier: Apache-2.0
// cpu.layer_norm.contiguous_rows: vectorised layer and RMS norm of contiguous rows, and group and instance norm of
// NCHW. For dscale and dbias, the rows are divided into sections, which have their own sums. Sections depend on the
// shape alone, and their sums are added in a fixed order, so results do not depend on the number of threads.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/layer_norm/cpu/contiguous_rows_kernel.h"
#include "cpp/layer_norm/layer_norm.h"
#include "cpp/simd/channel_norm.h"
#include "cpp/simd/typed_kernels.h"

namespace minidnn {
namespace cpu::layer_norm {
namespace {

constexpr int64_t kGrain = 16384;  // the least number of elements that one thread processes
// The least number of elements of a section (rows with their own sums), so that adding up all sections takes little
// time.
constexpr int64_t kSection = 65536;
// The largest number of pairs of sums, for dscale and dbias. They take 32 MB in float32.
constexpr int64_t kMostSections = 64, kMostSums = 4 << 20;

int64_t sections_of(const LayerNormProblem& p, const LayerNormSpaces& s) {
  return p.backward ? std::clamp<int64_t>(std::min(p.x.numel() / cpu::work_size(kSection), kMostSums / s.members.size),
                                          1, std::min(kMostSections, std::max<int64_t>(s.rows.size, 1)))
                    : 0;
}

// What a plane (H x W of one channel) takes besides its elements, in us. Measured on a Zen 4 core (2026-11).
constexpr double kPlaneForwardUs = 0.004, kPlaneBackwardUs = 0.013;
// The shortest row, in bytes, that is written with non-temporal stores. Such stores are slow for a cache line that two
// rows share, which is frequent if rows are short.
constexpr int64_t kLongRow = 4096;

std::string why_no_groups(const LayerNormProblem& p) {
  const bool equal_strides = same_strides(p.x, p.out) && (!p.backward || same_strides(p.x, p.dy));
  if (!is_dense(p.x) || !equal_strides || !channels_in_order(p.x))
    return "needs dense tensors with equal strides in the order NCHW";
  if (p.x.numel() == 0) return "x is empty";
  return "";
}

// The offsets of the first element of row i in x, dy and out, and the index of its statistics.
NormOffsets consecutive_row(int64_t i, int64_t n) { return {.x = i * n, .dy = i * n, .out = i * n, .other = i}; }

// Returns the operands of a row. Acc is the type of parameters and statistics, and `item` the size of an element in
// bytes. `scale` and `bias` are those of the row's first element, or of its first channel in group norm.
template <class Acc>
LayerNormKernels::Backward backward_row(const LayerNormArgs& a, const NormOffsets& at, int64_t item,
                                        const void* scale) {
  return {.x = static_cast<const char*>(a.x) + at.x * item,
          .dy = static_cast<const char*>(a.dy) + at.dy * item,
          .scale = scale,
          .mean = a.mean ? double(static_cast<const Acc*>(a.mean)[at.other]) : 0.,
          .inv_std = double(static_cast<const Acc*>(a.inv_std)[at.other]),
          .dx = static_cast<char*>(a.out) + at.out * item};
}
template <class Acc>
LayerNormKernels::Forward forward_row(const LayerNormArgs& a, const NormOffsets& at, int64_t item, const void* scale,
                                      const void* bias) {
  return {.x = static_cast<const char*>(a.x) + at.x * item,
          .scale = scale,
          .bias = bias,
          .eps = a.eps,
          .y = static_cast<char*>(a.out) + at.out * item,
          .mean = a.mean ? static_cast<Acc*>(a.mean) + at.other : nullptr,
          .inv_std = static_cast<Acc*>(a.inv_std) + at.other};
}

template <class Acc> std::unique_ptr<Plan<LayerNormProblem>> rows_plan(const LayerNormProblem& p) {
  const LayerNormSpaces s = row_norm_spaces(p);
  const LayerNormKernels::Typed k = cpu::typed_kernels(layer_norm_kernels(), p.x.dtype);
  const int64_t rows = s.rows.size, n = s.members.size, item = int64_t(itemsize(p.x.dtype));
  const int64_t sections = sections_of(p, s);
  if (!p.backward)
    return make_plan<LayerNormProblem>([=](const LayerNormArgs& a, void*, Stream) {
      cpu::parallel_for(rows, cpu::work_size(kGrain) / n + 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          k.forward(forward_row<Acc>(a, s.rows.offsets_of(i), item, a.scale, a.bias), n);
      });
    });
  return make_plan<LayerNormProblem>([=](const LayerNormArgs& a, void* workspace, Stream) {
    Acc* const sums = static_cast<Acc*>(workspace);
    cpu::parallel_for(sections, 1, [&](int64_t begin, int64_t end) {
      for (int64_t section = begin; section < end; ++section) {
        Acc* const of_section = sums + section * 2 * n;
        std::fill_n(of_section, 2 * n, Acc(0));
        for (int64_t i = rows * section / sections; i < rows * (section + 1) / sections; ++i)
          k.backward(backward_row<Acc>(a, s.rows.offsets_of(i), item, a.scale), n, of_section, a.dbias != nullptr);
      }
    });
    // Adds up the sums of all sections of rows. The inner loop covers kColumns elements, so that it reads contiguous
    // memory.
    auto join = [&](const Acc* from, void* to, int64_t begin, int64_t end) {
      constexpr int64_t kColumns = 64;
      for (int64_t first = begin, count; first < end; first += count) {
        count = std::min(kColumns, end - first);
        double sum[kColumns]{};
        for (int64_t section = 0; section < sections; ++section)
          for (int64_t j = 0; j < count; ++j) sum[j] += double(from[section * 2 * n + first + j]);
        for (int64_t j = 0; j < count; ++j) static_cast<Acc*>(to)[first + j] = Acc(sum[j]);
      }
    };
    cpu::parallel_for(n, cpu::work_size(kGrain) / sections + 1, [&](int64_t begin, int64_t end) {
      join(sums, a.dscale, begin, end);
      if (a.dbias) join(sums + n, a.dbias, begin, end);
    });
  });
}

template <class Acc> std::unique_ptr<Plan<LayerNormProblem>> groups_plan(const LayerNormProblem& p) {
  const LayerNormKernels::Typed k = cpu::typed_kernels(layer_norm_kernels(), p.x.dtype);
  const int64_t samples = p.x.shape[0], all = p.x.shape[1], channels = all / p.groups, plane = plane_of(p.x);
  const int64_t rows = samples * p.groups, n = channels * plane, item = int64_t(itemsize(p.x.dtype));
  auto of_row = [groups = p.groups, channels](const void* parameter, int64_t row) {
    const Acc* all = static_cast<const Acc*>(parameter);
    return all ? all + row % groups * channels : nullptr;
  };
  const bool large = rows * n * item > cpu::work_size(kNormSummedBytes) && n * item >= cpu::work_size(kLongRow);
  const NormPlanes planes{channels, plane, large};
  if (!p.backward)
    return make_plan<LayerNormProblem>([=](const LayerNormArgs& a, void*, Stream) {
      cpu::parallel_for(rows, cpu::work_size(kGrain) / n + 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          k.forward_planes(forward_row<Acc>(a, consecutive_row(i, n), item, of_row(a.scale, i), of_row(a.bias, i)),
                           planes);
      });
    });
  return make_plan<LayerNormProblem>([=](const LayerNormArgs& a, void* workspace, Stream) {
    // The sums for dscale and dbias, [samples][channels][2].
    Acc* const sums = static_cast<Acc*>(workspace);
    cpu::parallel_for(rows, cpu::work_size(kGrain) / n + 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        k.backward_planes(backward_row<Acc>(a, consecutive_row(i, n), item, of_row(a.scale, i)), planes,
                          sums + i * channels * 2);
    });
    sum_parameter_gradients(sums, samples, all, a);
  });
}

}  // namespace

struct ContiguousRows final : Engine<LayerNormProblem> {
  std::string name() const override { return "cpu.layer_norm.contiguous_rows"; }
  std::string why_not(const LayerNormProblem& p, const Device&) const override {
    if (p.kind == RowNorm::group) return why_no_groups(p);
    const LayerNormSpaces s = row_norm_spaces(p);
    const NormOffsets step = s.members.span_step();
    const bool contiguous = step.x == 1 && step.dy == 1 && step.out == 1 && step.parameter == 1;
    if (s.members.size > 1 && (s.members.rank > 1 || !contiguous)) return "needs contiguous rows in all tensors";
    return "";
  }
  double estimate_us(const LayerNormProblem& p, const Device& d) const override {
    const double planes = p.kind == RowNorm::group ? double(p.x.shape[0] * p.x.shape[1]) : 0;
    const double plane_us = p.backward ? kPlaneBackwardUs : kPlaneForwardUs;
    return roofline_us(row_norm_flop(p) / 8, row_norm_bytes(p), d, 0.7) + planes * plane_us / std::max(d.sm_count, 1);
  }
  size_t workspace_bytes(const LayerNormProblem& p, const Device&, const Config&) const override {
    if (!p.backward) return 0;
    const size_t pair = 2 * itemsize(sum_dtype(p.x.dtype));
    if (p.kind == RowNorm::group) return size_t(p.x.shape[0] * p.x.shape[1]) * pair;
    const LayerNormSpaces s = row_norm_spaces(p);
    return size_t(sections_of(p, s) * s.members.size) * pair;
  }
  std::unique_ptr<Plan<LayerNormProblem>> build(const LayerNormProblem& p, const Device&,
                                                const Config&) const override {
    if (p.kind == RowNorm::group) return p.x.dtype == DType::float64 ? groups_plan<double>(p) : groups_plan<float>(p);
    return p.x.dtype == DType::float64 ? rows_plan<double>(p) : rows_plan<float>(p);
  }
};

}  // namespace cpu::layer_norm

NormStatistics row_statistics(const float* x, int64_t n, double eps, bool centered) {
  return layer_norm_kernels().statistics(x, n, float(eps), centered);
}
void normalize_span(const float* x, const NormStatistics& s, const float* scale, const float* bias, float* y,
                    int64_t n) {
  layer_norm_kernels().normalize(x, s, scale, bias, y, n);
}

template const Engine<LayerNormProblem>& engine_object<LayerNormProblem, cpu::layer_norm::ContiguousRows>();

}  // namespace minidnn
