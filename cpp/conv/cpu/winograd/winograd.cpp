// SPDX-License-Identifier: Apache-2.0
// cpu.conv.winograd: 3 x 3 windows at stride 1 in float32, forward and backward_data, with a quarter of the products
// (winograd_kernel.h). A block of tiles stays in a second-level cache from its input pixels to its results:
//   1. Lines of the input are copied channels-last, with zeros around them, so patches need no border handling.
//   2. The patches are transformed to 36 matrices [tile, channel].
//   3. Each panel of filters multiplies all 36 matrices and, while the products are in that cache, transforms them back
//      to pixels.
// dx is a convolution of dy with the window rotated by 180 degrees, padded by 2 - pad.
//
// Sums are float32. An error of one element of a patch reaches all 16 results of its tile, and so does a NaN or an
// infinity.
#include <algorithm>

#include "cpp/conv/conv.h"
#include "cpp/conv/cpu/winograd/winograd_kernel.h"
#include "cpp/core/thread_pool.h"
#include "cpp/core/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/simd/gemm_microkernel.h"

namespace minidnn {
namespace cpu::conv {
namespace {

// Limits as for cuda.conv.winograd: the error of a result is that of its whole tile, while the error that float32 is
// allowed grows with the number of the result's own products.
constexpr int64_t kLeastChannels = 32, kLeastProducts = 128;
constexpr int64_t kMostColumns = 32;        // filters of a panel, at most: two vectors
constexpr int64_t kPatchBytes = 640 << 10;  // bytes of a block's transformed patches: fits a second-level cache
constexpr int64_t kLeastTiles = 24, kMostTiles = 96;  // tiles of a block
constexpr int64_t kChunk = 32;                        // channels whose windows are transformed at a time
// With at most this many tiles in total, all threads share one block of patches, and each transforms windows just
// before it uses them. Storing and reloading transformed windows would cost as much as their products.
constexpr int64_t kFewTiles = 128;

constexpr double kWindowProducts = 4, kTileProducts = 10;  // see estimate_us()

struct Sides {
  const ConvTensorView &in, &out;
  int64_t before[2];  // how many pixels a patch begins before its tile
  explicit Sides(const ConvGeometry& g) : in(g.backward_data ? g.y : g.x), out(conv_out(g)) {
    for (int j = 0; j < 2; ++j) before[j] = g.backward_data ? 2 - g.pad[1 + j] : g.pad[1 + j];
  }
  // The smallest number of taps that fall on data for any result, in one dimension.
  int64_t least_met(int j) const {
    const int64_t size = in.size[1 + j];
    int64_t least = 3;
    for (int64_t at : {int64_t(0), out.size[1 + j] - 1})
      least = std::min(least, std::min(size, at + 3 - before[j]) - std::max<int64_t>(0, at - before[j]));
    return std::max<int64_t>(least, 0);
  }
};

int64_t padded(int64_t n, int64_t to) { return ceil_div(n, to) * to; }

struct WinogradPlan final : Plan<ConvProblem> {
  ConvProblem p;
  ConvGeometry g;
  Sides s;
  const WinogradKernels& kernels = winograd_kernels();
  const GemmKernels& gemm = gemm_kernels();
  int64_t threads, channels, filters, pitch, panels;  // pitch: floats of a pixel's channels, padded; panels: of filters
  int64_t down, across, lines_of_all;  // tiles of an image along each dimension; lines of tiles of all images
  bool few;
  // parts of a line of tiles; tiles per part; blocks of lines; shares of the panels
  int64_t parts, width, blocks, shares;
  int64_t window_plane, patch_plane, product_plane;
  // of the weights; places: index of each tap in the lines of transform_windows()
  int64_t w_in, w_out, w_lowest, taps[9], places[9];
  bool w_dense;  // the nine taps of a window are contiguous in memory
  size_t rooms_at = 0, room_bytes = 0, bytes = 0;
  int64_t products_at, ring_at, pixels_at, turned_at, rows_at;  // offsets in a thread's scratch ("room"), in floats

