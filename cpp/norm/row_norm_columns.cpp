// SPDX-License-Identifier: Apache-2.0
// cpu.norm.columns: group and instance norm of contiguous channels (NHWC), with the loops of cpu.norm.streamed. The
// pixels of a sample are divided into sections, whose sums per channel are joined per sample and then per group.
// Threads share the samples, or the sections of one sample at a time if samples are few. Results depend neither on that
// choice nor on the number of threads.
#include "cpp/core/thread_pool.h"
#include "cpp/core/work_size.h"
#include "cpp/norm/norm_kernels.h"
#include "cpp/norm/row_norm.h"
#include "cpp/simd/typed_kernels.h"

namespace minidnn {
namespace {

constexpr int64_t kGrain = 16384;       // elements that justify waking one more thread
constexpr int64_t kSection = 64 << 10;  // elements of a section

struct Cut {
  int64_t samples, plane, channels, groups, members;  // members: channels of a group
  int64_t section, sections;                          // pixels of a section; sections of a sample
  bool backward;

  explicit Cut(const RowNormProblem& p)
      : samples(p.x.shape[0]),
        plane(plane_of(p.x)),
        channels(p.x.shape[1]),
        groups(p.groups),
        members(channels / groups),
        backward(p.backward != 0) {
    section = std::clamp<int64_t>(max_of(cpu::work_size(kSection) / channels, plane / 16), cpu::work_size(64), 1024);
    sections = ceil_div(plane, section);
  }
  // Scratch of one sample, in floats: two float64 sums and four float32 lines per channel, then the sums of sections.
  int64_t room() const { return channels * (4 + 4 + 3 * sections); }
  // Backward: the two sums per channel of all samples, in floats.
  int64_t kept() const { return backward ? 2 * samples * channels : 0; }
};

struct Sample {
  const Cut& c;
  const NormKernels::Typed& k;
  int64_t item;  // bytes
  const RowNormArgs& a;
  int64_t at;
  double *first, *second;
  float *mean, *factor, *offset, *slope, *results;

  Sample(const Cut& cut, const NormKernels::Typed& kernels, int64_t bytes, const RowNormArgs& args, int64_t sample,
         float* room)
      : c(cut), k(kernels), item(bytes), a(args), at(sample) {
    first = reinterpret_cast<double*>(room), second = first + c.channels;
    mean = room + 4 * c.channels, factor = mean + c.channels, offset = factor + c.channels, slope = offset + c.channels;
    results = slope + c.channels;
    std::fill_n(first, 2 * c.channels, 0.0);
  }

  NormPart part(int64_t section) const {
    const int64_t row = section * c.section, rows = min_of(c.section, c.plane - row), width = c.channels;
    auto from = [&](const void* base) { return static_cast<const char*>(base) + (at * c.plane + row) * width * item; };
    const NormPart::Steps steps{width, 1};
    return {from(a.x), from(c.backward ? a.dy : a.x), const_cast<char*>(from(a.out)), rows, width, 1, steps, steps,
            steps};
  }
  // Calls sum(part, results) for each section, then join(results, pixels) in order, then map(part) for each section.
  template <class Sum, class Join, class Map> void passes(int kinds, Sum sum, Join join, Map map) const {
    const int64_t step = kinds * c.channels, grain = cpu::work_size(kGrain) / (c.section * c.channels) + 1;
    cpu::parallel_for(c.sections, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sum(part(i), results + i * step);
    });
    for (int64_t i = 0; i < c.sections; ++i) join(results + i * step, double(part(i).rows));
    lines();
    // From the last section to the first: the cache still holds the last sections.
    cpu::parallel_for(c.sections, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) map(part(c.sections - 1 - i));
    });
  }
  void lines() const { c.backward ? backward_lines() : forward_lines(); }
  float parameter(const void* p, int64_t channel, float none) const {
    return p ? static_cast<const float*>(p)[channel] : none;
  }

  void forward(bool stream) const {
    double joined = 0;
    passes(
        3, k.moments,
        [&](const float* of, double pixels) {
          norm_kernels().join_moments(c.channels, of, c.channels, 1, pixels, joined, first, second);
          joined += pixels;
        },
        [&](const NormPart& p) { k.forward[0][0](p, {mean, factor, offset, nullptr}, stream); });
  }
  void forward_lines() const {
    for (int64_t group = 0; group < c.groups; ++group) {
      const int64_t begin = group * c.members, end = begin + c.members;
      double all = 0, squares = 0;
      for (int64_t i = begin; i < end; ++i) all += first[i] - first[begin];
      all = first[begin] + all / double(c.members);
      for (int64_t i = begin; i < end; ++i)
        squares += second[i] + double(c.plane) * (first[i] - all) * (first[i] - all);
      const float center = float(all), rest = float(all - double(center));
      const float inv_std = 1 / std::sqrt(float(squares / double(c.plane * c.members)) + float(a.eps));
      static_cast<float*>(a.mean)[at * c.groups + group] = center;
      static_cast<float*>(a.inv_std)[at * c.groups + group] = inv_std;
      for (int64_t i = begin; i < end; ++i) {
        mean[i] = center, factor[i] = inv_std * parameter(a.scale, i, 1);
        offset[i] = parameter(a.bias, i, 0) - rest * factor[i];
      }
    }
  }

  // Writes the sums of dy x_hat and of dy of each channel to `sums`.
  void backward(bool stream, float* sums) const {
    for (int64_t i = 0; i < c.channels; ++i) mean[i] = static_cast<const float*>(a.mean)[at * c.groups + i / c.members];
    passes(
        2, [&](const NormPart& p, float* to) { k.gradients(p, mean, to); },
        [&](const float* of, double) { norm_kernels().join_gradients(c.channels, of, c.channels, 1, first, second); },
        [&](const NormPart& p) { k.blend(p, {mean, factor, offset, slope}, stream); });
    for (int64_t i = 0; i < c.channels; ++i) {
      const double inv_std = static_cast<const float*>(a.inv_std)[at * c.groups + i / c.members];
      sums[2 * i] = float(second[i] * inv_std), sums[2 * i + 1] = float(first[i]);
    }
  }
  void backward_lines() const {
    const double n = double(c.plane * c.members);
    for (int64_t group = 0; group < c.groups; ++group) {
      const int64_t begin = group * c.members, end = begin + c.members;
      const double inv_std = static_cast<const float*>(a.inv_std)[at * c.groups + group];
      double of_dy = 0, of_products = 0;
      for (int64_t i = begin; i < end; ++i) {
        const double scale = parameter(a.scale, i, 1);
        of_dy += scale * first[i], of_products += scale * second[i];
      }
      for (int64_t i = begin; i < end; ++i) {
        slope[i] = float(inv_std) * parameter(a.scale, i, 1);
        offset[i] = float(-inv_std * of_dy / n);
        factor[i] = float(-inv_std * inv_std * inv_std * of_products / n);
      }
    }
  }
};

