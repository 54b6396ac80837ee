// SPDX-License-Identifier: Apache-2.0
// cpu.conv.implicit_gemm: forward and backward_data as a matrix product that reads its operands in place. The rows of a tile
// are pixels of the result, its columns are about 16 output channels, and each segment ("run") of k is the input
// channels under one tap. Where that tap falls on padding, the row reads zeros instead. No columns are written (no
// im2col); only the weights are packed, once per call. A strided backward_data is split into phases: all pixels of a
// phase use the same taps, and each phase is a separate convolution. An operand that the kernel cannot read is copied
// first (channels_last.h).
#include <algorithm>
#include <cstring>
#include <span>

#include "cpp/conv/conv.h"
#include "cpp/conv/cpu/phases.h"
#include "cpp/conv/cpu/to_nhwc.h"
#include "cpp/core/thread_pool.h"
#include "cpp/core/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/simd/gemm_microkernel.h"

namespace minidnn {
namespace cpu::conv {
namespace {

// tiles per block: their input stays in the first cache levels while the kernel loops over the weights
constexpr int64_t kBlockTiles = 16;
// If the weights take more than kManyWeights bytes, and one panel of all phases takes at most kPanelBytes, each panel
// is packed just before the only block that reads it. Packing all weights in advance would move them through memory two
// more times.
constexpr int64_t kManyWeights = 2 << 20, kPanelBytes = 640 << 10;

struct Phase : ConvPhase {
  int64_t weights_at = 0;     // offset of the packed weights of the first group and panel, in floats
  std::vector<int64_t> runs;  // byte offset from the input under a pixel to the start of each run of k
  int64_t low[kMaxSpatial]{}, high[kMaxSpatial]{};  // smallest and largest shift of all taps
};

// One work item: `rows` rows of each of `phases` phases, times `panels` panels of output channels.
struct Block {
  int64_t phase, phases, group, row, rows, panel, panels;
};

// The rows that a block computes in one of its phases.
struct Rows {
  int64_t count, tiles;
  GemmSegment* segments;  // for each tile, where its rows read
  int64_t y[kBlockTiles * kGemmRows],
      c[kBlockTiles * kGemmRows];  // y: offset at which each row is written; c: offset of its residual
};

struct TilesPlan final : Plan<ConvProblem> {
  ConvProblem p;
  ConvGeometry g;
  bool backward;
  int64_t threads, merged = 1;  // number of taps that form one run of k
  ChannelsLast input_;
  ConvTensorView in, out;             // the input as the kernel reads it (perhaps a copy), and the result
  bool last = false;                  // the result is channels-last
  int64_t channels, columns, panels;  // per group: input channels, output channels, panels of output channels
  // weight strides by input and output channel; step between a phase's pixels in the result
  int64_t w_in, w_out, step[kMaxSpatial];
  int64_t in_step[kMaxSpatial];  // step between these pixels in the input
  bool lines = false;            // the taps of a filter are contiguous in memory and begin at lowest_tap
  int64_t lowest_tap = 0;
  std::vector<Phase> phases;
  std::vector<Block> blocks;
  size_t weights_at = 0, copy_at = 0, zeros_at = 0, rooms_at = 0, room_bytes = 0, bytes = 0;
  bool local = false;      // each block transposes its pixels into its thread's scratch
  bool by_panels = false;  // each block packs the weights that it reads
  int64_t block_rows;
  // byte offsets in a thread's scratch ("room"), after the segments
  size_t sums_at = 0, lines_at = 0, local_at = 0, panel_at = 0;
  const GemmKernels& kernels = gemm_kernels();
  const GemmKernel<float>& kernel = kernels.f32;

