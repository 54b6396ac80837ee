// SPDX-License-Identifier: Apache-2.0
#include "cuda/conv/depthwise/group_conv.h"

#include "cuda/conv/depthwise/nchw/nchw_params.h"
#include "cuda/conv/depthwise/nhwc/nhwc_params.h"
#include "cuda/conv/filter_reduce/filter_reduce_params.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace {

constexpr int64_t kIndexLimit = int64_t(1) << 31;
constexpr int64_t kMaxThreads = 256, kTileThreads = 224;
constexpr int64_t kWishedSmem = 74 << 10;  // bytes of a block: three blocks then fit on an SM
constexpr int64_t kMaxSlabs = 512;         // partial sums of dw, which filter_reduce.cu adds up

struct Launch {
  Stencil p;
  StencilTiles tiles;
  PlaneBlock planes;
  PixelBlock pixels;
  PlaneRows plane_rows;
  PixelRows pixel_rows;
  bool by_rows = false;  // uses nchw_3x3.cu or nhwc_3x3.cu, without shared memory
  int64_t threads = 0, smem_bytes = 0, bundles = 0, most_walkers = 0;
  int columns = 0, hop = 0;      // template arguments kS and kHop
  int32_t vectors = kNoVectors;  // how nchw.cu copies dy
  int64_t registers = 0;         // of a thread, estimated; a loaded kernel has the exact number
  double instructions = 0;       // of a warp for one tile, counted
  std::string why_not;
};

int64_t span_of(const ConvTensorView& s) {
  int64_t reach = 0;
  for (int j = 1; j < kMaxSpatial; ++j) reach += (s.size[j] - 1) * std::abs(s.space[j]);
  return reach;
}

StencilSide side_of(const ConvTensorView& s, int64_t images) {
  StencilSide side;
  side.image = images > 1 ? s.image : 0;
  side.channel = s.channel;
  side.depth = s.space[0];
  side.row = int32_t(s.space[1]), side.column = int32_t(s.space[2]);
  return side;
}

// Whether all strides that a kernel adds to the address of the first element are multiples of `elements`. It adds the
// column stride if `columns_apart`, else (columns are contiguous) the channel stride.
bool steps_by(const StencilSide& s, int64_t elements, bool columns_apart) {
  return s.image % elements == 0 && s.depth % elements == 0 && s.row % elements == 0 &&
         (columns_apart ? s.column : s.channel) % elements == 0;
}

// Splits `length` into equal parts of at most `most`; returns the length of a part.
int64_t equal_part(int64_t length, int64_t most) { return ceil_div(length, ceil_div(length, most)); }
int64_t outputs_of_phase(const StencilDim& d) { return ceil_div(d.out, d.spread); }
int64_t round_up(int64_t n, int64_t to) { return ceil_div(n, to) * to; }

// The windows that have a specialised kernel. All other windows use the kernel with kS = kHop = 0.
struct Window {
  int columns, hop;
};
std::vector<Window> windows_of(StencilKind kind, int filters, bool dw, bool narrow) {
  if (kind == StencilKind::pixels) return {{3, 1}, {5, 1}, {7, 1}, {3, 2}};
  if (kind == StencilKind::pixel_groups) return {{3, 1}};
  if (narrow) return filters == 1 ? std::vector<Window>{{3, 1}} : std::vector<Window>{};  // 16-bit operands
  if (filters == 1) return {{3, 1}, {5, 1}, {7, 1}, {3, 2}};
  if (filters == 3) return dw ? std::vector<Window>{{3, 1}, {3, 2}, {7, 2}} : std::vector<Window>{{3, 1}};
  if (filters == 4) return {{3, 1}, {3, 2}, {7, 2}};
  return {{3, 1}, {3, 2}};
}
void choose_window(Launch& l, const std::vector<Window>& compiled) {
  for (Window w : compiled)
    if (l.p.width.taps == w.columns && l.p.width.hop == w.hop) l.columns = w.columns, l.hop = w.hop;
}
bool is_dw(const ConvProblem& p) { return p.direction == ConvDirection::backward_filter; }

// How many blocks are resident on an SM at the same time. registers = 0 means that the kernel is not loaded yet and its
// register count is unknown; it counts as 32 a thread.
int64_t resident_blocks(const Launch& l, int64_t registers, const Device& d) {
  // kWarps: larger chips hold 64 warps an SM, which these kernels do not fill.
  constexpr int64_t kReserved = 1 << 10, kWarps = 48;
  // quarter: registers of a thread if each quarter of an SM holds one warp.
  const int64_t warps = l.threads / 32, quarter = 512;
  const int64_t of_registers = 4 * (quarter / round_up(std::max<int64_t>(registers, 32), 8));
  return std::max<int64_t>(
      1, std::min(d.max_smem_bytes / (l.smem_bytes + kReserved), std::min(of_registers, kWarps) / warps));
}

// Distributes the tiles among blocks. If all blocks are resident at the same time, they take equal numbers of tiles. If
// the bundles are more than a quarter of the blocks that can be resident, about six rounds of blocks even out the load.
void share_tiles(Launch& l, const Device& d, int64_t registers) {
  const int64_t places = resident_blocks(l, registers, d) * d.sm_count;
  const int64_t walkers = l.bundles * 4 <= places ? places / l.bundles : ceil_div(6 * places, l.bundles);
  l.tiles.walkers = uint32_t(std::min({walkers, l.most_walkers, int64_t(l.tiles.count)}));
}

