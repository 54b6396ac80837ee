// SPDX-License-Identifier: Apache-2.0
// cpu.conv.grouped_nhwc: all directions of depthwise convolutions and of convolutions with groups of 2, 4 or 8 channels on
// both sides. A vector holds neighbouring channels of one pixel, those of several groups. A line of pixels is split
// into zones where the set of taps that fall on data changes. A tensor that is not float32 channels-last is copied
// first; a result in another layout is transposed line by line.
#include <algorithm>
#include <tuple>

#include "cpp/conv/conv.h"
#include "cpp/conv/cpu/grouped_nhwc_kernel.h"
#include "cpp/conv/cpu/phases.h"
#include "cpp/conv/cpu/to_nhwc.h"
#include "cpp/core/thread_pool.h"
#include "cpp/core/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/simd/gemm_microkernel.h"

namespace minidnn {
namespace cpu::conv {
namespace {

constexpr int64_t kSumBytes = 16 << 10;  // bytes of filter-gradient sums: fits a first-level cache
// filter gradient: number of work items to reach, and the fewest products of each
constexpr int64_t kItems = 16, kPartWork = 1 << 20;

// Pixels `begin` to `end` of a line: for all of them, exactly these taps fall on data in the last dimension.
struct Zone {
  int64_t begin, end;
  std::vector<int64_t> taps;
};
struct Phase : ConvPhase {
  std::vector<Zone> zones;
  std::vector<int64_t> row_cuts;  // line indices: all lines between two of these use the same taps
  int64_t weights_at = 0;
  // If the taps form columns of `height` consecutive lines: `top` is the shift of the first one in a column, `next` is
  // the distance in taps between the weights of two consecutive ones. Otherwise `height` is 0.
  int64_t height = 0, top = 0, next = 0;
  int64_t rows() const { return height ? kGroupsRows : 1; }  // result lines computed at a time
};

struct GroupsPlan final : Plan<ConvProblem> {
  ConvProblem p;
  ConvGeometry g;
  const GroupedNhwcKernels& kernels = grouped_nhwc_kernels();
  ChannelsLast in, dy;  // dy: only for a filter gradient
  ConvTensorView out;
  bool backward, filter, last;
  int64_t size, channels, threads;  // channels of a group; channels in total
  int64_t step[kMaxSpatial], in_step[kMaxSpatial];
  std::vector<Phase> phases;
  int64_t longest = 0;  // the longest line of a result
  size_t in_at = 0, dy_at = 0, weights_at = 0, rooms_at = 0, room_bytes = 0, bytes = 0;
  // filter gradient: vectors per item; lines per part; number of parts
  int64_t some_vectors = 1, lines_of_part = 0, parts = 1;

  static ChannelsLast read(const ConvProblem& p, const ConvGeometry& g, const ConvTensorView& side) {
    return {side, operand_dtype(p), g.images, g.groups, false, {}};
  }

  GroupsPlan(const ConvProblem& problem, const Device& d)
      : p(problem),
        g(conv_geometry(problem)),
        in(read(p, g, g.backward_data ? g.y : g.x)),
        dy(read(p, g, g.y)),
        out(conv_out(g)),
        backward(g.backward_data),
        filter(p.direction == ConvDirection::backward_filter),
        last(out.channel == 1),
        size(g.x.channels),
        channels(g.groups * size),
        threads(d.sm_count) {
    int64_t taps = 0;
    for (int j = 0; j < kMaxSpatial; ++j) step[j] = backward ? g.stride[j] : 1, in_step[j] = backward ? 1 : g.stride[j];
    for (ConvPhase& phase : conv_phases(g)) {
      phases.push_back({std::move(phase)});
      phases.back().weights_at = taps * size * channels;
      taps += int64_t(phases.back().taps.size());
      longest = std::max(longest, phases.back().count[2]);
      find_zones(phases.back());
      find_columns(phases.back());
    }
    auto reserve = [&](size_t n) {
      size_t at = bytes;
      bytes += ceil_div<size_t>(n, 4096) * 4096;
      return at;
    };
    in_at = reserve(in.bytes());
    if (filter) dy_at = reserve(dy.bytes());
    if (filter) {
      const int64_t vectors = channels / kernels.lanes, lines = g.images * phases[0].count[0] * phases[0].count[1];
      some_vectors = std::clamp<int64_t>(
          cpu::work_size(kSumBytes) / (taps * size * kernels.lanes * int64_t(sizeof(float))), 1, vectors);
      const int64_t work = phases[0].count[2] * channels * size * taps;
      parts = std::clamp<int64_t>(lines * work / cpu::work_size(kPartWork), 1,
                                  ceil_div(kItems, ceil_div(vectors, some_vectors)));
      lines_of_part = ceil_div(lines, parts), parts = ceil_div(lines, lines_of_part);
      weights_at = reserve(size_t(parts * taps * size * channels) * sizeof(float));
      return;
    }
    weights_at = reserve(size_t(taps * size * channels) * sizeof(float));
    room_bytes = size_t(longest * channels * (kGroupsRows + (last ? 0 : 1))) * sizeof(float) +
                 2 * size_t(std::max(longest, channels)) * sizeof(int64_t);
    room_bytes = ceil_div<size_t>(room_bytes, 4096) * 4096;
    rooms_at = reserve(room_bytes * size_t(threads));
  }

