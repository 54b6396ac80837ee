// SPDX-License-Identifier: Apache-2.0
#include "cuda/conv/depthwise/nchw/nchw.h"
#include "cuda/conv/depthwise/group_conv.h"
#include "cuda/conv/filter_reduce/filter_reduce.h"

namespace minidnn::cuda::conv {
namespace {

std::vector<CompiledWindow> windows_of(int64_t filters, bool dw, bool narrow) {
  if (narrow)
    // 16-bit kernels are specialized for depthwise windows of three columns at stride 1 only.
    return filters == 1 ? std::vector<CompiledWindow>{{3, 1}} : std::vector<CompiledWindow>{};
  if (filters == 1) return {{3, 1}, {5, 1}, {7, 1}, {3, 2}};
  if (filters == 3)
    return dw ? std::vector<CompiledWindow>{{3, 1}, {3, 2}, {7, 2}} : std::vector<CompiledWindow>{{3, 1}};
  if (filters == 4) return {{3, 1}, {3, 2}, {7, 2}};
  return {{3, 1}, {3, 2}};
}

// Chooses the shape of a tile of outputs, and divides the tile among the threads of a block.
struct NchwTiler {
  NchwTiling& l;
  const int64_t filters;  // a template argument: kFilters of nchw.cu, or kChannels of nchw_filter.cu (dw)
  const bool dw;
  // The number of filters in a unit, and the number of units whose filters are interleaved (nchw_params.h).
  const int64_t of_unit, lanes;
  const int64_t per_group, all_units;
  const int64_t jobs, weight_pitch;
  const bool whole;  // whether the tile's rows are contiguous in `in`

  NchwTiler(NchwTiling& tiling, bool is_dw)
      : l(tiling),
        filters(tiling.filters),
        dw(is_dw),
        of_unit(dw ? filters_of_dw(int(tiling.filters), tiling.window.columns) : filters),
        lanes(dw && of_unit > 1 ? kFilterLanes : 1),
        per_group(ceil_div<int64_t>(l.p.out_channels, of_unit * lanes) * lanes),
        all_units(per_group * l.p.groups),
        jobs(l.window.columns ? l.p.height.taps : int64_t(l.p.height.taps) * l.p.width.taps),
        weight_pitch(round_up((l.window.columns ? l.window.columns : l.p.width.taps) * filters, 4)),
        whole(l.p.width.step == 1 && l.p.width.up == 1 && l.p.height.up == 1) {}

  // Returns the largest valid number of units (sets of filters of one group) per block, at most `most`. All units of a
  // block must belong to one group, unless each group is one unit.
  int64_t units_below(int64_t most) const {
    if (per_group == 1) return equal_chunk(all_units, std::min(most, all_units));
    int64_t units = std::min(std::max(most, lanes), per_group) / lanes * lanes;
    while (per_group % units) units -= lanes;
    return units;
  }