  TilesPlan(const ConvProblem& problem, const Device& d)
      : p(problem),
        g(without_gaps(conv_geometry(problem))),
        backward(g.backward_data),
        threads(d.sm_count),
        input_(input(p, g)) {
    in = input_.side, out = conv_out(g);
    channels = in.channels, columns = out.channels, panels = ceil_div(columns, kernel.columns);
    w_in = backward ? g.w_filter : g.w_channel, w_out = backward ? g.w_channel : g.w_filter;
    lowest_tap = g.w_origin;
    int64_t dense = 1;
    lines = volume(g.window) > 1 && volume(g.window) <= 256 && kernel.columns <= 32;
    for (int j = kMaxSpatial - 1; j >= 0; --j) {
      if (g.window[j] == 1) continue;
      lines = lines && std::abs(g.w_space[j]) == dense;
      lowest_tap += std::min<int64_t>(0, g.w_space[j] * (g.window[j] - 1));
      dense *= g.window[j];
    }
    last = out.channel == 1 || columns * g.groups == 1;
    for (ConvPhase& phase : conv_phases(g)) phases.push_back({std::move(phase)});
    for (int j = 0; j < kMaxSpatial; ++j) step[j] = backward ? g.stride[j] : 1, in_step[j] = backward ? 1 : g.stride[j];
    if (merges(g)) {
      merged = g.window[2];
      for (ConvTap& tap : phases[0].taps)
        for (int j = 0; j < kMaxSpatial; ++j) tap.shift[j] += input_.border[j];
    }
    for (Phase& phase : phases) find_runs(phase);
    local = !merges(g) && turns(p, g);
    // The transposed pixels of a block take at most half of a second-level cache.
    const int64_t fit = 65536 / (channels * kernel.rows), most_tiles = cpu::work_size(kBlockTiles);
    block_rows = kernel.rows * (local ? std::clamp<int64_t>(fit, 1, most_tiles) : most_tiles);
    auto reserve = [&](size_t size) {
      size_t at = bytes;
      bytes += ceil_div<size_t>(size, 4096) * 4096;
      return at;
    };
    int64_t taps = 0;
    for (Phase& phase : phases) {
      phase.weights_at = taps * channels * g.groups * panels * kernel.columns;
      taps += int64_t(phase.taps.size());
      by_panels = by_panels || g.images * volume(phase.count) > block_rows;
    }
    const int64_t packed = taps * channels * g.groups * panels * kernel.columns * int64_t(sizeof(float));
    const int64_t panel_bytes = taps * channels * kernel.columns * int64_t(sizeof(float));
    by_panels = !by_panels && packed > cpu::work_size(kManyWeights) && panel_bytes <= kPanelBytes;
    if (!by_panels) weights_at = reserve(size_t(packed));
    make_blocks();
    copy_at = reserve(input_.bytes());
    zeros_at = reserve(size_t(channels * merged) * 4);
    size_t segments = 0;
    for (const Phase& phase : phases) segments = std::max(segments, phase.runs.size());
    const int64_t rows = block_rows;
    sums_at = ceil_div<size_t>(segments * kBlockTiles * sizeof(GemmSegment), 64) * 64;
    lines_at = sums_at + size_t(rows * kernel.columns) * 4;
    local_at = lines_at + (last ? 0 : size_t(rows * kernel.columns) * 4);
    panel_at = local_at + (local ? size_t(rows * channels) * 4 : 0);
    room_bytes = panel_at + (by_panels ? size_t(panel_bytes) : 0);
    rooms_at = reserve(room_bytes * size_t(threads));
  }

  void find_runs(Phase& phase) const {
    for (size_t t = 0; t < phase.taps.size(); ++t) {
      const ConvTap& tap = phase.taps[t];
      int64_t at = 0;
      for (int j = 0; j < kMaxSpatial; ++j) {
        at += tap.shift[j] * in.space[j];
        phase.low[j] = t ? std::min(phase.low[j], tap.shift[j]) : tap.shift[j];
        phase.high[j] = t ? std::max(phase.high[j], tap.shift[j]) : tap.shift[j];
      }
      if (t % size_t(merged) == 0) phase.runs.push_back(at * int64_t(sizeof(float)));
    }
  }