  // The range of pixels in dimension j for which a tap falls on data.
  std::pair<int64_t, int64_t> met_by(const Phase& phase, const ConvTap& tap, int j) const {
    const int64_t shift = tap.shift[j], over = in.side.size[j] - 1 - shift, all = phase.count[j];
    return {std::min(all, shift < 0 ? ceil_div(-shift, in_step[j]) : 0),
            std::min(all, over < 0 ? 0 : over / in_step[j] + 1)};
  }
  // Indices in dimension j: all pixels between two of these use the same taps.
  std::vector<int64_t> cuts(const Phase& phase, int j) const {
    std::vector<int64_t> all{0, phase.count[j]};
    for (const ConvTap& tap : phase.taps) {
      const auto [begin, end] = met_by(phase, tap, j);
      all.push_back(begin), all.push_back(end);
    }
    std::ranges::sort(all);
    all.erase(std::ranges::unique(all).begin(), all.end());
    return all;
  }
  void find_zones(Phase& phase) const {
    phase.row_cuts = cuts(phase, 1);
    const std::vector<int64_t> all = cuts(phase, 2);
    for (size_t i = 0; i + 1 < all.size(); ++i) {
      Zone zone{all[i], all[i + 1], {}};
      for (size_t t = 0; t < phase.taps.size(); ++t) {
        const auto [begin, end] = met_by(phase, phase.taps[t], 2);
        if (begin <= zone.begin && zone.end <= end) zone.taps.push_back(int64_t(t));
      }
      phase.zones.push_back(std::move(zone));
    }
  }

  void find_columns(Phase& phase) const {
    if (size != 1 || filter || in_step[1] != 1 || phase.taps.empty()) return;
    auto order = [](const ConvTap& t) { return std::tuple(t.shift[0], t.shift[2], t.shift[1]); };
    std::vector<int64_t> taps(phase.taps.size());
    for (size_t t = 0; t < taps.size(); ++t) taps[t] = int64_t(t);
    std::ranges::sort(taps, {}, [&](int64_t t) { return order(phase.taps[size_t(t)]); });
    auto tap = [&](size_t i) -> const ConvTap& { return phase.taps[size_t(taps[i])]; };
    size_t height = 1;
    while (height < taps.size() && tap(height).shift[2] == tap(0).shift[2] && tap(height).shift[0] == tap(0).shift[0])
      ++height;
    if (height < 3 || height > 7 || height % 2 == 0 || taps.size() % height) return;
    for (size_t i = 0; i < taps.size(); ++i) {
      const size_t first = i / height * height;
      const bool below = tap(i).shift[1] == tap(0).shift[1] + int64_t(i - first) &&
                         tap(i).shift[2] == tap(first).shift[2] && tap(i).shift[0] == tap(first).shift[0];
      if (!below || taps[i] - taps[first] != int64_t(i - first) * (taps[1] - taps[0])) return;
    }
    phase.height = int64_t(height), phase.top = tap(0).shift[1], phase.next = taps[1] - taps[0];
  }