  WinogradPlan(const ConvProblem& problem, const Device& d)
      : p(problem),
        g(conv_geometry(problem)),
        s(g),
        threads(d.sm_count),
        channels(s.in.channels),
        filters(s.out.channels),
        pitch(padded(channels, 16)),
        panels(ceil_div(filters, kernels.columns)),
        down(ceil_div<int64_t>(s.out.size[1], kWinogradSide)),
        across(ceil_div<int64_t>(s.out.size[2], kWinogradSide)),
        lines_of_all(g.images * down),
        few(lines_of_all * across <= cpu::work_size(kFewTiles) && panels >= threads) {
    const int64_t fit = kPatchBytes / (kWinogradPlanes * pitch * int64_t(sizeof(float)));
    const int64_t most = few ? kFewTiles : std::clamp(fit, cpu::work_size(kLeastTiles), cpu::work_size(kMostTiles));
    parts = ceil_div(across, most);
    width = ceil_div(across, parts);
    parts = ceil_div(across, width);
    blocks = ceil_div(lines_of_all, std::max<int64_t>(1, most / width));
    if (!few) blocks = std::max(blocks, std::min(lines_of_all, ceil_div(threads, parts * panels)));
    if (blocks * parts > threads) blocks = std::min(lines_of_all, padded(blocks, threads));
    shares = std::min(panels, ceil_div(threads, blocks * parts));
    // One extra vector per plane: planes whole pages apart would map to the same cache sets.
    const int64_t tiles = ceil_div(lines_of_all, blocks) * width, pixels = kWinogradSide * kWinogradSide * width;
    window_plane = (few ? std::min(channels, kWinogradRun) : channels) * kernels.columns + 16;
    patch_plane = tiles * pitch + 16;
    product_plane = tiles * kernels.columns + 16;
    int64_t floats = 0;
    auto reserve = [&](int64_t size) {
      const int64_t at = floats;
      floats += padded(size, 16);
      return at;
    };
    const int64_t windows = kWinogradPlanes * window_plane, patches = kWinogradPlanes * patch_plane;
    reserve(few ? windows : patches);
    products_at = reserve(kWinogradPlanes * product_plane);
    ring_at = reserve(kWinogradSpan * ring_line());
    pixels_at = reserve((pixels + kWinogradSide) * kernels.columns);
    turned_at = reserve(pixels * kernels.columns);
    rows_at = reserve(4 * std::max(pixels, kernels.columns));
    rooms_at = size_t(padded((few ? patches : panels * windows) * int64_t(sizeof(float)), 4096));
    room_bytes = size_t(padded(floats * int64_t(sizeof(float)), 4096));
    bytes = rooms_at + room_bytes * size_t(threads);

    w_in = g.backward_data ? g.w_filter : g.w_channel;
    w_out = g.backward_data ? g.w_channel : g.w_filter;
    w_lowest = g.w_origin;
    w_dense = std::abs(g.w_space[1]) == 3 && std::abs(g.w_space[2]) == 1 && (w_in == 9 || w_out == 9);
    for (int64_t t = 0; t < 9; ++t) {
      const int64_t tap = g.backward_data ? 8 - t : t;
      taps[t] = g.w_origin + tap / 3 * g.w_space[1] + tap % 3 * g.w_space[2];
      w_lowest = std::min(w_lowest, taps[t]);
    }
    for (int64_t t = 0; t < 9; ++t) places[t] = w_dense ? taps[t] - w_lowest : t;
  }
  int64_t ring_line() const { return (kWinogradSide * width + 2) * pitch; }

  // Transforms the windows of `number` channels, from `first` on, for one panel of filters.
  void transform_windows(const float* w, int64_t panel, int64_t first, int64_t number, float* to) const {
    // [channel, tap, filter], and space for the excess taps of the last vector
    float lines[(kChunk * 9 + 7) * kMostColumns];
    const int64_t columns = kernels.columns, count = std::min(columns, filters - panel * columns);
    const float* from = w + panel * columns * w_out + first * w_in;
    if (count < columns) std::fill_n(lines, std::min(kChunk, number) * 9 * columns, 0.0f);
    for (int64_t some; number > 0; number -= some, from += some * w_in, to += some * columns) {
      some = std::min(kChunk, number);
      if (w_dense && w_in == 9) gemm.transpose(from + w_lowest, w_out, count, some * 9, lines, columns);
      else if (w_dense)
        for (int64_t n = 0; n < some; ++n) {
          // Transposes whole vectors of taps. The taps beyond the ninth are the next filter's; they are overwritten
          // later. The last filter has no next one, so its taps are copied singly.
          const float* neighbours = from + w_lowest + n * w_in;
          float* line = lines + n * 9 * columns;
          gemm.transpose(neighbours, w_out, count - 1, std::max<int64_t>(9, kernels.lanes), line, columns);
          for (int64_t t = 0; t < 9; ++t) line[t * columns + count - 1] = neighbours[(count - 1) * w_out + t];
        }
      else
        for (int64_t t = 0; t < 9; ++t) {
          float* tap = lines + t * columns;
          if (w_in == 1) gemm.transpose(from + taps[t], w_out, count, some, tap, 9 * columns);
          else if (w_out == 1)
            for (int64_t n = 0; n < some; ++n) std::copy_n(from + taps[t] + n * w_in, count, tap + n * 9 * columns);
          else
            for (int64_t n = 0; n < some; ++n)
              for (int64_t j = 0; j < count; ++j) tap[n * 9 * columns + j] = from[taps[t] + n * w_in + j * w_out];
        }
      kernels.windows(lines, places, some, to, window_plane);
    }
  }