void count_tiles(Launch& l, int64_t images, int64_t bundles, int64_t most_walkers, const Device& d) {
  const Stencil& p = l.p;
  l.bundles = bundles, l.most_walkers = most_walkers;
  l.tiles.depth = FastDivmod(p.depth.out);
  l.tiles.height = FastDivmod(p.height.tiles());
  l.tiles.width = FastDivmod(p.width.tiles());
  const double count = double(images) * p.depth.out * double(p.height.tiles()) * double(p.width.tiles());
  if (count * double(bundles) >= double(kIndexLimit)) {
    l.why_not = cat("supports fewer than 2^31 tiles; got ", count * double(bundles));
    return;
  }
  l.tiles.count = uint32_t(count);
  l.tiles.bundles = FastDivmod(bundles);
  share_tiles(l, d, 0);
}

// The time to issue all instructions. It includes idle block slots in the last round, and idle issue slots where an SM
// has too few warps.
double issue_us(const Launch& l, const Device& d) {
  // kEfficiency: measured issue rates are 0.45 to 0.75 of the rate counted below. kEnoughThreads, threads of an SM, is
  // a guess.
  constexpr double kEfficiency = 0.68, kEnoughThreads = 400;
  const double blocks = double(resident_blocks(l, l.registers, d)), places = blocks * d.sm_count;
  const double tiles = double(l.tiles.count) * double(l.bundles);
  const double rounds = std::max(std::ceil(tiles / places), 1.0) * places / tiles;
  const double alone = std::max(kEnoughThreads / (blocks * double(l.threads)), 1.0);
  const double warp_instructions_us = d.fp32_gflop_s * 1e3 / 64;
  return tiles * double(l.threads / 32) * l.instructions * rounds * alone / warp_instructions_us / kEfficiency;
}

std::string too_much_smem(int64_t bytes, const Device& d) {
  return cat("needs ", bytes, " bytes of shared memory for w and a tile of data; ",
             d.model.empty() ? "the device" : d.model, " has ", d.max_smem_bytes);
}

// ---- nchw_3x3.cu and nhwc_3x3.cu

// Whether the window is 3 x 3 adjacent elements of one plane at stride 1, and all addresses are multiples of four
// elements; see steps_by() for `columns_apart`.
bool goes_by_rows(const ConvProblem& problem, const Stencil& p, bool columns_apart) {
  const auto plain = [](const StencilDim& d) { return d.taps == 3 && d.stride == 1 && d.step == 1 && d.up == 1; };
  const bool flat = p.depth.taps == 1 && p.depth.in == 1 && p.depth.out == 1 && p.depth.pad == 0;
  return !is_dw(problem) && flat && plain(p.height) && plain(p.width) && problem.alignment >= 16 &&
         steps_by(p.in, 4, columns_apart) && steps_by(p.out, 4, columns_apart);
}

// Describes a launch of `blocks` blocks whose threads issue `instructions` each. No tiles are distributed.
void take_threads(Launch& l, int64_t blocks, int64_t threads, double instructions, int64_t registers) {
  l.by_rows = true, l.threads = threads, l.smem_bytes = 0, l.instructions = instructions, l.registers = registers;
  l.bundles = blocks, l.tiles.count = l.tiles.walkers = l.most_walkers = 1;
}

// Only for problems that fit in the registers of all SMs at the same time: this kernel does not load the next tile
// while it computes one.
bool take_plane_rows(Launch& l, const ConvProblem& problem, const Device& d) {
  const Stencil& p = l.p;
  if (!goes_by_rows(problem, p, false) || p.in_channels != 1 || p.out_channels != 1 || p.in.column != 1 ||
      p.out.column != 1 || p.width.pad != 1 || p.width.in % 4 || p.width.out % 4)
    return false;
  PlaneRows& b = l.plane_rows;
  b.images = int32_t(problem.y.shape[0]);
  b.spans = FastDivmod(ceil_div(p.width.out, 4 * kQuadsOfSpan));
  b.strips = FastDivmod(ceil_div(p.height.out, kRowsOfStrip));
  b.channels = FastDivmod(p.groups);
  const double items = 32.0 * b.spans.divisor * b.strips.divisor * p.groups * b.images;
  if (items > 4.0 * kThreadsOfStrips * d.sm_count) return false;
  take_threads(l, ceil_div(int64_t(items), int64_t(kThreadsOfStrips)), kThreadsOfStrips, 300, 64);
  return true;
}

