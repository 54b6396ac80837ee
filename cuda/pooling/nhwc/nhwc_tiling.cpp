// SPDX-License-Identifier: Apache-2.0
#include "cuda/pooling/nhwc/nhwc_tiling.h"

namespace minidnn::cuda::pooling {
namespace {

// The number of strips per SM, times 32 (the channels of a strip), that keeps an SM busy.
constexpr int64_t kStripsOfSm = 1280;
// The minimum number of rows in a strip, because some rows above each strip are loaded, too.
constexpr int64_t kFewestLines = 8;
// The maximum shared memory of a block, in bytes, if each dx reads the windows that contain it. With it, 5 blocks fit
// an SM, without opt-in for more shared memory.
constexpr int64_t kMostSmem = 40 << 10;
// The maximum shared memory of a block, in bytes, if windows add their dy to sums of dx. With it, 3 blocks fit an SM.
constexpr int64_t kMostSmemOfSums = 72 << 10;
// The rows and columns of a tile of dx. Tiles are larger for large windows, because windows that overlap two tiles are
// computed twice, and if windows add their dy to sums of dx.
constexpr int64_t kTile = 16, kTileOfLarge = 32;
// The usual number of 16-byte vectors of channels of a block, if windows add their dy to sums of dx.
constexpr int64_t kSumVectors = 4;

// The properties of a pooling problem from which the tiling is computed.
struct Facts {
  const PoolingProblem& p;
  const bool backward = p.direction == PoolingDirection::backward, is_max = p.mode == PoolingMode::max;
  // One spatial dimension counts as the rows of a plane with one column.
  const Windows h = windows_of(p, 0), w = p.x.rank == 4 ? windows_of(p, 1) : Windows{};
  const int64_t images = p.x.shape[0], channels = p.x.shape[1], item_bytes = itemsize(p.x.dtype);
  const int64_t width = 16 / item_bytes, vectors = ceil_div(channels, width);
  const int64_t index_bytes = p.indices.rank ? itemsize(p.indices.dtype) : 0;

