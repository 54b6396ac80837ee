// SPDX-License-Identifier: Apache-2.0
#include "cpp/batch_norm/cpu/vectorized_tiling.h"

#include <numeric>

#include "cpp/core/cpu/work_size.h"

namespace minidnn {
namespace cpu::batch_norm {
namespace {

// The bytes of a group of adjacent channels, which stay in the cache of a core until they are read for the second time.
constexpr int64_t kTileBytes = 256 << 10;
// the usual number of elements that are summed at a time
constexpr int64_t kSection = 64 << 10;
constexpr int64_t kUneven = INT64_MIN;

// Returns the stride between consecutive elements that the loops `s` visit in a tensor, or kUneven if it is not
// constant.
int64_t step_of(const NormSpace& s, int64_t NormOffsets::* tensor) {
  for (int64_t i = 0; i + 1 < s.rank; ++i)
    if (s.step[i].*tensor != s.step[i + 1].*tensor * s.shape[i + 1]) return kUneven;
  return s.span_step().*tensor;
}

}  // namespace

std::optional<Tiling> loops_of(const BatchNormProblem& p) {
  const NormSpaces s = norm_spaces(p);
  Tiling c;
  c.channels = s.groups.size;
  c.members = s.members.size;
  c.ordered = c.channels == 1 || step_of(s.groups, &NormOffsets::parameter) == 1;
  const bool backward = p.direction == NormDirection::backward;
  struct Tensor {
    int64_t NormOffsets::* offset;
    NormBlock::Steps& steps;
  } tensors[] = {{&NormOffsets::x, c.x},
                 {backward || !p.other.rank ? &NormOffsets::dy : &NormOffsets::other, c.dy},
                 {&NormOffsets::out, c.out},
                 {&NormOffsets::other, c.y},
                 {&NormOffsets::dresidual, c.gated}};
  auto all = [&](auto holds) { return std::ranges::all_of(tensors, holds); };

  NormSpace rows = s.members;
  const bool spans = rows.span() > 1 && all([&](Tensor& t) { return rows.span_step().*t.offset == 1; });
  if (spans) {
    c.space = rows.span();
    rows.size /= c.space;
    if (--rows.rank == 0) rows = {.shape = {1}};
  }
  for (Tensor& t : tensors) {
    t.steps = {step_of(rows, t.offset), c.channels == 1 ? c.space : step_of(s.groups, t.offset)};
    if (t.steps.row == kUneven || t.steps.column == kUneven) return {};
  }
  const bool packed = all([&](Tensor& t) { return t.steps.column == c.space; });
  if (!spans && !packed) return {};
  c.rows = rows.size;
  c.columns = c.channels;
  constexpr int64_t kShort = 16;
  if (packed && c.space < kShort) {
    c.repeat = std::exchange(c.space, 1);
    c.columns *= c.repeat;
    for (Tensor& t : tensors) t.steps.column = 1;
    // Short rows are merged to at least 256 elements, a multiple of 16, and at most kNormColumns, whose sums fit a
    // first-level cache.
    constexpr int64_t kLanes = 16, kRow = 256;
    int64_t copies = kLanes / std::gcd(c.columns, kLanes);
    while (copies * c.columns < kRow) copies *= 2;
    if (copies * c.columns <= kNormColumns && copies <= c.rows &&
        all([&](Tensor& t) { return t.steps.row == c.columns; })) {
      c.copies = copies;
      c.columns *= copies;
      c.remaining_rows = c.rows % copies;
      c.rows /= copies;
      for (Tensor& t : tensors) t.steps.row = c.columns;
    }
  }
  return c;
}

Tiling tiling_of(const BatchNormProblem& p, const Device& d) {
  Tiling c = *loops_of(p);
  const int64_t bytes = int64_t(itemsize(p.x.dtype)) * (p.direction == NormDirection::backward ? 2 : 1);
  // Inference reads each element once, so threads process whole rows if that is the order in memory.
  const bool in_memory_order =
      p.direction == NormDirection::inference && c.rows >= 4 * d.sm_count && c.x.row >= c.x.column;
  bool fits_cache = true;
  if (c.space > 1) {
    // Spans that are long enough for the hardware prefetcher, and short enough that all threads have work.
    const int64_t row = cpu::work_size(2048), longest = cpu::work_size(16384);
    c.chunks = ceil_div(c.space, longest);
    const bool whole_rows = in_memory_order && c.chunks == 1;
    c.tile = whole_rows ? c.channels : std::clamp<int64_t>(row / c.space, 1, 64);
    if (c.chunks > 1) c.section = longest;
    else c.section = whole_rows ? 1 : std::clamp<int64_t>(longest / c.space, 1, 256);
    c.sections = c.chunks > 1 ? c.rows * c.chunks : ceil_div(c.rows, c.section);
  } else {
    // If columns are short, one thread computes a narrow group of columns from its cache. Otherwise threads share the
    // rows of a wide group. Sums are the same bit for bit, because rows are divided in the same way.
    int64_t width = kNormColumns;
    const int64_t tile_bytes = cpu::work_size(kTileBytes), step = cpu::work_size(256, 16);
    if (!in_memory_order && c.rows * 2 * step * bytes <= tile_bytes)
      width = std::clamp<int64_t>(min_of(tile_bytes / (bytes * c.rows), c.columns / d.sm_count) / step * step, 2 * step,
                                  width);
    c.tile = c.copies > 1 ? c.channels : width / c.repeat;
    // Enough rows that combining their sums takes little time, and few enough that all threads have work.
    c.section = std::clamp<int64_t>(max_of(cpu::work_size(kSection) / min_of(c.columns, kNormColumns), c.rows / 16),
                                    cpu::work_size(64), 1024);
    c.sections = ceil_div(c.rows, c.section) + (c.remaining_rows > 0);
    fits_cache = c.rows * c.tile_columns() * bytes <= tile_bytes;
  }
  c.tiles = ceil_div(c.channels, c.tile);
  c.tile_by_thread = fits_cache && (c.tiles >= 4 * d.sm_count || c.tiles % d.sm_count == 0);
  return c;
}

}  // namespace cpu::batch_norm
}  // namespace minidnn
