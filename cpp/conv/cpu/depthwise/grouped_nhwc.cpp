// SPDX-License-Identifier: Apache-2.0
// cpu.conv.grouped_nhwc: depthwise convolutions and convolutions with groups of 2, 4 or 8 channels, forward and both
// gradients. Each group has as many input channels as output channels. A SIMD vector holds adjacent channels of one
// pixel, usually those of several groups. An image row is divided into zones of pixels that use the same window
// elements, so window elements on padding are left out. A tensor that is not float32 channels-last is first copied to
// that form. A result that is not channels-last is transposed row by row.
#include <algorithm>

#include "cpp/conv/conv.h"
#include "cpp/conv/cpu/depthwise/grouped_nhwc_tiling.h"
#include "cpp/conv/cpu/plan_engine.h"
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/simd/gemm_microkernel.h"

namespace minidnn {
namespace cpu::conv {
namespace {

struct GroupedNhwcPlan final : TypedPlan<GroupedNhwcPlan, GroupedNhwcTiling> {
  using TypedPlan::TypedPlan;

  // The taps (window elements) that one image row uses. One object is reused for many rows, which avoids allocations.
  struct LineTaps {
    std::vector<int64_t> taps, at;
    struct Span {
      const Zone* zone;
      size_t begin, end;
    };
    std::vector<Span> spans;
  };
  // Finds the taps (window elements) of one result row, or only the topmost tap of each window column if `tops`.
  void find_taps(const Phase& phase, int64_t image, int64_t a, int64_t b, bool tops, LineTaps& used) const {
    used.taps.clear();
    used.at.clear();
    used.spans.clear();
    for (const Zone& zone : phase.zones) {
      const size_t begin = used.taps.size();
      for (int64_t t : zone.taps) {
        const ConvTap& tap = phase.taps[size_t(t)];
        const int64_t h = a * in_step[0] + tap.shift[0], w = b * in_step[1] + tap.shift[1];
        const bool line = tops ? tap.shift[1] == phase.top : uint64_t(w) < uint64_t(in.side.size[1]);
        if (!line || uint64_t(h) >= uint64_t(in.side.size[0])) continue;
        used.taps.push_back(t);
        used.at.push_back(image * in.side.image + h * in.side.space[0] + w * in.side.space[1] +
                          (zone.begin * in_step[2] + tap.shift[2]) * in.side.space[2]);
      }
      used.spans.push_back({&zone, begin, used.taps.size()});
    }
  }
  // Prefetches the input row that the next result row reads and the current one does not. The hardware prefetcher
  // cannot follow all streams of reads of a convolution.
  void prefetch_next(const Phase& phase, int64_t image, int64_t a, int64_t b, const float* x) const {
    if (phase.taps.empty()) return;
    int64_t last = phase.taps[0].shift[1];
    for (const ConvTap& tap : phase.taps) last = std::max(last, tap.shift[1]);
    const int64_t h = a * in_step[0] + phase.taps[0].shift[0], w = (b + 1) * in_step[1] + last;
    if (uint64_t(h) >= uint64_t(in.side.size[0]) || uint64_t(w) >= uint64_t(in.side.size[1])) return;
    const float* next = x + image * in.side.image + h * in.side.space[0] + w * in.side.space[1];
    for (int64_t i = 0; i < in.side.size[2] * in.side.space[2]; i += 16) __builtin_prefetch(next + i, 0, 2);
  }

  // Packs the weights as [window element, input channel of the group, output channel].
  template <class T> void pack_weights(const T* w, float* to) const {
    const int64_t w_in = backward ? g.w_filter : g.w_channel, w_out = backward ? g.w_channel : g.w_filter;
    for (const Phase& phase : phases) {
      float* at = to + phase.weights_at;
      for (const ConvTap& tap : phase.taps)
        for (int64_t i = 0; i < size; ++i)
          for (int64_t group = 0; group < g.groups; ++group)
            for (int64_t j = 0; j < size; ++j)
              *at++ = float(w[tap.w + group * size * g.w_filter + i * w_in + j * w_out]);
    }
  }