  // Tries tiles of at most most_rows rows and 4 * most_quads columns. Reduces the number of filters per block until the
  // block fits in `budget` bytes of shared memory. Returns false if it never fits.
  bool fits(int64_t most_quads, int64_t most_rows, int64_t budget) {
    GroupConv& p = l.p;
    NchwBlock& b = l.block;
    const int64_t rows = outputs_of_phase(p.height);
    const int64_t quads = equal_chunk(ceil_div<int64_t>(outputs_of_phase(p.width), 4), most_quads);
    p.width.tile = int32_t(4 * quads);
    b.quads = FastDivmod(quads);
    int64_t threads;  // the number of threads per unit (of_unit filters)
    if (dw) {
      p.height.tile = int32_t(equal_chunk(rows, most_rows));
      const int64_t positions = quads * p.height.tile;
      int64_t at_once = std::min<int64_t>(jobs, 64), position_splits = 1;
      const int64_t most = threads_of_dw(int(of_unit));
      if (lanes > 1) {
        at_once = equal_chunk(jobs, most / 32);
        position_splits = 32 / lanes;
        while (per_group * at_once * position_splits * 2 <= most && position_splits * 2 <= positions)
          position_splits *= 2;
      } else {
        while (position_splits * 16 < positions && position_splits * 2 * at_once <= most) position_splits *= 2;
      }
      b.jobs = FastDivmod(at_once);
      b.position_splits = FastDivmod(position_splits);
      b.positions = FastDivmod(positions);
      threads = at_once * position_splits;
    } else {
      const int64_t rows_of_thread = filters == 1 || filters == 3 ? kRowsOfThread<1> : kRowsOfThread<4>;
      const int64_t units_of_warp =
          // Threads with 8 filters get smaller tiles, so that a block computes several sets of 8 filters.
          filters == 8 ? std::min<int64_t>(per_group, 8) : 1;
      const int64_t most_strips =
          std::max<int64_t>(std::min(most_rows / rows_of_thread, kMaxThreads / units_of_warp / quads), 1);
      const int64_t strips = equal_chunk(ceil_div(rows, rows_of_thread), most_strips);
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

  // Returns the pitch in floats of the rows of `in` in shared memory. The pitch avoids bank conflicts if a warp reads
  // several rows at the same time.
  int64_t pitch_of(int64_t columns) const {
    const int64_t strip = l.p.height.hop * (filters == 1 || filters == 3 ? kRowsOfThread<1> : kRowsOfThread<4>);
    const int64_t least = round_up(columns, 4);
    // In tiles whose width is a multiple of 32, eight threads read 32 consecutive floats of one row, without bank
    // conflicts.
    if (l.p.width.tile % 32 == 0) return least;
    for (int64_t pitch = least; pitch < least + 32; pitch += 4)
      if ((strip * pitch - l.p.width.tile) % 32 == 0) return pitch;
    return least;
  }

  bool takes(int64_t units, int64_t threads, int64_t budget) {
    const GroupConv& p = l.p;
    NchwBlock& b = l.block;
    l.threads = round_up(units * threads, 32);
    b.units = int32_t(units);
    b.groups = int32_t(per_group == 1 ? units : 1);
    b.in_rows = p.height.in_tile();
    b.in_columns = p.width.in_tile();
    b.out_pitch = p.width.tile;
    const int64_t half = l.window.hop == 2 ? round_up(ceil_div(b.in_columns, 2), 4) : 0;
    const int64_t pitch = dw ? round_up(half ? 2 * half : b.in_columns, 4) : pitch_of(half ? 2 * half : b.in_columns);
    const int64_t plane = b.in_rows * pitch;
    int64_t out_plane = int64_t(p.height.tile) * b.out_pitch;
    // Pads the planes of dy to start 8 banks apart: a warp reads 8 floats from each of four planes at the same time.
    if (lanes > 1) out_plane = round_up(out_plane - 8, 32) + 8;
    const int64_t weights = dw ? 0 : units * p.in_channels * p.depth.taps * p.height.taps * weight_pitch;
    const int64_t sums = dw ? l.threads / std::min<int64_t>(b.position_splits.divisor, 32 / lanes) * of_unit * filters *
                                  std::max(l.window.columns, 1)
                            : 0;
    // Halves the number of channels per buffer until both buffers fit in shared memory.
    for (int64_t chunk = dw ? filters : p.in_channels;; chunk /= 2) {
      const int64_t buffer = b.groups * chunk * plane + (dw ? units * of_unit * out_plane : 0);
      l.smem_bytes = 4 * (weights + std::max(2 * buffer, sums));
      if (l.smem_bytes <= budget) {
        b.pitch = int32_t(pitch);
        b.half = int32_t(half);
        b.plane = int32_t(plane);
        b.out_plane = int32_t(out_plane);
        b.weights = int32_t(weights);
        b.buffer = int32_t(buffer);
        b.chunk = int32_t(chunk);
        b.chunk_digit = FastDivmod(chunk);
        l.instructions = instructions();
        return true;
      }
      if (dw || chunk == 1) return false;
    }
  }

  // Estimates the number of instructions that a thread issues for a tile, counted from the compiled loops. An access to
  // shared memory counts as four instructions, because an SM issues four instructions per clock but only one such
  // access. With filters = 1, memory traffic is the limit.
  double instructions() const {
    const GroupConv& p = l.p;
    const NchwBlock& b = l.block;
    const double channels = dw ? double(filters) : p.in_channels, columns = std::max(l.window.columns, 1);
    const auto loads = [&](double rows, double of_row) {
      return std::ceil(rows / double(l.threads / 16)) * std::ceil(of_row / 80) * (whole ? 32 : 200);
    };
    double all = 120 + loads(b.groups * channels * b.in_rows, b.in_columns) * p.depth.taps;
    // loads from shared memory per row of `in`
    const double row = std::ceil((3 * std::max(l.window.hop, 1) + columns) / 4) + 1;
    if (dw) {
      const double positions = std::ceil(double(b.quads.divisor) * p.height.tile / b.position_splits.divisor);
      if (l.vectors == kNoVectors) all += loads(b.units * p.height.tile, p.width.tile);
      else
        all += 25 + double(b.units) * double(of_unit) * b.positions.divisor / double(l.threads) *
                        (l.vectors == kVectorsOfColumns ? 6 : 24);
      const double issued =
          20 + double(of_unit) * (1 + channels * 4 * columns) + channels * (l.window.columns ? row : 8);
      const double visits = double(of_unit) * 4 + channels * (l.window.columns ? 4 * row : 16);
      all += positions * (filters > 1 ? std::max(issued, 4 * visits) : issued);
    } else {
      const double rows = filters == 1 || filters == 3 ? kRowsOfThread<1> : kRowsOfThread<4>;
      const double steps = double(p.depth.taps) * p.height.taps * (l.window.columns ? 1 : p.width.taps) * channels;
      // rows of `in` that a thread reads per row of the window
      const double read = filters == 3 ? (rows + 2) / 3 : rows;
      const double weights = l.window.columns ? columns * filters / 4 : filters;
      const double issued = 8 + weights + read * (l.window.columns ? row : 4) + rows * 4 * columns * filters;
      const double visits = weights + read * (l.window.columns ? 4 * row : 16);
      all += steps * (filters > 1 ? std::max(issued, 4 * visits) : issued);
      all += 60 + rows * filters * 12;
    }
    return all;
  }
};

KernelSpec spec(int64_t filters, bool dw, DType t, CompiledWindow w) {
  const std::string sums = dw ? cat(filters, ", ", filters_of_dw(int(filters), w.columns)) : cat(filters);
  const char* kernel = dw ? "_filter" : "";
  return {cat("cuda/conv/depthwise/nchw/nchw", kernel, ".cu"),
          cat("minidnn::conv_nchw", kernel, "<", cuda_name(t), ", ", sums, ", ", w.columns, ", ", w.hop, ">")};
}

}  // namespace

NchwTiling nchw_tiling(const ConvProblem& problem, int filters, const Device& device) {
  NchwTiling l;
  l.p = group_conv_params(problem);
  l.filters = filters;
  const GroupConv& p = l.p;
  NchwBlock& b = l.block;
  const bool dw = is_dw(problem);
  const bool narrow = itemsize(operand_dtype(problem)) == 2;
  l.window = choose_window(p, windows_of(filters, dw, narrow));
  if (dw && !narrow) {
    const bool along_row = p.out.column == 1 && p.height.spread == 1 && p.width.spread == 1 &&
                           steps_by(p.out, 4, false) && problem.alignment >= 16;
    if (along_row) l.vectors = kVectorsOfColumns;
    else if (filters == 3) l.vectors = kVectorsOfFilters;
  }
  l.dy_by_filters = l.vectors == kVectorsOfFilters;
  NchwTiler tiler(l, dw);
  b.window[0] = FastDivmod(p.depth.taps);
  b.window[1] = FastDivmod(p.height.taps);
  b.window[2] = FastDivmod(p.width.taps);
  b.in_channels = FastDivmod(p.in_channels);
  b.units_of_group = FastDivmod(tiler.per_group);

  l.registers = dw             ? (filters == 1   ? 56
                                  : filters == 3 ? (l.window.columns == 7 ? 128 : 168)
                                                 : 80)
                : filters == 1 ? 64
                : filters == 4 ? 88
                               : 120;

  // Selects the tile with the least estimated time. If no tile fits in the preferred limit on shared memory, the
  // maximum of the device is allowed.
  const auto count = [&] {
    int64_t channel_tiles = ceil_div<int64_t>(tiler.all_units, b.units);
    if (dw) {
      b.channel_blocks = ceil_div(p.in_channels, filters);
      b.job_groups = int32_t(ceil_div<int64_t>(tiler.jobs, b.jobs.divisor));
      channel_tiles *= int64_t(b.channel_blocks) * p.depth.taps * b.job_groups;
    }
    count_tiles(l, problem.y.shape[0], channel_tiles, dw ? kMaxPartialSums : kIndexLimit, device);
  };
  NchwTiling best;
  double least = std::numeric_limits<double>::infinity();
  const int64_t wished =
      // Threads with several filters use all registers of an SM, so only one block runs, which may use all shared
      // memory.
      tiler.lanes > 1 ? device.max_smem_bytes : kWishedSmem;
  for (int64_t budget : {std::min<int64_t>(wished, device.max_smem_bytes), int64_t(device.max_smem_bytes)}) {
    for (int64_t quads : {16, 8, 4, 1})
      for (int64_t rows : {64, 32, 16, 8, 4, 2}) {
        if (!tiler.fits(quads, rows, budget)) continue;
        count();
        if (!l.why_not.empty()) return l;
        if (double us = issue_us(l, device); us < least) {
          best = l;
          least = us;
        }
      }
    if (std::isfinite(least)) return best;
  }
  l.why_not = too_much_smem(l.smem_bytes, device);
  return l;
}

std::unique_ptr<Plan<ConvProblem>> group_conv_plan(const ConvProblem& problem, NchwTiling l, const Device& d) {
  const auto [kernel, config] = load(spec(l.filters, is_dw(problem), operand_dtype(problem), l.window), problem, l, d);
  if (is_dw(problem)) {
    const auto reduce = filter_reduce(problem, l.tiles.splits, d);
    return make_plan<ConvProblem>([=](const ConvArgs& a, void* workspace, Stream stream) {
      launch(*kernel, config, stream, l.p, l.tiles, l.block, a.x, a.dy, workspace, l.vectors);
      reduce(workspace, a.out, stream);
    });
  }
  const bool backward = problem.direction == ConvDirection::backward_data;
  const int64_t out_item = int64_t(itemsize(out_dtype(problem)));
  // Vectors of four filters must not cross the border of a group.
  const bool by_fours = l.p.groups == 1 || l.p.out_channels % 4 == 0;
  const bool along_channels = l.p.out.channel == 1 && by_fours && steps_by(l.p.out, 4, true);
  const bool along_row = l.p.out.column == 1 && l.p.width.spread == 1 && steps_by(l.p.out, 4, false);
  const int32_t aligned_vectors = along_row ? kVectorsOfColumns : along_channels ? kVectorsOfFilters : kNoVectors;
  return make_plan<ConvProblem>([=](const ConvArgs& a, void*, Stream stream) {
    const int32_t vectors = is_aligned(a.out, 4 * out_item) ? aligned_vectors : kNoVectors;
    const GroupConvOperands<void> operands{backward ? a.dy : a.x, a.w, a.bias, a.residual, a.out};
    launch(*kernel, config, stream, l.p, l.tiles, l.block, operands, float(a.activation_alpha), vectors);
  });
}

std::vector<KernelSpec> nchw_kernels(int filters, DType t) {
  std::vector<KernelSpec> all;
  for (bool dw : {false, true}) {
    // A thread of dw has at most four channels.
    if (dw && filters == 8) continue;
    // The kernel with three filters supports 3x3 windows only.
    if (dw || filters != 3) all.push_back(spec(filters, dw, t, {0, 0}));
    for (CompiledWindow w : windows_of(filters, dw, itemsize(t) == 2)) all.push_back(spec(filters, dw, t, w));
  }
  return all;
}

}  // namespace minidnn::cuda::conv
