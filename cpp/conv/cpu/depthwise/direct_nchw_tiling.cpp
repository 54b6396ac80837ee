// SPDX-License-Identifier: Apache-2.0
#include "cpp/conv/cpu/depthwise/direct_nchw_tiling.h"

#include <algorithm>
#include <tuple>

#include "cpp/core/cpu/work_size.h"

namespace minidnn {
namespace cpu::conv {
namespace {

// The largest number of pixels of a result row that are computed together.
constexpr int64_t kMostPixels = 1024;
// The limit in bytes for the input rows that are copied together. They fit a second-level cache.
constexpr int64_t kBandBytes = 64 << 10;
// The limit in bytes for the rows of dy that are used together. They fit a first-level cache, because every window
// element reads them again.
constexpr int64_t kGradientBytes = 32 << 10;
// For dw: the target number of work items, and the least number of multiply-adds in a work item.
constexpr int64_t kItems = 16, kChunkWork = 1 << 20;

int64_t floor_div(int64_t a, int64_t d) { return a < 0 ? -ceil_div(-a, d) : a / d; }
int64_t aligned(int64_t floats) { return ceil_div<int64_t>(floats, 16) * 16; }

}  // namespace

DirectNchwTiling::DirectNchwTiling(const ConvProblem& problem, const Device& d)
    : p(problem),
      g(conv_geometry(problem)),
      in(g.backward_data ? g.y : g.x),
      out(g.backward_data ? g.x : g.y),
      backward(g.backward_data),
      filter(p.direction == ConvDirection::backward_filter),
      threads(d.sm_count),
      w_in(backward ? g.w_filter : g.w_channel),
      w_out(backward ? g.w_channel : g.w_filter) {
  int64_t most_rows = 0;
  for (int j = 0; j < kMaxSpatial; ++j) {
    step[j] = backward ? g.stride[j] : 1;
    in_step[j] = backward ? 1 : g.stride[j];
  }
  const int64_t filters = std::min(kFilters, out.channels);
  int64_t taps = 0;
  for (ConvPhase& phase : conv_phases(g)) {
    Band& b = phases.emplace_back(band(std::move(phase)));
    b.weights_at = taps * g.groups * out.channels;
    taps += int64_t(b.w.size());
    band_floats = std::max(band_floats, aligned(in.channels * b.channel));
    line_floats = std::max(line_floats, aligned(filters * filter_floats(b)));
    most_rows = std::max(most_rows, b.rows);
  }
  if (filter) {
    const Band& b = phases.front();
    units = g.images * b.count[0] * b.bands * b.line_chunks;
    const int64_t work = b.rows * b.pitch * int64_t(b.w.size()) * filters;
    const int64_t items = g.groups * ceil_div(out.channels, kFilters);
    chunks = std::clamp<int64_t>(units * work / cpu::work_size(kChunkWork), 1, ceil_div(kItems, items));
    bands_of_chunk = ceil_div(units, chunks);
    chunks = ceil_div(units, bands_of_chunk);
  }
  if (!filter || chunks > 1) bytes = ceil_div<size_t>(size_t(chunks * w_numel()) * sizeof(float), 4096) * 4096;
  scratch_bytes =
      size_t(2 * band_floats + line_floats + (filter ? taps * filters * kernels.lanes : 0)) * sizeof(float) +
      2 * size_t(most_rows) * sizeof(int64_t);
  scratch_bytes = ceil_div<size_t>(scratch_bytes, 4096) * 4096;
  scratch_at = bytes;
  bytes += scratch_bytes * size_t(threads);
}

DirectNchwTiling::Band DirectNchwTiling::band(ConvPhase&& phase) const {
  Band b{std::move(phase)};
  auto& taps = b.taps;
  const int64_t lanes = kernels.lanes, stride = in_step[2];
  auto column = [&](const ConvTap& t) { return t.shift[2] - floor_div(t.shift[2], stride) * stride; };
  auto distinct = [&](auto of) {
    std::vector<int64_t> all;
    for (const ConvTap& t : taps) all.push_back(of(t));
    std::ranges::sort(all);
    all.erase(std::ranges::unique(all).begin(), all.end());
    return all;
  };
  std::ranges::sort(taps, {}, [](const ConvTap& t) { return std::tuple(t.shift[0], t.shift[2], t.shift[1]); });
  b.depths = distinct([](const ConvTap& t) { return t.shift[0]; });
  const std::vector<int64_t> heights = distinct([](const ConvTap& t) { return t.shift[1]; });
  const std::vector<int64_t> wholes = distinct([&](const ConvTap& t) { return floor_div(t.shift[2], stride); });
  const std::vector<int64_t> rests = distinct(column);
  const int64_t left = wholes.empty() ? 0 : wholes.front(), right = wholes.empty() ? 0 : wholes.back();
  b.line_chunk = std::min(b.count[2], cpu::work_size(kMostPixels));
  b.line_chunks = ceil_div(b.count[2], std::max<int64_t>(b.line_chunk, 1));
  b.pitch = ceil_div(b.line_chunk, lanes) * lanes;
  b.length = b.pitch + right - left;
  for (int64_t rest : rests) b.columns.push_back(left * stride + rest);
  b.top = heights.empty() ? 0 : heights.front();
  const int64_t reach = heights.empty() ? 0 : heights.back() - b.top;
  // The window is processed column by column only if it has no gaps between rows and the same rows in all columns.
  const int64_t number = int64_t(heights.size()), all = int64_t(taps.size());
  const bool together =
      in_step[1] == 1 && out.channels == 1 && !filter && reach + 1 == number &&
      all == number * int64_t(b.depths.size()) * int64_t(distinct([](const ConvTap& t) { return t.shift[2]; }).size());
  if (together && std::ranges::find(kDirectNchwHeights, number) != std::end(kDirectNchwHeights)) b.height = number;

  const int64_t line_bytes =
      in.channels * int64_t(b.depths.size() * b.columns.size()) * b.length * int64_t(sizeof(float));
  int64_t rows = line_bytes ? (cpu::work_size(kBandBytes) / line_bytes - reach - 1) / in_step[1] + 1 : b.count[1];
  if (filter)
    rows = std::min(
        rows, cpu::work_size(kGradientBytes) / (std::min(kFilters, out.channels) * b.pitch * int64_t(sizeof(float))));
  if (rows < b.count[1]) rows = std::max<int64_t>(rows / kDirectNchwRows * kDirectNchwRows, kDirectNchwRows);
  b.rows = std::min(rows, b.count[1]);
  b.bands = ceil_div(b.count[1], std::max<int64_t>(b.rows, 1));
  b.lines = (b.rows - 1) * in_step[1] + reach + 1;
  b.channel = int64_t(b.columns.size() * b.depths.size()) * b.lines * b.length + lanes;
  for (int64_t i = 0; i < in.channels; ++i)
    for (size_t t = 0; t < taps.size(); t += size_t(b.height)) {
      auto index = [](const std::vector<int64_t>& of, int64_t v) { return std::ranges::find(of, v) - of.begin(); };
      const int64_t z = index(b.depths, taps[t].shift[0]), rest = index(rests, column(taps[t]));
      const int64_t line = (rest * int64_t(b.depths.size()) + z) * b.lines + taps[t].shift[1] - b.top;
      b.at.push_back(i * b.channel + line * b.length + floor_div(taps[t].shift[2], stride) - left);
    }
  for (int64_t i = 0; i < in.channels; ++i)
    for (const ConvTap& tap : taps) b.w.push_back(tap.w + i * w_in);
  return b;
}
}  // namespace cpu::conv
}  // namespace minidnn
