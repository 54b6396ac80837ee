// SPDX-License-Identifier: Apache-2.0
// cpu.conv.direct_nchw: convolutions with few input channels per group, forward and both gradients. A SIMD vector holds
// adjacent pixels of an image row. The engine works on bands, which are groups of adjacent image rows of the result,
// such as rows 0 to 6. It copies the input rows of a band, with zeros around them, to scratch memory that fits a cache.
// With a stride, a copy holds every stride-th pixel, so each window element reads contiguous elements. Results that
// need a conversion or an epilogue are first stored in scratch memory.
#include <algorithm>
#include <bit>

#include "cpp/conv/conv.h"
#include "cpp/conv/cpu/depthwise/direct_nchw_tiling.h"
#include "cpp/conv/cpu/plan_engine.h"
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/simd/gemm_microkernel.h"

namespace minidnn {
namespace cpu::conv {
namespace {

constexpr int64_t kMostChannels = 16;  // the largest number of input channels per group that the engine supports

template <class T> constexpr int kind = __is_same(T, float) ? 0 : __is_same(T, float16) ? 1 : 2;

struct DirectNchwPlan final : Plan<ConvProblem>, DirectNchwTiling {
  using DirectNchwTiling::DirectNchwTiling;

  // Returns the range of a band's input rows that lie inside the image, counted from the band's topmost input row.
  std::pair<int64_t, int64_t> existing(const Band& b, int64_t row) const {
    const int64_t top = row * in_step[1] + b.top, above = std::clamp<int64_t>(-top, 0, b.lines);
    return {above, std::clamp<int64_t>(in.size[1] - top, above, b.lines)};
  }
  // Copies the input rows of a band (adjacent result rows) for all channels of the group, with zeros around them.
  template <class T> void read(const Band& b, const T* x, int64_t depth, int64_t row, int64_t pixel, float* to) const {
    const int64_t stride = in_step[2], top = row * in_step[1] + b.top;
    const auto [above, end] = existing(b, row);
    for (int64_t column : b.columns) {
      // The input pixel with which the copied row begins. It may lie outside the image.
      const int64_t first = column + pixel * stride;
      const int64_t before = std::min(minidnn::detail::steps_to(-first, stride), b.length);
      const int64_t stop = std::min(minidnn::detail::steps_to(in.size[2] - first, stride), b.length);
      for (int64_t shift : b.depths) {
        PaddedLines lines{0, 0, 0, before, std::max(stop, before) - before, 0};
        lines.after = b.length - before - lines.count;
        const int64_t d = depth * in_step[0] + shift;
        if (uint64_t(d) < uint64_t(in.size[0])) {
          lines.above = above;
          lines.rows = end - above;
        }
        lines.below = b.lines - lines.above - lines.rows;
        float* at = to;
        if (b.height >= kernels.skips && lines.rows > 0) {
          at += above * b.length;
          lines.above = lines.below = 0;
        }
        copy(lines, x + d * in.space[0] + (top + above) * in.space[1] + (first + before * stride) * in.space[2], in,
             stride, in.channels, at, b.channel);
        to += b.lines * b.length;
      }
    }
  }
  // Copies image rows of `channels` channels to `to`, with zeros around them.
  template <class T> void copy(const PaddedLines& lines, const T* from, const ConvTensorView& side, int64_t stride,
                               int64_t channels, float* to, int64_t channel) const {
    const int64_t step = stride * side.space[2], length = lines.before + lines.count + lines.after;
    if constexpr (sizeof(T) == 4) {
      if (side.channel == 1 && channels > 1) {
        for (int64_t i = 0; i < channels; ++i) std::fill_n(to + i * channel, lines.above * length, 0.0f);
        to += lines.above * length;
        for (int64_t r = 0; r < lines.rows; ++r, from += side.space[1], to += length) {
          for (int64_t i = 0; i < channels; ++i) {
            std::fill_n(to + i * channel, lines.before, 0.0f);
            std::fill_n(to + i * channel + lines.before + lines.count, lines.after, 0.0f);
          }
          gemm_kernels().transpose(from, step, lines.count, channels, to + lines.before, channel);
        }
        for (int64_t i = 0; i < channels; ++i) std::fill_n(to + i * channel, lines.below * length, 0.0f);
        return;
      }
    }
    for (int64_t i = 0; i < channels; ++i)
      kernels.copy[kind<T>](lines, from + i * side.channel, side.space[1], step, to + i * channel);
  }