  // The taps that a line uses, zone by zone. One object is reused from line to line, which avoids allocations.
  struct Met {
    std::vector<int64_t> taps, at;
    struct Part {
      const Zone* zone;
      size_t begin, end;
    };
    std::vector<Part> parts;
  };
  // Fills `met` with the taps of a line, and the offset that each reads for its zone's first pixel. With `tops`
  // (several lines at a time), lists only the first tap of each column, whose line of x may be outside the input.
  void find_taps(const Phase& phase, int64_t image, int64_t a, int64_t b, bool tops, Met& met) const {
    met.taps.clear(), met.at.clear(), met.parts.clear();
    for (const Zone& zone : phase.zones) {
      const size_t begin = met.taps.size();
      for (int64_t t : zone.taps) {
        const ConvTap& tap = phase.taps[size_t(t)];
        const int64_t h = a * in_step[0] + tap.shift[0], w = b * in_step[1] + tap.shift[1];
        const bool line = tops ? tap.shift[1] == phase.top : uint64_t(w) < uint64_t(in.side.size[1]);
        if (!line || uint64_t(h) >= uint64_t(in.side.size[0])) continue;
        met.taps.push_back(t);
        met.at.push_back(image * in.side.image + h * in.side.space[0] + w * in.side.space[1] +
                         (zone.begin * in_step[2] + tap.shift[2]) * in.side.space[2]);
      }
      met.parts.push_back({&zone, begin, met.taps.size()});
    }
  }
  // Prefetches the line of x that the next result line is the first to read: these are more lines than the hardware
  // prefetcher follows.
  void ask_for_next(const Phase& phase, int64_t image, int64_t a, int64_t b, const float* x) const {
    if (phase.taps.empty()) return;
    int64_t last = phase.taps[0].shift[1];
    for (const ConvTap& tap : phase.taps) last = std::max(last, tap.shift[1]);
    const int64_t h = a * in_step[0] + phase.taps[0].shift[0], w = (b + 1) * in_step[1] + last;
    if (uint64_t(h) >= uint64_t(in.side.size[0]) || uint64_t(w) >= uint64_t(in.side.size[1])) return;
    const float* next = x + image * in.side.image + h * in.side.space[0] + w * in.side.space[1];
    for (int64_t i = 0; i < in.side.size[2] * in.side.space[2]; i += 16) __builtin_prefetch(next + i, 0, 2);
  }

  // Packs the weights as [tap, input channel of the group, output channel], separately for each phase.
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
    const float* x = in.read(backward ? args.dy : args.x, workspace + in_at);
    if (filter) return compute_filters<T, Y>(args, x, workspace);
    float* weights = reinterpret_cast<float*>(workspace + weights_at);
    pack_weights(static_cast<const T*>(args.w), weights);
    for (const Phase& phase : phases) {
      const int64_t rows = phase.rows(), lines[] = {g.images, phase.count[0], ceil_div(phase.count[1], rows)};
      const int64_t work = rows * phase.count[2] * channels * size * std::max<int64_t>(1, int64_t(phase.taps.size()));
      // Neighbouring lines, which read the same lines of x, are computed by one thread.
      const int64_t all = lines[0] * lines[1] * lines[2],
                    grain = std::max<int64_t>({1, cpu::work_size(65536) / work, all / (threads * 8)});
      cpu::parallel_items(ceil_div(all, grain), [&](int64_t item, int64_t room) {
        NdIterator<3> at(lines, item * grain);
        Met met;
        char* memory = workspace + rooms_at + size_t(room) * room_bytes;
        for (int64_t i = item * grain; i < std::min(all, (item + 1) * grain); ++i, at.advance()) {
          const int64_t first = at.at[2] * rows, end = std::min(first + rows, phase.count[1]);
          const int64_t some = end - first == rows ? rows : 1;
          for (int64_t b = first; b < end; b += some)
            compute_lines<T, Y>(phase, at.at[0], at.at[1], b, some, args, x, weights + phase.weights_at, memory, met);
        }
      });
    }
  }