  // An input of few channels (a first layer's) is copied together with its padding: one run of k then covers all taps
  // of a line of the window.
  static ChannelsLast input(const ConvProblem& p, const ConvGeometry& g) {
    int64_t border[kMaxSpatial]{};
    const bool few = merges(g);
    if (few) reach(g, border);
    const ConvTensorView& side = g.backward_data ? g.y : g.x;
    if (turns(p, g)) return {side, g.images};
    return {side, operand_dtype(p), g.images, g.groups, few, border};
  }
  // True for a pointwise convolution of float32 channels-first planes: each block then transposes its own pixels.
  static bool turns(const ConvProblem& p, const ConvGeometry& g) {
    const ConvTensorView& in = g.backward_data ? g.y : g.x;
    if (operand_dtype(p) != DType::float32 || in.channel == 1 || in.space[2] != 1) return false;
    int64_t dense = 1;
    for (int j = kMaxSpatial - 1; j >= 0; --j) {
      if (g.window[j] != 1 || g.stride[j] != 1 || g.pad[j] != 0 || g.x.size[j] != g.y.size[j]) return false;
      if (in.size[j] > 1 && in.space[j] != dense) return false;
      dense *= in.size[j];
    }
    return true;
  }
  static bool merges(const ConvGeometry& g) {
    return g.x.channels < gemm_kernels().f32.columns && !g.backward_data && g.groups == 1 && g.dilation[2] == 1 &&
           g.window[2] > 1;
  }

  void make_blocks() {
    const int64_t most = block_rows, together = by_panels ? int64_t(phases.size()) : 1;  // phases per item
    int64_t all = 0;
    for (const Phase& phase : phases) all += g.groups * ceil_div(g.images * volume(phase.count), most);
    // About four items per thread balance the load.
    int64_t share = std::max<int64_t>(1, panels * all / std::max<int64_t>(1, threads * 4 * together));
    share = std::min(share, panels);
    for (int64_t i = 0; i < int64_t(phases.size()); i += together) {
      const int64_t rows = by_panels ? most : g.images * volume(phases[size_t(i)].count);
      if (rows == 0) continue;
      // All blocks have the same length (only the last may be shorter). This avoids a remainder of a single tile.
      const int64_t number = ceil_div(rows, most), length = ceil_div(ceil_div(rows, number), kernel.rows) * kernel.rows;
      for (int64_t group = 0; group < g.groups; ++group)
        for (int64_t row = 0; row < rows; row += length)
          for (int64_t panel = 0; panel < panels; panel += share)
            blocks.push_back({i, together, group, row, length, panel, std::min(share, panels - panel)});
    }
  }