  static int64_t at_a_time(int64_t filters) { return int64_t(std::bit_floor(uint64_t(std::min(kFilters, filters)))); }

  template <class T> void pack_weights(const T* w, float* to) const {
    for (const Band& b : phases)
      for (int64_t group = 0; group < g.groups; ++group)
        for (int64_t first = 0, filters; first < out.channels; first += filters) {
          filters = at_a_time(out.channels - first);
          const T* from = w + group * g.y.channels * g.w_filter + first * w_out;
          for (int64_t tap : b.w)
            for (int64_t j = 0; j < filters; ++j) *to++ = float(from[tap + j * w_out]);
        }
  }

  template <class T, class Y> void compute(const ConvArgs& args, char* workspace) const {
    Epilogue finish;
    finish.activation = activation_on_floats(g.activation);
    finish.activation_alpha = float(args.activation_alpha);
    finish.beta = 1;
    finish.y_column = out.space[2] * step[2];
    finish.c_column = g.residual.space[2];
    float* weights = reinterpret_cast<float*>(workspace);
    pack_weights(static_cast<const T*>(args.w), weights);
    for (const Band& b : phases) {
      const int64_t items[] = {g.images, g.groups, b.count[0], b.bands, b.line_chunks};
      const int64_t work = b.rows * b.pitch * out.channels * std::max<int64_t>(1, int64_t(b.taps.size()) * in.channels);
      const int64_t all = items[0] * items[1] * items[2] * items[3] * items[4],
                    grain = std::max<int64_t>({1, cpu::work_size(65536) / work, all / (threads * 8)});
      cpu::parallel_items(ceil_div(all, grain), [&](int64_t item, int64_t thread) {
        // A thread copies the input of its next band (adjacent image rows) before it computes the current one. Its
        // loads then need not wait for the stores of the copy.
        float* lines = reinterpret_cast<float*>(workspace + scratch_at + size_t(thread) * scratch_bytes);
        float *now = lines, *next = lines + band_floats, *rest = lines + 2 * band_floats;
        const int64_t end = std::min(all, (item + 1) * grain);
        NdIterator<5> ahead(items, item * grain);
        read_input<T>(b, ahead.at, args, now);
        for (int64_t i = item * grain; i < end; ++i, std::swap(now, next)) {
          int64_t at[5];
          std::copy_n(ahead.at, 5, at);
          ahead.advance();
          if (i + 1 < end) read_input<T>(b, ahead.at, args, next);
          compute_band<T, Y>(b, finish, at, args, weights, now, rest);
        }
      });
    }
  }