  template <class T, class Y> void compute(const ConvArgs& args, char* workspace) const {
    const float* x = in.read_floats(backward ? args.dy : args.x, workspace + in_at);
    if (filter) return compute_filters<T, Y>(args, x, workspace);
    float* weights = reinterpret_cast<float*>(workspace + weights_at);
    pack_weights(static_cast<const T*>(args.w), weights);
    for (const Phase& phase : phases) {
      const int64_t rows = phase.rows(), lines[] = {g.images, phase.count[0], ceil_div(phase.count[1], rows)};
      const int64_t work = rows * phase.count[2] * channels * size * std::max<int64_t>(1, int64_t(phase.taps.size()));
      // A thread computes adjacent result rows, because they read the same rows of x.
      const int64_t all = lines[0] * lines[1] * lines[2],
                    grain = std::max<int64_t>({1, cpu::work_size(65536) / work, all / (threads * 8)});
      cpu::parallel_items(ceil_div(all, grain), [&](int64_t item, int64_t thread) {
        NdIterator<3> at(lines, item * grain);
        LineTaps used;
        float* scratch = reinterpret_cast<float*>(workspace + scratch_at + size_t(thread) * scratch_bytes);
        for (int64_t i = item * grain; i < std::min(all, (item + 1) * grain); ++i, at.advance()) {
          const int64_t first = at.at[2] * rows, end = std::min(first + rows, phase.count[1]);
          const int64_t some = end - first == rows ? rows : 1;
          for (int64_t row = first; row < end; row += some)
            compute_lines<T, Y>({phase, at.at[0], at.at[1], row, some}, args, x, weights, scratch, used);
        }
      });
    }
  }

  // `rows` adjacent result rows of one image. The first has the index [depth, row].
  struct Lines {
    const Phase& phase;
    int64_t image, depth, row, rows;
  };
  // Where the kernel stores the sums of its products: in scratch memory, or directly in the result.
  struct Sums {
    float* to;
    // `pixel` is the number of floats from one pixel to the next. `row` is the number of floats from one image row to
    // the next.
    int64_t pixel, row;
  };
  // Returns the offset of the first pixel of the rows `l` in `side`, which is the result or the residual.
  int64_t offset_of(const ConvTensorView& side, const Lines& l) const {
    return l.image * side.image + (l.phase.first[0] + l.depth * step[0]) * side.space[0] +
           (l.phase.first[1] + l.row * step[1]) * side.space[1] + l.phase.first[2] * side.space[2];
  }

  template <class T, class Y> void compute_lines(const Lines& l, const ConvArgs& args, const float* x,
                                                 const float* weights, float* scratch, LineTaps& used) const {
    Epilogue finish;
    finish.activation = activation_on_floats(g.activation);
    finish.activation_alpha = float(args.activation_alpha);
    finish.beta = 1;
    const bool direct_store = nhwc_output && sizeof(Y) == 4 && !g.has_bias && !args.residual && finish.plain();
    if (direct_store) {
      float* y = static_cast<float*>(args.out) + offset_of(out, l);
      return sum_lines(l, x, weights, {y, out.space[2] * step[2], out.space[1] * step[1]}, used);
    }
    sum_lines(l, x, weights, {scratch, channels, longest * channels}, used);
    for (int64_t r = 0; r < l.rows; ++r) write_line<T, Y>(l, r, args, finish, scratch);
  }

