// SPDX-License-Identifier: Apache-2.0
// cpu.conv.implicit_gemm: forward and backward_data as a matrix product that reads its input in place, without an
// im2col matrix. Rows of the product are pixels of the result, and columns are output channels. The inner dimension k
// consists of segments. A segment is the input channels at one window element. Where a window element falls on padding,
// zeros are read instead. Only the weights are packed, once per call. A strided backward_data is divided into phases. A
// phase is the set of result pixels that use the same window elements, and is computed like a separate convolution. An
// input whose layout the kernel cannot read is copied first (to_nhwc.h).
#include <algorithm>
#include <cstring>
#include <span>
#include <type_traits>

#include "cpp/conv/conv.h"
#include "cpp/conv/cpu/implicit_gemm/implicit_gemm_tiling.h"
#include "cpp/conv/cpu/plan_engine.h"
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/simd/bf16_products.h"
#include "cpp/simd/gemm_microkernel.h"

namespace minidnn {
namespace cpu::conv {
namespace {

// The result pixels that a work item computes together.
struct Rows {
  int64_t count, tiles;
  // For each tile, the input offsets of its rows.
  GemmSegment* segments;
  int64_t y[kBlockTiles * kGemmRows],
      // For each result pixel, its offset in y and in the residual c.
      c[kBlockTiles * kGemmRows];
};

struct ImplicitGemmPlan final : TypedPlan<ImplicitGemmPlan, ImplicitGemmTiling> {
  using TypedPlan::TypedPlan;

  // Packs the weights as [panel, window element, input channel, output channel]. A panel is a group of output channels.
  // The layout of w decides whether work items are panels or groups of input channels.
  template <class T> void pack_weights(const T* w, float* to) const {
    const bool by_panel = w_in < w_out;
    const int64_t taps = volume(g.window), some = by_panel ? channels : 16;
    const int64_t chunks = by_panel ? panels : ceil_div(channels, some);
    const int64_t grain = cpu::work_size(32768) * chunks / (taps * channels * panels * kernel.columns) + 1;
    cpu::parallel_for(g.groups * chunks, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t group = i / chunks, chunk = i % chunks, k = by_panel ? 0 : chunk * some;
        for (int64_t panel = by_panel ? chunk : 0; panel < (by_panel ? chunk + 1 : panels); ++panel)
          pack_panel(w, phases, group, panel, k, std::min(k + some, channels),
                     [&](const Phase& phase) { return packed_panel(phase, group, panel, to); });
      }
    });
  }
  template <class F> F* packed_panel(const Phase& phase, int64_t group, int64_t panel, F* weights) const {
    return weights + phase.weights_at + (group * panels + panel) * int64_t(phase.taps.size()) * units * kernel.columns;
  }
  // Packs input channels [k, end) of one panel (a group of output channels).
  template <class T, class P> void pack_panel(const T* w, std::span<const Phase> some, int64_t group, int64_t panel,
                                              int64_t k, int64_t end, P destination) const {
    const int64_t first = panel * kernel.columns, count = std::min(kernel.columns, columns - first);
    const int64_t several = dense_taps ? std::max<int64_t>(2, 256 / volume(g.window) & -2) : channels;
    const T* from = w + group * g.y.channels * g.w_filter + first * w_out;
    const int64_t pair = pairs ? 2 : 1;
    for (int64_t n = k; n < end; n += several)
      pack_chunk(from + n * w_in, some, std::min(several, end - n), count,
                 [&](const Phase& phase) { return destination(phase) + n / pair * kernel.columns; });
    if (end < channels || !amx) return;
    const int64_t packed = channels / pair;  // the zeros behind the last input channel
    for (const Phase& phase : some)
      for (size_t tap = 0; tap < phase.taps.size(); ++tap)
        std::fill_n(destination(phase) + (int64_t(tap) * units + packed) * kernel.columns,
                    (units - packed) * kernel.columns, 0.0f);
  }
  // A constant size lets the compiler emit moves instead of a call of memcpy.
  void copy_row(const float* from, float* to) const {
    if (kernel.columns == 32) std::memcpy(to, from, 32 * sizeof(float));
    else std::memcpy(to, from, size_t(kernel.columns) * sizeof(float));
  }
  template <class T, class P>
  void pack_chunk(const T* from, std::span<const Phase> some, int64_t length, int64_t count, P destination) const {
    constexpr int64_t kMost = 256 * 32;
    float rows[kMost];
    const int64_t taps = volume(g.window), width = kernel.columns;
    // If the taps (window elements) of a filter are contiguous in memory, all of them are transposed at once.
    const bool together = w_in == taps;
    if constexpr (std::is_same_v<T, bfloat16>)
      if (pairs && together && dense_taps && count == width && length * taps * width <= kMost)
        return pack_transposed(from + lowest_tap, some, length, reinterpret_cast<bfloat16*>(rows), destination);
    const bool by_lines = sizeof(T) == 4 && dense_taps && length * taps * width <= kMost;
    // Weights are prefetched this number of input channels ahead, because the hardware prefetcher does not predict
    // their addresses.
    constexpr int64_t kAhead = 8;
    for (int64_t n = 0; by_lines && n < (together ? 1 : length); ++n) {
      const float* line = reinterpret_cast<const float*>(from) + lowest_tap + n * w_in;
      for (int64_t i = 0; !together && i < count * w_out; i += 16) __builtin_prefetch(line + kAhead * w_in + i, 0, 2);
      kernels.transpose(line, w_out, count, together ? length * taps : taps, rows + n * taps * width, width);
    }
    for (const Phase& phase : some) {
      float* to = destination(phase);
      for (const ConvTap& tap : phase.taps) {
        if (by_lines)
          for (int64_t n = 0; n < length; ++n) copy_row(rows + (n * taps + tap.w - lowest_tap) * width, to + n * width);
        else gemm_packing<T>(pairs).pack(from + tap.w, w_out, w_in, count, length, to);
        to += units * width;
      }
    }
  }