  template <class T, class Y> void compute_lines(const Phase& phase, int64_t image, int64_t a, int64_t b, int64_t rows,
                                                 const ConvArgs& args, const float* x, const float* weights, char* room,
                                                 Met& met) const {
    const int64_t pixels = phase.count[2];
    auto start = [&](const ConvTensorView& s) {
      return image * s.image + (phase.first[0] + a * step[0]) * s.space[0] +
             (phase.first[1] + b * step[1]) * s.space[1] + phase.first[2] * s.space[2];
    };
    Epilogue finish;
    finish.activation = activation_on_floats(g.activation), finish.activation_alpha = float(args.activation_alpha),
    finish.beta = 1;
    const bool straight = last && sizeof(Y) == 4 && !g.has_bias && !args.residual && finish.plain();
    const int64_t y_pixel = out.space[2] * step[2], c_pixel = g.residual.space[2] * step[2];
    float* sums = reinterpret_cast<float*>(room);
    int64_t pitch = channels, row = longest * channels;
    if (straight) sums = static_cast<float*>(args.out) + start(out), pitch = y_pixel, row = out.space[1] * step[1];
    find_taps(phase, image, a, b, rows > 1, met);
    for (int64_t& t : met.taps) t *= size * channels;
    if (rows == 1) ask_for_next(phase, image, a, b, x);
    // The weights of some channels stay in the first-level cache for the whole line.
    constexpr int64_t kWeights = 4096, kFewest = 64;
    const int64_t some =
        std::max<int64_t>(cpu::work_size(kWeights) / (int64_t(phase.taps.size()) * size + 1) / kFewest, 1) * kFewest;
    const int64_t x_step = in_step[2] * in.side.space[2], above = b + phase.top;
    for (int64_t c = 0; c < channels; c += some)
      for (const Met::Part& part : met.parts) {
        const int64_t *at = met.at.data() + part.begin, *w_at = met.taps.data() + part.begin,
                      taps = int64_t(part.end - part.begin), n = part.zone->end - part.zone->begin;
        float* to = sums + part.zone->begin * pitch + c;
        if (rows > 1)
          kernels.lines(phase.height, at, w_at, taps, x + c, in.side.space[1], x_step, -above, in.side.size[1] - above,
                        weights + c, phase.next * channels, to, row, pitch, n, std::min(some, channels - c));
        else
          kernels.pixels(size, at, w_at, taps, x + c, x_step, weights + c, channels, to, pitch, n,
                         std::min(some, channels - c));
      }
    for (int64_t r = 0; r < rows && !straight; ++r) {
      float* line = sums + r * row;
      Y* y = static_cast<Y*>(args.out) + start(out) + r * out.space[1] * step[1];
      const Y* c = args.residual
                       ? static_cast<const Y*>(args.residual) + start(g.residual) + r * g.residual.space[1] * step[1]
                       : nullptr;
      const void* bias = g.has_bias ? args.bias : nullptr;
      int64_t* y_rows = reinterpret_cast<int64_t*>(sums + longest * channels * (kGroupsRows + (last ? 0 : 1)));
      int64_t* c_rows = y_rows + std::max(longest, channels);
      if (last) {
        for (int64_t i = 0; i < pixels; ++i) y_rows[i] = i * y_pixel, c_rows[i] = i * c_pixel;
        finish.c_column = g.residual.channel, finish.bias_column = g.bias_stride;
        gemm_finish<T, Y>()(finish, line, channels, pixels, channels, y, y_rows, c, c_rows, bias);
      } else {
        float* turned = sums + longest * channels * kGroupsRows;
        gemm_kernels().transpose(line, channels, pixels, channels, turned, pixels);
        for (int64_t i = 0; i < channels; ++i) y_rows[i] = i * out.channel, c_rows[i] = i * g.residual.channel;
        finish.y_column = y_pixel, finish.c_column = c_pixel, finish.bias_row = g.bias_stride;
        gemm_finish<T, Y>()(finish, turned, pixels, channels, pixels, y, y_rows, c, c_rows, bias);
      }
    }
  }

