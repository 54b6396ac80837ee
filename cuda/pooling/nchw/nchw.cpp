// SPDX-License-Identifier: Apache-2.0
// cuda.pooling.nchw: pooling of planes of one or two dimensions in shared memory.
#include "cpp/engine/engine_object.h"
#include "cuda/pooling/nchw/nchw_tiling.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::pooling {
namespace {

// Bytes of x in a block: with 5 or more blocks on an SM, two times 32 KB are in flight, and blocks share few lines.
constexpr int64_t kBlockBytes = 16 << 10;
constexpr int64_t kMostElements = 65534;  // of a block's x or dx: numbers have 16 bits

bool finds(const PoolingProblem& p) { return p.mode == PoolingMode::max && p.indices.rank == 0; }

}  // namespace

PlanesCut planes_cut(const PoolingProblem& p) {
  const bool backward = p.direction == PoolingDirection::backward;
  PlanesCut c{};
  Planes& s = c.s;
  // A plane of one dimension is a column: its elements are lines, which can be split.
  s.h = windows_of(p, 0);
  if (p.x.rank == 4) s.w = windows_of(p, 1);
  s.planes = p.x.shape[0] * p.x.shape[1];
  s.exclude_padding = p.mode == PoolingMode::avg_exclude_padding;
  s.share = share_of_all(s.h, s.w, s.exclude_padding);
  s.index_bytes = p.indices.rank ? int32_t(itemsize(p.indices.dtype)) : 0;
  c.step = static_step(p);
  if (p.x.rank == 3) c.step = {};
  auto covers = [](const Windows& w) { return w.count == 1 && w.before == 0 && w.window == w.size && w.dilation == 1; };
  s.whole = c.step.window == 0 && covers(s.h) && covers(s.w);
  c.maxima = backward && c.step.window > 0 && p.mode == PoolingMode::max;
  c.tiles = !backward && c.step.window > 0 && s.index_bytes == 0;
  const int64_t size = int64_t(itemsize(p.x.dtype)), line = s.w.size, reach = (s.h.window - 1) * s.h.dilation + 1;
  const int64_t all = backward ? s.h.size : s.h.count, plane_elements = int64_t(s.h.size) * line;
  const int64_t most =
      kBlockBytes / (c.maxima && !finds(p) ? max_of<int64_t>(size, 4) : size);  // given 16-bit x and indices: half
  s.group = 1;
  if (plane_elements <= most) {
    s.strips = 1, s.lines = int32_t(all);
    s.group = int32_t(std::clamp<int64_t>(most / plane_elements, 1, s.planes));
    // A smaller group gives all SMs some blocks, and 16 bits suffice for the numbers.
    while (s.group > 1 && ceil_div<int64_t>(s.planes, s.group) < 512) s.group /= 2;
  } else {
    // As many lines of x as fit, then the lines of y that they produce.
    int64_t x_lines = max_of<int64_t>(most / line, 1);
    int64_t lines = backward ? max_of<int64_t>(x_lines - (finds(p) ? reach : 0), 1)
                             : max_of<int64_t>((x_lines - reach) / s.h.stride + 1, 1);
    if (backward) lines = max_of(lines, min_of<int64_t>(2 * s.h.stride, all));
    s.strips = int32_t(ceil_div(all, lines));
    lines = ceil_div<int64_t>(all, s.strips);
    if (backward) lines = ceil_div<int64_t>(lines, s.h.stride) * s.h.stride;
    s.strips = int32_t(ceil_div(all, lines)), s.lines = int32_t(lines);
  }
  s.by_strips = FastDivmod(s.strips);
  // Upper limits for a block: its element counts are those of a whole group or of the longest strip.
  int64_t windows = s.group > 1 || s.strips == 1 ? s.h.count
                    : backward                   ? min_of<int64_t>((s.lines + reach - 2) / s.h.stride + 1, s.h.count)
                                                 : s.lines;
  int64_t x_lines = s.group > 1 ? s.h.size : min_of<int64_t>((windows - 1) * s.h.stride + reach, s.h.size);
  if (backward && !finds(p)) x_lines = 0;
  auto room = [](int64_t bytes) { return ceil_div<int64_t>(bytes + 16, 16) * 16; };
  const int64_t x_bytes = max_of<int64_t>(x_lines, backward ? s.lines : 0) * size * line * s.group;
  s.dy_at = int32_t(min_of<int64_t>(room(x_bytes), 1 << 30));
  const int64_t all_windows = windows * s.w.count * s.group;
  const int64_t found_at = s.dy_at + (backward || c.tiles ? room(all_windows * size) : 0);
  s.found_at = int32_t(min_of<int64_t>(found_at, 1 << 30));
  const bool finds_shares = p.mode != PoolingMode::max && (c.step.window == 0 || s.share == 0);
  c.smem_bytes = found_at + (!backward ? 0
                                       : room(all_windows * (p.mode == PoolingMode::max ? 2
                                                             : finds_shares             ? 4
                                                                                        : 0)));
  s.by_width = FastDivmod(s.w.size);
  c.numbered = max_of<int64_t>(s.lines, c.maxima ? x_lines : 0) * line * s.group;
  // Several threads share a long window, or each of a few windows. From 512 windows on, a thread that takes four below
  // each other (`down`) needs about 200 instructions, where two lanes per window need four rounds of 70.
  const int64_t taps = int64_t(s.h.window) * s.w.window, least = s.whole ? 16 : 8;
  while (s.lane_bits < 5 && (taps >> s.lane_bits) >= least && (all_windows << s.lane_bits) < 512) ++s.lane_bits;
  // A thread that takes several windows, or several elements of dx, sums without compensation: of no more than 64
  // terms.
  const int64_t sums = !backward
                           ? (p.mode == PoolingMode::max ? 0 : taps)
                           : ceil_div<int64_t>(s.h.window, s.h.stride) * ceil_div<int64_t>(s.w.window, s.w.stride);
  s.down =
      s.lane_bits == 0 && !s.whole && s.h.dilation == 1 && s.w.dilation == 1 && s.h.stride <= s.h.window && sums <= 64;
  s.windows = Grid(s.group, int(windows), s.w.count);
  s.finds = Grid(s.group, int(ceil_div<int64_t>(windows, kDown)), s.w.count);
  s.results = Grid(s.group, int(ceil_div<int64_t>(all, s.down ? kDown : 1)), backward ? s.w.size : s.w.count);
  // The elements of a whole plane count as columns of one line.
  if (s.whole) s.results.by_columns = FastDivmod(plane_elements);
  if (c.maxima) {
    // Given indices are stored where x would be.
    const int64_t dy_at = room(s.index_bytes ? all_windows * s.index_bytes : x_lines * line * s.group * size);
    const int64_t sums_at = dy_at + room(all_windows * size);
    s.dy_at = int32_t(min_of<int64_t>(dy_at, 1 << 30)), s.sums_at = int32_t(min_of<int64_t>(sums_at, 1 << 30));
    c.smem_bytes = sums_at + room(s.lines * line * s.group * 4);
    constexpr int64_t kMostWarps = kKnownThreads / 32;
    const int64_t strips = ceil_div<int64_t>(s.w.count, kStripWindows), lanes = min_of<int64_t>(strips, 32);
    const int64_t chunks = ceil_div(strips, lanes), pairs = ceil_div<int64_t>(chunks, 2);
    auto warps = [&](int64_t lines) { return ceil_div(s.group * ceil_div(windows, lines) * pairs, 32 / lanes); };
    // The relative cost of `lines` lines of windows per strip. The first lines of a strip also look at the lines above
    // it. Lanes that begin in the same bank of shared memory wait for each other: each lane more in a bank costs about
    // a quarter of the time without conflicts.
    auto cost = [&](int64_t lines) {
      int in_bank[32] = {}, most_in_bank = 0;
      for (int64_t lane = 0; lane < 32 / lanes * lanes; ++lane) {
        const int64_t column = lane % lanes * kStripWindows, row = lane / lanes * lines;
        const int64_t word = (row * line + column) * s.h.stride * size / 4;
        most_in_bank = max_of(most_in_bank, ++in_bank[word % 32]);
      }
      return double(ceil_div(windows, lines) * (lines + (finds(p) ? s.h.window / s.h.stride : 0))) * (4 + most_in_bank);
    };
    int64_t least = least_windows_lines(s.h.window, s.h.stride);
    if (finds(p)) least = max_of<int64_t>(least, 8 / s.h.stride);
    while (least < windows && warps(least) > kMostWarps) ++least;
    int64_t lines = least;
    for (int64_t more = least; more < min_of(windows, least + 3); ++more)
      if (cost(more) < cost(lines)) lines = more;
    s.windows_lines = int32_t(lines);
    s.turns = int32_t(ceil_div(warps(lines), kMostWarps));
    c.threads = ceil_div<int64_t>(warps(lines), s.turns) * 32;
    s.by_lanes = FastDivmod(lanes);
    s.results = Grid(s.group, int(ceil_div(windows, lines)), int(pairs));
  } else if (c.tiles || (backward && gathers_tiles(c.step.stride))) {
    const int64_t down = ceil_div<int64_t>(all, kDown);
    const int64_t across = ceil_div(backward ? s.w.size : s.w.count, steps_across(s.h.stride));
    s.results = Grid(s.group, int(down), int(across));
    // Choose the threads so that no round of them is nearly empty.
    const int64_t tiles = ceil_div<int64_t>(s.lines, kDown) * across * s.group;
    c.threads = ceil_div(ceil_div<int64_t>(tiles, ceil_div<int64_t>(tiles, kKnownThreads)), int64_t(32)) * 32;
  } else if (c.step.window > 0 && backward) {
    c.threads = kKnownThreads;
    const int steps = steps_down(s.h.window, s.h.stride);
    s.results = Grid(s.group, ((s.h.size - 1 + s.h.before) / s.h.stride - s.h.before / s.h.stride) / steps + 1,
                     (s.w.size - 1 + s.w.before) / s.w.stride + 1 - s.w.before / s.w.stride);
  } else if (c.step.window > 0) {
    s.results = Grid(s.group, ceil_div(s.h.count, kDown), s.w.count);
  }
  return c;
}

