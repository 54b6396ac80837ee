// SPDX-License-Identifier: Apache-2.0
// cpu.layer_norm.strided_axis: group and instance norm of contiguous channels (NHWC), with the loops of
// cpu.batch_norm.vectorized. The pixels of a sample are divided into sections, such as 1024 pixels. Sums of each
// channel in a section are added over the sections, then over the channels of a group. Threads share the samples, or
// the sections of one sample if there are few samples. Neither this choice nor the number of threads changes results.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/layer_norm/layer_norm.h"
#include "cpp/simd/channel_norm.h"

namespace minidnn {
namespace cpu::layer_norm {
namespace {

constexpr int64_t kGrain = 16384;       // the least number of elements that one thread processes
constexpr int64_t kSection = 64 << 10;  // the approximate number of elements that are summed at a time

struct Tiling {
  // `plane` is the number of pixels of a sample, and `members` the number of channels of a group.
  int64_t samples, plane, channels, groups, members;
  // The number of pixels per section, and of sections per sample.
  int64_t section, sections;
  bool backward;

  explicit Tiling(const LayerNormProblem& p)
      : samples(p.x.shape[0]),
        plane(plane_of(p.x)),
        channels(p.x.shape[1]),
        groups(p.groups),
        members(channels / groups),
        backward(p.backward != 0) {
    section = std::clamp<int64_t>(max_of(cpu::work_size(kSection) / channels, plane / 16), cpu::work_size(64), 1024);
    sections = ceil_div(plane, section);
  }
  // The scratch memory of one sample in numbers of type A: per channel two float64 sums, four coefficients, and three
  // sums per section.
  template <class A> int64_t scratch_numbers() const {
    return channels * (2 * int64_t(sizeof(double) / sizeof(A)) + 4 + 3 * sections);
  }
  // The sums of dy and of dy * x_hat for all samples and channels.
  int64_t gradient_numbers() const { return backward ? 2 * samples * channels : 0; }
};

// A is the type of sums and parameters: double for float64, else float.
template <class A> struct Sample {
  const Tiling& c;
  const ChannelNormLoops<A>& k;
  int64_t item;  // the size of an element in bytes
  const LayerNormArgs& a;
  int64_t at;
  double *first, *second;
  A *mean, *factor, *offset, *slope, *results;

  Sample(const Tiling& tiling, const ChannelNormLoops<A>& kernels, int64_t bytes, const LayerNormArgs& args,
         int64_t sample, A* scratch)
      : c(tiling), k(kernels), item(bytes), a(args), at(sample) {
    first = reinterpret_cast<double*>(scratch);
    second = first + c.channels;
    mean = reinterpret_cast<A*>(second + c.channels);
    factor = mean + c.channels;
    offset = factor + c.channels;
    slope = offset + c.channels;
    results = slope + c.channels;
    std::fill_n(first, 2 * c.channels, 0.0);
  }

  NormBlock block(int64_t section) const {
    const int64_t row = section * c.section, rows = min_of(c.section, c.plane - row), width = c.channels;
    auto from = [&](const void* base) { return static_cast<const char*>(base) + (at * c.plane + row) * width * item; };
    const NormBlock::Steps steps{width, 1};
    return {from(a.x), from(c.backward ? a.dy : a.x), const_cast<char*>(from(a.out)), rows, width, 1, steps, steps,
            steps};
  }
  // Computes one sample. sum(block, results) sums each section of pixels, join(results, pixels) adds these sums in
  // order, and map(block) writes the result.
  template <class Sum, class Join, class Map> void passes(int kinds, Sum sum, Join join, Map map) const {
    const int64_t step = kinds * c.channels, grain = cpu::work_size(kGrain) / (c.section * c.channels) + 1;
    cpu::parallel_for(c.sections, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sum(block(i), results + i * step);
    });
    for (int64_t i = 0; i < c.sections; ++i) join(results + i * step, double(block(i).rows));
    lines();
    // The result is written in reverse order, because the cache still holds the pixels that were summed last.
    cpu::parallel_for(c.sections, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) map(block(c.sections - 1 - i));
    });
  }
  void lines() const { c.backward ? backward_lines() : forward_lines(); }
  A parameter(const void* p, int64_t channel, A none) const { return p ? static_cast<const A*>(p)[channel] : none; }