bool take_pixel_rows(Launch& l, const ConvProblem& problem, bool grouped, const Device& d) {
  const Stencil& p = l.p;
  const int64_t of_group = grouped ? 4 : 1, channels = int64_t(p.groups) * p.out_channels;
  if (!goes_by_rows(problem, p, true) || p.in_channels != of_group || p.out_channels != of_group || channels % 4 ||
      p.in.channel != 1 || p.out.channel != 1)
    return false;
  PixelRows& b = l.pixel_rows;
  b.images = int32_t(problem.y.shape[0]);
  const int64_t quads = grouped ? kQuadsOfBundle : channels / 4, bundles = ceil_div(channels / 4, quads);
  b.quads = FastDivmod(quads), b.bundles = FastDivmod(bundles);
  b.runs = FastDivmod(ceil_div(p.width.out, kColumnsOfRows));
  // Chooses the number of strips with the least estimated time. More strips fill the rounds of blocks better, but each
  // strip reads two rows that another strip reads too.
  Launch best;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t strips = 1; strips <= 64 && strips <= p.height.out; ++strips) {
    b.rows = int32_t(ceil_div<int64_t>(p.height.out, strips));
    b.strips = FastDivmod(ceil_div(p.height.out, b.rows));
    const double items = double(quads * b.runs.divisor) * b.strips.divisor * b.images;
    if (items * double(bundles) >= double(kIndexLimit)) return false;
    const int64_t blocks = ceil_div(int64_t(items), int64_t(kThreadsOfRows)) * bundles;
    const int64_t registers = itemsize(operand_dtype(problem)) == 4 ? 208 : grouped ? 128 : 168;
    take_threads(l, blocks, kThreadsOfRows, 150 + (b.rows + 2) * (grouped ? 770.0 : 260.0), registers);
    if (double us = issue_us(l, d); us < least) best = l, least = us;
  }
  l = best;
  return true;
}

// ---- nchw.cu

struct PlanesPlan {
  Launch& l;
  const int64_t filters;  // kFilters, for dw kChannels
  const bool dw;
  const int64_t of_unit, lanes;  // filters of a unit; neighbouring units that are kept together
  const int64_t per_group, all_units;
  const int64_t jobs, weight_pitch;
  const bool whole;  // elements adjacent in a row of the tile are adjacent in `in`

  PlanesPlan(Launch& launch, int kernel_filters, bool is_dw)
      : l(launch),
        filters(kernel_filters),
        dw(is_dw),
        of_unit(dw ? filters_of_dw(kernel_filters, launch.columns) : filters),
        lanes(dw && of_unit > 1 ? kFilterLanes : 1),
        per_group(ceil_div<int64_t>(l.p.out_channels, of_unit * lanes) * lanes),
        all_units(per_group * l.p.groups),
        jobs(l.columns ? l.p.height.taps : int64_t(l.p.height.taps) * l.p.width.taps),
        weight_pitch(round_up((l.columns ? l.columns : l.p.width.taps) * filters, 4)),
        whole(l.p.width.step == 1 && l.p.width.up == 1 && l.p.height.up == 1) {}

  // The largest number of units, at most `most`, that a bundle may have. Its units either belong to one group, or each
  // is a group.
  int64_t units_below(int64_t most) const {
    if (per_group == 1) return equal_part(all_units, std::min(most, all_units));
    int64_t units = std::min(std::max(most, lanes), per_group) / lanes * lanes;
    while (per_group % units) units -= lanes;
    return units;
  }

  // Tries a tile of at most most_quads x most_rows. It starts with as many units as the thread limit allows, and
  // reduces their number until shared memory is within `budget`. Returns false if no number of units is.
  bool fits(int64_t most_quads, int64_t most_rows, int64_t budget) {
    Stencil& p = l.p;
    PlaneBlock& b = l.planes;
    const int64_t rows = outputs_of_phase(p.height);
    const int64_t quads = equal_part(ceil_div<int64_t>(outputs_of_phase(p.width), 4), most_quads);
    p.width.tile = int32_t(4 * quads);
    b.quads = FastDivmod(quads);
    int64_t threads;  // of a unit
    if (dw) {
      p.height.tile = int32_t(equal_part(rows, most_rows));
      const int64_t positions = quads * p.height.tile;
      int64_t at_once = std::min<int64_t>(jobs, 64), walkers = 1;
      const int64_t most = threads_of_dw(int(of_unit));
      if (lanes > 1) {
        at_once = equal_part(jobs, most / 32), walkers = 32 / lanes;
        while (per_group * at_once * walkers * 2 <= most && walkers * 2 <= positions) walkers *= 2;
      } else {
        while (walkers * 16 < positions && walkers * 2 * at_once <= most) walkers *= 2;
      }
      b.jobs = FastDivmod(at_once), b.walkers = FastDivmod(walkers), b.positions = FastDivmod(positions);
      threads = at_once * walkers;
    } else {
      const int64_t rows_of_thread = filters == 1 || filters == 3 ? kRowsOfThread<1> : kRowsOfThread<4>;
      const int64_t share =
          filters == 8 ? std::min<int64_t>(per_group, 8) : 1;  // a unit then fits in a warp: same weights
      const int64_t most_strips =
          std::max<int64_t>(std::min(most_rows / rows_of_thread, kMaxThreads / share / quads), 1);
      const int64_t strips = equal_part(ceil_div(rows, rows_of_thread), most_strips);
      p.height.tile = int32_t(rows_of_thread * strips);
      b.strips = FastDivmod(strips);
      threads = quads * strips;
    }
    for (int64_t units = units_below((dw ? threads_of_dw(int(of_unit)) : kMaxThreads) / threads);;
         units = units_below(units - lanes)) {
      if (takes(units, threads, budget)) return true;
      if (units == lanes) return false;
    }
  }

  // The row pitch of `in`, in floats. If possible, the next strip starts in the bank that follows the end of a row of
  // quads, which avoids bank conflicts.
  int64_t pitch_of(int64_t columns) const {
    const int64_t strip = l.p.height.hop * (filters == 1 || filters == 3 ? kRowsOfThread<1> : kRowsOfThread<4>);
    const int64_t least = round_up(columns, 4);
    if (l.p.width.tile % 32 == 0) return least;  // eight threads that read at the same time are in one row
    for (int64_t pitch = least; pitch < least + 32; pitch += 4)
      if ((strip * pitch - l.p.width.tile) % 32 == 0) return pitch;
    return least;
  }

