// SPDX-License-Identifier: Apache-2.0
// cpu.conv.implicit_gemm_filter: backward_filter as matrix products whose inner dimension k is the pixels. Rows of a
// product are filters, and columns are the input channels at one tap (window element). x is read in place. Pixels for
// which the tap falls on padding are left out. The pixels are divided into slices of at most 256. A slice stays in the
// caches while all tiles that read it are computed. With AMX, products of bfloat16 are those of bf16_products.h: slices of
// dy are transposed, and pixels of x are packed for each tap.
#include <algorithm>
#include <array>

#include "cpp/conv/conv.h"
#include "cpp/conv/cpu/implicit_gemm/implicit_gemm_filter_tiling.h"
#include "cpp/conv/cpu/plan_engine.h"
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/simd/gemm_microkernel.h"

namespace minidnn {
namespace cpu::conv {
namespace {

// A work item: some tiles of filters in one group of the convolution, and the scratch memory of its thread.
struct Work {
  int64_t group, tile, tiles;
  // Used only if dy is read in place.
  const float* filters;
  float *packed, *columns;
  // The offsets of a tile's operands. `last` is for a partly filled last tile, and `segments` for all other tiles.
  GemmSegment *segments, *last;
};

struct ImplicitGemmFilterPlan final : TypedPlan<ImplicitGemmFilterPlan, ImplicitGemmFilterTiling> {
  using TypedPlan::TypedPlan;

  template <class T, class Y> void compute(const ConvArgs& args, char* workspace) const {
    if (amx) return compute_by_amx<Y>(args, workspace);
    const float* from = x.read_floats(swap ? args.dy : args.x, workspace + x_at);
    const T* dy = static_cast<const T*>(swap ? args.x : args.dy);
    const int64_t items = ceil_div(tiles, item_tiles);
    cpu::parallel_items(g.groups * items, [&](int64_t i, int64_t thread) {
      const int64_t group = i / items, tile = i % items * item_tiles;
      float* packed = reinterpret_cast<float*>(workspace + scratch_at + size_t(thread) * scratch_bytes);
      float* columns_of_slice = packed + item_tiles * kernel.rows * kSlicePixels;
      GemmSegment* segments = reinterpret_cast<GemmSegment*>(columns_of_slice + kernel.columns * kSlicePixels);
      const Work work{group,
                      tile,
                      std::min(item_tiles, tiles - tile),
                      reinterpret_cast<const float*>(dy),
                      packed,
                      columns_of_slice,
                      segments,
                      segments + kSlicePixels};
      float* to = direct_store ? static_cast<float*>(args.out) : reinterpret_cast<float*>(workspace + sums_at);
      // For each window element, whether its sums have a value yet.
      std::vector<bool> begun(size_t(taps), false);
      for (size_t s = 0; s + 1 < slices.size(); ++s) {
        if (!unit_stride_pixels) pack_filters(dy, work, s);
        for (int64_t tap = 0; tap < taps; ++tap) multiply_tap(from, work, s, tap, to, begun);
      }
      for (int64_t tap = 0; tap < taps; ++tap)
        if (!begun[size_t(tap)]) clear_tap(work, tap, to);
      if (!direct_store) write_filters(to, static_cast<Y*>(args.out), work);
    });
  }

  // Returns the offset of the sums of filter k at one tap (window element).
  int64_t offset_of_sums(int64_t group, int64_t k, int64_t tap) const {
    if (!direct_store) return (group * sum_rows + k) * line() + tap * panels * kernel.columns;
    int64_t at = g.w_origin + (group * g.y.channels + k) * g.w_filter;
    for (int j = kMaxSpatial - 1; j >= 0; tap /= g.window[j--]) at += tap % g.window[j] * g.w_space[j];
    return at;
  }
  int64_t pitch() const { return direct_store ? g.w_filter : line(); }

