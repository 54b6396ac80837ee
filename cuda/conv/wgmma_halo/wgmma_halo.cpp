// SPDX-License-Identifier: Apache-2.0
// cuda.conv.wgmma_halo: an engine for 16-bit convolutions of large images with few channels, by tensor cores. Each
// pixel is loaded into shared memory once, for all elements of the window (wgmma_halo.cu).
#include "cpp/conv/conv.h"
#include "cpp/engine/engine_object.h"
#include "cuda/conv/wgmma_halo/wgmma_halo_params.h"

#include <bit>
#include <cmath>

#include "cuda/gemm/epilogue/split_k.h"
#include "cuda/gemm/sm90/operand_relayout.h"
#include "cuda/runtime/plan.h"
#include "cuda/runtime/tensor_map.h"

namespace minidnn {
namespace cuda::conv {
namespace {

// The bytes of a pixel, and of eight pixels, after which the 128-byte swizzle repeats.
constexpr int64_t kRow = 2 * kHaloChannels, kGroup = 8 * kRow;

// The TMA map of a tensor. A box has kHaloChannels channels of `pixels` pixels of a row, for `filters` filters.
cuda::TiledMap map_of(const TensorDesc& d, int64_t pixels, int64_t filters = 1) {
  cuda::TiledMap m;
  m.dtype = d.dtype;
  m.rank = 5;
  m.swizzle_bytes = int(kRow);
  m.l2_promotion_bytes = 256;
  const int from[] = {1, 3, 2, 0};  // the order of the TMA dimensions: channel, column, row, image
  for (int i = 0; i < 5; ++i) {
    const int64_t size = i < 4 ? d.shape[from[i]] : 1;
    m.dims[i] = uint64_t(size);
    m.box[i] = 1;
    if (i > 0) m.strides[i - 1] = size == 1 ? 16 : uint64_t(d.stride[from[i]] * 2);
  }
  m.box[0] = uint32_t(kHaloChannels);
  m.box[1] = uint32_t(pixels);
  m.box[3] = uint32_t(filters);
  return m;
}
TensorMap encoded(cuda::TiledMap m, const void* address, int device) {
  m.address = address;
  return std::bit_cast<TensorMap>(cuda::encode(m, device));
}

// Why the engine cannot run the convolution, or empty. It checks the limits that y, dx and dw share.
std::string refusal(const ConvProblem& p, const Device& d) {
  if (p.direction == ConvDirection::backward_bias) return "backward_bias is not supported";
  if (d.arch / 10 != 9) return cat("needs wgmma, which sm_90 has; got sm_", d.arch);
  if (itemsize(operand_dtype(p)) != 2) return cat("supports float16 and bfloat16 only; got ", name(operand_dtype(p)));
  if (p.x.rank != 4) return cat("supports two spatial dimensions only; got ", p.x.rank - 2);
  if (p.groups != 1) return cat("supports groups=1 only; got ", p.groups);
  if (p.x.numel() == 0 || p.w.numel() == 0 || p.y.numel() == 0) return "x, w or y is empty";
  const ConvGeometry g = conv_geometry(p);
  if (g.stride[1] != 1 || g.stride[2] != 1) return cat("supports stride 1 only; got ", g.stride[1], " x ", g.stride[2]);
  if (p.alignment < 16) return cat("needs tensors aligned to 16 bytes; got ", p.alignment);
  for (int i = 0; i < 4; ++i)
    for (int64_t size : {p.x.shape[i], p.y.shape[i], i < 2 ? g.pad[1 + i] : 0, i < 2 ? g.dilation[1 + i] : 0})
      if (size >= int64_t(1) << 28) return cat("supports sizes, padding and dilation below 2^28; got ", size);
  return "";
}

// The same convolution with operands that TMA can read; other operands are copied.
OperandRelayout<ConvProblem> relayout(const ConvProblem& p) {
  OperandRelayout<ConvProblem> r{p, {}};
  auto lines = [&](TensorDesc ConvProblem::* tensor, const void* ConvArgs::* data) {
    if (!fits_tma(p.*tensor, 1)) r.copy(tensor, data, tma_layout(p.*tensor, {0, 2, 3, 1}));
  };
  if (p.direction != ConvDirection::backward_data) lines(&ConvProblem::x, &ConvArgs::x);
  if (p.direction != ConvDirection::forward) lines(&ConvProblem::y, &ConvArgs::dy);
  if (p.direction != ConvDirection::backward_filter) lines(&ConvProblem::w, &ConvArgs::w);
  return r;
}

// The launch parameters of conv_wgmma_halo (y or dx).
struct ProductLaunch {
  WgmmaHaloParams p;
  // the outputs in a line, and the pixels of a row of x that these outputs read
  int64_t positions = 0, box = 0;
  // wgmma instructions per tap: 2 or 4, with 16 channels each
  int64_t steps = 4;
  int64_t tiles = 1, blocks = 1, smem_bytes = 0;
  bool backward = false;
  GemmStore store = GemmStore::any;
  std::string why;
};

ProductLaunch product_launch(const ConvProblem& c, const Device& d, int64_t positions) {
  ProductLaunch l;
  l.positions = positions;
  l.backward = c.direction == ConvDirection::backward_data;
  const TensorDesc &in = l.backward ? c.y : c.x, &out = l.backward ? c.x : c.y;
  if (in.shape[1] > kHaloChannels)
    return l.why = cat("supports sums over at most ", kHaloChannels, " channels; got ", in.shape[1]), l;
  l.steps = in.shape[1] > 32 ? 4 : 2;
  const ConvGeometry g = conv_geometry(c);
  WgmmaHaloParams& p = l.p;
  const int64_t reach[2] = {(g.window[1] - 1) * g.dilation[1], (g.window[2] - 1) * g.dilation[2]};
  const int64_t taps = g.window[1] * g.window[2];
  p.window_lines = int32_t(g.window[1]);
  p.window_columns = int32_t(g.window[2]);
  p.backwards = l.backward != (c.flip != 0);
  const int64_t segments = ceil_div(out.shape[3], positions), count = out.shape[0] * out.shape[2] * segments;
  if (count >= int64_t(1) << 31) return l.why = cat("supports fewer than 2^31 lines of positions; got ", count), l;
  p.lines.count = int32_t(count);
  p.lines.per_image = FastDivmod(out.shape[2]);
  p.lines.segments = FastDivmod(segments);
  p.lines.first_line = int32_t(l.backward ? g.pad[1] - reach[0] : -g.pad[1]);
  p.lines.first_column = int32_t(l.backward ? g.pad[2] - reach[1] : -g.pad[2]);
  p.lines.line_step = int32_t(g.dilation[1]);
  p.lines.column_step = int32_t(g.dilation[2]);
  l.box = positions + reach[1];
  if (l.box > 256) return l.why = cat("supports lines of positions that read at most 256 pixels; got ", l.box), l;
  p.x_bytes = int32_t(l.box * kRow);
  p.x_pitch = int32_t(ceil_div(int64_t(p.x_bytes), kGroup) * kGroup);

  // Three warpgroups compute adjacent rows of y at the same time. All rows of x that they read must fit in shared
  // memory.
  const int64_t least = reach[0] + 3, weights = taps * 64 * kRow;
  const int64_t free_bytes = d.max_smem_bytes - 1024 - 8 * (2 * kHaloSlots + 1) - weights;
  p.x_slots = int32_t(min_of(max_of(free_bytes, int64_t(0)) / p.x_pitch, int64_t(kHaloSlots)));
  if (p.x_slots < least)
    return l.why = cat("needs ", taps, " taps of 8 KB and ", least, " lines of ", p.x_pitch,
                       " bytes in shared memory; the device has ", d.max_smem_bytes, " bytes, and at most ", kHaloSlots,
                       " lines are supported"),
           l;
  l.smem_bytes = weights + p.x_slots * p.x_pitch + 1024;
  l.tiles = ceil_div(out.shape[1], int64_t(64));
  if (l.tiles > 65535) return l.why = cat("supports at most 65535 tiles of 64 result channels; got ", l.tiles), l;
  l.blocks = max_of(min_of(int64_t(d.sm_count) / l.tiles, count), int64_t(1));

  p.rows = int32_t(out.shape[1]);
  p.positions = int32_t(out.shape[3]);
  p.bias_stride = c.bias_stride;
  // Whether 16-bit results can be stored in vectors of four along a dimension: 1 (filters) or 3 (columns).
  auto fours = [&](int along) {
    bool all = itemsize(out_dtype(c)) == 2 && out.shape[along] % 4 == 0;
    for (const TensorDesc* t : {&out, c.residual.rank ? &c.residual : &out}) {
      all = all && t->stride[along] == 1;
      for (int i = 0; i < 4; ++i) all = all && (i == along || t->shape[i] == 1 || t->stride[i] % 4 == 0);
    }
    return all;
  };
  if (fours(1)) l.store = GemmStore::transposed;
  else if (fours(3)) l.store = GemmStore::lines;
  auto strides_of = [](const TensorDesc& t) {
    return WgmmaHaloParams::Strides{t.stride[0], t.stride[2], t.stride[3], t.stride[1]};
  };
  p.y = strides_of(out);
  if (c.residual.rank) p.c = strides_of(c.residual);
  return l;
}

KernelSpec product_kernel(DType t, DType y, const ProductLaunch& l, const EpilogueTraits& ending) {
  KernelSpec s{"cuda/conv/wgmma_halo/wgmma_halo.cu",
               cat("minidnn::conv_wgmma_halo<", cuda_name(t), ", ", cuda_name(y), ", ", l.positions, ", ", l.steps,
                   l.backward ? ", true" : ", false", ", ", ending.text(), ">")};
  s.min_arch = 90;
  return s;
}

// The launch parameters of conv_wgmma_halo_filter (dw).
struct FilterLaunch {
  WgmmaHaloFilterParams p;
  int64_t columns = 1;  // columns of the window per wgmma
  int64_t box = 0;      // pixels of a row of x that 64 adjacent positions read
  int64_t jobs = 1, blocks = 1, smem_bytes = 0;
  int64_t cluster = 1;  // blocks of a cluster, which add their sums before they store them
  int64_t partial_sums() const { return blocks / cluster; }
  std::string why;
};

FilterLaunch filter_launch(const ConvProblem& c, const Device& d) {
  FilterLaunch l;
  if (c.x.shape[1] % 8) return l.why = cat("needs a multiple of 8 channels of x; got ", c.x.shape[1]), l;
  if (c.w.numel() >= int64_t(1) << 30)
    return l.why = cat("supports fewer than 2^30 elements of dw; got ", c.w.numel()), l;
  const ConvGeometry g = conv_geometry(c);
  WgmmaHaloFilterParams& p = l.p;
  const int64_t lines = g.window[1], columns = g.window[2];
  const int64_t line_groups = ceil_div(lines, int64_t(3)), column_groups = ceil_div(columns, int64_t(3));
  l.columns = ceil_div(columns, column_groups);
  p.lines_each = int32_t(ceil_div(lines, line_groups));
  p.window_lines = int32_t(lines);
  p.window_columns = int32_t(columns);
  p.filters = int32_t(c.w.shape[0]);
  p.channels = int32_t(c.w.shape[1]);
  p.channel_tiles = FastDivmod(ceil_div(c.w.shape[1], int64_t(kHaloChannels)));
  p.column_groups = FastDivmod(column_groups);
  p.line_groups = FastDivmod(line_groups);
  l.jobs = ceil_div(c.w.shape[0], int64_t(64)) * p.channel_tiles.divisor * column_groups * line_groups;
  if (l.jobs > 65535) return l.why = cat("supports at most 65535 tiles of dw; got ", l.jobs), l;

  const int64_t segments = ceil_div(g.y.size[2], int64_t(64)), count = g.images * g.y.size[1] * segments;
  if (count >= int64_t(1) << 31) return l.why = cat("supports fewer than 2^31 lines of positions; got ", count), l;
  p.lines.count = int32_t(count);
  p.lines.per_image = FastDivmod(g.y.size[1]);
  p.lines.segments = FastDivmod(segments);
  p.lines.first_line = int32_t(-g.pad[1]);
  p.lines.first_column = int32_t(-g.pad[2]);
  p.lines.line_step = int32_t(g.dilation[1]);
  p.lines.column_step = int32_t(g.dilation[2]);
  l.box = 64 + (l.columns - 1) * g.dilation[2];
  if (l.box > 256) return l.why = cat("supports lines of 64 positions that read at most 256 pixels; got ", l.box), l;
  p.x_bytes = int32_t(l.box * kRow);
  p.x_pitch = int32_t(ceil_div(int64_t(p.x_bytes), kGroup) * kGroup);

  // least_x: the rows of x that the warpgroups read at the same time (each computes another row of the window), and a
  // row that is being loaded
  const int64_t least_x = (p.lines_each - 1) * g.dilation[1] + 2, least_dy = 2, dy_bytes = 64 * kRow;
  const int64_t free_bytes = d.max_smem_bytes - 1024 - 4 * 8 * kHaloSlots - least_x * p.x_pitch - least_dy * dy_bytes;
  const int64_t more = min_of(free_bytes / (p.x_pitch + dy_bytes), kHaloSlots - least_x);
  if (free_bytes < 0 || more < 1)
    return l.why = cat("needs ", least_x + 1, " lines of x of ", p.x_pitch,
                       " bytes and 3 of dy in shared memory; the device has ", d.max_smem_bytes, " bytes, and at most ",
                       kHaloSlots, " lines are supported"),
           l;
  p.x_slots = int32_t(least_x + more);
  p.dy_slots = int32_t(least_dy + more);
  l.smem_bytes = p.x_slots * p.x_pitch + p.dy_slots * dy_bytes + 1024;
  l.blocks = max_of(min_of(int64_t(d.sm_count) / l.jobs, count), int64_t(1));
  if (l.blocks > 1) {
    l.cluster = 2;
    l.blocks = l.blocks / 2 * 2;
  }
  // After the main loop, the same memory holds the sums that a block sends to the other block of its cluster.
  l.smem_bytes = max_of(l.smem_bytes, l.columns * 16 * 3 * 128 * 4 + 1024);
  p.partial_sum_stride = c.w.numel();
  return l;
}

KernelSpec filter_kernel(DType t, int64_t columns, int64_t cluster) {
  KernelSpec s{"cuda/conv/wgmma_halo/wgmma_halo_filter.cu",
               cat("minidnn::conv_wgmma_halo_filter<", cuda_name(t), ", ", columns, ", ", cluster, ">")};
  s.min_arch = 90;
  return s;
}

// clocks per us, and bytes per clock from L2, of one SM (docs/notes/gemm.md)
constexpr double kClocksOfUs = 1700, kL2BytesOfClock = 59;

// The time in us of work on the SMs and of memory traffic, which overlap. It is close to the longer time, unless both
// are about equal.
double overlapped(double on_chip_us, double bytes, const Device& d) {
  return std::pow(std::pow(on_chip_us, 3.6) + std::pow(bytes / (0.84 * d.copy_gb_s * 1e3) + 2.5, 3.6), 1 / 3.6) + 4.5;
}

double product_us(const ConvProblem& c, const Device& d, int64_t positions) {
  const ProductLaunch l = product_launch(c, d, positions);
  const double taps = double(l.p.window_lines) * l.p.window_columns, n = double(positions);
  // Per line of n positions, per tap and 16 channels, the tensor cores take n / 2 clocks, and shared memory 16 + n / 4.
  const double multiply = taps * double(l.steps) * std::max(n / 2 * 1.06, (16 + n / 4) * 1.15);
  const double line = std::max(multiply, double(l.p.x_bytes) / kL2BytesOfClock) + 20;
  const double lines = double(ceil_div(int64_t(l.p.lines.count), l.blocks)) + 2;
  const double rounds = double(ceil_div(l.tiles * l.blocks, int64_t(d.sm_count)));
  const double start = taps * 8192 / kL2BytesOfClock + 4000;
  return overlapped(rounds * (lines * line + start) / kClocksOfUs, conv_bytes(c), d);
}

double filter_us(const ConvProblem& c, const Device& d) {
  const FilterLaunch l = filter_launch(c, d);
  // Per 16 positions and column of the window, the tensor cores take 32 clocks, and shared memory 16; dy takes 16 more.
  const double multiply = l.p.lines_each * 4.0 * std::max(32.0 * double(l.columns), 16 + 16.0 * double(l.columns));
  const double load = double(l.p.x_bytes + 64 * kRow) / kL2BytesOfClock;
  const double line = std::max(multiply, load) * 1.06 + 30;
  const double lines = double(ceil_div(int64_t(l.p.lines.count), l.blocks)) + 2.0 * (l.p.lines_each - 1);
  const double rounds = double(ceil_div(l.jobs * l.blocks, int64_t(d.sm_count)));
  // The reduction of partial sums: a launch, and one write and one read of them, mostly in L2.
  return overlapped(rounds * (lines * line + 2500) / kClocksOfUs, conv_bytes(c), d) + 4.1 +
         double(l.partial_sums() * l.p.partial_sum_stride) * 8 / 3.3e6;
}

std::unique_ptr<Plan<ConvProblem>> product_plan(const ConvProblem& p, const Device& d, int64_t positions) {
  const ProductLaunch l = product_launch(p, d, positions);
  const EpilogueTraits ending{p.activation, p.has_bias != 0, p.residual.rank != 0, l.store};
  auto kernel =
      cuda::load_kernel(product_kernel(operand_dtype(p), out_dtype(p), l, ending), d.place.index, int(l.smem_bytes));
  cuda::LaunchConfig launch;
  launch.grid = {unsigned(l.blocks), unsigned(l.tiles)};
  launch.block = {512};
  launch.smem_bytes = unsigned(l.smem_bytes);
  launch.programmatic = true;
  return make_plan<ConvProblem>([=, x = map_of(l.backward ? p.y : p.x, l.box), w = map_of(p.w, 1, 64),
                                 device = d.place.index, window = l.p](const ConvArgs& args, void*, Stream stream) {
    const GemmArgs to = gemm_args(p, args);
    WgmmaHaloParams now = window;
    now.x = encoded(x, to.a, device);
    now.w = encoded(w, to.b, device);
    cuda::launch(*kernel, launch, stream, now, to);
  });
}

std::unique_ptr<Plan<ConvProblem>> filter_plan(const ConvProblem& p, const Device& d) {
  const FilterLaunch l = filter_launch(p, d);
  const GemmTask task = gemm_task(p);
  auto kernel = cuda::load_kernel(filter_kernel(task.type, l.columns, l.cluster), d.place.index, int(l.smem_bytes));
  cuda::LaunchConfig launch;
  launch.grid = {unsigned(l.blocks), unsigned(l.jobs)};
  launch.block = {512};
  launch.cluster = {unsigned(l.cluster)};
  launch.smem_bytes = unsigned(l.smem_bytes);
  launch.programmatic = true;
  return make_plan<ConvProblem>([=, x = map_of(p.x, l.box), dy = map_of(p.y, 64),
                                 add = SplitKReduce(task, task.views.front(), l.partial_sums(), d),
                                 device = d.place.index,
                                 filter = l.p](const ConvArgs& args, void* workspace, Stream stream) {
    WgmmaHaloFilterParams now = filter;
    now.x = encoded(x, args.x, device);
    now.dy = encoded(dy, args.dy, device);
    cuda::launch(*kernel, launch, stream, now, workspace);
    add.run(gemm_args(p, args), workspace, stream);
  });
}

// The possible numbers of outputs in a line (adjacent outputs of a row).
constexpr int64_t kPositions[] = {128, 64};

}  // namespace

struct WgmmaHalo final : Engine<ConvProblem> {
  std::string name() const override { return "cuda.conv.wgmma_halo"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const ConvProblem& problem, const Device& d) const override {
    std::string why = refusal(problem, d);
    if (!why.empty()) return why;
    const ConvProblem p = relayout(problem).problem;
    if (is_filter(p)) return filter_launch(p, d).why;
    return lengths(p, d).empty() ? product_launch(p, d, 64).why : "";
  }
  double estimate_us(const ConvProblem& problem, const Device& d) const override {
    const OperandRelayout<ConvProblem> r = relayout(problem);
    const ConvProblem& p = r.problem;
    double us = is_filter(p) ? filter_us(p, d) : product_us(p, d, lengths(p, d).front());
    return us + r.copies_us(d);
  }
  std::vector<Config> configs(const ConvProblem& problem, const Device& d) const override {
    if (is_filter(problem)) return {""};
    std::vector<Config> all;
    for (int64_t positions : lengths(relayout(problem).problem, d)) all.push_back(cat("positions=", positions));
    return all;
  }
  size_t workspace_bytes(const ConvProblem& problem, const Device& d, const Config&) const override {
    const OperandRelayout<ConvProblem> r = relayout(problem);
    if (!is_filter(problem)) return r.bytes;
    const FilterLaunch l = filter_launch(r.problem, d);
    return r.bytes + size_t(l.partial_sums() * l.p.partial_sum_stride) * sizeof(float);
  }
  std::unique_ptr<Plan<ConvProblem>> build(const ConvProblem& p, const Device& d, const Config& config) const override {
    const OperandRelayout<ConvProblem> r = relayout(p);
    std::shared_ptr<const Plan<ConvProblem>> product = product_of(r.problem, d, config);
    return plan_after_copies(r, d, [product](const ConvArgs& args, void* workspace, Stream stream) {
      product->run(args, workspace, stream);
    });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType type : {DType::float16, DType::bfloat16}) {
      for (int64_t columns : {1, 2, 3})
        for (int64_t cluster : {1, 2}) all.push_back(filter_kernel(type, columns, cluster));
      for (int64_t positions : kPositions)
        for (bool backward : {false, true})
          for (int64_t steps : {2, 4})
            for (GemmStore store : {GemmStore::lines, GemmStore::transposed}) {
              ProductLaunch l;
              l.positions = positions;
              l.steps = steps;
              l.backward = backward;
              all.push_back(product_kernel(type, type, l, {.store = store}));
            }
    }
    return all;
  }

 private:
  static std::unique_ptr<Plan<ConvProblem>> product_of(const ConvProblem& p, const Device& d, const Config& config) {
    if (is_filter(p)) return filter_plan(p, d);
    for (int64_t positions : lengths(p, d))
      if (config == cat("positions=", positions)) return product_plan(p, d, positions);
    throw NotSupported(cat("wgmma_halo: unknown config '", config, "'"));
  }
  static bool is_filter(const ConvProblem& p) { return p.direction == ConvDirection::backward_filter; }
  // The numbers of outputs in a line that the problem allows, the fastest first.
  static std::vector<int64_t> lengths(const ConvProblem& p, const Device& d) {
    std::vector<int64_t> all;
    for (int64_t positions : kPositions)
      if (product_launch(p, d, positions).why.empty()) all.push_back(positions);
    std::ranges::stable_sort(all, {}, [&](int64_t positions) { return product_us(p, d, positions); });
    return all;
  }
};

}  // namespace cuda::conv

template const Engine<ConvProblem>& engine_object<ConvProblem, cuda::conv::WgmmaHalo>();

}  // namespace minidnn