  bool takes(int64_t units, int64_t threads, int64_t budget) {
    const Stencil& p = l.p;
    PlaneBlock& b = l.planes;
    l.threads = round_up(units * threads, 32);
    b.units = int32_t(units), b.groups = int32_t(per_group == 1 ? units : 1);
    b.in_rows = p.height.in_tile(), b.in_columns = p.width.in_tile();
    b.out_pitch = p.width.tile;
    const int64_t half = l.hop == 2 ? round_up(ceil_div(b.in_columns, 2), 4) : 0;
    const int64_t pitch = dw ? round_up(half ? 2 * half : b.in_columns, 4) : pitch_of(half ? 2 * half : b.in_columns);
    const int64_t plane = b.in_rows * pitch;
    int64_t out_plane = int64_t(p.height.tile) * b.out_pitch;
    if (lanes > 1) out_plane = round_up(out_plane - 8, 32) + 8;  // puts two quads of each lane in different banks
    const int64_t weights = dw ? 0 : units * p.in_channels * p.depth.taps * p.height.taps * weight_pitch;
    const int64_t sums =
        dw ? l.threads / std::min<int64_t>(b.walkers.divisor, 32 / lanes) * of_unit * filters * std::max(l.columns, 1)
           : 0;
    for (int64_t chunk = dw ? filters : p.in_channels;; chunk /= 2) {  // channels in a buffer: all of them, if they fit
      const int64_t buffer = b.groups * chunk * plane + (dw ? units * of_unit * out_plane : 0);
      l.smem_bytes = 4 * (weights + std::max(2 * buffer, sums));
      if (l.smem_bytes <= budget) {
        b.pitch = int32_t(pitch), b.half = int32_t(half), b.plane = int32_t(plane), b.out_plane = int32_t(out_plane);
        b.weights = int32_t(weights), b.buffer = int32_t(buffer);
        b.chunk = int32_t(chunk), b.chunk_digit = FastDivmod(chunk);
        l.instructions = instructions();
        return true;
      }
      if (dw || chunk == 1) return false;
    }
  }

  // Instructions of a thread for a tile: what the loops of nchw.cu compile to, but at least four times the
  // shared-memory accesses of a warp. An SM does one such access a clock and issues four instructions. With one filter
  // (dw: one channel) the limit is memory, so the accesses are not counted.
  double instructions() const {
    const Stencil& p = l.p;
    const PlaneBlock& b = l.planes;
    const double channels = dw ? double(filters) : p.in_channels, columns = std::max(l.columns, 1);
    const auto loads = [&](double rows, double of_row) {
      return std::ceil(rows / double(l.threads / 16)) * std::ceil(of_row / 80) * (whole ? 32 : 200);
    };
    double all = 120 + loads(b.groups * channels * b.in_rows, b.in_columns) * p.depth.taps;
    const double row = std::ceil((3 * std::max(l.hop, 1) + columns) / 4) + 1;  // loads for a row of in
    if (dw) {
      const double positions = std::ceil(double(b.quads.divisor) * p.height.tile / b.walkers.divisor);
      if (l.vectors == kNoVectors) all += loads(b.units * p.height.tile, p.width.tile);
      else
        all += 25 + double(b.units) * double(of_unit) * b.positions.divisor / double(l.threads) *
                        (l.vectors == kVectorsOfColumns ? 6 : 24);
      const double issued = 20 + double(of_unit) * (1 + channels * 4 * columns) + channels * (l.columns ? row : 8);
      const double visits = double(of_unit) * 4 + channels * (l.columns ? 4 * row : 16);
      all += positions * (filters > 1 ? std::max(issued, 4 * visits) : issued);
    } else {
      const double rows = filters == 1 || filters == 3 ? kRowsOfThread<1> : kRowsOfThread<4>;
      const double steps = double(p.depth.taps) * p.height.taps * (l.columns ? 1 : p.width.taps) * channels;
      const double read = filters == 3 ? (rows + 2) / 3 : rows;  // rows of in read for a row of the window
      const double weights = l.columns ? columns * filters / 4 : filters;
      const double issued = 8 + weights + read * (l.columns ? row : 4) + rows * 4 * columns * filters;
      const double visits = weights + read * (l.columns ? 4 * row : 16);
      all += steps * (filters > 1 ? std::max(issued, 4 * visits) : issued);
      all += 60 + rows * filters * 12;
    }
    return all;
  }
};

