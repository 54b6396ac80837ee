// SPDX-License-Identifier: Apache-2.0
// cuda.pooling.nhwc: pooling by vectors of contiguous channels.
#include "cpp/engine/engine_object.h"
#include "cuda/pooling/nhwc/nhwc_params.h"
#include "cuda/pooling/problem_windows.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::pooling {
namespace {

constexpr int64_t kThreads = 256;
constexpr int64_t kStripsOfSm = 1280;  // strips per SM, one per thread: they keep an SM busy for some time
constexpr int64_t kFewestLines = 8;    // of a strip: it loads some lines before its first
// Shared memory of a block backward: 5 blocks fit an SM, and no opt-in is needed.
constexpr int64_t kMostRoom = 40 << 10;
constexpr int64_t kMostRoomOfSums = 72 << 10;  // the same where windows add to dx: 3 blocks
// Lines and columns of a tile of dx. Windows across its edges are processed by both tiles; large windows need a larger
// tile.
constexpr int64_t kTile = 16, kTileOfLarge = 32;
constexpr int64_t kSumVectors = 4;  // vectors per block where windows add to dx: 64 bytes per position

struct Cut {
  Channels s;
  int64_t blocks, smem_bytes, threads = kThreads;  // blocks per image
  StaticStep step;
  bool maxima = false;  // gradients of maxima with windows that the compiler knows
};

Cut cut_of(const PoolingProblem& p, const Device& d) {
  const bool backward = p.direction == PoolingDirection::backward, is_max = p.mode == PoolingMode::max;
  Cut c{};
  Channels& s = c.s;
  // With one dimension, a plane is a column, as in planes.cpp.
  s.h = windows_of(p, 0);
  if (p.x.rank == 4) s.w = windows_of(p, 1);
  s.images = p.x.shape[0];
  auto strides = [&](const TensorDesc& t, int64_t& image, int64_t& line, int64_t& column) {
    image = t.stride[0], line = t.stride[2], column = p.x.rank == 4 ? t.stride[3] : 0;
  };
  strides(p.x, s.x_image, s.x_line, s.x_column);
  strides(backward ? p.dy : p.out, s.y_image, s.y_line, s.y_column);
  if (backward) strides(p.out, s.dx_image, s.dx_line, s.dx_column);
  if (p.indices.rank) strides(p.indices, s.indices_image, s.indices_line, s.indices_column);
  const int64_t width = 16 / int64_t(itemsize(p.x.dtype));
  s.vectors = int32_t(ceil_div(p.x.shape[1], width));
  s.index_bytes = p.indices.rank ? int32_t(itemsize(p.indices.dtype)) : 0;
  s.exclude_padding = p.mode == PoolingMode::avg_exclude_padding;
  s.share = share_of_all(s.h, s.w, s.exclude_padding);
  s.by_vectors = FastDivmod(s.vectors), s.by_columns = FastDivmod(s.w.count);
  // Kernels with compile-time windows use 32-bit indices for the elements of an image and for the bytes of a line (at
  // most 8 bytes per element).
  auto counted = [](const TensorDesc& t) {
    int64_t last = 0;
    for (int i = 1; i < t.rank; ++i) last += t.stride[i] < 0 ? int64_t(1) << 31 : (t.shape[i] - 1) * t.stride[i];
    const int columns = t.rank - 1;
    return last < 0x7fffffff && (t.rank == 0 || (t.shape[columns] - 1) * t.stride[columns] < int64_t(1) << 29);
  };
  const bool all_counted = counted(p.x) && counted(p.out) && (!backward || counted(p.dy)) && counted(p.indices);
  c.step = p.x.rank == 4 && all_counted ? static_step(p) : StaticStep{};
  const bool known = c.step.window > 0;
  const int64_t down = down_of(int(width));
  // A thread that takes several windows, or several elements of dx, sums without compensation: of no more than 64
  // terms.
  const int64_t sums = backward ? ceil_div<int64_t>(s.h.window, s.h.stride) * ceil_div<int64_t>(s.w.window, s.w.stride)
                       : is_max ? 0
                                : int64_t(s.h.window) * s.w.window;
  s.down = !known && s.h.dilation == 1 && s.w.dilation == 1 && s.h.stride <= s.h.window &&
           (backward || s.h.count > 1) && sums <= 64;
  s.by_words = FastDivmod(s.vectors * 4), s.by_line = FastDivmod(s.w.size);
  const int across = known ? across_of(c.step.stride) : 1;
  auto tiles = [&](int64_t lines, int64_t columns) {
    s.by_columns = FastDivmod(ceil_div<int64_t>(columns, across));
    s.items = int32_t(
        min_of<int64_t>(ceil_div<int64_t>(lines, kStaticDown) * s.by_columns.divisor * s.vectors * 4, 0x7fffffff));
    c.blocks = ceil_div<int64_t>(s.items, kThreads);
    return c;
  };
  if (backward && is_max && known) {
    constexpr int64_t kLanes = 32;  // of a warp: one channel each
    const int64_t groups = ceil_div<int64_t>(p.x.shape[1], kLanes);
    s.by_channels = FastDivmod(groups);
    const int64_t across = strip_steps(c.step.stride) * s.w.stride;
    s.by_columns = FastDivmod(ceil_div<int64_t>(s.w.size + s.w.before % s.w.stride, across));
    const int64_t all = s.h.size + s.h.before % s.h.stride;
    auto strips = [&](int64_t lines) { return ceil_div(all, lines) * s.by_columns.divisor * groups; };
    s.lines = int32_t(ceil_div<int64_t>(all, s.h.stride) * s.h.stride);
    while (s.lines > kFewestLines &&
           (s.lines > kMostStripLines || strips(s.lines) * kLanes * s.images < d.sm_count * kStripsOfSm))
      s.lines = int32_t(ceil_div<int64_t>(s.lines / 2, s.h.stride) * s.h.stride);
    s.items = int32_t(min_of<int64_t>(strips(s.lines), 0x7fffffff));
    c.maxima = true, c.threads = kStripThreads, c.blocks = ceil_div<int64_t>(s.items * kLanes, c.threads);
    c.smem_bytes = StripLayout(c.step.window, c.step.stride, int(itemsize(p.x.dtype)), s.index_bytes).smem_bytes;
    return c;
  }
  if (backward && !is_max && c.step.stride == 1) return tiles(s.h.size, s.w.size);
  if (!backward && known && (s.index_bytes || takes_words(is_max, c.step.window))) return tiles(s.h.count, s.w.count);
  if (!backward) {
    auto items_by = [&](int64_t n) { return ceil_div<int64_t>(s.h.count, n) * s.w.count * s.vectors; };
    // Where there are few windows, teams keep more threads busy.
    if (items_by(down) * s.images < int64_t(d.sm_count) * 256) s.down = 0;
    const int64_t items = items_by(known ? kStaticDown : s.down ? down : 1);
    s.items = int32_t(min_of<int64_t>(items, 0x7fffffff));
    s.teams = 1;
    // With few windows, several teams divide the lines of each window.
    const int64_t wanted = int64_t(d.sm_count) * 1024;
    if (!known && !s.down)
      while (s.teams < 16 && s.teams * 2 <= s.h.window + 1 && items * s.images * s.teams < wanted) s.teams *= 2;
    c.blocks = ceil_div<int64_t>(items, kThreads / s.teams);
    c.smem_bytes = known || s.down ? 0 : kThreads * width * 8;
    return c;
  }
  s.scatter = is_max && s.h.dilation == 1 && s.w.dilation == 1 && sums <= 64;
  s.apart_h = ceil_div(s.h.window, s.h.stride), s.apart_w = ceil_div(s.w.window, s.w.stride);
  auto even = [](int64_t size, int64_t most, int64_t stride) {
    const int64_t part = ceil_div(size, ceil_div(size, most));
    return int32_t(ceil_div(part, stride) * stride);
  };
  auto windows = [](const Windows& w, int64_t size) {
    return min_of<int64_t>((size + int64_t(w.window - 1) * w.dilation - 1) / w.stride + 1, w.count);
  };
  const int64_t tile = s.scatter || s.h.window > 3 || s.w.window > 3 ? kTileOfLarge : kTile;
  const int64_t room = s.scatter ? kMostRoomOfSums : kMostRoom;
  int64_t lines = tile, columns = tile, vectors = s.scatter ? kSumVectors : 8;
  // So that small planes keep a block busy.
  while (vectors < 64 && vectors * s.h.size * s.w.size < 1024) vectors *= 2;
  for (;;) {
    s.lines = even(s.h.size, lines, s.h.stride <= lines ? s.h.stride : 1);
    s.columns = even(s.w.size, columns, s.w.stride <= columns ? s.w.stride : 1);
    s.block_vectors = int32_t(min_of<int64_t>(vectors, s.vectors));
    s.p_lines = int32_t(windows(s.h, s.lines)), s.q_columns = int32_t(windows(s.w, s.columns));
    const int64_t window_channels = int64_t(s.p_lines) * s.q_columns * s.block_vectors * width;
    const int64_t sums_bytes = int64_t(s.lines) * s.columns * s.block_vectors * width * 4;
    if (s.scatter) {
      const int64_t keys_at = sums_bytes + window_channels * int64_t(itemsize(p.x.dtype));
      s.dy_at = int32_t(sums_bytes), s.keys_at = int32_t(keys_at);
      c.smem_bytes = keys_at + window_channels * 2;
    } else {
      c.smem_bytes = window_channels * (is_max ? 2 : 4);
    }
    if (c.smem_bytes <= room || (lines == 1 && columns == 1 && vectors == 1)) break;
    // Where windows add to dx, their channels should fill whole sectors; elsewhere a large tile matters more.
    if (vectors > 2 && !(s.scatter && max_of(lines, columns) > kTile)) vectors /= 2;
    else if (lines > 1 && lines >= columns) lines /= 2;
    else if (columns > 1) columns /= 2;
    else vectors = 1;
  }
  const int64_t groups = ceil_div(s.vectors, s.block_vectors), tile_columns = ceil_div(s.w.size, s.columns);
  c.blocks = groups * tile_columns * ceil_div(s.h.size, s.lines);
  s.by_vector_groups = FastDivmod(groups), s.by_tile_columns = FastDivmod(tile_columns);
  s.by_block_vectors = FastDivmod(s.block_vectors), s.by_q_columns = FastDivmod(max_of(s.q_columns, 1));
  s.by_block_channels = FastDivmod(s.block_vectors * width);
  s.by_q_apart = FastDivmod(max_of(ceil_div(s.q_columns, s.apart_w), 1));
  s.by_tile_width = FastDivmod(s.columns);
  // Steps of the windows in a tile.
  if (known) s.by_result_columns = FastDivmod(s.columns / s.w.stride + 1);
  return c;
}

}  // namespace