  template <class Y> void compute_by_amx(const ConvArgs& args, char* workspace) const {
    const bfloat16* from = static_cast<const bfloat16*>(x.read(args.x, workspace + x_at));
    float* sums = reinterpret_cast<float*>(workspace + sums_at);
    const int64_t down = ceil_div(g.y.channels, item_filters), across = ceil_div(g.x.channels, item_channels);
    const int64_t deep = ceil_div(taps, item_taps);
    cpu::parallel_items(g.groups * deep * down * across, [&](int64_t i, int64_t thread) {
      const int64_t group = i / across / down / deep;
      const AmxWork work{group, i / across % down * item_filters, i % across * item_channels,
                         i / across / down % deep * item_taps};
      multiply_by_amx(from + group * g.x.channels, static_cast<const bfloat16*>(args.dy), work, sums,
                      workspace + scratch_at + size_t(thread) * scratch_bytes);
    });
    const int64_t items = ceil_div(tiles, item_tiles);
    cpu::parallel_items(g.groups * items, [&](int64_t i, int64_t) {
      Work work{};
      work.group = i / items;
      work.tile = i % items * item_tiles;
      work.tiles = std::min(item_tiles, tiles - work.tile);
      write_filters(sums, static_cast<Y*>(args.out), work);
    });
  }
  // A work item: the group of the convolution, and the first filter, input channel and tap (window element).
  struct AmxWork {
    int64_t group, filter, channel, tap;
  };
  // Computes the sums of a work item. Operand a is [filter, pixel], and operand b is [pixel, channel], which is zero
  // where a tap falls on padding.
  void multiply_by_amx(const bfloat16* from, const bfloat16* dy, const AmxWork& work, float* sums,
                       char* scratch) const {
    const int64_t filters = std::min(item_filters, g.y.channels - work.filter), pitch = bf16_pitch(kSlicePixels);
    const int64_t channels = std::min(item_channels, g.x.channels - work.channel), panel = kSlicePixels * kBf16Lines;
    bfloat16 *a = reinterpret_cast<bfloat16*>(scratch), *b = a + item_filters * pitch;
    const bfloat16 zeros[256] = {};
    const bfloat16* pixels[kSlicePixels];
    amx->begin();
    for (size_t s = 0; s + 1 < slices.size(); ++s) {
      const int64_t count = transpose_filters(dy, work, filters, s, a, pitch);
      const int64_t steps = ceil_div(count, kBf16Steps) * kBf16Steps;
      std::fill(pixels + count, pixels + steps, zeros);
      for (int64_t i = 0; i < filters; ++i) std::fill(a + i * pitch + count, a + i * pitch + steps, bfloat16{});
      for (int64_t tap = work.tap; tap < std::min(work.tap + item_taps, taps); ++tap) {
        find_pixels(from + work.channel, s, tap, zeros, pixels);
        amx->pack_rows(pixels, steps, channels, b, panel);
        float* to = sums + offset_of_sums(work.group, work.filter, tap) + work.channel;
        amx->multiply({a, pitch, b, panel, to, line(), ceil_div(filters, kBf16Lines) * kBf16Lines,
                       ceil_div(channels, kBf16Lines) * kBf16Lines, steps, s > 0});
      }
    }
    amx->end();
  }
  // Finds, for each pixel of a slice of dy, the pixel of x at one tap: `zeros` if the tap falls on padding.
  void find_pixels(const bfloat16* from, size_t slice, int64_t tap, const bfloat16* zeros,
                   const bfloat16** pixels) const {
    int64_t shift[kMaxSpatial], count = 0;
    for (int j = kMaxSpatial - 1; j >= 0; tap /= g.window[j--]) shift[j] = tap % g.window[j] * g.dilation[j] - g.pad[j];
    for (size_t i = slices[slice]; i < slices[slice + 1]; ++i) {
      const Span& span = spans[i];
      const int64_t line = span.line[0] * g.stride[0] + shift[0], row = span.line[1] * g.stride[1] + shift[1];
      const bool inside = uint64_t(line) < uint64_t(x.side.size[0]) && uint64_t(row) < uint64_t(x.side.size[1]);
      const bfloat16* const at = from + span.image * x.side.image + line * x.side.space[0] + row * x.side.space[1];
      for (int64_t w = span.begin; w < span.end; ++w) {
        const int64_t column = w * g.stride[2] + shift[2];
        pixels[count++] = inside && uint64_t(column) < uint64_t(x.side.size[2]) ? at + column * x.side.space[2] : zeros;
      }
    }
  }
  // Copies the pixels of a slice of some filters of dy to [filter, pixel]. Returns the number of pixels.
  int64_t transpose_filters(const bfloat16* dy, const AmxWork& work, int64_t filters, size_t slice, bfloat16* to,
                            int64_t pitch) const {
    const int64_t step = g.y.space[2];
    const bfloat16* const begin = to;
    dy += (work.group * g.y.channels + work.filter) * g.y.channel;
    for (size_t i = slices[slice]; i < slices[slice + 1]; ++i) {
      const Span& span = spans[i];
      const int64_t length = span.end - span.begin;
      const bfloat16* from =
          dy + span.image * g.y.image + span.line[0] * g.y.space[0] + span.line[1] * g.y.space[1] + span.begin * step;
      // transpose() also writes a few elements behind a row, and later spans or zeros overwrite them.
      if (g.y.channel == 1) amx->transpose(from, step, length, filters, to, pitch);
      else
        for (int64_t k = 0; k < filters; ++k, from += g.y.channel)
          if (step == 1) std::copy_n(from, length, to + k * pitch);
          else
            for (int64_t w = 0; w < length; ++w) to[k * pitch + w] = from[w * step];
      to += length;
    }
    return to - begin;
  }