struct Columns final : Engine<RowNormProblem> {
  std::string name() const override { return "cpu.norm.columns"; }
  std::string why_not(const RowNormProblem& p, const Device&) const override {
    if (p.x.dtype == DType::float64) return "float64 is not supported";
    if (p.kind != RowNorm::group) return "supports group and instance norm only";
    const bool alike = same_strides(p.x, p.out) && (!p.backward || same_strides(p.x, p.dy));
    if (!is_dense(p.x) || !alike || !channels_innermost(p.x))
      return "needs dense tensors with equal strides and contiguous channels (NHWC)";
    if (p.x.numel() == 0) return "x is empty";
    if (p.x.shape[1] > kNormColumns) return cat("supports at most ", kNormColumns, " channels; got ", p.x.shape[1]);
    return "";
  }
  double estimate_us(const RowNormProblem& p, const Device& d) const override {
    return roofline_us(row_norm_flop(p) / 8, row_norm_bytes(p), d, 0.6);
  }
  size_t workspace_bytes(const RowNormProblem& p, const Device& d, const Config&) const override {
    const Cut c(p);
    return size_t(c.kept() + rooms(c, d) * c.room()) * sizeof(float);
  }
  std::unique_ptr<Plan<RowNormProblem>> build(const RowNormProblem& p, const Device& d, const Config&) const override {
    const NormKernels::Typed& k = cpu::typed_kernels(norm_kernels(), p.x.dtype);
    const int64_t item = int64_t(itemsize(p.x.dtype));
    const bool large = p.x.numel() * item > cpu::work_size(kNormSummedBytes);
    return make_plan<RowNormProblem>(
        [c = Cut(p), &k, item, large, rooms = rooms(Cut(p), d)](const RowNormArgs& a, void* workspace, Stream) {
          float* const sums = static_cast<float*>(workspace);  // [samples][channels][2]
          auto work = [&](int64_t i, int64_t room) {
            const Sample sample(c, k, item, a, i, sums + c.kept() + room * c.room());
            if (c.backward) sample.backward(large, sums + 2 * i * c.channels);
            else sample.forward(large);
          };
          if (rooms > 1) cpu::parallel_items(c.samples, work);
          else
            for (int64_t i = 0; i < c.samples; ++i) work(i, 0);
          if (c.backward) row_norm_join(sums, c.samples, c.channels, a);
        });
  }

 private:
  // The number of samples that are processed at the same time; each has its own scratch.
  static int64_t rooms(const Cut& c, const Device& d) {
    const bool enough = c.samples >= 4 * d.sm_count || c.samples % d.sm_count == 0;
    return enough && c.samples * c.channels * c.plane >= 2 * cpu::work_size(kGrain) ? d.sm_count : 1;
  }
};

}  // namespace

const Engine<RowNormProblem>& row_norm_columns() {
  static const Columns engine;
  return engine;
}

}  // namespace minidnn