  // Packs the weights as [panel, tap, channel, column], separately for each phase. The weights are read in memory
  // order: a work item is one panel or, if the weights of an input channel are stored together, 16 input channels of
  // all panels.
  template <class T> void pack_weights(const T* w, float* to) const {
    const bool by_panel = w_in < w_out;
    const int64_t taps = volume(g.window), some = by_panel ? channels : 16;
    const int64_t parts = by_panel ? panels : ceil_div(channels, some);
    const int64_t grain = cpu::work_size(32768) * parts / (taps * channels * panels * kernel.columns) + 1;
    cpu::parallel_for(g.groups * parts, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t group = i / parts, part = i % parts, k = by_panel ? 0 : part * some;
        for (int64_t panel = by_panel ? part : 0; panel < (by_panel ? part + 1 : panels); ++panel)
          pack_panel(w, phases, group, panel, k, std::min(k + some, channels),
                     [&](const Phase& phase) { return packed_panel(phase, group, panel, to); });
      }
    });
  }
  template <class F> F* packed_panel(const Phase& phase, int64_t group, int64_t panel, F* weights) const {
    return weights + phase.weights_at +
           (group * panels + panel) * int64_t(phase.taps.size()) * channels * kernel.columns;
  }
  // Packs input channels k to `end` of a panel for the given phases. The weights of each phase go to place(phase).
  template <class T, class P> void pack_panel(const T* w, std::span<const Phase> some, int64_t group, int64_t panel,
                                              int64_t k, int64_t end, P place) const {
    const int64_t first = panel * kernel.columns, count = std::min(kernel.columns, columns - first);
    const int64_t several = lines ? std::max<int64_t>(1, 256 / volume(g.window)) : channels;
    const T* from = w + group * g.y.channels * g.w_filter + first * w_out;
    for (int64_t n = k; n < end; n += several)
      pack_part(from + n * w_in, some, std::min(several, end - n), count,
                [&](const Phase& phase) { return place(phase) + n * kernel.columns; });
  }
  // The usual size is a constant: the compiler then emits no call of memcpy.
  void copy_row(const float* from, float* to) const {
    if (kernel.columns == 32) std::memcpy(to, from, 32 * sizeof(float));
    else std::memcpy(to, from, size_t(kernel.columns) * sizeof(float));
  }
  template <class T, class P>
  void pack_part(const T* from, std::span<const Phase> some, int64_t length, int64_t count, P place) const {
    constexpr int64_t kMost = 256 * 32;
    float rows[kMost];
    const int64_t taps = volume(g.window), width = kernel.columns;
    // If the taps are contiguous in memory, whole lines of weights are transposed, and each row is then copied to its
    // tap.
    const bool together = w_in == taps, by_lines = sizeof(T) == 4 && lines && length * taps * width <= kMost;
    // Prefetch distance in lines: the lines are far apart, and the hardware does not predict them.
    constexpr int64_t kAhead = 8;
    for (int64_t n = 0; by_lines && n < (together ? 1 : length); ++n) {
      const float* line = reinterpret_cast<const float*>(from) + lowest_tap + n * w_in;
      for (int64_t i = 0; !together && i < count * w_out; i += 16) __builtin_prefetch(line + kAhead * w_in + i, 0, 2);
      kernels.transpose(line, w_out, count, together ? length * taps : taps, rows + n * taps * width, width);
    }
    for (const Phase& phase : some) {
      float* to = place(phase);
      for (const ConvTap& tap : phase.taps) {
        if (by_lines)
          for (int64_t n = 0; n < length; ++n) copy_row(rows + (n * taps + tap.w - lowest_tap) * width, to + n * width);
        else if constexpr (sizeof(T) == 4) kernel.pack(from + tap.w, w_out, w_in, count, length, to);
        else
          for (int64_t n = 0; n < length; ++n)
            for (int64_t j = 0; j < width; ++j)
              to[n * width + j] = j < count ? float(from[tap.w + j * w_out + n * w_in]) : 0;
        to += channels * width;
      }
    }
  }

  template <class T, class Y> void compute(const ConvArgs& args, char* workspace) const {
    float* weights = reinterpret_cast<float*>(workspace + weights_at);
    float* zeros = reinterpret_cast<float*>(workspace + zeros_at);
    std::fill_n(zeros, channels * merged, 0.0f);
    if (!by_panels) pack_weights(static_cast<const T*>(args.w), weights);
    const float* x = input_.read(backward ? args.dy : args.x, workspace + copy_at);
    cpu::parallel_items(int64_t(blocks.size()), [&](int64_t i, int64_t room) {
      compute_block<T, Y>(blocks[size_t(i)], args, x, weights, zeros, workspace + rooms_at + size_t(room) * room_bytes);
    });
  }