  // Copies `count` pixels of an input line, from `column` on, channels-last. Pixels outside the image become zeros.
  void read_line(const float* image, int64_t row, int64_t column, int64_t count, float* to) const {
    const int64_t before = std::clamp<int64_t>(-column, 0, count),
                  end = std::clamp<int64_t>(s.in.size[2] - column, before, count);
    if (uint64_t(row) >= uint64_t(s.in.size[1]) || end == before) return void(std::fill_n(to, count * pitch, 0.0f));
    std::fill_n(to, before * pitch, 0.0f);
    std::fill_n(to + end * pitch, (count - end) * pitch, 0.0f);
    const int64_t step = s.in.space[2], channel = s.in.channel;
    const float* from = image + row * s.in.space[1] + (column + before) * step;
    to += before * pitch;
    if (step == 1 || end - before == 1) return gemm.transpose(from, channel, channels, end - before, to, pitch);
    if (channel == 1 && step == pitch) return void(std::copy_n(from, (end - before) * pitch, to));
    for (int64_t i = before; i < end; ++i, from += step, to += pitch)
      if (channel == 1) std::copy_n(from, channels, to);
      else
        for (int64_t c = 0; c < channels; ++c) to[c] = from[c * channel];
  }

  struct Line {
    int64_t image, row, column, height, width;  // in pixels of the result
  };
  Line line(int64_t number, int64_t part) const {
    const int64_t row = number % down * kWinogradSide, column = part * width * kWinogradSide;
    return {number / down, row, column, std::min<int64_t>(kWinogradSide, s.out.size[1] - row),
            std::min(width * kWinogradSide, s.out.size[2] - column)};
  }

  int64_t tiles_of_line(int64_t part) const { return ceil_div<int64_t>(line(0, part).width, kWinogradSide); }

  // Transforms the patches of the lines of tiles from `first` to `end`.
  void transform_patches(int64_t first, int64_t end, int64_t part, const ConvArgs& args, float* ring,
                         float* patches) const {
    const float* x = static_cast<const float*>(g.backward_data ? args.dy : args.x);
    const int64_t tiles = tiles_of_line(part), length = kWinogradSide * tiles + 2;
    for (int64_t i = first; i < end; ++i, patches += tiles * pitch) {
      const Line at = line(i, part);
      // The last two lines of the patches above are the first two of these, and are still in the ring.
      const int64_t known = i > first && at.row > 0 ? 2 : 0, top = at.row - s.before[0];
      const float* rows[kWinogradSpan];
      for (int64_t j = 0; j < kWinogradSpan; ++j) {
        float* to = ring + (at.row + j) % kWinogradSpan * ring_line();
        if (j >= known) read_line(x + at.image * s.in.image, top + j, at.column - s.before[1], length, to);
        rows[j] = to;
      }
      kernels.patches(rows, pitch, channels, tiles, patches, pitch, patch_plane);
    }
  }

  void transform_results(int64_t first, int64_t end, int64_t part, int64_t panel, const ConvArgs& args,
                         float* room) const {
    const int64_t tiles = tiles_of_line(part);
    const float* products = room + products_at;
    for (int64_t i = first; i < end; ++i, products += tiles * kernels.columns) {
      const Line at = line(i, part);
      kernels.results(products, product_plane, tiles, room + pixels_at, at.width);
      finish(at, panel * kernels.columns, args, room);
    }
  }

