// SPDX-License-Identifier: Apache-2.0
// cpu.conv.winograd: float32 convolutions with 3 x 3 windows at stride 1, forward and backward_data, by Winograd's
// method (winograd_kernel.h). A tile is 4 x 4 results. A patch is the 6 x 6 inputs that a tile reads. The data of a
// block of tiles stays in a second-level cache from input to result:
//   1. Rows of the input are copied to channels-last, with zeros around them.
//   2. The patches are transformed to 36 matrices [tile, channel].
//   3. The matrices are multiplied by those of some filters, and the products are transformed to results.
// backward_data is computed as a convolution of dy, padded by 2 - pad, with the window rotated by 180 degrees. Sums are
// float32. A rounding error, a NaN or an infinity in one element of a patch affects all 16 results of the tile.
#include <algorithm>

#include "cpp/conv/conv.h"
#include "cpp/conv/cpu/plan_engine.h"
#include "cpp/conv/cpu/winograd/winograd_tiling.h"
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/engine/engine_object.h"
#include "cpp/simd/gemm_microkernel.h"

namespace minidnn {
namespace cpu::conv {
namespace {

// The least number of channels, and of products in the sum of a result. With fewer products, the rounding error, which
// depends on all inputs of the tile, could exceed the accepted error.
constexpr int64_t kLeastChannels = 32, kLeastProducts = 128;
// The largest number of filters that are multiplied together: two AVX-512 vectors.
constexpr int64_t kMostColumns = 32;
// The number of channels whose weights are transformed together.
constexpr int64_t kChunk = 32;

// Costs of the transforms for the time estimate, in multiply-adds per transformed element. Measured on Zen 5,
// 2026-11-22.
constexpr double kWindowProducts = 4, kTileProducts = 10;

// The strides of w along input and output channels, and the offsets of the nine window elements.
struct Weights {
  int64_t in, out, lowest, taps[9];
  // True if the nine window elements are contiguous in memory, and so are the windows of consecutive input or output
  // channels.
  bool dense;
  // The index of each window element in the copy that transform_windows() makes.
  int64_t slots[9];

  explicit Weights(const ConvGeometry& g)
      : in(g.backward_data ? g.w_filter : g.w_channel),
        out(g.backward_data ? g.w_channel : g.w_filter),
        lowest(g.w_origin),
        dense(std::abs(g.w_space[1]) == 3 && std::abs(g.w_space[2]) == 1 && (in == 9 || out == 9)) {
    for (int64_t t = 0; t < 9; ++t) {
      const int64_t tap = g.backward_data ? 8 - t : t;
      taps[t] = g.w_origin + tap / 3 * g.w_space[1] + tap % 3 * g.w_space[2];
      lowest = std::min(lowest, taps[t]);
    }
    for (int64_t t = 0; t < 9; ++t) slots[t] = dense ? taps[t] - lowest : t;
  }
};

struct WinogradPlan final : Plan<ConvProblem>, WinogradTiling {
  Weights weights{g};
  const GemmKernels& gemm = gemm_kernels();

  using WinogradTiling::WinogradTiling;