Launch planes_launch(const ConvProblem& problem, int filters, const Device& device) {
  Launch l;
  l.p = stencil_of(problem);
  const Stencil& p = l.p;
  PlaneBlock& b = l.planes;
  const bool dw = is_dw(problem);
  const bool narrow = itemsize(operand_dtype(problem)) == 2;
  choose_window(l, windows_of(StencilKind::planes, filters, dw, narrow));
  if (dw && !narrow) {
    const bool along_row = p.out.column == 1 && p.height.spread == 1 && p.width.spread == 1 &&
                           steps_by(p.out, 4, false) && problem.alignment >= 16;
    if (along_row) l.vectors = kVectorsOfColumns;
    else if (filters == 3) l.vectors = kVectorsOfFilters;
  }
  if (Launch rows = l; filters == 1 && take_plane_rows(rows, problem, device)) return rows;
  PlanesPlan plan(l, filters, dw);
  b.window[0] = FastDivmod(p.depth.taps), b.window[1] = FastDivmod(p.height.taps),
  b.window[2] = FastDivmod(p.width.taps);
  b.in_channels = FastDivmod(p.in_channels), b.units_of_group = FastDivmod(plan.per_group);

  l.registers = dw             ? (filters == 1   ? 56
                                  : filters == 3 ? (l.columns == 7 ? 128 : 168)
                                                 : 80)
                : filters == 1 ? 64
                : filters == 4 ? 88
                               : 120;

  // Selects the tile with the least estimated time, among those that let several blocks fit on an SM. If there is none,
  // among those that let one block fit.
  const auto count = [&] {
    int64_t bundles = ceil_div<int64_t>(plan.all_units, b.units);
    if (dw) {
      b.channel_blocks = ceil_div(p.in_channels, filters);
      b.job_groups = int32_t(ceil_div<int64_t>(plan.jobs, b.jobs.divisor));
      bundles *= int64_t(b.channel_blocks) * p.depth.taps * b.job_groups;
    }
    count_tiles(l, problem.y.shape[0], bundles, dw ? kMaxSlabs : kIndexLimit, device);
  };
  Launch best;
  double least = std::numeric_limits<double>::infinity();
  const int64_t wished = plan.lanes > 1 ? device.max_smem_bytes : kWishedSmem;  // registers limit it to one block an SM
  for (int64_t budget : {std::min<int64_t>(wished, device.max_smem_bytes), int64_t(device.max_smem_bytes)}) {
    for (int64_t quads : {16, 8, 4, 1})
      for (int64_t rows : {64, 32, 16, 8, 4, 2}) {
        if (!plan.fits(quads, rows, budget)) continue;
        count();
        if (!l.why_not.empty()) return l;
        if (double us = issue_us(l, device); us < least) best = l, least = us;
      }
    if (std::isfinite(least)) return best;
  }
  l.why_not = too_much_smem(l.smem_bytes, device);
  return l;
}

// ---- nhwc.cu

Launch pixels_launch(const ConvProblem& problem, bool grouped, const Device& device) {
  Launch l;
  l.p = stencil_of(problem);
  Stencil& p = l.p;
  PixelBlock& b = l.pixels;
  const bool dw = is_dw(problem);
  if (Launch rows = l; take_pixel_rows(rows, problem, grouped, device)) return rows;
  choose_window(l, windows_of(grouped ? StencilKind::pixel_groups : StencilKind::pixels, 1, dw, false));
  const int64_t item = int64_t(itemsize(operand_dtype(problem))), slice = kPixelBytes / item, quads = slice / 4;
  b.window[0] = FastDivmod(p.depth.taps), b.window[1] = FastDivmod(p.height.taps),
  b.window[2] = FastDivmod(p.width.taps);
  b.in_channels = FastDivmod(p.in_channels);
  b.slices = int32_t(ceil_div<int64_t>(int64_t(p.groups) * p.out_channels, slice));
  const int64_t runs = ceil_div<int64_t>(equal_part(outputs_of_phase(p.width), 2 * kRun), kRun);
  p.width.tile = int32_t(runs * kRun);
  b.runs = FastDivmod(runs);
  b.pitch = p.width.in_tile() | 1, b.out_pitch = p.width.tile | 1;
  b.in_columns = FastDivmod(p.width.in_tile()), b.out_columns = FastDivmod(p.width.tile);
  const int64_t jobs =
      (l.columns ? p.height.taps : int64_t(p.height.taps) * p.width.taps) * (grouped ? p.in_channels / 4 : 1);
  const int64_t weights = dw ? 0 : int64_t(p.taps()) * p.in_channels * (slice + 4) * 4;

  l.registers = grouped ? (dw ? 120 : 104) : 80;
  // Instructions of a thread for a tile: what the loops of nhwc.cu compile to.
  const auto instructions = [&](int64_t rows) {
    const double columns = std::max(l.columns, 1), met = grouped ? 4 : 1, narrow = item == 2;
    const auto loads = [&](double pixels) { return 60 + std::ceil(4 * pixels / double(l.threads)) * 12; };
    const double products = kRun * 4 * met * columns;
    const double reads = l.columns ? (kRun - 1) * l.hop + columns : kRun;  // quads of in read for a run
    double all = 120 + loads(double(b.in_rows) * b.in_columns.divisor) * p.depth.taps;
    if (dw) {
      const double positions = std::ceil(double(runs * rows) / b.walkers.divisor);
      all += loads(double(rows) * p.width.tile) + positions * (20 + products + (reads + kRun) * (1 + 4 * narrow));
    } else {
      const double steps = double(p.depth.taps) * p.height.taps * (l.columns ? 1 : p.width.taps);
      all +=
          200 + steps * (grouped ? p.in_channels / 4 : 1) * (8 + products + columns * met + reads * (1 + 4 * narrow));
    }
    return all;
  };
  // Tries a tile of at most `most_rows` rows. Returns false if its shared memory exceeds `budget`.
  const auto fits = [&](int64_t most_rows, int64_t budget) {
    const int64_t rows = equal_part(outputs_of_phase(p.height), std::min(most_rows, kTileThreads / (quads * runs)));
    p.height.tile = int32_t(rows);
    b.rows = FastDivmod(rows), b.in_rows = p.height.in_tile();
    l.threads = round_up(quads * runs * rows, 32);
    int64_t sums = 0;
    if (dw) {
      const int64_t at_once = std::min(jobs, kMaxThreads / quads / 2), positions = runs * rows;
      const int64_t most_walkers = std::min(kMaxThreads / (quads * at_once), positions);
      const int64_t walkers = ceil_div(positions, ceil_div(positions, most_walkers));
      b.jobs = FastDivmod(at_once), b.walkers = FastDivmod(walkers);
      b.job_groups = int32_t(ceil_div(jobs, at_once));
      l.threads = round_up(quads * at_once * walkers, 32);
      sums = l.threads * std::max(l.columns, 1) * (grouped ? 16 : 4) * 4;
    }
    const int64_t buffer = (int64_t(b.in_rows) * b.pitch + (dw ? rows * b.out_pitch : 0)) * kPixelBytes;
    l.smem_bytes = weights + std::max(2 * buffer, sums);
    if (l.smem_bytes > budget) return false;
    b.weights = int32_t(weights), b.buffer = int32_t(buffer);
    l.instructions = instructions(rows);
    const int64_t bundles = b.slices * (dw ? int64_t(p.depth.taps) * b.job_groups : 1);
    count_tiles(l, problem.y.shape[0], bundles, dw ? kMaxSlabs : kIndexLimit, device);
    return true;
  };
  Launch best;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t budget : {std::min<int64_t>(kWishedSmem, device.max_smem_bytes), int64_t(device.max_smem_bytes)}) {
    for (int64_t rows : {14, 7, 4, 2, 1})
      if (fits(rows, budget)) {
        if (!l.why_not.empty()) return l;
        if (double us = issue_us(l, device); us < least) best = l, least = us;
      }
    if (std::isfinite(least)) return best;
  }
  l.why_not = too_much_smem(l.smem_bytes, device);
  return l;
}

