// SPDX-License-Identifier: Apache-2.0
#include "cuda/lrn/sliding_window.h"

#include "cuda/runtime/plan.h"

namespace minidnn {
namespace {

// for NHWC: the maximum number of channel vectors per position in a group of threads
constexpr int64_t kSlice = 4;
constexpr int64_t kReserved = 1024;  // the bytes of shared memory that the system reserves in each block

// Divides the rows of all images among groups of threads. A group has at most `most` threads.
void tile_groups(SlidingWindowTiling& c, int64_t images, int64_t channels, bool backward, int64_t most) {
  SlidingWindowParams& r = c.params;
  const int64_t vector = c.vector, reach = max_of(r.behind, r.ahead);
  int64_t slices = 1, positions = ceil_div(r.width, vector), tiles = 1, halo = 0, gap = 1;
  if (c.axis == Axis::none) {
    tiles = positions;
    positions = 1;
    gap = 0;
  }
  if (c.axis == Axis::strided) {
    const int64_t vectors = ceil_div(channels, vector);
    slices = ceil_div(vectors, kSlice);
    r.slice = uint32_t(ceil_div(vectors, slices));
    positions = r.width;
    gap = r.slice * reach;
  }
  r.own = uint32_t(positions);
  r.tiled = 0;
  if (positions * r.slice > most) {
    halo = !backward ? 0 : c.axis == Axis::strided ? reach : 1;
    const int64_t wide = max_of(most / r.slice - 2 * halo, int64_t(1));
    tiles = ceil_div(positions, wide);
    r.own = uint32_t(ceil_div(positions, tiles));
    r.tiled = 1;
  }
  r.halo = uint32_t(halo);
  r.threads = uint32_t((r.own + 2 * halo) * r.slice);
  r.in_block = uint32_t(max_of(most / (r.threads + gap / 2), int64_t(1)));
  // Whether adjacent warps overlap by one vector (see WindowSlots::kOverlaps).
  const bool overlaps = c.axis == Axis::none && !c.whole;
  if (overlaps) r.in_block = uint32_t(most / 32 * 31);
  r.groups = uint32_t(images * tiles * slices);
  r.by_threads = FastDivmod(r.threads);
  r.by_slice = FastDivmod(r.slice);
  r.by_tiles = FastDivmod(tiles * slices);
  r.by_slices = FastDivmod(slices);
  c.block = overlaps ? most : ceil_div(int64_t(r.threads) * r.in_block, int64_t(32)) * 32;
}

void lay_out_smem(SlidingWindowTiling& c, bool backward, int64_t item) {
  const SlidingWindowParams& r = c.params;
  SmemLayout& m = c.smem;
  const uint32_t vector = uint32_t(c.vector * item), numbers = uint32_t(c.vector) * 4;
  const uint32_t size = uint32_t(r.behind + r.ahead + 1), reach = uint32_t(max_of(r.behind, r.ahead));
  auto next = [](uint32_t from, uint32_t more) { return (from + more + 15) / 16 * 16; };
  m.block = c.axis == Axis::none ? uint32_t(c.block) : r.threads * r.in_block;
  m.gap = c.axis == Axis::none ? 0 : c.axis == Axis::contiguous ? 1 : r.slice * reach;
  m.slots = m.block + (r.in_block + 1) * m.gap;
  // The ring buffer has a row for each row of a window and for each row whose loads are in flight. It has more if
  // threads also read the vectors of other threads, because these may already write the next row.
  const uint32_t later = c.axis == Axis::none ? 0 : 1;
  m.line = m.slots * vector;
  m.ring = (size + later + (c.whole ? kRowsAhead : later)) * m.line;
  // If rows are unaligned, two aligned vectors are loaded for each vector of x or of the means.
  const uint32_t stages = kRowsAhead + 1, pairs = stages * 2 * vector;
  m.means = next(0, m.ring);
  m.staging = next(m.means, c.centered ? m.ring : 0);
  m.dy = next(m.staging, c.whole ? 0 : pairs * (m.block + 2 * m.gap + (c.centered ? m.block : 0)));
  m.g = next(m.dy, backward ? (c.whole ? stages * vector : pairs) * m.block : 0);
  m.own = next(m.g, backward && c.axis != Axis::none ? 2 * m.slots * numbers : 0);
  m.bytes = next(m.own, backward && !c.centered ? (uint32_t(r.behind) + 1 + later) * m.block * numbers : 0);
}

// Chooses the number of rows per block. A block also reads the rows of its windows above and below its own rows, so it
// should have many rows. But there should be enough blocks for all SMs.
void tile_rows(SlidingWindowTiling& c, bool backward, const Device& d) {
  // kBeginning is an estimate of the time that the start of a block takes, divided by the time of one row.
  constexpr int64_t kBeginning = 2, kLeast = 8, kMaxChunks = 64;
  SlidingWindowParams& r = c.params;
  const int64_t groups = ceil_div(int64_t(r.groups), int64_t(r.in_block)), window = r.behind + r.ahead;
  const int64_t smem = d.max_smem_bytes / (int64_t(c.smem.bytes) + kReserved);
  const double resident = double(max_of(
      min_of(smem, window_threads_per_sm(is_register_heavy(c.centered, backward, c.size)) / c.block), int64_t(1)));
  double best = 0;
  for (int64_t chunks = 1; chunks <= min_of(max_of(r.height / kLeast, int64_t(1)), kMaxChunks); ++chunks) {
    const int64_t tall = ceil_div(r.height, chunks), blocks = groups * ceil_div(r.height, tall);
    const double in_sm = double(ceil_div(blocks, int64_t(d.sm_count)));
    // In backward, three quarters of the blocks that fit an SM keep it busy. On an H100, LRN of 128x64x56x56 elements
    // in bfloat16 takes 63 us with this rule, and 81 us without it.
    const double least = backward ? resident * 0.75 : resident;
    const double cost = max_of(in_sm, least) * double(tall + (backward ? 2 : 1) * window + kBeginning);
    if (chunks > 1 && cost >= best) continue;
    best = cost;
    r.tall = uint32_t(tall);
    c.grid = blocks;
  }
  r.by_chunks = FastDivmod(ceil_div(r.height, int64_t(r.tall)));
}

}  // namespace

// Returns the number of elements in the vector of a thread. Backward kernels that subtract means keep sums for twelve
// rows, so vectors of eight elements would take too many registers.
int64_t window_vector(DType t, int64_t size, bool means_gradients) {
  return size && !means_gradients ? 16 / int64_t(itemsize(t)) : 4;
}

std::string tile_sliding_window(const LrnProblem& p, Axis axis, const Device& d, SlidingWindowTiling& c) {
  const LocalWindow w(p);
  if (w.ahead > kMaxReach) return cat("supports windows of at most ", 2 * kMaxReach + 1, " elements; got ", p.size);
  constexpr int64_t kMost = int64_t(1) << 30;
  if (p.x.numel() / min_of(p.x.numel(), int64_t(4)) > kMost)
    return cat("supports at most 2^32 elements of x; got ", p.x.numel());
  const int64_t channels = p.x.shape[1], item = int64_t(itemsize(p.x.dtype));
  SlidingWindowParams& r = c.params;
  c.axis = axis;
  r.behind = int32_t(w.behind);
  r.ahead = int32_t(w.ahead);
  r.elements = p.x.numel();
  if (axis == Axis::none) {
    r.height = channels;
    r.width = r.row = plane_of(p.x);
  } else {
    r.width = p.x.shape[p.x.rank - 1];
    r.height = p.x.rank == 4 ? p.x.shape[2] : 1;
    r.step = axis == Axis::strided ? channels : 1;
    r.row = r.width * r.step;
  }
  const int64_t images = r.elements / (r.height * r.row), wide = window_vector(p.x.dtype, kCompiledSize, false);
  c.whole = p.size == kCompiledSize && p.alignment == 16 && (axis == Axis::strided ? channels : r.width) % wide == 0;
  c.size = p.size == kCompiledSize && (c.whole || axis == Axis::none) ? kCompiledSize : 0;
  c.centered = axis != Axis::none && (p.means.rank || !c.size);
  c.vector = window_vector(p.x.dtype, c.size, c.centered && p.backward);
  const bool heavy = is_register_heavy(c.centered, p.backward != 0, c.size);
  for (int64_t most = window_threads(axis, heavy);; most /= 2) {
    tile_groups(c, images, channels, p.backward != 0, most);
    lay_out_smem(c, p.backward != 0, item);
    if (int64_t(c.smem.bytes) <= d.max_smem_bytes) break;
    if (most == 32)
      return cat("needs ", c.smem.bytes, " bytes of shared memory for rows; the device has ", d.max_smem_bytes);
  }
  tile_rows(c, p.backward != 0, d);
  if (c.grid > INT32_MAX) return cat("supports at most 2^31 - 1 blocks; got ", c.grid);
  return "";
}

LrnFactors lrn_factors(const LrnProblem& p, const LrnArgs& a) {
  const double scale = a.alpha / window_elements(p);
  return {float(scale), float(a.beta), float(a.k), float(2 * a.beta * scale)};
}

double sliding_window_us(const LrnProblem& p, const Device& d, const SlidingWindowTiling& c) {
  // Rows that two blocks read come from the L2 cache the second time, in an estimated eighth of the time.
  const double again = double((p.backward ? 2 : 1) * (c.params.behind + c.params.ahead)) / double(c.params.tall);
  return roofline_us(local_norm_flop(p), local_norm_bytes(p) * (1 + again / 8), d, c.whole ? 0.75 : 0.5);
}

std::unique_ptr<Plan<LrnProblem>> sliding_window_plan(const LrnProblem& p, const Device& d,
                                                      const SlidingWindowTiling& c, const KernelSpec& spec) {
  auto kernel = cuda::load_kernel(spec, d.place.index, int(c.smem.bytes));
  cuda::LaunchConfig config;
  config.block = {unsigned(c.block)};
  config.grid = {unsigned(c.grid)};
  config.smem_bytes = c.smem.bytes;
  const int64_t at_once = max_of(int64_t(cuda::fit_at_once(*kernel, config, d)), int64_t(1));
  const int64_t rounds = ceil_div(c.grid, at_once), even = ceil_div(c.grid, rounds * d.sm_count);
  // A partial last wave takes almost as long as a full wave. So blocks request more shared memory than they need, which
  // limits how many run at the same time and makes all waves nearly equal.
  if (rounds > 1 && c.grid - (rounds - 1) * at_once < d.sm_count && even * d.sm_count < at_once) {
    config.smem_bytes = unsigned((d.max_smem_bytes + kReserved) / (even + 1) - kReserved + 16) / 16 * 16;
    kernel = cuda::load_kernel(spec, d.place.index, int(config.smem_bytes));
  }
  return make_plan<LrnProblem>([=, r = c.params, smem = c.smem](const LrnArgs& a, void*, Stream stream) {
    cuda::launch(*kernel, config, stream, r, smem, a, lrn_factors(p, a));
  });
}

}  // namespace minidnn