  // Transforms the weights of one panel of filters, for input channels [first, first + number).
  void transform_windows(const float* w, int64_t panel, int64_t first, int64_t number, float* to) const {
    // [channel, window element, filter], with space for a vector store that writes past the ninth element.
    float lines[(kChunk * 9 + 7) * kMostColumns];
    const int64_t columns = kernels.columns, count = std::min(columns, filters - panel * columns);
    const float* from = w + panel * columns * weights.out + first * weights.in;
    if (count < columns) std::fill_n(lines, std::min(kChunk, number) * 9 * columns, 0.0f);
    for (int64_t some; number > 0; number -= some, from += some * weights.in, to += some * columns) {
      some = std::min(kChunk, number);
      if (weights.dense && weights.in == 9)
        gemm.transpose(from + weights.lowest, weights.out, count, some * 9, lines, columns);
      else if (weights.dense)
        for (int64_t n = 0; n < some; ++n) {
          // A vector may be longer than the nine window elements. The excess elements belong to the next filter, and
          // are overwritten later. The last filter is copied element by element.
          const float* neighbours = from + weights.lowest + n * weights.in;
          float* line = lines + n * 9 * columns;
          gemm.transpose(neighbours, weights.out, count - 1, std::max<int64_t>(9, kernels.lanes), line, columns);
          for (int64_t t = 0; t < 9; ++t) line[t * columns + count - 1] = neighbours[(count - 1) * weights.out + t];
        }
      else
        for (int64_t t = 0; t < 9; ++t) {
          float* tap = lines + t * columns;
          if (weights.in == 1) gemm.transpose(from + weights.taps[t], weights.out, count, some, tap, 9 * columns);
          else if (weights.out == 1)
            for (int64_t n = 0; n < some; ++n)
              std::copy_n(from + weights.taps[t] + n * weights.in, count, tap + n * 9 * columns);
          else
            for (int64_t n = 0; n < some; ++n)
              for (int64_t j = 0; j < count; ++j)
                tap[n * 9 * columns + j] = from[weights.taps[t] + n * weights.in + j * weights.out];
        }
      kernels.windows(lines, weights.slots, some, to, window_plane);
    }
  }

  // Copies `count` pixels of the input row `row` to `to` in channels-last order, beginning with pixel `column`. Pixels
  // outside the image become zeros.
  void read_line(const float* image, int64_t row, int64_t column, int64_t count, float* to) const {
    const int64_t before = std::clamp<int64_t>(-column, 0, count),
                  end = std::clamp<int64_t>(in.size[2] - column, before, count);
    if (uint64_t(row) >= uint64_t(in.size[1]) || end == before) return void(std::fill_n(to, count * pitch, 0.0f));
    std::fill_n(to, before * pitch, 0.0f);
    std::fill_n(to + end * pitch, (count - end) * pitch, 0.0f);
    const int64_t step = in.space[2], channel = in.channel;
    const float* from = image + row * in.space[1] + (column + before) * step;
    to += before * pitch;
    if (step == 1 || end - before == 1) return gemm.transpose(from, channel, channels, end - before, to, pitch);
    if (channel == 1 && step == pitch) return void(std::copy_n(from, (end - before) * pitch, to));
    for (int64_t i = before; i < end; ++i, from += step, to += pitch)
      if (channel == 1) std::copy_n(from, channels, to);
      else
        for (int64_t c = 0; c < channels; ++c) to[c] = from[c * channel];
  }

  struct Line {
    // `row`, `column`, `height` and `width` are in pixels of the result.
    int64_t image, row, column, height, width;
  };
  // Returns the pixels of one part of a row of tiles. `index` counts the rows of tiles of all images.
  Line line(int64_t index, int64_t chunk) const {
    const int64_t row = index % tile_rows * kWinogradTile, column = chunk * chunk_tiles * kWinogradTile;
    return {index / tile_rows, row, column, std::min<int64_t>(kWinogradTile, out.size[1] - row),
            std::min(chunk_tiles * kWinogradTile, out.size[2] - column)};
  }

  int64_t tiles_of_line(int64_t chunk) const { return ceil_div<int64_t>(line(0, chunk).width, kWinogradTile); }

  // Transforms the input patches of tile rows [first, end), in part number `chunk` of each row.
  void transform_patches(int64_t first, int64_t end, int64_t chunk, const ConvArgs& args, float* ring,
                         float* patches) const {
    const float* x = static_cast<const float*>(g.backward_data ? args.dy : args.x);
    const int64_t tiles = tiles_of_line(chunk), length = kWinogradTile * tiles + 2;
    for (int64_t i = first; i < end; ++i, patches += tiles * pitch) {
      const Line at = line(i, chunk);
      // The first two of the six input rows are already in the ring buffer, because the row of tiles above reads them,
      // too.
      const int64_t known = i > first && at.row > 0 ? 2 : 0, top = at.row - before[0];
      const float* rows[kWinogradPatch];
      for (int64_t j = 0; j < kWinogradPatch; ++j) {
        float* to = ring + (at.row + j) % kWinogradPatch * ring_line();
        if (j >= known) read_line(x + at.image * in.image, top + j, at.column - before[1], length, to);
        rows[j] = to;
      }
      kernels.patches(rows, pitch, channels, tiles, patches, pitch, patch_plane);
    }
  }