  static int64_t start(const ConvTensorView& side, const Line& at, int64_t channel) {
    return at.image * side.image + channel * side.channel + at.row * side.space[1] + at.column * side.space[2];
  }
  // Whether all pixels of a line of tiles have one constant step in memory.
  static bool even(const ConvTensorView& side, const Line& at) {
    return at.height == 1 || side.space[1] == at.width * side.space[2];
  }

  // Writes the pixels of a panel's filters to the result, with bias, residual and activation.
  void finish(const Line& at, int64_t first, const ConvArgs& args, float* room) const {
    const ConvTensorView &out = s.out, &other = g.residual;
    const int64_t columns = kernels.columns, count = std::min(columns, filters - first);
    float *pixels = room + pixels_at, *turned = room + turned_at;
    int64_t* y_rows = reinterpret_cast<int64_t*>(room + rows_at);
    int64_t* c_rows = y_rows + std::max(kWinogradSide * kWinogradSide * width, columns);
    float* y = static_cast<float*>(args.out) + start(out, at, first);
    const float* c = args.residual ? static_cast<const float*>(args.residual) + start(other, at, first) : nullptr;
    const float* bias = g.has_bias ? static_cast<const float*>(args.bias) + first * g.bias_stride : nullptr;
    const auto write = gemm_finish<float, float>();
    Epilogue f;
    f.activation = activation_on_floats(g.activation);
    f.activation_alpha = float(args.activation_alpha);
    f.beta = 1;
    if (out.channel == 1) {
      f.c_column = other.channel;
      f.bias_column = g.bias_stride;
      for (int64_t i = 0, n = 0; i < at.height; ++i)
        for (int64_t j = 0; j < at.width; ++j, ++n) {
          y_rows[n] = i * out.space[1] + j * out.space[2];
          c_rows[n] = i * other.space[1] + j * other.space[2];
        }
      return write(f, pixels, columns, at.height * at.width, count, y, y_rows, c, c_rows, bias);
    }
    f.bias_row = g.bias_stride;
    f.y_column = out.space[2];
    f.c_column = other.space[2];
    const bool whole = even(out, at) && (!c || even(other, at));
    const int64_t number = whole ? 1 : at.height, length = whole ? at.height * at.width : at.width;
    for (int64_t i = 0; i < number; ++i, pixels += at.width * columns) {
      if (!bias && !c && f.plain()) {
        gemm.transpose(pixels, columns, length, count, y + i * out.space[1], out.channel);
        continue;
      }
      gemm.transpose(pixels, columns, length, count, turned, length);
      for (int64_t j = 0; j < count; ++j) {
        y_rows[j] = i * out.space[1] + j * out.channel;
        c_rows[j] = i * other.space[1] + j * other.channel;
      }
      write(f, turned, length, count, length, y, y_rows, c, c_rows, bias);
    }
  }

  // Many tiles: the transformed windows are shared by all blocks. Each block transforms its patches in its thread's
  // scratch.
  void compute_blocks(const ConvArgs& args, float* windows, char* rooms) const {
    const int64_t chunks = ceil_div(channels, kChunk), panel_size = kWinogradPlanes * window_plane;
    cpu::parallel_for(panels * chunks, 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t panel = i / chunks, first = i % chunks * kChunk;
        transform_windows(static_cast<const float*>(args.w), panel, first, std::min(kChunk, channels - first),
                          windows + panel * panel_size + first * kernels.columns);
      }
    });
    cpu::parallel_items(blocks * parts * shares, [&](int64_t item, int64_t number) {
      float* room = reinterpret_cast<float*>(rooms + size_t(number) * room_bytes);
      const int64_t share = item % shares, part = item / shares % parts, block = item / shares / parts;
      const int64_t first = lines_of_all * block / blocks, end = lines_of_all * (block + 1) / blocks;
      transform_patches(first, end, part, args, room + ring_at, room);
      for (int64_t panel = panels * share / shares; panel < panels * (share + 1) / shares; ++panel) {
        kernels.multiply((end - first) * tiles_of_line(part), channels, room, pitch, patch_plane,
                         windows + panel * panel_size, window_plane, room + products_at, product_plane, false);
        transform_results(first, end, part, panel, args, room);
      }
    });
  }