struct Nhwc final : Engine<PoolingProblem> {
  std::string name() const override { return "cuda.pooling.nhwc"; }
  int revision() const override { return 4; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const PoolingProblem& p, const Device& d) const override {
    if (std::string why = why_not_windows(p); !why.empty()) return why;
    if (p.alignment < 16) return cat("needs tensors aligned to 16 bytes; got ", p.alignment);
    const bool backward = p.direction == PoolingDirection::backward;
    const int64_t width = 16 / int64_t(itemsize(p.x.dtype)), C = p.x.shape[1];
    if (C % width) return cat("needs a multiple of ", width, " channels; got ", C);
    const bool reads_x = !backward || (p.mode == PoolingMode::max && p.indices.rank == 0);
    for (const TensorDesc& t :
         {reads_x ? p.x : p.out, backward ? p.dy : p.out, p.out, p.indices.rank ? p.indices : p.out}) {
      bool fits = t.stride[1] == 1;
      for (int i = 0; i < t.rank; ++i)
        fits = fits && (i == 1 || (t.stride[i] % width == 0 && t.stride[i] < 0x7fffffff && t.stride[i] > -0x7fffffff));
      if (!fits)
        return cat(
            "needs contiguous channels (NHWC) in x, y, dy, dx and indices, and other strides that are multiples of ",
            width, " below 2^31");
    }
    const Cut c = cut_of(p, d);
    if (int64_t(spatial_size(p.out, 0)) * spatial_size(p.out, 1) * c.s.vectors >= int64_t(1) << 30)
      return "supports images of fewer than 2^30 vectors of 16 bytes; got more";
    if (c.smem_bytes > d.max_smem_bytes)
      return cat("needs ", c.smem_bytes,
                 " bytes of shared memory for the windows over an element of dx; the device has ", d.max_smem_bytes);
    return "";
  }
  double estimate_us(const PoolingProblem& p, const Device& d) const override {
    return roofline_us(pooling_flop(p) / less_work(p), pooling_bytes(p), d, 0.75);
  }
  std::unique_ptr<Plan<PoolingProblem>> build(const PoolingProblem& p, const Device& d, const Config&) const override {
    const Cut c = cut_of(p, d);
    const bool backward = p.direction == PoolingDirection::backward;
    const KernelSpec chosen =
        c.maxima ? max_backward_spec("nhwc", p.x.dtype, c.step, c.s.index_bytes)
                 : spec("nhwc", backward ? "backward" : "forward", p.x.dtype, p.mode == PoolingMode::max, c.step);
    auto kernel = cuda::load_kernel(chosen, d.place.index, int(c.smem_bytes));
    return make_plan<PoolingProblem>([kernel, c](const PoolingArgs& args, void*, Stream stream) {
      constexpr int64_t kMostImages = 65535;  // of a grid's y
      cuda::LaunchConfig config;
      config.grid = {unsigned(c.blocks), unsigned(min_of(c.s.images, kMostImages))};
      config.block = {unsigned(c.threads)};
      config.smem_bytes = unsigned(c.smem_bytes);
      cuda::launch(*kernel, config, stream, c.s, args);
    });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    each_compiled([&](DType t, bool is_max, StaticStep step) {
      all.push_back(spec("nhwc", "forward", t, is_max, step));
      if (!is_max || !step.window) all.push_back(spec("nhwc", "backward", t, is_max, step));
      else
        for (int index_bytes : {0, 4, 8}) all.push_back(max_backward_spec("nhwc", t, step, index_bytes));
    });
    return all;
  }
};

}  // namespace cuda::pooling

template const Engine<PoolingProblem>& engine_object<PoolingProblem, cuda::pooling::Nhwc>();

}  // namespace minidnn