  // Transforms the products of one panel of filters to pixels of the result, and stores the pixels.
  void transform_results(int64_t first, int64_t end, int64_t chunk, int64_t panel, const ConvArgs& args,
                         float* scratch) const {
    const int64_t tiles = tiles_of_line(chunk);
    const float* products = scratch + products_at;
    for (int64_t i = first; i < end; ++i, products += tiles * kernels.columns) {
      const Line at = line(i, chunk);
      kernels.results(products, product_plane, tiles, scratch + pixels_at, at.width);
      finish(at, panel * kernels.columns, args, scratch);
    }
  }

  static int64_t offset_of(const ConvTensorView& side, const Line& at, int64_t channel) {
    return at.image * side.image + channel * side.channel + at.row * side.space[1] + at.column * side.space[2];
  }
  // Returns true if the pixels of all image rows of a row of tiles have one constant distance in memory.
  static bool evenly_spaced(const ConvTensorView& side, const Line& at) {
    return at.height == 1 || side.space[1] == at.width * side.space[2];
  }

  // Applies bias, residual and activation to the pixels of one panel of filters, and writes them to the result.
  void finish(const Line& at, int64_t first, const ConvArgs& args, float* scratch) const {
    const ConvTensorView& other = g.residual;
    const int64_t columns = kernels.columns, count = std::min(columns, filters - first);
    float *pixels = scratch + pixels_at, *transposed = scratch + transposed_at;
    int64_t* y_rows = reinterpret_cast<int64_t*>(scratch + rows_at);
    int64_t* c_rows = y_rows + std::max(kWinogradTile * kWinogradTile * chunk_tiles, columns);
    float* y = static_cast<float*>(args.out) + offset_of(out, at, first);
    const float* c = args.residual ? static_cast<const float*>(args.residual) + offset_of(other, at, first) : nullptr;
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
      return write(f, {pixels, columns, at.height * at.width, count, y, y_rows, c, c_rows, bias});
    }
    f.bias_row = g.bias_stride;
    f.y_column = out.space[2];
    f.c_column = other.space[2];
    const bool whole = evenly_spaced(out, at) && (!c || evenly_spaced(other, at));
    const int64_t number = whole ? 1 : at.height, length = whole ? at.height * at.width : at.width;
    for (int64_t i = 0; i < number; ++i, pixels += at.width * columns) {
      if (!bias && !c && f.plain()) {
        gemm.transpose(pixels, columns, length, count, y + i * out.space[1], out.channel);
        continue;
      }
      gemm.transpose(pixels, columns, length, count, transposed, length);
      for (int64_t j = 0; j < count; ++j) {
        y_rows[j] = i * out.space[1] + j * out.channel;
        c_rows[j] = i * other.space[1] + j * other.channel;
      }
      write(f, {transposed, length, count, length, y, y_rows, c, c_rows, bias});
    }
  }

  float* scratch_of(void* workspace, int64_t thread) const {
    return reinterpret_cast<float*>(static_cast<char*>(workspace) + scratch_at + size_t(thread) * scratch_bytes);
  }