  // Packs `length` input channels of a whole panel, whose filters are [input channel, window element] in memory.
  template <class P> void pack_transposed(const bfloat16* from, std::span<const Phase> some, int64_t length,
                                          bfloat16* rows, P destination) const {
    const int64_t taps = volume(g.window), width = kernel.columns;
    bf16_kernels().transpose(from, w_out, width, length * taps, rows, width);
    for (const Phase& phase : some) {
      float* to = destination(phase);
      for (const ConvTap& tap : phase.taps) {
        kernels.pairs.pack(rows + (tap.w - lowest_tap) * width, 1, taps * width, width, length, to);
        to += units * width;
      }
    }
  }

  template <class T, class Y> void compute(const ConvArgs& args, char* workspace) const {
    float* weights = reinterpret_cast<float*>(workspace + weights_at);
    float* zeros = reinterpret_cast<float*>(workspace + zeros_at);
    std::fill_n(zeros, channels * merged, 0.0f);
    if (!packs_panels) pack_weights(static_cast<const T*>(args.w), weights);
    // A float stands for a pair of bfloat16 elements, too.
    const float* x = input.read_floats(backward ? args.dy : args.x, workspace + copy_at);
    cpu::parallel_items(int64_t(blocks.size()), [&](int64_t i, int64_t thread) {
      compute_block<T, Y>(blocks[size_t(i)], args, x, weights, zeros,
                          workspace + scratch_at + size_t(thread) * scratch_bytes);
    });
  }

  // Computes the offsets at which each result pixel reads and writes. Offsets that an image row shares are computed
  // once.
  void locate_rows(const Phase& phase, int64_t row_of_block, int64_t nowhere, Rows& rows) const {
    const int64_t segments = int64_t(phase.segments.size()), size = input_size(), length = phase.count[2];
    const int64_t segment_bytes = units * merged * kernel.columns * int64_t(sizeof(float));
    for (int64_t t = 0; t < rows.tiles && !amx; ++t)
      for (int64_t s = 0; s < segments; ++s) rows.segments[t * segments + s].b = s * segment_bytes;
    const int64_t lines[] = {g.images, phase.count[0], phase.count[1]};
    NdIterator<3> line(lines, row_of_block / length);
    GemmSegment* tile = rows.segments;
    int64_t lane = 0, first = row_of_block % length;
    auto next = [&] {
      if (++lane == kernel.rows) {
        lane = 0;
        tile += segments;
      }
    };
    auto within = [&](int j, int64_t at) { return at + phase.low[j] >= 0 && at + phase.high[j] < in.size[j]; };
    for (int64_t row = 0, n; row < rows.count; row += n, first = 0, line.advance()) {
      n = std::min(length - first, rows.count - row);
      int64_t position[] = {line.at[1] * in_step[0], line.at[2] * in_step[1], 0};
      int64_t origin = line.at[0] * in.image, y = line.at[0] * out.image, c = line.at[0] * g.residual.image;
      for (int j = 0; j < kMaxSpatial; ++j) {
        const int64_t at = phase.first[j] + (j < 2 ? line.at[1 + j] : first) * step[j];
        origin += position[j] * in.space[j];
        y += at * out.space[j];
        c += at * g.residual.space[j];
      }
      const bool lines_inside = within(0, position[0]) && within(1, position[1]);
      for (int64_t i = 0; i < n; ++i, next()) {
        rows.y[row + i] = y + i * step[2] * out.space[2];
        rows.c[row + i] = c + i * step[2] * g.residual.space[2];
        if (amx) continue;  // find_pixels() finds the input
        if (transposes_pixels) {
          tile->a[lane] = (row + i) * channels * size;
          continue;
        }
        position[2] = (first + i) * in_step[2];
        // True if all taps (window elements) of this pixel fall on data, and none on padding.
        const bool inside = lines_inside && within(2, position[2]);
        const int64_t at = (origin + position[2] * in.space[2]) * size;
        for (int64_t s = 0; s < segments; ++s) {
          tile[s].a[lane] = at + phase.segments[size_t(s)];
          const ConvTap& tap = phase.taps[size_t(s * merged)];
          for (int j = 0; j < kMaxSpatial && !inside; ++j)
            if (uint64_t(position[j] + tap.shift[j]) >= uint64_t(in.size[j])) tile[s].a[lane] = nowhere;
        }
      }
    }
    // If pixels do not fill the last tile, its remaining rows read zeros.
    for (; lane > 0 && !amx; next())
      for (int64_t s = 0; s < segments; ++s) tile[s].a[lane] = nowhere;
  }