Launch launch_of(const ConvProblem& p, StencilKind kind, int filters, const Device& d) {
  return kind == StencilKind::planes ? planes_launch(p, filters, d)
                                     : pixels_launch(p, kind == StencilKind::pixel_groups, d);
}

KernelSpec spec(StencilKind kind, int filters, bool dw, DType t, Window w) {
  const std::string suffix = dw ? "_filter<" : "<", window = cat(", ", w.columns, ", ", w.hop);
  if (kind == StencilKind::planes) {
    const std::string sums = dw ? cat(filters, ", ", filters_of_dw(filters, w.columns)) : cat(filters);
    return {"cuda/conv/depthwise/nchw/nchw.cu",
            cat("minidnn::conv_planes", suffix, cuda_name(t), ", ", sums, window, ">")};
  }
  return {"cuda/conv/depthwise/nhwc/nhwc.cu", cat("minidnn::conv_pixels", suffix, cuda_name(t), window, ", ",
                                                  kind == StencilKind::pixel_groups ? "true" : "false", ">")};
}
KernelSpec rows_spec(StencilKind kind, DType t) {
  if (kind == StencilKind::planes)
    return {"cuda/conv/depthwise/nchw/nchw_3x3.cu", cat("minidnn::conv_plane_rows<", cuda_name(t), ">")};
  const char* grouped = kind == StencilKind::pixel_groups ? "true" : "false";
  return {"cuda/conv/depthwise/nhwc/nhwc_3x3.cu", cat("minidnn::conv_pixel_rows<", cuda_name(t), ", ", grouped, ">")};
}
bool is_aligned(const void* p, int64_t bytes) { return reinterpret_cast<uintptr_t>(p) % uintptr_t(bytes) == 0; }

}  // namespace

std::string stencil_index_why_not(const ConvProblem& p) {
  if (p.x.numel() == 0 || p.w.numel() == 0 || p.y.numel() == 0) return "x, w or y is empty";
  const ConvGeometry g = conv_geometry(p);
  for (int j = 0; j < kMaxSpatial; ++j) {
    const int64_t stride = g.backward_data ? 1 : g.stride[j], out = g.backward_data ? g.x.size[j] : g.y.size[j];
    // A tile may reach 64 outputs beyond the last.
    const double reach = (double(out) + 64.0 * double(g.dilation[j]) + 64) * double(stride) +
                         2.0 * double(g.window[j]) * double(g.dilation[j]) + double(g.pad[j]) + double(g.x.size[j]) +
                         double(g.y.size[j]) * double(g.stride[j]);
    if (reach >= double(kIndexLimit)) return cat("supports padded dimensions below 2^31 elements; got up to ", reach);
  }
  for (const ConvTensorView* s : {&g.x, &g.y, &g.residual})
    if (int64_t span = span_of(*s); span >= kIndexLimit)
      return cat("supports planes that span fewer than 2^31 elements; got ", span);
  int64_t w_span = 0;
  for (int i = 0; i < p.w.rank; ++i) w_span += (p.w.shape[i] - 1) * std::abs(p.w.stride[i]);
  if (w_span >= kIndexLimit) return cat("supports a w that spans fewer than 2^31 elements; got ", w_span);
  const double outputs = double(g.images) * double(g.groups) * double(std::max(g.x.channels, g.y.channels)) *
                         double(std::max(g.x.size[0], g.y.size[0]));
  if (outputs >= double(kIndexLimit)) return cat("supports fewer than 2^31 planes; got ", outputs);
  return "";
}