  void sum_lines(const Lines& l, const float* x, const float* weights, const Sums& sums, LineTaps& used) const {
    const Phase& phase = l.phase;
    find_taps(phase, l.image, l.depth, l.row, l.rows > 1, used);
    for (int64_t& t : used.taps) t *= size * channels;
    if (l.rows == 1) prefetch_next(phase, l.image, l.depth, l.row, x);
    // A whole image row is computed for one chunk of channels, whose weights stay in the first-level cache.
    constexpr int64_t kWeights = 4096, kFewest = 64;
    const int64_t some =
        std::max<int64_t>(cpu::work_size(kWeights) / (int64_t(phase.taps.size()) * size + 1) / kFewest, 1) * kFewest;
    const int64_t above = l.row + phase.top;
    GroupedNhwcSums o;
    o.x_step = in_step[2] * in.side.space[2];
    o.x_row = in.side.space[1];
    o.w_step = l.rows > 1 ? phase.next * channels : channels;
    o.y_step = sums.pixel;
    o.y_row = sums.row;
    o.height = phase.height;
    o.first = -above;
    o.end = in.side.size[1] - above;
    for (int64_t c = 0; c < channels; c += some)
      for (const LineTaps::Span& span : used.spans) {
        o.at = used.at.data() + span.begin;
        o.w_at = used.taps.data() + span.begin;
        o.taps = int64_t(span.end - span.begin);
        o.x = x + c;
        o.w = weights + phase.weights_at + c;
        o.y = sums.to + span.zone->begin * sums.pixel + c;
        o.pixels = span.zone->end - span.zone->begin;
        o.channels = std::min(some, channels - c);
        if (l.rows > 1) kernels.lines(o);
        else kernels.pixels(size, o);
      }
  }

  // Applies bias, residual and activation to the sums of result row r, and stores the results in y.
  template <class T, class Y> void write_line(const Lines& l, int64_t r, const ConvArgs& args, Epilogue finish,
                                              float* scratch) const {
    const int64_t pixels = l.phase.count[2], y_pixel = out.space[2] * step[2], c_pixel = g.residual.space[2] * step[2];
    float* line = scratch + r * longest * channels;
    Y* y = static_cast<Y*>(args.out) + offset_of(out, l) + r * out.space[1] * step[1];
    const Y* c = nullptr;
    if (args.residual)
      c = static_cast<const Y*>(args.residual) + offset_of(g.residual, l) + r * g.residual.space[1] * step[1];
    const void* bias = g.has_bias ? args.bias : nullptr;
    int64_t* y_rows =
        reinterpret_cast<int64_t*>(scratch + longest * channels * (kGroupedNhwcRows + (nhwc_output ? 0 : 1)));
    int64_t* c_rows = y_rows + std::max(longest, channels);
    if (nhwc_output) {
      for (int64_t i = 0; i < pixels; ++i) {
        y_rows[i] = i * y_pixel;
        c_rows[i] = i * c_pixel;
      }
      finish.c_column = g.residual.channel;
      finish.bias_column = g.bias_stride;
      gemm_finish<T, Y>()(finish, {line, channels, pixels, channels, y, y_rows, c, c_rows, bias});
      return;
    }
    float* transposed = scratch + longest * channels * kGroupedNhwcRows;
    gemm_kernels().transpose(line, channels, pixels, channels, transposed, pixels);
    for (int64_t i = 0; i < channels; ++i) {
      y_rows[i] = i * out.channel;
      c_rows[i] = i * g.residual.channel;
    }
    finish.y_column = y_pixel;
    finish.c_column = c_pixel;
    finish.bias_row = g.bias_stride;
    gemm_finish<T, Y>()(finish, {transposed, pixels, channels, pixels, y, y_rows, c, c_rows, bias});
  }

