// SPDX-License-Identifier: Apache-2.0
#include "cuda/pooling/nchw/nchw_tiling.h"

namespace minidnn::cuda::pooling {
namespace {

// The number of bytes of x in a block. With 5 such blocks on an SM, 64 KB are in flight. Smaller blocks would read more
// rows twice.
constexpr int64_t kBlockBytes = 16 << 10;
// The minimum number of blocks, unless there are fewer planes.
constexpr int64_t kFewestBlocks = 512;
constexpr int64_t kMostTerms = 64;  // the maximum number of terms of a sum that is not compensated

// The properties of a pooling problem from which the tiling is computed.
struct Facts {
  const PoolingProblem& p;
  const bool backward = p.direction == PoolingDirection::backward, is_max = p.mode == PoolingMode::max;
  // whether the kernel has to find the maxima, because no indices are given
  const bool searches = is_max && p.indices.rank == 0;
  // One spatial dimension counts as the rows of a plane with one column, because rows can be divided among blocks.
  const Windows h = windows_of(p, 0), w = p.x.rank == 4 ? windows_of(p, 1) : Windows{};
  const int64_t planes = p.x.shape[0] * p.x.shape[1];
  const int64_t item_bytes = itemsize(p.x.dtype), index_bytes = p.indices.rank ? itemsize(p.indices.dtype) : 0;
  // the number of rows of x that a window spans, with its dilation
  const int64_t reach = (h.window - 1) * h.dilation + 1;
  const int64_t lines = backward ? h.size : h.count;  // the number of rows in a plane of the result (y or dx)
  const StaticStep step = p.x.rank == 4 ? static_step(p) : StaticStep{};