  template <class T> void read_input(const Band& b, const int64_t (&at)[5], const ConvArgs& args, float* lines) const {
    const T* x = static_cast<const T*>(backward ? args.dy : args.x);
    read(b, x + at[0] * in.image + at[1] * in.channels * in.channel, at[2], at[3] * b.rows, at[4] * b.line_chunk,
         lines);
  }
  template <class T, class Y> void compute_band(const Band& b, const Epilogue& finish, const int64_t (&at)[5],
                                                const ConvArgs& args, const float* weights, const float* lines,
                                                float* sums) const {
    const int64_t image = at[0], group = at[1], depth = at[2], row = at[3] * b.rows, pixel = at[4] * b.line_chunk;
    int64_t* y_rows = reinterpret_cast<int64_t*>(sums + line_floats);
    const int64_t rows = std::min(b.rows, b.count[1] - row), pixels = std::min(b.line_chunk, b.count[2] - pixel);
    auto start = [&](const ConvTensorView& s, int64_t channel) {
      return image * s.image + channel * s.channel + (b.first[0] + depth * step[0]) * s.space[0] +
             (b.first[1] + row * step[1]) * s.space[1] + (b.first[2] + pixel * step[2]) * s.space[2];
    };
    const bool direct_store = sizeof(Y) == 4 && !g.has_bias && !args.residual && finish.plain();
    const int64_t y_row = out.space[1] * step[1];
    const auto [above, end] = existing(b, row);
    for (int64_t first = 0, filters; first < out.channels; first += filters) {
      filters = at_a_time(out.channels - first);
      const int64_t channel = group * out.channels + first;
      Y* y = static_cast<Y*>(args.out) + start(out, channel);
      auto sum = [&](float* to, int64_t filter, int64_t line, int64_t columns) {
        kernels.sums(filters, b.height,
                     {b.at.data(), int64_t(b.at.size()), lines, in_step[1] * b.length, above, end,
                      weights + b.weights_at + channel * int64_t(b.w.size()), to, filter, line, rows, columns});
      };
      if (direct_store) {
        sum(reinterpret_cast<float*>(y), out.channel, y_row, pixels);
        continue;
      }
      sum(sums, filter_floats(b), b.pitch, b.pitch);
      int64_t* c_rows = y_rows + b.rows;
      for (int64_t i = 0; i < rows; ++i) {
        y_rows[i] = i * y_row;
        c_rows[i] = i * g.residual.space[1];
      }
      for (int64_t j = 0; j < filters; ++j) {
        const Y* c = args.residual ? static_cast<const Y*>(args.residual) + start(g.residual, channel + j) : nullptr;
        const T* bias = g.has_bias ? static_cast<const T*>(args.bias) + (channel + j) * g.bias_stride : nullptr;
        gemm_finish<T, Y>()(
            finish, {sums + j * filter_floats(b), b.pitch, rows, pixels, y + j * out.channel, y_rows, c, c_rows, bias});
      }
    }
  }

  // Computes dw. Each chunk of image rows of dy has its own partial sums, which are added up at the end.
  template <class T, class Y> void compute_filters(const ConvArgs& args, char* workspace) const {
    const Band& b = phases.front();
    const int64_t blocks = ceil_div(out.channels, kFilters), items[] = {chunks, g.groups, blocks};
    const int64_t taps = int64_t(b.w.size());
    float* partial = reinterpret_cast<float*>(workspace);
    Y* dw = static_cast<Y*>(args.out);
    cpu::parallel_items(chunks * g.groups * blocks, [&](int64_t item, int64_t thread) {
      const NdIterator<3> at(items, item);
      float* sums =
          reinterpret_cast<float*>(workspace + scratch_at + size_t(thread) * scratch_bytes) + line_floats + band_floats;
      const int64_t end = std::min((at.at[2] + 1) * kFilters, out.channels);
      for (int64_t first = at.at[2] * kFilters, filters; first < end; first += filters) {
        filters = at_a_time(end - first);
        const int64_t channel = at.at[1] * out.channels + first;
        std::fill_n(sums, taps * filters * kernels.lanes, 0.0f);
        for (int64_t unit = at.at[0] * bands_of_chunk; unit < std::min(units, (at.at[0] + 1) * bands_of_chunk); ++unit)
          add_band<T>(b, unit, at.at[1], channel, filters, args, sums);
        for (int64_t t = 0; t < taps; ++t)
          for (int64_t j = 0; j < filters; ++j) {
            const float sum = kernels.total(sums + (t * filters + j) * kernels.lanes);
            if (chunks == 1) dw[b.w[size_t(t)] + (channel + j) * w_out] = Y(sum);
            else partial[at.at[0] * w_numel() + (channel + j) * taps + t] = sum;
          }
      }
    });
    if (chunks == 1) return;
    cpu::parallel_for(g.groups * out.channels, cpu::work_size(65536) / (taps * chunks) + 1,
                      [&](int64_t begin, int64_t end) {
                        for (int64_t channel = begin; channel < end; ++channel)
                          for (int64_t t = 0; t < taps; ++t) {
                            float sum = 0;
                            for (int64_t chunk = 0; chunk < chunks; ++chunk)
                              sum += partial[chunk * w_numel() + channel * taps + t];
                            dw[b.w[size_t(t)] + channel * w_out] = Y(sum);
                          }
                      });
  }
  // Adds the products of one band (adjacent image rows of dy) to the partial sums of dw. Scratch memory holds the rows
  // of dy, the rows of x, and `sums`, in this order.
  template <class T> void add_band(const Band& b, int64_t unit, int64_t group, int64_t channel, int64_t filters,
                                   const ConvArgs& args, float* sums) const {
    const NdIterator<4> at({g.images, b.count[0], b.bands, b.line_chunks}, unit);
    const int64_t row = at.at[2] * b.rows, rows = std::min(b.rows, b.count[1] - row);
    const int64_t pixel = at.at[3] * b.line_chunk, pixels = std::min(b.line_chunk, b.count[2] - pixel);
    float *lines = sums - band_floats, *gradient = lines - line_floats;
    const T* x = static_cast<const T*>(args.x) + at.at[0] * in.image + group * in.channels * in.channel;
    const T* dy = static_cast<const T*>(args.dy) + at.at[0] * out.image + channel * out.channel +
                  at.at[1] * out.space[0] + row * out.space[1] + pixel * out.space[2];
    read(b, x, at.at[1], row, pixel, lines);
    copy({0, rows, 0, 0, pixels, b.pitch - pixels}, dy, out, 1, filters, gradient, filter_floats(b));
    kernels.filters(filters, {b.at.data(), int64_t(b.at.size()), lines, in_step[1] * b.length, gradient,
                              filter_floats(b), b.pitch, rows, pixels, sums});
  }