  void forward(bool non_temporal) const {
    double joined = 0;
    passes(
        3, k.moments,
        [&](const A* of, double pixels) {
          k.join_moments(c.channels, of, c.channels, 1, pixels, joined, first, second);
          joined += pixels;
        },
        [&](const NormBlock& p) { k.forward[0][0](p, {mean, factor, offset, nullptr}, non_temporal); });
  }
  void forward_lines() const {
    for (int64_t group = 0; group < c.groups; ++group) {
      const int64_t begin = group * c.members, end = begin + c.members;
      double all = 0, squares = 0;
      for (int64_t i = begin; i < end; ++i) all += first[i] - first[begin];
      all = first[begin] + all / double(c.members);
      for (int64_t i = begin; i < end; ++i)
        squares += second[i] + double(c.plane) * (first[i] - all) * (first[i] - all);
      const A center = A(all), rest = A(all - double(center));
      const A inv_std = 1 / std::sqrt(A(squares / double(c.plane * c.members)) + A(a.eps));
      static_cast<A*>(a.mean)[at * c.groups + group] = center;
      static_cast<A*>(a.inv_std)[at * c.groups + group] = inv_std;
      for (int64_t i = begin; i < end; ++i) {
        mean[i] = center;
        factor[i] = inv_std * parameter(a.scale, i, 1);
        offset[i] = parameter(a.bias, i, 0) - rest * factor[i];
      }
    }
  }

  // Computes dx of one sample, and for each channel the sum of dy * x_hat and the sum of dy.
  void backward(bool non_temporal, A* sums) const {
    for (int64_t i = 0; i < c.channels; ++i) mean[i] = static_cast<const A*>(a.mean)[at * c.groups + i / c.members];
    passes(
        2, [&](const NormBlock& p, A* to) { k.gradients(p, mean, to); },
        [&](const A* of, double) { k.join_gradients(c.channels, of, c.channels, 1, first, second); },
        [&](const NormBlock& p) { k.blend(p, {mean, factor, offset, slope}, non_temporal); });
    for (int64_t i = 0; i < c.channels; ++i) {
      const double inv_std = static_cast<const A*>(a.inv_std)[at * c.groups + i / c.members];
      sums[2 * i] = A(second[i] * inv_std);
      sums[2 * i + 1] = A(first[i]);
    }
  }
  void backward_lines() const {
    const double n = double(c.plane * c.members);
    for (int64_t group = 0; group < c.groups; ++group) {
      const int64_t begin = group * c.members, end = begin + c.members;
      const double inv_std = static_cast<const A*>(a.inv_std)[at * c.groups + group];
      double of_dy = 0, of_products = 0;
      for (int64_t i = begin; i < end; ++i) {
        const double scale = parameter(a.scale, i, 1);
        of_dy += scale * first[i];
        of_products += scale * second[i];
      }
      for (int64_t i = begin; i < end; ++i) {
        slope[i] = A(inv_std) * parameter(a.scale, i, 1);
        offset[i] = A(-inv_std * of_dy / n);
        factor[i] = A(-inv_std * inv_std * inv_std * of_products / n);
      }
    }
  }
};

}  // namespace