  // Packs some pixels of dy as [tile, pixel, filter]. A partly filled last tile is padded with zeros.
  template <class T> void pack_filters(const T* dy, const Work& work, size_t slice) const {
    float* to = work.packed;
    for (int64_t t = work.tile; t < work.tile + work.tiles; ++t, to += kSlicePixels * kernel.rows) {
      const int64_t first = t * kernel.rows, count = std::min(kernel.rows, g.y.channels - first);
      float* at = to;
      for (size_t i = slices[slice]; i < slices[slice + 1]; ++i) {
        const Span& span = spans[i];
        const T* from = dy + span.image * g.y.image + span.line[0] * g.y.space[0] + span.line[1] * g.y.space[1] +
                        (work.group * g.y.channels + first) * g.y.channel + span.begin * g.y.space[2];
        const int64_t length = span.end - span.begin, pixel = g.y.space[2], filter = g.y.channel;
        if constexpr (sizeof(T) == 4) kernel.pack_rows(from, filter, pixel, count, length, at);
        else
          for (int64_t w = 0; w < length; ++w)
            for (int64_t j = 0; j < kernel.rows; ++j)
              at[w * kernel.rows + j] = j < count ? float(from[w * pixel + j * filter]) : 0;
        at += length * kernel.rows;
      }
    }
  }