  template <class T, class Y> void compute_block(const Block& block, const ConvArgs& args, const float* x,
                                                 const float* weights, const float* zeros, char* scratch) const {
    const std::span<const Phase> some(phases.data() + block.phase, size_t(block.phases));
    float* own = reinterpret_cast<float*>(scratch + panel_at);
    Rows rows;
    rows.segments = reinterpret_cast<GemmSegment*>(scratch);
    if (transposes_pixels) x = transpose_pixels(block, x, reinterpret_cast<float*>(scratch + pixels_at));
    else x += block.group * (pairs ? channels / 2 : channels);
    for (int64_t panel = block.panel; panel < block.panel + block.panels; ++panel) {
      auto packed = [&](const Phase& phase) { return own + phase.weights_at / (g.groups * panels); };
      if (packs_panels) pack_panel(static_cast<const T*>(args.w), some, block.group, panel, 0, channels, packed);
      for (const Phase& phase : some) {
        if (some.size() > 1 || panel == block.panel) {
          rows.count = std::min(block.rows, g.images * volume(phase.count) - block.row);
          rows.tiles = ceil_div(rows.count, kernel.rows);
          locate_rows(phase, block.row, (zeros - x) * int64_t(sizeof(float)), rows);
          if (amx)
            find_pixels(phase, block.row, rows.count, reinterpret_cast<const bfloat16*>(x),
                        reinterpret_cast<const bfloat16*>(zeros), scratch);
        }
        const float* b = packs_panels ? packed(phase) : packed_panel(phase, block.group, panel, weights);
        multiply_panel<T, Y>(rows, int64_t(phase.segments.size()), block.group, panel, args, x, b, scratch);
      }
    }
  }