struct StridedAxis final : Engine<LayerNormProblem> {
  std::string name() const override { return "cpu.layer_norm.strided_axis"; }
  std::string why_not(const LayerNormProblem& p, const Device&) const override {
    if (p.kind != RowNorm::group) return "supports group and instance norm only";
    const bool equal_strides = same_strides(p.x, p.out) && (!p.backward || same_strides(p.x, p.dy));
    if (!is_dense(p.x) || !equal_strides || !channels_innermost(p.x))
      return "needs dense tensors with equal strides and contiguous channels (NHWC)";
    if (p.x.numel() == 0) return "x is empty";
    if (p.x.shape[1] > kNormColumns) return cat("supports at most ", kNormColumns, " channels; got ", p.x.shape[1]);
    return "";
  }
  double estimate_us(const LayerNormProblem& p, const Device& d) const override {
    // Channels that do not fill vectors take more time, above all those of 16 bits, which are loaded one by one.
    const double channels = double(p.x.shape[1]), rest = double(p.x.shape[1] % 32);
    const double used = itemsize(p.x.dtype) == 2 ? channels / (channels + 3 * rest) : std::min(1., channels / 12);
    // What a channel of a sample takes besides its pixels, in us. Measured on a Zen 4 core (2026-11).
    constexpr double kChannelUs = 0.006;
    return roofline_us(row_norm_flop(p) / 8, row_norm_bytes(p), d, 0.6 * used) +
           double(p.x.shape[0]) * channels * kChannelUs / std::max(d.sm_count, 1);
  }
  size_t workspace_bytes(const LayerNormProblem& p, const Device& d, const Config&) const override {
    const Tiling c(p);
    const auto bytes = [&](auto a) {
      using A = decltype(a);
      return size_t(c.gradient_numbers() + concurrent_samples(c, d) * c.scratch_numbers<A>()) * sizeof(A);
    };
    return p.x.dtype == DType::float64 ? bytes(double()) : bytes(float());
  }
  std::unique_ptr<Plan<LayerNormProblem>> build(const LayerNormProblem& p, const Device& d,
                                                const Config&) const override {
    const ChannelNormKernels& k = channel_norm_kernels();
    if (p.x.dtype == DType::float64) return plan(p, d, k.f64);
    return plan(p, d, p.x.dtype == DType::float32 ? k.f32 : p.x.dtype == DType::bfloat16 ? k.bf16 : k.f16);
  }

 private:
  template <class A>
  static std::unique_ptr<Plan<LayerNormProblem>> plan(const LayerNormProblem& p, const Device& d,
                                                      const ChannelNormLoops<A>& k) {
    const int64_t item = int64_t(itemsize(p.x.dtype));
    const bool large = p.x.numel() * item > cpu::work_size(kNormSummedBytes);
    return make_plan<LayerNormProblem>([c = Tiling(p), &k, item, large, concurrent = concurrent_samples(Tiling(p), d)](
                                           const LayerNormArgs& a, void* workspace, Stream) {
      // The sums for dscale and dbias, as an array [samples][channels][2].
      A* const sums = static_cast<A*>(workspace);
      auto work = [&](int64_t i, int64_t slot) {
        const Sample<A> sample(c, k, item, a, i, sums + c.gradient_numbers() + slot * c.scratch_numbers<A>());
        if (c.backward) sample.backward(large, sums + 2 * i * c.channels);
        else sample.forward(large);
      };
      if (concurrent > 1) cpu::parallel_items(c.samples, work);
      else
        for (int64_t i = 0; i < c.samples; ++i) work(i, 0);
      if (c.backward) sum_parameter_gradients(sums, c.samples, c.channels, a);
    });
  }
  // The number of samples that are processed at the same time, each with its own scratch memory.
  static int64_t concurrent_samples(const Tiling& c, const Device& d) {
    const bool enough = c.samples >= 4 * d.sm_count || c.samples % d.sm_count == 0;
    return enough && c.samples * c.channels * c.plane >= 2 * cpu::work_size(kGrain) ? d.sm_count : 1;
  }
};

}  // namespace cpu::layer_norm

template const Engine<LayerNormProblem>& engine_object<LayerNormProblem, cpu::layer_norm::StridedAxis>();

}  // namespace minidnn