  // Computes where each row reads and writes. Values common to a line of pixels are computed once per line.
  void place_rows(const Phase& phase, int64_t row_of_block, int64_t nowhere, Rows& rows) const {
    const int64_t runs = int64_t(phase.runs.size()), size = int64_t(sizeof(float)), length = phase.count[2];
    const int64_t run = channels * merged * kernel.columns * size;
    for (int64_t t = 0; t < rows.tiles; ++t)
      for (int64_t s = 0; s < runs; ++s) rows.segments[t * runs + s].b = s * run;
    const int64_t lines[] = {g.images, phase.count[0], phase.count[1]};
    NdIterator<3> line(lines, row_of_block / length);
    GemmSegment* tile = rows.segments;
    int64_t lane = 0, first = row_of_block % length;
    auto next = [&] {
      if (++lane == kernel.rows) lane = 0, tile += runs;
    };
    auto within = [&](int j, int64_t at) { return at + phase.low[j] >= 0 && at + phase.high[j] < in.size[j]; };
    for (int64_t row = 0, n; row < rows.count; row += n, first = 0, line.advance()) {
      n = std::min(length - first, rows.count - row);
      int64_t place[] = {line.at[1] * in_step[0], line.at[2] * in_step[1], 0};
      int64_t origin = line.at[0] * in.image, y = line.at[0] * out.image, c = line.at[0] * g.residual.image;
      for (int j = 0; j < kMaxSpatial; ++j) {
        const int64_t at = phase.first[j] + (j < 2 ? line.at[1 + j] : first) * step[j];
        origin += place[j] * in.space[j], y += at * out.space[j], c += at * g.residual.space[j];
      }
      const bool lines_meet = within(0, place[0]) && within(1, place[1]);
      for (int64_t i = 0; i < n; ++i, next()) {
        rows.y[row + i] = y + i * step[2] * out.space[2], rows.c[row + i] = c + i * step[2] * g.residual.space[2];
        if (local) {
          tile->a[lane] = (row + i) * channels * size;
          continue;
        }
        place[2] = (first + i) * in_step[2];
        const bool inside = lines_meet && within(2, place[2]);  // all taps fall on data
        const int64_t at = (origin + place[2] * in.space[2]) * size;
        for (int64_t s = 0; s < runs; ++s) {
          tile[s].a[lane] = at + phase.runs[size_t(s)];
          const ConvTap& tap = phase.taps[size_t(s * merged)];
          for (int j = 0; j < kMaxSpatial && !inside; ++j)
            if (uint64_t(place[j] + tap.shift[j]) >= uint64_t(in.size[j])) tile[s].a[lane] = nowhere;
        }
      }
    }
    for (; lane > 0; next())  // rows that fill up the last tile: computed, but not used
      for (int64_t s = 0; s < runs; ++s) tile[s].a[lane] = nowhere;
  }

  template <class T, class Y> void compute_block(const Block& block, const ConvArgs& args, const float* x,
                                                 const float* weights, const float* zeros, char* room) const {
    const std::span<const Phase> some(phases.data() + block.phase, size_t(block.phases));
    float* own = reinterpret_cast<float*>(room + panel_at);
    Rows rows;
    rows.segments = reinterpret_cast<GemmSegment*>(room);
    if (local) x = turn_pixels(block, x, reinterpret_cast<float*>(room + local_at));
    else x += block.group * channels;
    for (int64_t panel = block.panel; panel < block.panel + block.panels; ++panel) {
      auto packed = [&](const Phase& phase) { return own + phase.weights_at / (g.groups * panels); };
      if (by_panels) pack_panel(static_cast<const T*>(args.w), some, block.group, panel, 0, channels, packed);
      for (const Phase& phase : some) {
        if (some.size() > 1 || panel == block.panel) {
          rows.count = std::min(block.rows, g.images * volume(phase.count) - block.row);
          rows.tiles = ceil_div(rows.count, kernel.rows);
          place_rows(phase, block.row, (zeros - x) * int64_t(sizeof(float)), rows);
        }
        const float* b = by_panels ? packed(phase) : packed_panel(phase, block.group, panel, weights);
        multiply_panel<T, Y>(rows, int64_t(phase.runs.size()), block.group, panel, args, x, b, room);
      }
    }
  }