  // Returns the number of terms of a sum. Long sums are compensated.
  int64_t terms() const {
    if (backward) return ceil_div<int64_t>(h.window, h.stride) * ceil_div<int64_t>(w.window, w.stride);
    return is_max ? 0 : int64_t(h.window) * w.window;
  }
  bool dilated() const { return h.dilation > 1 || w.dilation > 1; }
};
constexpr int64_t kMostTerms = 64;  // the maximum number of terms of a sum that is not compensated

// Returns whether 32-bit indices suffice for the elements of an image and the bytes of a row, as the kernels with
// windows of compile-time size need.
bool fits_32_bits(const TensorDesc& t) {
  int64_t last = 0;
  for (int i = 1; i < t.rank; ++i) last += t.stride[i] < 0 ? int64_t(1) << 31 : (t.shape[i] - 1) * t.stride[i];
  const int columns = t.rank - 1;
  return last < 0x7fffffff && (t.rank == 0 || (t.shape[columns] - 1) * t.stride[columns] < int64_t(1) << 29);
}

StaticStep step_of(const PoolingProblem& p) {
  const bool fits = p.x.rank == 4 && fits_32_bits(p.x) && fits_32_bits(p.out) && fits_32_bits(p.indices) &&
                    (p.direction == PoolingDirection::forward || fits_32_bits(p.dy));
  return fits ? static_step(p) : StaticStep{};
}

int64_t at_most_int32(int64_t n) { return min_of<int64_t>(n, 0x7fffffff); }

void tile_words(const Facts& f, NhwcTiling& t) {
  const int64_t lines = f.backward ? f.h.size : f.h.count, columns = f.backward ? f.w.size : f.w.count;
  t.items_across = ceil_div<int64_t>(columns, across_of(t.step.stride));
  t.items = at_most_int32(ceil_div<int64_t>(lines, kStaticDown) * t.items_across * f.vectors * 4);
  t.blocks = ceil_div(t.items, t.threads);
}

void tile_strips(const Facts& f, int64_t sms, NhwcTiling& t) {
  constexpr int64_t kLanes = 32;  // a strip has one channel per lane of a warp
  const Windows &h = f.h, &w = f.w;
  const int64_t groups = ceil_div(f.channels, kLanes), all = h.size + h.before % h.stride;
  t.items_across = ceil_div<int64_t>(w.size + w.before % w.stride, strip_steps(t.step.stride) * w.stride);
  auto strips = [&](int64_t lines) { return ceil_div(all, lines) * t.items_across * groups; };
  auto whole_steps = [&](int64_t lines) { return ceil_div<int64_t>(lines, h.stride) * h.stride; };
  int64_t lines = whole_steps(all);
  while (lines > kFewestLines && (lines > kMostStripLines || strips(lines) * kLanes * f.images < sms * kStripsOfSm))
    lines = whole_steps(lines / 2);
  t.lines_of_strip = lines;
  t.items = at_most_int32(strips(lines));
  t.threads = kStripThreads;
  t.blocks = ceil_div(t.items * kLanes, t.threads);
  t.smem_bytes = StripLayout(t.step.window, t.step.stride, int(f.item_bytes), int(f.index_bytes)).smem_bytes;
}

void tile_windows(const Facts& f, int64_t sms, NhwcTiling& t) {
  const bool is_static = t.step.window > 0;
  const int64_t down = down_of(int(f.width));
  auto items_by = [&](int64_t windows) { return ceil_div<int64_t>(f.h.count, windows) * f.w.count * f.vectors; };
  // If there are few windows, teams of threads share each window, which keeps more threads busy.
  if (items_by(down) * f.images < sms * 256) t.several_windows = false;
  const int64_t items = items_by(is_static ? kStaticDown : t.several_windows ? down : 1);
  t.items = at_most_int32(items);
  t.items_across = f.w.count;
  t.teams = 1;
  // The teams divide the rows of each window.
  if (!is_static && !t.several_windows)
    while (t.teams < 16 && t.teams * 2 <= f.h.window + 1 && items * f.images * t.teams < sms * 1024) t.teams *= 2;
  t.blocks = ceil_div(items, t.threads / t.teams);
  t.smem_bytes = is_static || t.several_windows ? 0 : t.threads * f.width * 8;
}

// Chooses the largest tile of dx whose data fits shared memory.
void tile_block(const Facts& f, NhwcTiling& t) {
  const Windows &h = f.h, &w = f.w;
  NhwcTiling::BlockTile& tile = t.tile;
  tile.scatter = f.is_max && !f.dilated() && f.terms() <= kMostTerms;
  // Returns the size of a tile along a dimension: about `most`, a multiple of the stride, and nearly equal for all
  // tiles.
  auto even = [](int64_t size, int64_t most, int64_t stride) {
    if (stride > most) stride = 1;
    return ceil_div(ceil_div(size, ceil_div(size, most)), stride) * stride;
  };
  auto windows_over = [](const Windows& axis, int64_t size) {
    return min_of<int64_t>((size + int64_t(axis.window - 1) * axis.dilation - 1) / axis.stride + 1, axis.count);
  };
  int64_t lines = tile.scatter || h.window > 3 || w.window > 3 ? kTileOfLarge : kTile, columns = lines;
  int64_t vectors = tile.scatter ? kSumVectors : 8;
  // If planes are small, a tile gets more vectors of channels, so that it keeps a block busy.
  while (vectors < 64 && vectors * h.size * w.size < 1024) vectors *= 2;
  for (;;) {
    tile.lines = even(h.size, lines, h.stride);
    tile.columns = even(w.size, columns, w.stride);
    tile.vectors = min_of(vectors, f.vectors);
    tile.window_lines = windows_over(h, tile.lines);
    tile.window_columns = windows_over(w, tile.columns);
    const int64_t window_channels = tile.window_lines * tile.window_columns * tile.vectors * f.width;
    if (tile.scatter) {
      tile.dy_at = tile.lines * tile.columns * tile.vectors * f.width * 4;
      tile.keys_at = tile.dy_at + window_channels * f.item_bytes;
      t.smem_bytes = tile.keys_at + window_channels * 2;
    } else {
      t.smem_bytes = window_channels * (f.is_max ? 2 : 4);
    }
    if (t.smem_bytes <= (tile.scatter ? kMostSmemOfSums : kMostSmem)) break;
    if (lines == 1 && columns == 1 && vectors == 1) break;
    // If the tile does not fit, it is halved. If windows add their dy to sums of dx, rows and columns are halved first,
    // because the channels of a position should fill whole memory sectors. Otherwise, channels are halved first.
    if (vectors > 2 && !(tile.scatter && max_of(lines, columns) > kTile)) vectors /= 2;
    else if (lines > 1 && lines >= columns) lines /= 2;
    else if (columns > 1) columns /= 2;
    else vectors = 1;
  }
  t.blocks = ceil_div(f.vectors, tile.vectors) * ceil_div<int64_t>(w.size, tile.columns) *
             ceil_div<int64_t>(h.size, tile.lines);
}

}  // namespace

NhwcTiling nhwc_tiling(const PoolingProblem& p, int64_t sms) {
  const Facts f{p};
  NhwcTiling t{};
  t.step = step_of(p);
  t.threads = kNhwcThreads;
  const bool is_static = t.step.window > 0;
  t.several_windows = !is_static && !f.dilated() && f.h.stride <= f.h.window && (f.backward || f.h.count > 1) &&
                      f.terms() <= kMostTerms;
  using enum NhwcTiling::Method;
  if (f.backward)
    t.method = !is_static || (!f.is_max && t.step.stride > 1) ? block_tiles : f.is_max ? strips : word_tiles;
  else t.method = is_static && (f.index_bytes || takes_words(f.is_max, t.step.window)) ? word_tiles : windows;
  switch (t.method) {
    case windows:
      tile_windows(f, sms, t);
      break;
    case word_tiles:
      tile_words(f, t);
      break;
    case strips:
      tile_strips(f, sms, t);
      break;
    case block_tiles:
      tile_block(f, t);
      break;
  }
  return t;
}

NhwcParams nhwc_params(const PoolingProblem& p, const NhwcTiling& t) {
  const Facts f{p};
  NhwcParams s{};
  s.h = f.h;
  s.w = f.w;
  s.images = f.images;
  auto strides = [&](const TensorDesc& d, int64_t& image, int64_t& line, int64_t& column) {
    image = d.stride[0];
    line = d.stride[2];
    column = p.x.rank == 4 ? d.stride[3] : 0;
  };
  strides(p.x, s.x_image, s.x_line, s.x_column);
  strides(f.backward ? p.dy : p.out, s.y_image, s.y_line, s.y_column);
  if (f.backward) strides(p.out, s.dx_image, s.dx_line, s.dx_column);
  if (p.indices.rank) strides(p.indices, s.indices_image, s.indices_line, s.indices_column);
  s.vectors = int32_t(f.vectors);
  s.index_bytes = int32_t(f.index_bytes);
  s.exclude_padding = p.mode == PoolingMode::avg_exclude_padding;
  s.mean_factor = common_mean_factor(s.h, s.w, s.exclude_padding);
  s.several_windows = t.several_windows;
  s.items = int32_t(t.items);
  s.teams = int32_t(t.teams);
  s.by_vectors = FastDivmod(f.vectors);
  s.by_words = FastDivmod(f.vectors * 4);
  s.by_channels = FastDivmod(ceil_div<int64_t>(f.channels, 32));
  s.by_columns = FastDivmod(max_of<int64_t>(t.items_across, 1));
  s.by_x_columns = FastDivmod(s.w.size);
  s.tile_lines = int32_t(t.lines_of_strip);
  if (t.method != NhwcTiling::Method::block_tiles) return s;
  const NhwcTiling::BlockTile& tile = t.tile;
  s.scatter = tile.scatter;
  s.tile_vectors = int32_t(tile.vectors);
  s.tile_lines = int32_t(tile.lines);
  s.tile_columns = int32_t(tile.columns);
  s.window_lines = int32_t(tile.window_lines);
  s.window_columns = int32_t(tile.window_columns);
  s.dy_at = int32_t(tile.dy_at);
  s.keys_at = int32_t(tile.keys_at);
  s.phases_down = ceil_div(s.h.window, s.h.stride);
  s.phases_across = ceil_div(s.w.window, s.w.stride);
  s.by_vector_groups = FastDivmod(ceil_div(f.vectors, tile.vectors));
  s.by_tiles_across = FastDivmod(ceil_div<int64_t>(s.w.size, tile.columns));
  s.by_tile_vectors = FastDivmod(tile.vectors);
  s.by_tile_channels = FastDivmod(tile.vectors * f.width);
  s.by_window_columns = FastDivmod(max_of<int64_t>(tile.window_columns, 1));
  s.by_phase_columns = FastDivmod(max_of<int64_t>(ceil_div<int64_t>(tile.window_columns, s.phases_across), 1));
  s.by_tile_columns = FastDivmod(tile.columns);
  // A tile may begin inside a group of `stride` columns, so it overlaps one group more.
  if (t.step.window > 0) s.by_result_columns = FastDivmod(tile.columns / s.w.stride + 1);
  return s;
}

}  // namespace minidnn::cuda::pooling