Stencil stencil_of(const ConvProblem& problem) {
  const ConvGeometry g = conv_geometry(problem);
  const bool backward = g.backward_data;
  Stencil p;
  p.groups = int32_t(g.groups);
  p.in_channels = int32_t(backward ? g.y.channels : g.x.channels);
  p.out_channels = int32_t(backward ? g.x.channels : g.y.channels);
  p.in = side_of(backward ? g.y : g.x, g.images);
  p.out = side_of(backward ? g.x : g.y, g.images);
  p.w_origin = int32_t(g.w_origin);
  p.w_group = int32_t(g.groups > 1 ? g.y.channels * g.w_filter : 0);
  p.w_out = int32_t(backward ? g.w_channel : g.w_filter);
  p.w_in = int32_t(backward ? g.w_filter : g.w_channel);
  StencilDim* const dims[] = {&p.depth, &p.height, &p.width};
  for (int j = 0; j < kMaxSpatial; ++j) {
    StencilDim& d = *dims[j];
    d.in = int32_t(backward ? g.y.size[j] : g.x.size[j]);
    d.out = int32_t(backward ? g.x.size[j] : g.y.size[j]);
    d.taps = int32_t(g.window[j]);
    d.step = int32_t(g.dilation[j]);
    d.stride = int32_t(backward ? 1 : g.stride[j]);
    d.up = int32_t(backward ? g.stride[j] : 1);
    const int64_t reach = (g.window[j] - 1) * g.dilation[j];
    d.pad = int32_t(backward ? reach - g.pad[j] : g.pad[j]);
    const int64_t common = detail::gcd(d.stride, d.step);
    d.spread = int32_t(d.step / common), d.hop = int32_t(d.stride / common);
    d.phases = std::min(d.spread, d.out);
    p.w_tap[j] = int32_t(g.w_space[j]);
    if (backward) {
      p.w_origin += int32_t((g.window[j] - 1) * g.w_space[j]);
      p.w_tap[j] = -p.w_tap[j];
    }
  }
  p.has_bias = int32_t(g.has_bias), p.bias_stride = g.bias_stride;
  p.has_residual = int32_t(g.has_residual);
  if (g.has_residual) p.residual = side_of(g.residual, g.images);
  p.activation = g.activation;
  p.wide = itemsize(operand_dtype(problem)) == 2 && out_dtype(problem) == DType::float32;
  return p;
}

KernelSpec filter_sum_kernel(DType out) {
  return {"cuda/conv/filter_reduce/filter_reduce.cu", cat("minidnn::conv_filter_sum<", cuda_name(out), ">")};
}

std::function<void(const void*, void*, Stream)> filter_adder(const ConvProblem& p, int64_t parts, const Device& d) {
  const ConvGeometry g = conv_geometry(p);
  FilterSum f;
  f.size[0] = g.groups * g.y.channels, f.size[1] = g.x.channels;
  f.stride[0] = g.w_filter, f.stride[1] = g.w_channel, f.origin = g.w_origin;
  for (int j = 0; j < kMaxSpatial; ++j) f.size[2 + j] = g.window[j], f.stride[2 + j] = g.w_space[j];
  f.count = 1;
  for (int64_t size : f.size) f.count *= size;
  f.parts = int32_t(parts);
  cuda::LaunchConfig config;
  config.block = {32, 8};
  config.grid = {unsigned(ceil_div<int64_t>(f.count, 32))};
  config.programmatic = d.arch >= 90;
  return [f, config, kernel = cuda::load_kernel(filter_sum_kernel(out_dtype(p)), d.place.index)](
             const void* all, void* dw, Stream stream) { cuda::launch(*kernel, config, stream, f, all, dw); };
}

std::string stencil_why_not(const ConvProblem& p, StencilKind kind, int filters, const Device& d) {
  std::string why = stencil_index_why_not(p);
  return why.empty() ? launch_of(p, kind, filters, d).why_not : why;
}

// Instructions are counted. Accesses that use whole sectors reach 0.6 to 0.7 of the copy rate, as measured; the other
// fractions are guesses.
double stencil_estimate_us(const ConvProblem& problem, StencilKind kind, int filters, const Device& d) {
  const Launch l = launch_of(problem, kind, filters, d);
  const Stencil& p = l.p;
  const bool planes = kind == StencilKind::planes, dw = is_dw(problem);
  const int64_t part = planes ? 4 : 16 / int64_t(itemsize(operand_dtype(problem)));
  const auto share = [&](const StencilSide& s, bool written) {
    const bool by_columns = planes && s.column == 1;
    if (planes && !written && s.channel == 1 && (&s == &p.out || p.in_channels <= 4) && l.vectors == kVectorsOfFilters)
      return 0.6;  // dy is read eight filters at a time, and x with all its channels
    if (by_columns || !planes) return !written || steps_by(s, part, !by_columns) ? 0.7 : 0.5;
    return written && s.channel == 1 && filters > 1 && steps_by(s, 4, true) ? 0.4 : 0.15;  // sectors are used in part
  };
  const bool backward = problem.direction == ConvDirection::backward_data;
  const TensorDesc &in = backward ? problem.y : problem.x, &out = backward ? problem.x : problem.y;
  const auto bytes = [](const TensorDesc& t) { return double(t.numel()) * double(itemsize(t.dtype)); };
  const double memory_us = roofline_us(0, bytes(in) / share(p.in, false) + bytes(out) / share(p.out, !dw), d, 1.0);
  return std::max(memory_us, roofline_us(0, 0, d, 1.0) + issue_us(l, d)) + (dw ? 4 : 0);  // 4 us: filter_reduce.cu
}