  void multiply_tap(const float* from, const Work& work, size_t slice, int64_t tap, float* to,
                    std::vector<bool>& begun) const {
    int64_t at[kMaxSpatial], shift[kMaxSpatial], rest = tap;
    for (int j = kMaxSpatial - 1; j >= 0; rest /= g.window[j--]) at[j] = rest % g.window[j];
    for (int j = 0; j < kMaxSpatial; ++j) shift[j] = at[j] * g.dilation[j] - g.pad[j];
    // The range [low, high) of pixels of an image row of dy for which this tap (window element) falls on data.
    const int64_t low = shift[2] < 0 ? ceil_div(-shift[2], g.stride[2]) : 0, last = x.side.size[2] - 1 - shift[2];
    const int64_t high = last < 0 ? 0 : last / g.stride[2] + 1;
    // The pixels of an image row whose window element falls on data are one segment. Segments of equal length are
    // multiplied together.
    int64_t pixel = 0, count = 0, steps = 0;
    auto flush = [&] {
      if (count) {
        multiply_segments(from, work, tap, count, steps, to, begun[size_t(tap)]);
        begun[size_t(tap)] = true;
      }
      count = 0;
    };
    for (size_t i = slices[slice]; i < slices[slice + 1]; pixel += spans[i].end - spans[i].begin, ++i) {
      const Span& span = spans[i];
      const int64_t a = span.line[0] * g.stride[0] + shift[0], b = span.line[1] * g.stride[1] + shift[1];
      const int64_t begin = std::max(span.begin, low), length = std::min(span.end, high) - begin;
      if (length <= 0 || uint64_t(a) >= uint64_t(x.side.size[0]) || uint64_t(b) >= uint64_t(x.side.size[1])) continue;
      if (length != steps) flush();
      steps = length;
      GemmSegment& now = work.segments[count++];
      int64_t first = (pixel + begin - span.begin) * kernel.rows, filter = 1;
      if (unit_stride_pixels) {
        first = span.image * g.y.image + span.line[0] * g.y.space[0] + span.line[1] * g.y.space[1] + begin;
        filter = g.y.channel;
      }
      for (int64_t j = 0; j < kernel.rows; ++j) now.a[j] = (first + j * filter) * int64_t(sizeof(float));
      now.b = (span.image * x.side.image + a * x.side.space[0] + b * x.side.space[1] +
               (begin * g.stride[2] + shift[2]) * x.side.space[2]) *
              int64_t(sizeof(float));
    }
    flush();
  }

  // Multiplies `count` parts of image rows, of `steps` pixels each, at one tap (window element). The input channels of
  // one panel stay in the first-level cache while all tiles of filters use them.
  void multiply_segments(const float* from, const Work& work, int64_t tap, int64_t count, int64_t steps, float* to,
                         bool add) const {
    float spare[kGemmRows * 32];
    const int64_t pixel_step = g.stride[2] * x.side.space[2], step = cache_set_conflict ? kernel.columns : pixel_step;
    // The byte offsets in x. Used only if x is copied to contiguous memory.
    std::array<int64_t, kSlicePixels> in_x;
    for (int64_t s = 0; cache_set_conflict && s < count; ++s) {
      in_x[size_t(s)] = work.segments[s].b;
      work.segments[s].b = s * steps * kernel.columns * int64_t(sizeof(float));
    }
    const int64_t rest = g.y.channels % kernel.rows;
    for (int64_t s = 0; unit_stride_pixels && rest && s < count;
         // If filters do not fill the last tile, its remaining rows read the tile's first filter.
         ++s) {
      work.last[s] = work.segments[s];
      for (int64_t j = rest; j < kernel.rows; ++j) work.last[s].a[j] = work.last[s].a[0];
    }
    for (int64_t panel = 0; panel < panels; ++panel) {
      const float* b = from + work.group * g.x.channels + panel * kernel.columns;
      if (cache_set_conflict) {
        for (int64_t s = 0; s < count; ++s)
          kernel.pack(reinterpret_cast<const float*>(reinterpret_cast<const char*>(b) + in_x[size_t(s)]), 1, pixel_step,
                      kernel.columns, steps, work.columns + s * steps * kernel.columns);
        b = work.columns;
      }
      for (int64_t t = 0; t < work.tiles; ++t) {
        const int64_t k = (work.tile + t) * kernel.rows, used = std::min(kernel.rows, g.y.channels - k);
        const float* a = unit_stride_pixels ? work.filters + (work.group * g.y.channels + k) * g.y.channel
                                            : work.packed + t * kSlicePixels * kernel.rows;
        const GemmSegment* segments = unit_stride_pixels && used < kernel.rows ? work.last : work.segments;
        const int64_t a_step = unit_stride_pixels ? 1 : kernel.rows;
        float* sums = to + offset_of_sums(work.group, k, tap) + panel * kernel.columns;
        if (used == kernel.rows || !direct_store) {
          kernel.multiply({segments, count, steps, a, a_step, b, step, sums, pitch(), add});
          continue;
        }
        kernel.multiply({segments, count, steps, a, a_step, b, step, spare, kernel.columns, false});
        for (int64_t i = 0; i < used; ++i)
          for (int64_t j = 0; j < kernel.columns; ++j)
            sums[i * pitch() + j] = spare[i * kernel.columns + j] + (add ? sums[i * pitch() + j] : 0);
      }
    }
  }

