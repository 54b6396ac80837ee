// SPDX-License-Identifier: Apache-2.0
#include "cuda/conv/depthwise/nhwc/nhwc.h"
#include "cuda/conv/depthwise/group_conv.h"
#include "cuda/conv/filter_reduce/filter_reduce.h"

namespace minidnn::cuda::conv {
namespace {

constexpr int64_t kTileThreads = 224;

std::vector<CompiledWindow> windows_of(bool grouped) {
  if (grouped) return {{3, 1}};
  return {{3, 1}, {5, 1}, {7, 1}, {3, 2}};
}

// Chooses the number of rows of a tile, and divides the tile among the threads of a block.
struct NhwcTiler {
  NhwcTiling& l;
  const Device& device;
  const bool dw, grouped;
  const int64_t images, item, slice, quads;
  int64_t spans = 1, jobs = 1, weights = 0;

  NhwcTiler(NhwcTiling& tiling, const ConvProblem& problem, const Device& d)
      : l(tiling),
        device(d),
        dw(is_dw(problem)),
        grouped(tiling.grouped),
        images(problem.y.shape[0]),
        item(int64_t(itemsize(operand_dtype(problem)))),
        slice(kSliceBytes / item),
        quads(slice / 4) {
    GroupConv& p = l.p;
    NhwcBlock& b = l.block;
    b.window[0] = FastDivmod(p.depth.taps);
    b.window[1] = FastDivmod(p.height.taps);
    b.window[2] = FastDivmod(p.width.taps);
    b.in_channels = FastDivmod(p.in_channels);
    b.slices = int32_t(ceil_div<int64_t>(int64_t(p.groups) * p.out_channels, slice));
    spans = ceil_div<int64_t>(equal_chunk(outputs_of_phase(p.width), 2 * kSpan), kSpan);
    p.width.tile = int32_t(spans * kSpan);
    b.spans = FastDivmod(spans);
    b.pitch = p.width.in_tile() | 1;
    b.out_pitch = p.width.tile | 1;
    b.in_columns = FastDivmod(p.width.in_tile());
    b.out_columns = FastDivmod(p.width.tile);
    jobs =
        (l.window.columns ? p.height.taps : int64_t(p.height.taps) * p.width.taps) * (grouped ? p.in_channels / 4 : 1);
    weights = dw ? 0 : int64_t(p.taps()) * p.in_channels * (slice + 4) * 4;
  }