  void run(const ConvArgs& args, void* workspace, Stream) const override {
    with_conv_types(p, [&](auto from, auto to) {
      using T = typename decltype(from)::type;
      using Y = typename decltype(to)::type;
      if constexpr (sizeof(T) != 8) {
        if (filter) compute_filters<T, Y>(args, static_cast<char*>(workspace));
        else compute<T, Y>(args, static_cast<char*>(workspace));
      }
    });
  }
};

}  // namespace

struct DirectNchw final : PlanEngine<DirectNchwTiling, DirectNchwPlan> {
  std::string name() const override { return "cpu.conv.direct_nchw"; }
  std::string why_not(const ConvProblem& p, const Device&) const override {
    if (p.direction == ConvDirection::backward_bias) return "backward_bias is not supported";
    if (operand_dtype(p) == DType::float64) return "float64 is not supported";
    if (p.y.numel() == 0 || p.x.numel() == 0 || p.w.numel() == 0) return "x, w or y is empty";
    const int64_t channels = (p.direction == ConvDirection::backward_data ? p.y : p.x).shape[1] / p.groups;
    if (channels > kMostChannels)
      return cat("supports at most ", kMostChannels, " channels in a group of x (backward_data: of dy); got ",
                 channels);
    return "";
  }
  double estimate_us(const ConvProblem& p, const Device& d) const override {
    const ConvGeometry g = conv_geometry(p);
    const ConvTensorView &out = conv_out(g), &in = g.backward_data ? g.y : g.x;
    const bool filter = p.direction == ConvDirection::backward_filter;
    // With fewer than 8 filters, loads of x take a larger part of the time.
    const int64_t pixels = filter ? g.y.size[2] : ceil_div(out.size[2], g.backward_data ? g.stride[2] : 1),
                  lanes = direct_nchw_kernels().lanes;
    const double loads = 1 / double(std::min(DirectNchwTiling::kFilters, out.channels));
    const double waste = wasted(pixels, lanes) * (1 + loads) * (filter ? 1 + 1.4 * loads : 1);
    // Elements of rows that are not contiguous are copied one at a time.
    double moved = 0;
    for (const ConvTensorView* side : {&in, &out})
      if (side->space[2] != 1) moved += double(g.images * g.groups * side->channels) * double(volume(side->size));
    return roofline_us(conv_flop(p) * waste / 10, conv_bytes(p), d, 0.95) + roofline_us(0, 16 * moved, d, 1);
  }
};

}  // namespace cpu::conv

template const Engine<ConvProblem>& engine_object<ConvProblem, cpu::conv::DirectNchw>();

}  // namespace minidnn