struct Nchw final : Engine<PoolingProblem> {
  std::string name() const override { return "cuda.pooling.nchw"; }
  int revision() const override { return 4; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const PoolingProblem& p, const Device& d) const override {
    if (std::string why = why_not_windows(p); !why.empty()) return why;
    const bool reads_x = p.direction == PoolingDirection::forward || finds(p);
    for (const TensorDesc& t : {reads_x ? p.x : p.out, p.direction == PoolingDirection::forward ? p.out : p.dy, p.out,
                                p.indices.rank ? p.indices : p.out})
      if (!is_row_major(t)) return "needs x, y, dy, dx and indices to be row-major (NCHW)";
    const PlanesCut c = planes_cut(p);
    if (c.numbered > kMostElements)
      return cat("supports at most ", kMostElements, " elements of x in a block; got ", c.numbered);
    if (c.smem_bytes > d.max_smem_bytes)
      return cat("needs ", c.smem_bytes, " bytes of shared memory for the lines of a window; the device has ",
                 d.max_smem_bytes);
    if (c.s.blocks() > 0x7fffffff) return cat("supports at most 2^31 - 1 blocks; got ", c.s.blocks());
    return "";
  }
  double estimate_us(const PoolingProblem& p, const Device& d) const override {
    // Where windows are large, shared memory is the limit, not global memory: at best 32 elements per clock and SM.
    return roofline_us(pooling_flop(p) / 6, pooling_bytes(p), d, 0.7);
  }
  std::unique_ptr<Plan<PoolingProblem>> build(const PoolingProblem& p, const Device& d, const Config&) const override {
    const PlanesCut c = planes_cut(p);
    const KernelSpec chosen = spec_of(c, p);
    auto kernel = cuda::load_kernel(chosen, d.place.index, int(c.smem_bytes));
    return make_plan<PoolingProblem>([kernel, c](const PoolingArgs& args, void*, Stream stream) {
      cuda::LaunchConfig config;
      config.grid = {unsigned(c.s.blocks())};
      config.block = {unsigned(c.threads)};
      config.smem_bytes = unsigned(c.smem_bytes);
      cuda::launch(*kernel, config, stream, c.s, args);
    });
  }
  static KernelSpec spec_of(const PlanesCut& c, const PoolingProblem& p) {
    const bool backward = p.direction == PoolingDirection::backward, is_max = p.mode == PoolingMode::max;
    return c.maxima ? max_backward_spec("nchw", p.x.dtype, c.step, c.s.index_bytes)
                    : spec("nchw",
                           c.tiles    ? "forward_tiles"
                           : backward ? "backward"
                                      : "forward",
                           p.x.dtype, is_max, c.step);
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    each_compiled([&](DType t, bool is_max, StaticStep step) {
      // With windows that the compiler knows, only maxima with indices use the ordinary forward kernel.
      const bool known = step.window > 0;
      if (!known || is_max) all.push_back(spec("nchw", "forward", t, is_max, step));
      if (!known || !is_max) all.push_back(spec("nchw", "backward", t, is_max, step));
      if (known) all.push_back(spec("nchw", "forward_tiles", t, is_max, step));
      for (int index_bytes : {0, 4, 8})
        if (known && is_max) all.push_back(max_backward_spec("nchw", t, step, index_bytes));
    });
    return all;
  }
};

}  // namespace cuda::pooling

template const Engine<PoolingProblem>& engine_object<PoolingProblem, cuda::pooling::Nchw>();

}  // namespace minidnn