  // For many tiles. All weights are transformed first and shared. Then each thread transforms the input patches of one
  // block of tiles at a time.
  void compute_blocks(const ConvArgs& args, void* workspace) const {
    float* windows = static_cast<float*>(workspace);
    const int64_t chunks = ceil_div(channels, kChunk), panel_size = kWinogradPlanes * window_plane;
    cpu::parallel_for(panels * chunks, 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t panel = i / chunks, first = i % chunks * kChunk;
        transform_windows(static_cast<const float*>(args.w), panel, first, std::min(kChunk, channels - first),
                          windows + panel * panel_size + first * kernels.columns);
      }
    });
    cpu::parallel_items(blocks * line_chunks * panel_chunks, [&](int64_t item, int64_t thread) {
      float* scratch = scratch_of(workspace, thread);
      const int64_t panel_chunk = item % panel_chunks, chunk = item / panel_chunks % line_chunks;
      const int64_t block = item / panel_chunks / line_chunks;
      const int64_t first = tile_lines * block / blocks, end = tile_lines * (block + 1) / blocks;
      transform_patches(first, end, chunk, args, scratch + ring_at, scratch);
      WinogradProduct product{(end - first) * tiles_of_line(chunk), channels};
      product.patches = scratch;
      product.patch_pitch = pitch;
      product.patch_plane = patch_plane;
      product.window_plane = window_plane;
      product.products = scratch + products_at;
      product.product_plane = product_plane;
      const int64_t end_panel = panels * (panel_chunk + 1) / panel_chunks;
      for (int64_t panel = panels * panel_chunk / panel_chunks; panel < end_panel; ++panel) {
        product.windows = windows + panel * panel_size;
        kernels.multiply(product);
        transform_results(first, end, chunk, panel, args, scratch);
      }
    });
  }

  // For few tiles. All input patches are transformed first and shared. Then each thread transforms the weights of one
  // panel of filters at a time.
  void compute_panels(const ConvArgs& args, void* workspace) const {
    float* patches = static_cast<float*>(workspace);
    const int64_t chunks = std::min(threads, tile_lines);
    cpu::parallel_items(chunks, [&](int64_t chunk, int64_t thread) {
      const int64_t first = tile_lines * chunk / chunks, end = tile_lines * (chunk + 1) / chunks;
      transform_patches(first, end, 0, args, scratch_of(workspace, thread) + ring_at,
                        patches + first * chunk_tiles * pitch);
    });
    cpu::parallel_items(panels, [&](int64_t panel, int64_t thread) {
      float* scratch = scratch_of(workspace, thread);
      WinogradProduct product{tile_lines * chunk_tiles};
      product.patch_pitch = pitch;
      product.patch_plane = patch_plane;
      product.windows = scratch;
      product.window_plane = window_plane;
      product.products = scratch + products_at;
      product.product_plane = product_plane;
      for (int64_t first = 0; first < channels; first += kWinogradChannels) {
        product.channels = std::min(kWinogradChannels, channels - first);
        transform_windows(static_cast<const float*>(args.w), panel, first, product.channels, scratch);
        product.patches = patches + first;
        product.add = first > 0;
        kernels.multiply(product);
      }
      transform_results(0, tile_lines, 0, panel, args, scratch);
    });
  }

  void run(const ConvArgs& args, void* workspace, Stream) const override {
    if (shares_patches) compute_panels(args, workspace);
    else compute_blocks(args, workspace);
  }
};

}  // namespace

struct Winograd final : PlanEngine<WinogradTiling, WinogradPlan> {
  std::string name() const override { return "cpu.conv.winograd"; }
  unsigned traits() const override { return kReducedPrecision; }
  std::string why_not(const ConvProblem& p, const Device& d) const override {
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
    const WinogradTiling t(p, d);
    if (t.channels < kLeastChannels || t.least_products() < kLeastProducts)
      return cat("needs at least ", kLeastProducts, " products and ", kLeastChannels,
                 " channels in each sum for the accuracy of float32; got ", t.least_products(), " and ", t.channels);
    return "";
  }
  double estimate_us(const ConvProblem& p, const Device& d) const override {
    const WinogradTiling t(p, d);
    const double tiles = double(t.tile_lines * t.tile_columns), channels = double(t.channels),
                 filters = double(t.panels * t.kernels.columns);
    const double products = tiles * channels * filters + kWindowProducts * channels * filters +
                            kTileProducts * tiles * (channels + filters);
    return roofline_us(2 * kWinogradPlanes * products / 10, conv_bytes(p), d, 0.95);
  }
};

}  // namespace cpu::conv

template const Engine<ConvProblem>& engine_object<ConvProblem, cpu::conv::Winograd>();

}  // namespace minidnn
