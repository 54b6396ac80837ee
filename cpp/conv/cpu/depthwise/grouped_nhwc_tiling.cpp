// SPDX-License-Identifier: Apache-2.0
#include "cpp/conv/cpu/depthwise/grouped_nhwc_tiling.h"

#include <algorithm>
#include <tuple>

#include "cpp/core/cpu/work_size.h"

namespace minidnn {
namespace cpu::conv {
namespace {

// The limit in bytes for sums of dw, which fit a first-level cache.
constexpr int64_t kSumBytes = 16 << 10;
// For dw: the target number of work items, and the least number of multiply-adds in a chunk of image rows.
constexpr int64_t kItems = 16, kChunkWork = 1 << 20;

ChannelsLast read(const ConvProblem& p, const ConvGeometry& g, const ConvTensorView& side) {
  return {side, operand_dtype(p), g.images, g.groups, false, {}};
}

}  // namespace

GroupedNhwcTiling::GroupedNhwcTiling(const ConvProblem& problem, const Device& d)
    : p(problem),
      g(conv_geometry(problem)),
      in(read(p, g, g.backward_data ? g.y : g.x)),
      dy(read(p, g, g.y)),
      out(conv_out(g)),
      backward(g.backward_data),
      filter(p.direction == ConvDirection::backward_filter),
      nhwc_output(out.channel == 1),
      size(g.x.channels),
      channels(g.groups * size),
      threads(d.sm_count) {
  int64_t taps = 0;
  for (int j = 0; j < kMaxSpatial; ++j) {
    step[j] = backward ? g.stride[j] : 1;
    in_step[j] = backward ? 1 : g.stride[j];
  }
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
    vectors_of_item = std::clamp<int64_t>(
        cpu::work_size(kSumBytes) / (taps * size * kernels.lanes * int64_t(sizeof(float))), 1, vectors);
    const int64_t work = phases[0].count[2] * channels * size * taps;
    chunks = std::clamp<int64_t>(lines * work / cpu::work_size(kChunkWork), 1,
                                 ceil_div(kItems, ceil_div(vectors, vectors_of_item)));
    lines_of_chunk = ceil_div(lines, chunks);
    chunks = ceil_div(lines, lines_of_chunk);
    weights_at = reserve(size_t(chunks * taps * size * channels) * sizeof(float));
    return;
  }
  weights_at = reserve(size_t(taps * size * channels) * sizeof(float));
  scratch_bytes = size_t(longest * channels * (kGroupedNhwcRows + (nhwc_output ? 0 : 1))) * sizeof(float) +
                  2 * size_t(std::max(longest, channels)) * sizeof(int64_t);
  scratch_bytes = ceil_div<size_t>(scratch_bytes, 4096) * 4096;
  scratch_at = reserve(scratch_bytes * size_t(threads));
}

std::pair<int64_t, int64_t> GroupedNhwcTiling::pixels_inside(const Phase& phase, const ConvTap& tap, int j) const {
  const int64_t shift = tap.shift[j], over = in.side.size[j] - 1 - shift, all = phase.count[j];
  return {std::min(all, shift < 0 ? ceil_div(-shift, in_step[j]) : 0),
          std::min(all, over < 0 ? 0 : over / in_step[j] + 1)};
}

std::vector<int64_t> GroupedNhwcTiling::boundaries(const Phase& phase, int j) const {
  std::vector<int64_t> all{0, phase.count[j]};
  for (const ConvTap& tap : phase.taps) {
    const auto [begin, end] = pixels_inside(phase, tap, j);
    all.push_back(begin);
    all.push_back(end);
  }
  std::ranges::sort(all);
  all.erase(std::ranges::unique(all).begin(), all.end());
  return all;
}

void GroupedNhwcTiling::find_zones(Phase& phase) const {
  phase.row_boundaries = boundaries(phase, 1);
  const std::vector<int64_t> all = boundaries(phase, 2);
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    Zone zone{all[i], all[i + 1], {}};
    for (size_t t = 0; t < phase.taps.size(); ++t) {
      const auto [begin, end] = pixels_inside(phase, phase.taps[t], 2);
      if (begin <= zone.begin && zone.end <= end) zone.taps.push_back(int64_t(t));
    }
    phase.zones.push_back(std::move(zone));
  }
}

void GroupedNhwcTiling::find_columns(Phase& phase) const {
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
  phase.height = int64_t(height);
  phase.top = tap(0).shift[1];
  phase.next = taps[1] - taps[0];
}

}  // namespace cpu::conv
}  // namespace minidnn
