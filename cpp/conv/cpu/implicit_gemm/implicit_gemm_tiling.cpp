// SPDX-License-Identifier: Apache-2.0
#include "cpp/conv/cpu/implicit_gemm/implicit_gemm_tiling.h"

#include <algorithm>

#include "cpp/core/cpu/work_size.h"

namespace minidnn {
namespace cpu::conv {
namespace {

// If all weights exceed kManyWeights bytes, work items may pack the weights that they need, at most kPanelBytes, so
// that packed weights stay in the cache.
constexpr int64_t kManyWeights = 2 << 20, kPanelBytes = 640 << 10;

}  // namespace

ImplicitGemmTiling::ImplicitGemmTiling(const ConvProblem& problem, const Device& d)
    : p(problem),
      g(without_gaps(conv_geometry(problem))),
      backward(g.backward_data),
      threads(d.sm_count),
      pairs(has_pairs(p, g)),
      amx(pairs ? bf16_products() : nullptr),
      input(input_of(p, g)),
      in(input.side),
      out(conv_out(g)),
      transposes_pixels(!merges(g) && transposes(p, g)),
      channels(in.channels),
      columns(out.channels),
      panels(ceil_div(columns, kernel.columns)),
      units(amx     ? ceil_div(channels, kBf16Steps) * kBf16Steps / 2
            : pairs ? channels / 2
                    : channels),
      w_in(backward ? g.w_filter : g.w_channel),
      w_out(backward ? g.w_channel : g.w_filter) {
  nhwc_output = out.channel == 1 || columns * g.groups == 1;
  for (int j = 0; j < kMaxSpatial; ++j) {
    step[j] = backward ? g.stride[j] : 1;
    in_step[j] = backward ? 1 : g.stride[j];
  }
  find_taps();
  make_blocks();
  lay_out_workspace();
}

void ImplicitGemmTiling::find_taps() {
  lowest_tap = g.w_origin;
  int64_t dense = 1;
  dense_taps = volume(g.window) > 1 && volume(g.window) <= 256 && kernel.columns <= 32;
  for (int j = kMaxSpatial - 1; j >= 0; --j) {
    if (g.window[j] == 1) continue;
    dense_taps = dense_taps && std::abs(g.w_space[j]) == dense;
    lowest_tap += std::min<int64_t>(0, g.w_space[j] * (g.window[j] - 1));
    dense *= g.window[j];
  }
  for (ConvPhase& phase : conv_phases(g)) phases.push_back({std::move(phase)});
  if (merges(g)) {
    merged = g.window[2];
    for (ConvTap& tap : phases[0].taps)
      for (int j = 0; j < kMaxSpatial; ++j) tap.shift[j] += input.border[j];
  }
  int64_t taps = 0;
  for (Phase& phase : phases) {
    find_segments(phase);
    phase.weights_at = taps * units * g.groups * panels * kernel.columns;
    taps += int64_t(phase.taps.size());
  }
}

int64_t ImplicitGemmTiling::floats_of_panel() const {
  size_t taps = 0;
  for (const Phase& phase : phases) taps += phase.taps.size();
  return int64_t(taps) * units * kernel.columns;
}

void ImplicitGemmTiling::lay_out_workspace() {
  auto reserve = [&](size_t size) {
    const size_t at = bytes;
    bytes += ceil_div<size_t>(size, 4096) * 4096;
    return at;
  };
  const size_t panel_bytes = size_t(floats_of_panel()) * sizeof(float);
  if (!packs_panels) weights_at = reserve(panel_bytes * size_t(g.groups * panels));
  copy_at = reserve(input.bytes());
  zeros_at = reserve(size_t(channels * merged) * sizeof(float));
  size_t segments = 0;
  for (const Phase& phase : phases) segments = std::max(segments, phase.segments.size());
  const int64_t rows = ceil_div(block_rows, kBf16Lines) * kBf16Lines;
  const size_t tile_bytes = size_t(rows * kernel.columns) * sizeof(float);
  if (amx) pixel_pitch = bf16_pitch(int64_t(segments) * units * 2);
  const size_t pixel_bytes = size_t(transposes_pixels ? block_rows * channels * 4 : rows * pixel_pitch * 2);
  sums_at = ceil_div<size_t>(segments * kBlockTiles * sizeof(GemmSegment), 64) * 64;
  transposed_at = sums_at + tile_bytes;
  pixels_at = transposed_at + (nhwc_output ? 0 : tile_bytes);
  amx_rows_at = pixels_at + ceil_div<size_t>(pixel_bytes, 64) * 64;
  panel_at =
      amx_rows_at + (amx ? ceil_div<size_t>(size_t(rows / kBf16Lines) * segments * sizeof(Bf16Rows), 64) * 64 : 0);
  scratch_bytes = panel_at + (packs_panels ? panel_bytes : 0);
  scratch_at = reserve(scratch_bytes * size_t(threads));
}

void ImplicitGemmTiling::find_segments(Phase& phase) const {
  for (size_t t = 0; t < phase.taps.size(); ++t) {
    const ConvTap& tap = phase.taps[t];
    int64_t at = 0;
    for (int j = 0; j < kMaxSpatial; ++j) {
      at += tap.shift[j] * in.space[j];
      phase.low[j] = t ? std::min(phase.low[j], tap.shift[j]) : tap.shift[j];
      phase.high[j] = t ? std::max(phase.high[j], tap.shift[j]) : tap.shift[j];
    }
    if (t % size_t(merged) == 0) phase.segments.push_back(at * input_size());
  }
}

bool ImplicitGemmTiling::has_pairs(const ConvProblem& p, const ConvGeometry& g) {
  const int64_t channels = (g.backward_data ? g.y : g.x).channels;
  return operand_dtype(p) == DType::bfloat16 && channels % 2 == 0 && !merges(g) && gemm_has_pairs();
}

ChannelsLast ImplicitGemmTiling::input_of(const ConvProblem& p, const ConvGeometry& g) {
  int64_t border[kMaxSpatial]{};
  const bool with_border = merges(g);
  if (with_border) reach(g, border);
  const ConvTensorView& side = g.backward_data ? g.y : g.x;
  if (transposes(p, g)) return {side, g.images};
  const DType wanted = has_pairs(p, g) ? DType::bfloat16 : DType::float32;
  return {side, operand_dtype(p), g.images, g.groups, with_border, border, wanted};
}
bool ImplicitGemmTiling::transposes(const ConvProblem& p, const ConvGeometry& g) {
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

bool ImplicitGemmTiling::merges(const ConvGeometry& g) {
  return g.x.channels < gemm_kernels().f32.columns && !g.backward_data && g.groups == 1 && g.dilation[2] == 1 &&
         g.window[2] > 1;
}

void ImplicitGemmTiling::make_blocks() {
  // Transposed input pixels take at most half of a second-level cache.
  const int64_t fit = 65536 / (channels * kernel.rows), most_tiles = cpu::work_size(kBlockTiles);
  block_rows = kernel.rows * (transposes_pixels ? std::clamp<int64_t>(fit, 1, most_tiles) : most_tiles);
  // A work item that computes all pixels may pack its own weights, because no other work item reads them.
  packs_panels =
      std::ranges::all_of(phases, [&](const Phase& phase) { return g.images * volume(phase.count) <= block_rows; });
  const int64_t panel_bytes = floats_of_panel() * int64_t(sizeof(float));
  packs_panels =
      packs_panels && panel_bytes * g.groups * panels > cpu::work_size(kManyWeights) && panel_bytes <= kPanelBytes;

  const int64_t most = block_rows, together = packs_panels ? int64_t(phases.size()) : 1;
  int64_t all = 0;
  for (const Phase& phase : phases) all += g.groups * ceil_div(g.images * volume(phase.count), most);
  // About four work items per thread are enough to balance the load.
  int64_t block_panels = std::max<int64_t>(1, panels * all / std::max<int64_t>(1, threads * 4 * together));
  block_panels = std::min(block_panels, panels);
  for (int64_t i = 0; i < int64_t(phases.size()); i += together) {
    const int64_t rows = packs_panels ? most : g.images * volume(phases[size_t(i)].count);
    if (rows == 0) continue;
    // All work items get the same number of result pixels. Without this, the last one could have a single tile.
    const int64_t number = ceil_div(rows, most), length = ceil_div(ceil_div(rows, number), kernel.rows) * kernel.rows;
    for (int64_t group = 0; group < g.groups; ++group)
      for (int64_t row = 0; row < rows; row += length)
        for (int64_t panel = 0; panel < panels; panel += block_panels)
          blocks.push_back({i, together, group, row, length, panel, std::min(block_panels, panels - panel)});
  }
}

}  // namespace cpu::conv
}  // namespace minidnn