  float mean_factor() const { return common_mean_factor(h, w, p.mode == PoolingMode::avg_exclude_padding); }
};

NchwTiling::Method method_of(const Facts& f) {
  using enum NchwTiling::Method;
  if (f.step.window == 0) return any_windows;
  if (f.backward) return f.is_max ? max_backward : average_backward;
  return f.index_bytes ? static_forward : forward_tiles;
}

// Returns whether one window covers the whole plane along a dimension.
bool covers(const Windows& axis) {
  return axis.count == 1 && axis.before == 0 && axis.window == axis.size && axis.dilation == 1;
}

// Divides planes among blocks. A block has several whole planes, or some rows of one plane.
void divide_planes(const Facts& f, NchwTiling& t) {
  const Windows& h = f.h;
  const int64_t plane = int64_t(h.size) * f.w.size;
  // In max_backward with given indices, the sum and the index of an element take at least 4 bytes of shared memory. So
  // for 16-bit elements, a block has half as many elements.
  const bool wide = t.method == NchwTiling::Method::max_backward && !f.searches;
  const int64_t most = kBlockBytes / (wide ? max_of<int64_t>(f.item_bytes, 4) : f.item_bytes);
  NchwTiling::Block& b = t.block;
  b.planes = b.chunks = 1;
  b.lines = f.lines;
  if (plane <= most) {
    b.planes = std::clamp<int64_t>(most / plane, 1, f.planes);
    // If there are few planes, a block gets fewer planes, so that each SM has a block.
    while (b.planes > 1 && ceil_div(f.planes, b.planes) < kFewestBlocks) b.planes /= 2;
    return;
  }
  // A block has as many rows of x as kBlockBytes allows. It computes the rows of the result that need no further
  // rows of x.
  const int64_t x_lines = max_of<int64_t>(most / f.w.size, 1);
  int64_t lines =
      max_of<int64_t>(f.backward ? x_lines - (f.searches ? f.reach : 0) : (x_lines - f.reach) / h.stride + 1, 1);
  if (f.backward) lines = max_of(lines, min_of<int64_t>(2 * h.stride, f.lines));
  lines = ceil_div(f.lines, ceil_div(f.lines, lines));  // makes the numbers of rows of all blocks nearly equal
  if (f.backward) lines = ceil_div<int64_t>(lines, h.stride) * h.stride;
  b.chunks = ceil_div(f.lines, lines);
  b.lines = lines;
}

// Upper limits for any block: the windows, the rows of x, and the elements, which have 16-bit indices.
void limit_block(const Facts& f, NchwTiling& t) {
  const Windows& h = f.h;
  NchwTiling::Block& b = t.block;
  b.windows = b.planes > 1 || b.chunks == 1 ? h.count
              : f.backward                  ? min_of<int64_t>((b.lines + f.reach - 2) / h.stride + 1, h.count)
                                            : b.lines;
  b.x_lines = b.planes > 1 ? h.size : min_of<int64_t>((b.windows - 1) * h.stride + f.reach, h.size);
  if (f.backward && !f.searches) b.x_lines = 0;
  b.numbered = max_of(b.lines, t.method == NchwTiling::Method::max_backward ? b.x_lines : 0) * f.w.size * b.planes;
}

// Returns the bytes of shared memory for a copy of `bytes` bytes. The copy is aligned like its original modulo 16
// bytes, so it may take more.
int64_t smem_bytes_of(int64_t bytes) { return ceil_div<int64_t>(bytes + 16, 16) * 16; }

void lay_out_smem(const Facts& f, NchwTiling& t) {
  using enum NchwTiling::Method;
  const NchwTiling::Block& b = t.block;
  const int64_t line = f.w.size * b.planes, windows = b.windows * f.w.count * b.planes;
  NchwTiling::Smem& smem = t.smem;
  if (t.method == max_backward) {
    // Given indices take the place of x, which is not needed.
    smem.dy_at = smem_bytes_of(f.index_bytes ? windows * f.index_bytes : b.x_lines * line * f.item_bytes);
    smem.sums_at = smem.dy_at + smem_bytes_of(windows * f.item_bytes);
    smem.bytes = smem.sums_at + smem_bytes_of(b.lines * line * 4);
    return;
  }
  smem.dy_at = smem_bytes_of(max_of(b.x_lines, f.backward ? b.lines : 0) * f.item_bytes * line);
  smem.keys_at = smem.dy_at + (f.backward || t.method == forward_tiles ? smem_bytes_of(windows * f.item_bytes) : 0);
  const bool scales_dy = !f.is_max && (t.method == any_windows || f.mean_factor() == 0);
  smem.bytes = smem.keys_at + (f.backward ? smem_bytes_of(windows * (f.is_max ? 2 : scales_dy ? 4 : 0)) : 0);
}

// For windows of any size: either a thread computes several windows, or several lanes share a window.
void divide_windows(const Facts& f, NchwTiling& t) {
  const int64_t taps = int64_t(f.h.window) * f.w.window, windows = t.block.windows * f.w.count * t.block.planes;
  t.one_window = t.method == NchwTiling::Method::any_windows && covers(f.h) && covers(f.w);
  // Several lanes share a window if it has many elements and the block has fewer than 512 windows. Otherwise, it is
  // faster if a thread computes four windows. `fewest_taps` is the minimum number of elements of a window per lane.
  const int64_t fewest_taps = t.one_window ? 16 : 8;
  while (t.lane_bits < 5 && (taps >> t.lane_bits) >= fewest_taps && (windows << t.lane_bits) < 512) ++t.lane_bits;
  const int64_t terms = f.backward
                            ? ceil_div<int64_t>(f.h.window, f.h.stride) * ceil_div<int64_t>(f.w.window, f.w.stride)
                        : f.is_max ? 0
                                   : taps;
  t.several_windows = t.lane_bits == 0 && !t.one_window && f.h.dilation == 1 && f.w.dilation == 1 &&
                      f.h.stride <= f.h.window && terms <= kMostTerms;
}

constexpr int64_t kMostWarps = kStaticThreads / 32;

// Returns the relative cost of strips (adjacent columns of windows) with `lines` rows of windows. Lanes that find
// maxima also read the rows above their strip. Lanes whose strips begin in the same bank of shared memory wait for each
// other.
double strip_cost(const Facts& f, const NchwTiling& t, int64_t lines) {
  int in_bank[32] = {}, most_in_bank = 0;
  for (int64_t lane = 0; lane < 32 / t.strips.lanes * t.strips.lanes; ++lane) {
    const int64_t column = lane % t.strips.lanes * kStripWindows, row = lane / t.strips.lanes * lines;
    const int64_t word = (row * f.w.size + column) * f.h.stride * f.item_bytes / 4;
    most_in_bank = max_of(most_in_bank, ++in_bank[word % 32]);
  }
  const int64_t above = f.searches ? f.h.window / f.h.stride : 0;
  return double(ceil_div(t.block.windows, lines) * (lines + above)) * (4 + most_in_bank);
}

void divide_into_strips(const Facts& f, NchwTiling& t) {
  const int64_t windows = t.block.windows, across = ceil_div<int64_t>(f.w.count, kStripWindows);
  t.strips.lanes = min_of<int64_t>(across, 32);
  t.strips.column_pairs = ceil_div<int64_t>(ceil_div(across, t.strips.lanes), 2);
  auto warps = [&](int64_t lines) {
    return ceil_div(t.block.planes * ceil_div(windows, lines) * t.strips.column_pairs, 32 / t.strips.lanes);
  };
  int64_t least = least_strip_lines(f.h.window, f.h.stride);
  if (f.searches) least = max_of<int64_t>(least, 8 / f.h.stride);
  while (least < windows && warps(least) > kMostWarps) ++least;
  int64_t lines = least;
  for (int64_t more = least; more < min_of(windows, least + 3); ++more)
    if (strip_cost(f, t, more) < strip_cost(f, t, lines)) lines = more;
  t.strips.lines = lines;
  t.strips.rounds = ceil_div(warps(lines), kMostWarps);
  t.threads = ceil_div(warps(lines), t.strips.rounds) * 32;
}

// Returns the number of threads of a block for which nearly all threads have a tile in the last iteration, too.
int64_t threads_for_tiles(const Facts& f, const NchwTiling& t) {
  const int64_t across = ceil_div(f.backward ? f.w.size : f.w.count, steps_across(f.h.stride));
  const int64_t tiles = ceil_div<int64_t>(t.block.lines, kDown) * across * t.block.planes;
  return ceil_div(ceil_div(tiles, ceil_div<int64_t>(tiles, kStaticThreads)), int64_t(32)) * 32;
}

// Returns the grid of the elements, tiles or strips of y or dx that one thread computes at a time.
Grid results_of(const Facts& f, const NchwTiling& t) {
  using enum NchwTiling::Method;
  const Windows &h = f.h, &w = f.w;
  const int planes = int(t.block.planes);
  const int columns = f.backward ? w.size : w.count;
  auto lines_by = [&](int64_t n) { return int(ceil_div(f.lines, n)); };
  switch (t.method) {
    case any_windows: {
      Grid grid(planes, lines_by(t.several_windows ? kDown : 1), columns);
      // A plane that is one window counts as one row.
      if (t.one_window) grid.by_columns = FastDivmod(int64_t(h.size) * w.size);
      return grid;
    }
    case static_forward:
      return Grid(planes, ceil_div(h.count, kDown), w.count);
    case max_backward:
      return Grid(planes, int(ceil_div(t.block.windows, t.strips.lines)), int(t.strips.column_pairs));
    case average_backward:
      if (!gathers_tiles(t.step.stride)) {
        const int steps = (h.size - 1 + h.before) / h.stride - h.before / h.stride;
        return Grid(planes, steps / steps_down(h.window, h.stride) + 1,
                    (w.size - 1 + w.before) / w.stride + 1 - w.before / w.stride);
      }
      [[fallthrough]];
    case forward_tiles:
      return Grid(planes, lines_by(kDown), ceil_div(columns, steps_across(h.stride)));
  }
  return {};
}

}  // namespace

NchwTiling nchw_tiling(const PoolingProblem& p) {
  using enum NchwTiling::Method;
  const Facts f{p};
  NchwTiling t{};
  t.method = method_of(f);
  t.step = f.step;
  t.threads = kNchwThreads;
  divide_planes(f, t);
  limit_block(f, t);
  lay_out_smem(f, t);
  divide_windows(f, t);
  if (t.method == max_backward) divide_into_strips(f, t);
  else if (t.method == forward_tiles || (t.method == average_backward && gathers_tiles(t.step.stride)))
    t.threads = threads_for_tiles(f, t);
  else if (t.method == average_backward) t.threads = kStaticThreads;
  return t;
}

NchwParams nchw_params(const PoolingProblem& p, const NchwTiling& t) {
  const Facts f{p};
  auto offset = [](int64_t at) { return int32_t(min_of<int64_t>(at, 1 << 30)); };
  NchwParams s{};
  s.h = f.h;
  s.w = f.w;
  s.planes = f.planes;
  s.block_planes = int32_t(t.block.planes);
  s.chunks = int32_t(t.block.chunks);
  s.lines = int32_t(t.block.lines);
  s.lane_bits = int32_t(t.lane_bits);
  s.index_bytes = int32_t(f.index_bytes);
  s.exclude_padding = p.mode == PoolingMode::avg_exclude_padding;
  s.mean_factor = f.mean_factor();
  s.several_windows = t.several_windows;
  s.one_window = t.one_window;
  s.dy_at = offset(t.smem.dy_at);
  s.keys_at = offset(t.smem.keys_at);
  s.sums_at = offset(t.smem.sums_at);
  s.by_chunks = FastDivmod(t.block.chunks);
  s.by_x_columns = FastDivmod(f.w.size);
  const int planes = int(t.block.planes);
  s.windows = Grid(planes, int(t.block.windows), f.w.count);
  s.searches = Grid(planes, int(ceil_div<int64_t>(t.block.windows, kDown)), f.w.count);
  s.results = results_of(f, t);
  s.strip_lines = int32_t(t.strips.lines);
  s.strip_rounds = int32_t(t.strips.rounds);
  s.by_lanes = FastDivmod(max_of<int64_t>(t.strips.lanes, 1));
  return s;
}

}  // namespace minidnn::cuda::pooling