  void clear_tap(const Work& work, int64_t tap, float* to) const {
    const int64_t first = work.tile * kernel.rows, end = std::min(first + work.tiles * kernel.rows, g.y.channels);
    for (int64_t k = first; k < end; ++k)
      std::fill_n(to + offset_of_sums(work.group, k, tap), panels * kernel.columns, 0.0f);
  }

  bool taps_are_neighbours() const {
    int64_t dense = 1;
    for (int j = kMaxSpatial - 1; j >= 0; dense *= g.window[j--])
      if (g.window[j] > 1 && g.w_space[j] != dense) return false;
    return true;
  }

  // Copies the sums of dw, [filter, tap (window element), input channel], to the layout of dw.
  template <class Y> void write_filters(const float* sums, Y* dw, const Work& work) const {
    const int64_t first = work.tile * kernel.rows, end = std::min(first + work.tiles * kernel.rows, g.y.channels);
    const int64_t channels = g.x.channels;
    if constexpr (sizeof(Y) == 4) {
      // The fastest index is the filter in dw, but the input channel in the sums. So the sums are transposed.
      if (taps == 1 && g.w_filter == 1) {
        float* to = dw + g.w_origin + work.group * g.y.channels + first;
        kernels.transpose(sums + offset_of_sums(work.group, first, 0), line(), end - first, channels, to, g.w_channel);
        return;
      }
      if (taps > 1 && taps_are_neighbours()) {
        for (int64_t k = first; k < end; ++k)
          kernels.transpose(sums + offset_of_sums(work.group, k, 0), panels * kernel.columns, taps, channels,
                            dw + (work.group * g.y.channels + k) * g.w_filter, g.w_channel);
        return;
      }
    }
    for (int64_t k = first; k < end; ++k) {
      Y* filter = dw + g.w_origin + (work.group * g.y.channels + k) * g.w_filter;
      for (int64_t tap = 0; tap < taps; ++tap) {
        const float* from = sums + offset_of_sums(work.group, k, tap);
        int64_t rest = tap, at = 0;
        for (int j = kMaxSpatial - 1; j >= 0; rest /= g.window[j--]) at += rest % g.window[j] * g.w_space[j];
        for (int64_t c = 0; c < channels; ++c) filter[at + c * g.w_channel] = Y(from[c]);
      }
    }
  }
};

}  // namespace

struct ImplicitGemmFilter final : PlanEngine<ImplicitGemmFilterTiling, ImplicitGemmFilterPlan> {
  std::string name() const override { return "cpu.conv.implicit_gemm_filter"; }
  std::string why_not(const ConvProblem& p, const Device&) const override {
    if (p.direction != ConvDirection::backward_filter) return "supports backward_filter only";
    if (operand_dtype(p) == DType::float64) return "float64 is not supported";
    if (p.y.numel() == 0 || p.w.numel() == 0) return "w or y is empty";
    return "";
  }
  double estimate_us(const ConvProblem& p, const Device& d) const override {
    const GemmKernel<float>& kernel = gemm_kernels().f32;
    const ConvGeometry g = conv_geometry(p);
    const double waste = wasted(g.y.channels, kernel.rows) * wasted(g.x.channels, kernel.columns);
    const bool amx = operand_dtype(p) == DType::bfloat16 && bf16_products();
    const double of_amx = amx ? amx_cost(is_pointwise(g)) : 1;
    return roofline_us(conv_flop(p) * waste * of_amx / 10, conv_bytes(p), d, 0.92);
  }
};

}  // namespace cpu::conv

template const Engine<ConvProblem>& engine_object<ConvProblem, cpu::conv::ImplicitGemmFilter>();

}  // namespace minidnn