  template <class T, class Y> void multiply_panel(const Rows& rows, int64_t runs, int64_t group, int64_t panel,
                                                  const ConvArgs& args, const float* x, const float* b,
                                                  char* room) const {
    float* sums = reinterpret_cast<float*>(room + sums_at);
    float* turned = reinterpret_cast<float*>(room + lines_at);
    const int64_t run = channels * merged, size = int64_t(sizeof(Y));
    Epilogue finish;
    finish.activation = activation_on_floats(g.activation), finish.activation_alpha = float(args.activation_alpha);
    finish.beta = 1;
    const int64_t first = panel * kernel.columns, count = std::min(kernel.columns, columns - first);
    const int64_t channel = group * columns + first;
    char* y = static_cast<char*>(args.out) + channel * out.channel * size;
    const char* c =
        args.residual ? static_cast<const char*>(args.residual) + channel * g.residual.channel * size : nullptr;
    const char* bias =
        g.has_bias ? static_cast<const char*>(args.bias) + channel * g.bias_stride * int64_t(sizeof(T)) : nullptr;
    const bool plain = sizeof(Y) == 4 && !bias && !c && finish.plain(), straight = last && plain;
    for (int64_t t = 0; t < rows.tiles; ++t) {
      const int64_t row = t * kernel.rows;
      float* to = sums + row * kernel.columns;
      int64_t pitch = kernel.columns;
      const bool whole = straight && count == kernel.columns && row + kernel.rows <= rows.count;
      if (whole && evenly_spaced(rows.y + row, kernel.rows))
        to = reinterpret_cast<float*>(y) + rows.y[row], pitch = rows.y[row + 1] - rows.y[row];
      kernel.multiply(rows.segments + t * runs, runs, run, x, 1, b, kernel.columns, to, pitch, false);
      if (straight && to == sums + row * kernel.columns)
        gemm_finish<T, Y>()(finish, to, pitch, std::min(kernel.rows, rows.count - row), count, y, rows.y + row, c,
                            rows.c + row, bias);
    }
    if (last && !straight) {
      finish.c_column = g.residual.channel, finish.bias_column = g.bias_stride;
      gemm_finish<T, Y>()(finish, sums, kernel.columns, rows.count, count, y, rows.y, c, rows.c, bias);
    }
    if (last) return;
    // Transpose: pixels become columns. Pixels at a constant step in the result, and in the residual, are written
    // together.
    const int64_t line = rows.tiles * kernel.rows;
    const bool direct = plain && out.space[2] * step[2] == 1;
    if (!direct) kernels.transpose(sums, kernel.columns, rows.count, count, turned, line);
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
      for (int64_t j = 0; j < count; ++j)
        y_channels[j] = rows.y[row] + j * out.channel, c_channels[j] = rows.c[row] + j * g.residual.channel;
      gemm_finish<T, Y>()(finish, turned + row, line, count, end - row, y, y_channels, c, c_channels, bias);
    }
  }

  // Transposes the channels-first planes of a block to [pixel, channel].
  const float* turn_pixels(const Block& block, const float* x, float* to) const {
    const int64_t plane = volume(in.size);
    const int64_t end = std::min(block.row + block.rows, g.images * plane);
    for (int64_t row = block.row, next; row < end; row = next) {
      next = std::min(end, (row / plane + 1) * plane);
      const float* from = x + row / plane * in.image + block.group * channels * in.channel + row % plane;
      kernels.transpose(from, in.channel, channels, next - row, to + (row - block.row) * channels, channels);
    }
    return to;
  }

  static bool evenly_spaced(const int64_t* at, int64_t n) {
    for (int64_t i = 2; i < n; ++i)
      if (at[i] - at[i - 1] != at[1] - at[0]) return false;
    return true;
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

struct ImplicitGemm final : Engine<ConvProblem> {
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
    // A partly filled panel costs as much as a full one, and a run of few channels as much as a longer one.
    const int64_t width = gemm_kernels().f32.columns, run = in.channels * (TilesPlan::merges(g) ? g.window[2] : 1);
    const double turning = TilesPlan::turns(p, g) ? 1.25 : 1;  // cost of transposing pixels and results
    const double waste = turning * wasted(out.channels, width) * (1 + 4 / double(run));
    return roofline_us(conv_flop(p) * waste / 10, conv_bytes(p), d, 0.95);
  }
  size_t workspace_bytes(const ConvProblem& p, const Device& d, const Config&) const override {
    return TilesPlan(p, d).bytes;
  }
  std::unique_ptr<Plan<ConvProblem>> build(const ConvProblem& p, const Device& d, const Config&) const override {
    return std::make_unique<TilesPlan>(p, d);
  }
};

}  // namespace cpu::conv

template const Engine<ConvProblem>& engine_object<ConvProblem, cpu::conv::ImplicitGemm>();

}  // namespace minidnn