  // A work item is some vectors of channels over one part of the lines.
  template <class T, class Y> void compute_filters(const ConvArgs& args, const float* x, char* workspace) const {
    const float* gradient = dy.read(args.dy, workspace + dy_at);
    const Phase& phase = phases.front();
    const int64_t lanes = kernels.lanes, vectors = channels / lanes, taps = int64_t(phase.taps.size());
    const int64_t of_vector = taps * size * lanes, blocks = ceil_div(vectors, some_vectors);
    const int64_t lines[] = {g.images, phase.count[0], phase.count[1]}, all = lines[0] * lines[1] * lines[2];
    float* sums = reinterpret_cast<float*>(workspace + weights_at);  // [part, vector, tap, channel of x, lane]
    cpu::parallel_items(parts * blocks, [&](int64_t item, int64_t) {
      const int64_t part = item / blocks, first_vector = item % blocks * some_vectors;
      const int64_t end = std::min(first_vector + some_vectors, vectors);
      float* to = sums + (part * vectors + first_vector) * of_vector;
      std::fill_n(to, (end - first_vector) * of_vector, 0.0f);
      NdIterator<3> line(lines, part * lines_of_part);
      Met met;
      const int64_t last_line = std::min(all, (part + 1) * lines_of_part);
      for (int64_t i = part * lines_of_part, rows; i < last_line; i += rows) {
        const int64_t b = line.at[2], cut = *std::ranges::upper_bound(phase.row_cuts, b);
        rows = std::min({cut - b, last_line - i, kGroupsRows});
        find_taps(phase, line.at[0], line.at[1], b, false, met);
        for (const Met::Part& zone : met.parts) {
          const float* from = gradient + line.at[0] * dy.side.image + line.at[1] * dy.side.space[0] +
                              b * dy.side.space[1] + zone.zone->begin * dy.side.space[2];
          for (int64_t v = first_vector; v < end; ++v)
            kernels.filters(size, met.at.data() + zone.begin, met.taps.data() + zone.begin,
                            int64_t(zone.end - zone.begin), x + v * lanes, in_step[1] * in.side.space[1],
                            in_step[2] * in.side.space[2], from + v * lanes, dy.side.space[1], dy.side.space[2], rows,
                            zone.zone->end - zone.zone->begin, to + (v - first_vector) * of_vector);
        }
        for (int64_t r = 0; r < rows; ++r) line.advance();
      }
    });
    Y* dw = static_cast<Y*>(args.out);
    cpu::parallel_for(vectors, cpu::work_size(65536) / (of_vector * parts) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t v = begin; v < end; ++v)
        for (int64_t t = 0; t < taps; ++t)
          for (int64_t i = 0; i < size; ++i)
            for (int64_t k = 0; k < lanes; ++k) {
              float sum = 0;
              for (int64_t part = 0; part < parts; ++part)
                sum += sums[(part * vectors + v) * of_vector + (t * size + i) * lanes + k];
              dw[phase.taps[size_t(t)].w + (v * lanes + k) * g.w_filter + i * g.w_channel] = Y(sum);
            }
    });
  }

  void run(const ConvArgs& args, void* workspace, Stream) const override {
    with_conv_types(p, [&](auto from, auto to) {
      using T = typename decltype(from)::type;
      using Y = typename decltype(to)::type;
      if constexpr (sizeof(T) != 8) compute<T, Y>(args, static_cast<char*>(workspace));
    });
  }
};

}  // namespace

struct GroupedNhwc final : Engine<ConvProblem> {
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
    // A tensor that is not channels-last is copied.
    const ConvGeometry g = conv_geometry(p);
    const bool copied = g.x.channel != 1 || g.y.channel != 1;
    const double loads = p.direction == ConvDirection::backward_filter ? 1 + 2 / double(g.x.channels) : 1;
    return roofline_us(conv_flop(p) * loads / 5, conv_bytes(p) * (copied ? 2.5 : 1), d, 0.8);
  }
  size_t workspace_bytes(const ConvProblem& p, const Device& d, const Config&) const override {
    return GroupsPlan(p, d).bytes;
  }
  std::unique_ptr<Plan<ConvProblem>> build(const ConvProblem& p, const Device& d, const Config&) const override {
    return std::make_unique<GroupsPlan>(p, d);
  }
};

}  // namespace cpu::conv

template const Engine<ConvProblem>& engine_object<ConvProblem, cpu::conv::GroupedNhwc>();

}  // namespace minidnn