  template <class T, class Y> void multiply_panel(const Rows& rows, int64_t segments, int64_t group, int64_t panel,
                                                  const ConvArgs& args, const float* x, const float* b,
                                                  char* scratch) const {
    float* sums = reinterpret_cast<float*>(scratch + sums_at);
    float* transposed = reinterpret_cast<float*>(scratch + transposed_at);
    const int64_t steps = units * merged, size = int64_t(sizeof(Y));
    Epilogue finish;
    finish.activation = activation_on_floats(g.activation);
    finish.activation_alpha = float(args.activation_alpha);
    finish.beta = 1;
    const int64_t first = panel * kernel.columns, count = std::min(kernel.columns, columns - first);
    const int64_t channel = group * columns + first;
    const auto multiply = gemm_multiply(pairs && !amx, kernel.rows, count);
    char* y = static_cast<char*>(args.out) + channel * out.channel * size;
    const char* c =
        args.residual ? static_cast<const char*>(args.residual) + channel * g.residual.channel * size : nullptr;
    const char* bias =
        g.has_bias ? static_cast<const char*>(args.bias) + channel * g.bias_stride * int64_t(sizeof(T)) : nullptr;
    const bool plain = sizeof(Y) == 4 && !bias && !c && finish.plain(), direct_store = nhwc_output && plain && !amx;
    if (amx) multiply_by_amx(rows.tiles * kernel.rows, segments, count, b, scratch);
    for (int64_t t = 0; t < rows.tiles && !amx; ++t) {
      const int64_t row = t * kernel.rows;
      float* to = sums + row * kernel.columns;
      int64_t pitch = kernel.columns;
      const bool whole = direct_store && count == kernel.columns && row + kernel.rows <= rows.count;
      if (whole && evenly_spaced(rows.y + row, kernel.rows)) {
        to = reinterpret_cast<float*>(y) + rows.y[row];
        pitch = rows.y[row + 1] - rows.y[row];
      }
      multiply({rows.segments + t * segments, segments, steps, x, 1, b, kernel.columns, to, pitch, false});
      if (direct_store && to == sums + row * kernel.columns)
        gemm_finish<T, Y>()(finish, {to, pitch, std::min(kernel.rows, rows.count - row), count, y, rows.y + row, c,
                                     rows.c + row, bias});
    }
    if (nhwc_output && !direct_store) {
      finish.c_column = g.residual.channel;
      finish.bias_column = g.bias_stride;
      gemm_finish<T, Y>()(finish, {sums, kernel.columns, rows.count, count, y, rows.y, c, rows.c, bias});
    }
    if (nhwc_output) return;
    // The output is channels-first, so the sums are transposed. Consecutive pixels are written by one call if their
    // distance is constant.
    const int64_t line = rows.tiles * kernel.rows;
    const bool direct = plain && out.space[2] * step[2] == 1;
    if (!direct) kernels.transpose(sums, kernel.columns, rows.count, count, transposed, line);
    finish.bias_row = g.bias_stride;
    int64_t y_channels[64], c_channels[64];
    for (int64_t row = 0, end; row < rows.count; row = end) {
      const int64_t y_step = direct || row + 1 == rows.count ? 1 : rows.y[row + 1] - rows.y[row];
      for (end = row + 1; end < rows.count && rows.y[end] - rows.y[end - 1] == y_step &&
                          (!c || rows.c[end] - rows.c[end - 1] == rows.c[row + 1] - rows.c[row]);)
        ++end;
      if (direct) {
        kernels.transpose(sums + row * kernel.columns, kernel.columns, end - row, count,
                          reinterpret_cast<float*>(y) + rows.y[row], out.channel);
        continue;
      }
      finish.y_column = y_step;
      finish.c_column = end > row + 1 ? rows.c[row + 1] - rows.c[row] : 1;
      for (int64_t j = 0; j < count; ++j) {
        y_channels[j] = rows.y[row] + j * out.channel;
        c_channels[j] = rows.c[row] + j * g.residual.channel;
      }
      gemm_finish<T, Y>()(finish, {transposed + row, line, count, end - row, y, y_channels, c, c_channels, bias});
    }
  }

  // Transposes the input pixels that a work item reads from channels-first to [pixel, channel].
  const float* transpose_pixels(const Block& block, const float* x, float* to) const {
    const int64_t plane = volume(in.size);
    const int64_t end = std::min(block.row + block.rows, g.images * plane);
    for (int64_t row = block.row, next; row < end; row = next) {
      next = std::min(end, (row / plane + 1) * plane);
      const float* from = x + row / plane * in.image + block.group * channels * in.channel + row % plane;
      kernels.transpose(from, in.channel, channels, next - row, to + (row - block.row) * channels, channels);
    }
    return to;
  }