  // An estimate of the instructions that a thread issues for a tile, counted from the compiled loops of nhwc.cu.
  double instructions(int64_t rows) const {
    const GroupConv& p = l.p;
    const NhwcBlock& b = l.block;
    const double columns = std::max(l.window.columns, 1), inputs = grouped ? 4 : 1, narrow = item == 2;
    const auto loads = [&](double pixels) { return 60 + std::ceil(4 * pixels / double(l.threads)) * 12; };
    const double products = kSpan * 4 * inputs * columns;
    const double reads =
        // the number of quads (four channels) of `in` that a thread reads for its outputs
        l.window.columns ? (kSpan - 1) * l.window.hop + columns : kSpan;
    double all = 120 + loads(double(b.in_rows) * b.in_columns.divisor) * p.depth.taps;
    if (dw) {
      const double positions = std::ceil(double(spans * rows) / b.position_splits.divisor);
      all += loads(double(rows) * p.width.tile) + positions * (20 + products + (reads + kSpan) * (1 + 4 * narrow));
    } else {
      const double steps = double(p.depth.taps) * p.height.taps * (l.window.columns ? 1 : p.width.taps);
      all += 200 +
             steps * (grouped ? p.in_channels / 4 : 1) * (8 + products + columns * inputs + reads * (1 + 4 * narrow));
    }
    return all;
  }
  // Tries a tile of at most `most_rows` rows. Returns false if the tile needs more than `budget` bytes of shared
  // memory.
  bool fits(int64_t most_rows, int64_t budget) {
    GroupConv& p = l.p;
    NhwcBlock& b = l.block;
    const int64_t rows = equal_chunk(outputs_of_phase(p.height), std::min(most_rows, kTileThreads / (quads * spans)));
    p.height.tile = int32_t(rows);
    b.rows = FastDivmod(rows);
    b.in_rows = p.height.in_tile();
    l.threads = round_up(quads * spans * rows, 32);
    int64_t sums = 0;
    if (dw) {
      const int64_t at_once = std::min(jobs, kMaxThreads / quads / 2), positions = spans * rows;
      const int64_t most_splits = std::min(kMaxThreads / (quads * at_once), positions);
      const int64_t position_splits = ceil_div(positions, ceil_div(positions, most_splits));
      b.jobs = FastDivmod(at_once);
      b.position_splits = FastDivmod(position_splits);
      b.job_groups = int32_t(ceil_div(jobs, at_once));
      l.threads = round_up(quads * at_once * position_splits, 32);
      sums = l.threads * std::max(l.window.columns, 1) * (grouped ? 16 : 4) * 4;
    }
    const int64_t buffer = (int64_t(b.in_rows) * b.pitch + (dw ? rows * b.out_pitch : 0)) * kSliceBytes;
    l.smem_bytes = weights + std::max(2 * buffer, sums);
    if (l.smem_bytes > budget) return false;
    b.weights = int32_t(weights);
    b.buffer = int32_t(buffer);
    l.instructions = instructions(rows);
    const int64_t channel_tiles = b.slices * (dw ? int64_t(p.depth.taps) * b.job_groups : 1);
    count_tiles(l, images, channel_tiles, dw ? kMaxPartialSums : kIndexLimit, device);
    return true;
  }
};

KernelSpec spec(bool grouped, bool dw, DType t, CompiledWindow w) {
  return {"cuda/conv/depthwise/nhwc/nhwc.cu", cat("minidnn::conv_nhwc", dw ? "_filter<" : "<", cuda_name(t), ", ",
                                                  w.columns, ", ", w.hop, ", ", grouped ? "true" : "false", ">")};
}

}  // namespace

NhwcTiling nhwc_tiling(const ConvProblem& problem, bool grouped, const Device& device) {
  NhwcTiling l;
  l.p = group_conv_params(problem);
  l.grouped = grouped;
  l.window = choose_window(l.p, windows_of(grouped));
  l.registers = grouped ? (is_dw(problem) ? 120 : 104) : 80;
  NhwcTiler tiler(l, problem, device);
  NhwcTiling best;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t budget : {std::min<int64_t>(kWishedSmem, device.max_smem_bytes), int64_t(device.max_smem_bytes)}) {
    for (int64_t rows : {14, 7, 4, 2, 1})
      if (tiler.fits(rows, budget)) {
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

std::unique_ptr<Plan<ConvProblem>> group_conv_plan(const ConvProblem& problem, NhwcTiling l, const Device& d) {
  const auto [kernel, config] = load(spec(l.grouped, is_dw(problem), operand_dtype(problem), l.window), problem, l, d);
  const int64_t channels = int64_t(l.p.groups) * l.p.in_channels;
  const int64_t vector = 16 / int64_t(itemsize(operand_dtype(problem)));
  const bool in_vectors = l.p.in.channel == 1 && channels % vector == 0 && steps_by(l.p.in, vector, true);
  if (is_dw(problem)) {
    const auto reduce = filter_reduce(problem, l.tiles.splits, d);
    const bool vectors = in_vectors && l.p.out.channel == 1 && steps_by(l.p.out, vector, true);
    return make_plan<ConvProblem>([=](const ConvArgs& a, void* workspace, Stream stream) {
      const int32_t aligned = vectors && is_aligned(a.x, 16) && is_aligned(a.dy, 16);
      launch(*kernel, config, stream, l.p, l.tiles, l.block, a.x, a.dy, workspace, aligned);
      reduce(workspace, a.out, stream);
    });
  }
  const bool backward = problem.direction == ConvDirection::backward_data;
  const int64_t out_item = int64_t(itemsize(out_dtype(problem)));
  const bool out_vectors = l.p.out.channel == 1 && steps_by(l.p.out, 4, true);
  return make_plan<ConvProblem>([=](const ConvArgs& a, void*, Stream stream) {
    const void* in = backward ? a.dy : a.x;
    const int32_t vectors_in = in_vectors && is_aligned(in, 16),
                  vectors_out = out_vectors && is_aligned(a.out, 4 * out_item);
    const GroupConvOperands<void> operands{in, a.w, a.bias, a.residual, a.out};
    launch(*kernel, config, stream, l.p, l.tiles, l.block, operands, float(a.activation_alpha), vectors_in,
           vectors_out);
  });
}

std::vector<KernelSpec> nhwc_kernels(bool grouped, DType t) {
  std::vector<KernelSpec> all;
  for (bool dw : {false, true}) {
    all.push_back(spec(grouped, dw, t, {0, 0}));
    for (CompiledWindow w : windows_of(grouped)) all.push_back(spec(grouped, dw, t, w));
  }
  return all;
}

}  // namespace minidnn::cuda::conv