  // Few tiles: the transformed patches are shared by all panels. Each panel transforms its windows in its thread's
  // scratch.
  void compute_panels(const ConvArgs& args, float* patches, char* rooms) const {
    auto room_of = [&](int64_t number) { return reinterpret_cast<float*>(rooms + size_t(number) * room_bytes); };
    const int64_t pieces = std::min(threads, lines_of_all);
    cpu::parallel_items(pieces, [&](int64_t piece, int64_t room) {
      const int64_t first = lines_of_all * piece / pieces, end = lines_of_all * (piece + 1) / pieces;
      transform_patches(first, end, 0, args, room_of(room) + ring_at, patches + first * width * pitch);
    });
    cpu::parallel_items(panels, [&](int64_t panel, int64_t number) {
      float* room = room_of(number);
      for (int64_t first = 0; first < channels; first += kWinogradRun) {
        const int64_t some = std::min(kWinogradRun, channels - first);
        transform_windows(static_cast<const float*>(args.w), panel, first, some, room);
        kernels.multiply(lines_of_all * width, some, patches + first, pitch, patch_plane, room, window_plane,
                         room + products_at, product_plane, first > 0);
      }
      transform_results(0, lines_of_all, 0, panel, args, room);
    });
  }

  void run(const ConvArgs& args, void* workspace, Stream) const override {
    float* shared = static_cast<float*>(workspace);
    char* rooms = static_cast<char*>(workspace) + rooms_at;
    if (few) compute_panels(args, shared, rooms);
    else compute_blocks(args, shared, rooms);
  }
};

}  // namespace

struct Winograd final : Engine<ConvProblem> {
  std::string name() const override { return "cpu.conv.winograd"; }
  unsigned traits() const override { return kReducedPrecision; }
  std::string why_not(const ConvProblem& p, const Device&) const override {
    if (p.direction != ConvDirection::forward && p.direction != ConvDirection::backward_data)
      return "supports forward and backward_data only";
    if (operand_dtype(p) != DType::float32) return cat("supports float32 only; got ", minidnn::name(operand_dtype(p)));
    if (p.y.numel() == 0 || p.x.numel() == 0 || p.w.numel() == 0) return "x, w or y is empty";
    if (p.x.rank != 4) return cat("supports two spatial dimensions only; got ", p.x.rank - 2);
    const ConvGeometry g = conv_geometry(p);
    for (int j = 1; j < 3; ++j) {
      if (g.window[j] != 3) return cat("supports 3 x 3 windows only; got ", g.window[1], " x ", g.window[2]);
      if (g.stride[j] != 1 || g.dilation[j] != 1) return "needs stride 1 and dilation 1";
    }
    if (p.groups != 1) return cat("supports groups=1 only; got ", p.groups);
    const Sides s(g);
    const int64_t products = s.in.channels * s.least_met(0) * s.least_met(1);
    if (s.in.channels < kLeastChannels || products < kLeastProducts)
      return cat("needs at least ", kLeastProducts, " products and ", kLeastChannels,
                 " channels in each sum for the accuracy of float32; got ", products, " and ", s.in.channels);
    return "";
  }
  double estimate_us(const ConvProblem& p, const Device& d) const override {
    const ConvGeometry g = conv_geometry(p);
    const Sides s(g);
    const int64_t width = winograd_kernels().columns, down = ceil_div<int64_t>(s.out.size[1], kWinogradSide),
                  across = ceil_div<int64_t>(s.out.size[2], kWinogradSide);
    const double tiles = double(g.images * down * across), channels = double(s.in.channels),
                 filters = double(ceil_div(s.out.channels, width) * width);
    // Transforming one point takes as long as several products (measured on Zen 5, 2026-11-22).
    const double products = tiles * channels * filters + kWindowProducts * channels * filters +
                            kTileProducts * tiles * (channels + filters);
    return roofline_us(2 * kWinogradPlanes * products / 10, conv_bytes(p), d, 0.95);
  }
  size_t workspace_bytes(const ConvProblem& p, const Device& d, const Config&) const override {
    return WinogradPlan(p, d).bytes;
  }
  std::unique_ptr<Plan<ConvProblem>> build(const ConvProblem& p, const Device& d, const Config&) const override {
    return std::make_unique<WinogradPlan>(p, d);
  }
};

}  // namespace cpu::conv

template const Engine<ConvProblem>& engine_object<ConvProblem, cpu::conv::Winograd>();

}  // namespace minidnn