size_t stencil_workspace_bytes(const ConvProblem& p, StencilKind kind, int filters, const Device& d) {
  if (!is_dw(p)) return 0;
  return launch_of(p, kind, filters, d).tiles.walkers * size_t(p.w.numel()) * sizeof(float);
}

std::unique_ptr<Plan<ConvProblem>> build_stencil(const ConvProblem& problem, StencilKind kind, int filters,
                                                 const Device& d) {
  Launch l = launch_of(problem, kind, filters, d);
  const DType t = operand_dtype(problem);
  const int64_t item = int64_t(itemsize(t)), out_item = l.p.wide ? 4 : item;
  const KernelSpec chosen = l.by_rows ? rows_spec(kind, t) : spec(kind, filters, is_dw(problem), t, {l.columns, l.hop});
  auto kernel = cuda::load_kernel(chosen, d.place.index, int(l.smem_bytes));
  if (is_dw(problem)) l.most_walkers = l.tiles.walkers;  // the workspace holds this many parts
  share_tiles(l, d, kernel->registers);
  cuda::LaunchConfig config;
  config.grid = {unsigned(l.bundles * l.tiles.walkers)};
  config.block = {unsigned(l.threads)};
  config.smem_bytes = unsigned(l.smem_bytes);
  const bool planes = kind == StencilKind::planes;
  const int64_t channels = int64_t(l.p.groups) * l.p.in_channels, part = 16 / item;
  const bool neighbours_in = l.p.in.channel == 1 && channels % part == 0 && steps_by(l.p.in, part, true);

  if (is_dw(problem)) {
    const auto add = filter_adder(problem, l.tiles.walkers, d);
    const bool vectors = neighbours_in && l.p.out.channel == 1 && steps_by(l.p.out, part, true);
    return make_plan<ConvProblem>([=](const ConvArgs& a, void* workspace, Stream stream) {
      if (planes) {
        cuda::launch(*kernel, config, stream, l.p, l.tiles, l.planes, a.x, a.dy, workspace, l.vectors);
      } else {
        const int32_t aligned = vectors && is_aligned(a.x, 16) && is_aligned(a.dy, 16);
        cuda::launch(*kernel, config, stream, l.p, l.tiles, l.pixels, a.x, a.dy, workspace, aligned);
      }
      add(workspace, a.out, stream);
    });
  }
  const bool backward = problem.direction == ConvDirection::backward_data;
  // nchw.cu stores filters in fours, counted from the first filter of each group.
  const bool by_fours = l.p.groups == 1 || l.p.out_channels % 4 == 0 || !planes;
  const bool along_channels = l.p.out.channel == 1 && by_fours && steps_by(l.p.out, 4, true);
  const bool along_row = l.p.out.column == 1 && l.p.width.spread == 1 && steps_by(l.p.out, 4, false);
  return make_plan<ConvProblem>([=](const ConvArgs& a, void*, Stream stream) {
    const void* in = backward ? a.dy : a.x;
    const float alpha = float(a.activation_alpha);
    const bool aligned = is_aligned(a.out, 4 * out_item);
    if (l.by_rows) {
      if (planes) cuda::launch(*kernel, config, stream, l.p, l.plane_rows, in, a.w, a.bias, a.residual, a.out, alpha);
      else cuda::launch(*kernel, config, stream, l.p, l.pixel_rows, in, a.w, a.bias, a.residual, a.out, alpha);
    } else if (planes) {
      const int32_t vectors = !aligned         ? kNoVectors
                              : along_row      ? kVectorsOfColumns
                              : along_channels ? kVectorsOfFilters
                                               : kNoVectors;
      cuda::launch(*kernel, config, stream, l.p, l.tiles, l.planes, in, a.w, a.bias, a.residual, a.out, alpha, vectors);
    } else {
      const int32_t vectors_in = neighbours_in && is_aligned(in, 16), vectors_out = aligned && along_channels;
      cuda::launch(*kernel, config, stream, l.p, l.tiles, l.pixels, in, a.w, a.bias, a.residual, a.out, alpha,
                   vectors_in, vectors_out);
    }
  });
}

std::vector<KernelSpec> stencil_kernels(StencilKind kind, int filters, std::initializer_list<DType> dtypes) {
  std::vector<KernelSpec> all;
  for (DType t : dtypes) {
    for (bool dw : {false, true}) {
      if (dw && filters == 8) continue;  // for dw, `filters` counts channels: up to four
      if (dw || filters != 3) all.push_back(spec(kind, filters, dw, t, {0, 0}));  // forward, 3 filters: one window only
      for (Window w : windows_of(kind, filters, dw, itemsize(t) == 2)) all.push_back(spec(kind, filters, dw, t, w));
    }
    if (kind != StencilKind::planes || filters == 1) all.push_back(rows_spec(kind, t));
    all.push_back(filter_sum_kernel(t));
  }
  return all;
}

}  // namespace minidnn