  // Computes dw. Each chunk of image rows of dy has its own partial sums, which are added up at the end.
  template <class T, class Y> void compute_filters(const ConvArgs& args, const float* x, char* workspace) const {
    const float* gradient = dy.read_floats(args.dy, workspace + dy_at);
    const Phase& phase = phases.front();
    const int64_t lanes = kernels.lanes, vectors = channels / lanes, taps = int64_t(phase.taps.size());
    const int64_t of_vector = taps * size * lanes, blocks = ceil_div(vectors, vectors_of_item);
    const int64_t lines[] = {g.images, phase.count[0], phase.count[1]}, all = lines[0] * lines[1] * lines[2];
    // The sums of dw as [chunk of image rows, vector of channels, window element, input channel of the group, lane].
    float* sums = reinterpret_cast<float*>(workspace + weights_at);
    cpu::parallel_items(chunks * blocks, [&](int64_t item, int64_t) {
      const int64_t chunk = item / blocks, first_vector = item % blocks * vectors_of_item;
      const int64_t end = std::min(first_vector + vectors_of_item, vectors);
      float* to = sums + (chunk * vectors + first_vector) * of_vector;
      std::fill_n(to, (end - first_vector) * of_vector, 0.0f);
      NdIterator<3> line(lines, chunk * lines_of_chunk);
      LineTaps used;
      const int64_t last_line = std::min(all, (chunk + 1) * lines_of_chunk);
      for (int64_t i = chunk * lines_of_chunk, rows; i < last_line; i += rows) {
        const int64_t b = line.at[2], boundary = *std::ranges::upper_bound(phase.row_boundaries, b);
        rows = std::min({boundary - b, last_line - i, kGroupedNhwcRows});
        find_taps(phase, line.at[0], line.at[1], b, false, used);
        for (const LineTaps::Span& zone : used.spans) {
          const float* from = gradient + line.at[0] * dy.side.image + line.at[1] * dy.side.space[0] +
                              b * dy.side.space[1] + zone.zone->begin * dy.side.space[2];
          for (int64_t v = first_vector; v < end; ++v)
            kernels.filters(size, {used.at.data() + zone.begin, used.taps.data() + zone.begin,
                                   int64_t(zone.end - zone.begin), x + v * lanes, in_step[1] * in.side.space[1],
                                   in_step[2] * in.side.space[2], from + v * lanes, dy.side.space[1], dy.side.space[2],
                                   rows, zone.zone->end - zone.zone->begin, to + (v - first_vector) * of_vector});
        }
        for (int64_t r = 0; r < rows; ++r) line.advance();
      }
    });
    Y* dw = static_cast<Y*>(args.out);
    cpu::parallel_for(vectors, cpu::work_size(65536) / (of_vector * chunks) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t v = begin; v < end; ++v)
        for (int64_t t = 0; t < taps; ++t)
          for (int64_t i = 0; i < size; ++i)
            for (int64_t k = 0; k < lanes; ++k) {
              float sum = 0;
              for (int64_t chunk = 0; chunk < chunks; ++chunk)
                sum += sums[(chunk * vectors + v) * of_vector + (t * size + i) * lanes + k];
              dw[phase.taps[size_t(t)].w + (v * lanes + k) * g.w_filter + i * g.w_channel] = Y(sum);
            }
    });
  }
};

}  // namespace

struct GroupedNhwc final : PlanEngine<GroupedNhwcTiling, GroupedNhwcPlan> {
  std::string name() const override { return "cpu.conv.grouped_nhwc"; }
  std::string why_not(const ConvProblem& p, const Device&) const override {
    if (p.direction == ConvDirection::backward_bias) return "backward_bias is not supported";
    if (operand_dtype(p) == DType::float64) return "float64 is not supported";
    if (p.y.numel() == 0 || p.x.numel() == 0 || p.w.numel() == 0) return "x, w or y is empty";
    const int64_t size = p.w.shape[1], lanes = grouped_nhwc_kernels().lanes, channels = p.x.shape[1];
    if (p.w.shape[0] != channels || (size != 1 && size != 2 && size != 4 && size != 8) || size > lanes)
      return cat("supports groups of 1, 2, 4 or 8 channels, at most ", lanes, ", with as many filters; got ", size,
                 " channels in a group, ", channels, " channels and ", p.w.shape[0], " filters");
    if (channels % lanes) return cat("needs a multiple of ", lanes, " channels; got ", channels);
    return "";
  }
  double estimate_us(const ConvProblem& p, const Device& d) const override {
    // If x or y is not channels-last, the engine first copies it. The copy costs additional memory traffic.
    const ConvGeometry g = conv_geometry(p);
    const bool copied = g.x.channel != 1 || g.y.channel != 1;
    const double loads = p.direction == ConvDirection::backward_filter ? 1 + 2 / double(g.x.channels) : 1;
    return roofline_us(conv_flop(p) * loads / 5, conv_bytes(p) * (copied ? 2.5 : 1), d, 0.8);
  }
};

}  // namespace cpu::conv

template const Engine<ConvProblem>& engine_object<ConvProblem, cpu::conv::GroupedNhwc>();

}  // namespace minidnn