  // A pixel of the input, before the shift of a window element: its position and its offset.
  struct Pixel {
    int64_t at[kMaxSpatial], origin;
  };
  // Finds the input of each group of rows of the product. Adjacent pixels of one image row are read in place, and others
  // are copied. Pixels at a multiple of 2 KB are copied, too, because they share few sets of the first-level cache.
  void find_pixels(const Phase& phase, int64_t row_of_block, int64_t count, const bfloat16* x, const bfloat16* zeros,
                   char* scratch) const {
    constexpr int64_t kConflict = 1024;  // elements
    bfloat16* to = reinterpret_cast<bfloat16*>(scratch + pixels_at);
    Bf16Rows* found = reinterpret_cast<Bf16Rows*>(scratch + amx_rows_at);
    const int64_t length = phase.count[2], step = in_step[2] * in.space[2];
    const bool adjacent = channels % kBf16Steps == 0 && step % kConflict != 0;
    const int64_t lines[] = {g.images, phase.count[0], phase.count[1]};
    NdIterator<3> line(lines, row_of_block / length);
    int64_t column = row_of_block % length;
    for (int64_t row = 0; row < count; row += kBf16Lines, to += kBf16Lines * pixel_pitch) {
      const int64_t some = std::min(kBf16Lines, count - row);
      const bool in_line = adjacent && some == kBf16Lines && column + kBf16Lines <= length;
      Pixel pixels[kBf16Lines];
      for (int64_t i = 0; i < some; ++i) {
        Pixel& pixel = pixels[i];
        pixel = {{line.at[1] * in_step[0], line.at[2] * in_step[1], column * in_step[2]}, line.at[0] * in.image};
        for (int j = 0; j < kMaxSpatial; ++j) pixel.origin += pixel.at[j] * in.space[j];
        if (++column == length) {
          column = 0;
          line.advance();
        }
      }
      for (size_t s = 0; s < phase.segments.size(); ++s, ++found) {
        const int64_t(&shift)[kMaxSpatial] = phase.taps[s].shift, offset = phase.segments[s] / 2;
        const auto inside = [&](const Pixel& pixel) {
          bool all = true;
          for (int j = 0; j < kMaxSpatial; ++j) all = all && uint64_t(pixel.at[j] + shift[j]) < uint64_t(in.size[j]);
          return all;
        };
        if (in_line && inside(pixels[0]) && inside(pixels[kBf16Lines - 1])) {
          *found = {x + pixels[0].origin + offset, step};
          continue;
        }
        bfloat16* at = to + int64_t(s) * 2 * units;
        *found = {at, pixel_pitch};
        for (int64_t i = 0; i < some; ++i, at += pixel_pitch)
          amx->pad_rows(inside(pixels[i]) ? x + pixels[i].origin + offset : zeros, 0, 1, channels, at, 0, 2 * units);
      }
    }
  }
  // Computes the sums of all rows of a work item, and of one panel.
  void multiply_by_amx(int64_t rows, int64_t segments, int64_t count, const float* b, char* scratch) const {
    Bf16Product product{};
    product.b = reinterpret_cast<const bfloat16*>(b);
    product.panel = 2 * kBf16Lines;
    product.b_pitch = 2 * kernel.columns;
    product.c = reinterpret_cast<float*>(scratch + sums_at);
    product.c_pitch = kernel.columns;
    product.rows = ceil_div(rows, kBf16Lines) * kBf16Lines;
    product.columns = ceil_div(count, kBf16Lines) * kBf16Lines;
    product.steps = 2 * units;
    amx->begin();
    amx->multiply_segments(product, reinterpret_cast<const Bf16Rows*>(scratch + amx_rows_at), segments);
    amx->end();
  }

  static bool evenly_spaced(const int64_t* at, int64_t n) {
    for (int64_t i = 2; i < n; ++i)
      if (at[i] - at[i - 1] != at[1] - at[0]) return false;
    return true;
  }
};

}  // namespace

struct ImplicitGemm final : PlanEngine<ImplicitGemmTiling, ImplicitGemmPlan> {
  std::string name() const override { return "cpu.conv.implicit_gemm"; }
  std::string why_not(const ConvProblem& p, const Device&) const override {
    if (operand_dtype(p) == DType::float64) return "float64 is not supported";
    if (p.direction != ConvDirection::forward && p.direction != ConvDirection::backward_data)
      return "supports forward and backward_data only";
    if (p.y.numel() == 0 || p.x.numel() == 0 || p.w.numel() == 0) return "x, w or y is empty";
    return "";
  }
  double estimate_us(const ConvProblem& p, const Device& d) const override {
    const ConvGeometry g = conv_geometry(p);
    const ConvTensorView& out = conv_out(g);
    const ConvTensorView& in = g.backward_data ? g.y : g.x;
    // Two costs: a partly filled last tile costs as much as a full one, and each contiguous span of input has a fixed
    // cost.
    const int64_t half = gemm_kernels().f32.columns / 2,
                  steps = in.channels * (ImplicitGemmTiling::merges(g) ? g.window[2] : 1);
    // The transposition of pixels and results adds a quarter to the time of the matrix product. The copy of a
    // channels-first input of 16 bits adds as much.
    const bool copies = operand_dtype(p) != DType::float32 && in.channel != 1;
    const double transposing = copies || ImplicitGemmTiling::transposes(p, g) ? 1.25 : 1;
    const double waste = transposing * wasted(out.channels, half) * (1 + 4 / double(steps));
    const bool pairs = ImplicitGemmTiling::has_pairs(p, g);
    const double of_pairs = !pairs ? 1 : bf16_products() ? amx_cost(volume(g.window) == 1) : 0.5;
    return roofline_us(conv_flop(p) * waste * of_pairs / 10, conv_bytes(p), d, 0.95);
  }
};

}  // namespace cpu::conv

template const Engine<ConvProblem>& engine_object<ConvProblem, cpu::conv::ImplicitGemm>();

}  // namespace minidnn
