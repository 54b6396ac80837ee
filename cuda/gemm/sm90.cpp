// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "cpp/core/dtype.h"
#include "cuda/gemm/sm90.h"
#include "cuda/gemm/sm90_host.h"
#include "cuda/gemm/split_k.h"
#include "cuda/runtime/tensor_map.h"

namespace minidnn {
namespace {

struct Tile {
  int m, n, stages;
  bool ping_pong;
  int cluster;
};
// Two warpgroups of 64 or 128 rows each, 64 to 192 sums a thread; as many stages as 227 KB hold, eight at most.
constexpr Tile kTiles[] = {
    {128, 256, 4, false, 2}, {128, 256, 4, false, 1}, {256, 128, 4, false, 2}, {256, 128, 4, false, 1},
    {128, 192, 5, true, 1},  {128, 128, 6, true, 2},  {128, 128, 6, true, 1},  {64, 256, 5, true, 1},
    {128, 64, 8, true, 1},   {64, 128, 8, true, 1},   {64, 64, 8, true, 1},
};

std::string text(const Tile& t, int splits) {
  std::string s = cat("tile=", t.m, "x", t.n);
  if (t.cluster > 1) s += cat(";cluster=", t.cluster);
  if (splits > 1) s += cat(";split=", splits);
  return s;
}

// One operand of a view, ready but for its address and the size of its boxes.
struct TmaOperand {
  Sm90Source source{};
  int64_t offset = 0;  // of the map's origin in the tensor, in elements
  cuda::TiledMap tile;
  cuda::Im2colMap pixels;
  Sm90Operand device;
  std::string why;  // why TMA can not bring it

  bool windowed() const { return source == Sm90Source::pixels_along_k || source == Sm90Source::pixels_along_rows; }
  bool along_rows() const { return source == Sm90Source::tile_along_rows || source == Sm90Source::pixels_along_rows; }
};

struct Phase {
  GemmView view;  // its n rounded up where taps lie in it
  TmaOperand a, b;
  Sm90Phase device;  // but for maps, tiles and first_tile
  int64_t n_limit = 0;
};

bool is_point(const GemmIndex& index) { return index.size == 1; }

// One stride for the whole index, or none.
std::optional<int64_t> single_stride(GemmIndex index, GemmStrides strides) {
  join(index, {&strides});
  if (index.first < kDigits - 1) return std::nullopt;
  return is_point(index) ? 0 : strides.of[kDigits - 1];
}

// A window that moves over nothing: no tap leaves the tensor, and positions lie evenly.
bool window_is_idle(const GemmView& v, const GemmOperand& o, const GemmIndex& rows) {
  const GemmWindow& w = o.window;
  if (!w.on) return true;
  const GemmIndex& positions = w.row_digit ? rows : v.k;
  const GemmIndex& taps = w.row_digit ? v.k : rows;
  for (int j = 0; j < 3; ++j) {
    if (taps.digit[j] != 1 || w.start[j] < 0) return false;
    int64_t step = w.row_digit ? w.row_step[j] : w.k_step[j];
    if (w.start[j] + (positions.digit[1 + j] - 1) * step >= w.size[j]) return false;
  }
  return single_stride(positions, w.row_digit ? o.row : o.k).has_value();
}

template <class Map> Map map_of(DType type) {
  Map m;
  m.dtype = type, m.tf32 = type == DType::float32;
  m.swizzle_bytes = 128, m.l2_promotion_bytes = 256;
  return m;
}

// (contiguous, tap, tap, other, batch)
TmaOperand tile_operand(const GemmView& v, const GemmOperand& o, const GemmIndex& rows, const GemmIndex& k,
                     const GemmStrides& k_strides, DType type, const char* name) {
  TmaOperand out;
  out.offset = o.offset;
  const int64_t item = int64_t(itemsize(type));
  std::optional<int64_t> row = single_stride(rows, o.row), batch = single_stride(v.batch, o.batch);
  if (!row) out.why = cat("TMA needs rows of ", name, " that lie evenly");
  else if (!batch) out.why = cat("TMA needs matrices of ", name, " that lie evenly");
  if (!out.why.empty()) return out;
  const int64_t channel = k.digit[3] == 1 ? 0 : k_strides.of[3];
  const bool along_k = channel == 1 || (k.digit[3] == 1 && *row != 1);
  if (!along_k && *row != 1) out.why = cat("TMA needs ", name, " contiguous along one of its dimensions");
  out.source = along_k ? Sm90Source::tile_along_k : Sm90Source::tile_along_rows;
  // Taps: digit 2, and digits 0 and 1 as one.
  int64_t tap_count[2] = {k.digit[2], k.digit[0] * k.digit[1]}, tap_stride[2] = {k_strides.of[2], k_strides.of[1]};
  if (k.digit[1] == 1) tap_stride[1] = k_strides.of[0];
  else if (k.digit[0] > 1 && k_strides.of[0] != k_strides.of[1] * k.digit[1])
    out.why = cat("TMA needs the taps of ", name, " to lie evenly");
  for (int i = 0; i < 2; ++i) {
    out.device.tap_step[i] = 1;
    if (tap_count[i] > 1 && tap_stride[i] < 0) {
      out.offset += tap_stride[i] * (tap_count[i] - 1);
      tap_stride[i] = -tap_stride[i];
      out.device.tap_first[i] = int32_t(tap_count[i] - 1), out.device.tap_step[i] = -1;
    }
  }
  out.device.batch_step = *batch != 0;
  cuda::TiledMap& m = out.tile = map_of<cuda::TiledMap>(type);
  m.rank = 5;
  const int64_t dims[] = {along_k ? k.digit[3] : rows.size, tap_count[0], tap_count[1], along_k ? rows.size : k.digit[3],
                          *batch ? v.batch.size : 1};
  const int64_t strides[] = {tap_stride[0], tap_stride[1], along_k ? *row : channel, *batch};
  for (int i = 0; i < 5; ++i) {
    m.dims[i] = uint64_t(dims[i]), m.box[i] = 1;
    if (i == 0) continue;
    if (dims[i] == 1) m.strides[i - 1] = 16;
    else if (strides[i - 1] <= 0 || strides[i - 1] * item % 16)
      out.why = cat("TMA needs strides of ", name, " that are multiples of 16 bytes and positive");
    else m.strides[i - 1] = uint64_t(strides[i - 1] * item);
  }
  return out;
}

// An im2col map, whose dimensions are (channels of all groups, W, H[, D], N).
TmaOperand pixels_operand(const GemmView& v, const GemmOperand& o, const GemmIndex& rows, DType type, int spatial,
                       const char* name) {
  const GemmWindow& w = o.window;
  const bool along_k = w.row_digit == 1;  // a row is a position
  const GemmIndex &positions = along_k ? rows : v.k, &taps = along_k ? v.k : rows;
  const GemmStrides &at_position = along_k ? o.row : o.k, &at_tap = along_k ? o.k : o.row;
  const int64_t item = int64_t(itemsize(type)), channels = taps.digit[3];
  TmaOperand out;
  out.source = along_k ? Sm90Source::pixels_along_k : Sm90Source::pixels_along_rows;
  out.offset = o.offset;
  cuda::Im2colMap& m = out.pixels = map_of<cuda::Im2colMap>(type);
  m.rank = spatial + 2;
  m.dims[0] = uint64_t(channels * v.batch.size);
  if (channels > 1 && at_tap.of[3] != 1) out.why = cat("TMA needs ", name, " with its channels side by side (NHWC)");
  if (v.batch.size > 1 && o.batch.of[3] != channels) out.why = cat("TMA needs the groups of ", name, " side by side");
  auto stride = [&](int64_t elements, uint64_t size) {
    if (size == 1) return uint64_t(16);
    if (elements <= 0 || elements * item % 16)
      out.why = cat("TMA needs strides of ", name, " that are multiples of 16 bytes and positive");
    return uint64_t(elements * item);
  };
  for (int j = 0; j < 3; ++j) {
    const int64_t count = positions.digit[1 + j], step = along_k ? w.row_step[j] : w.k_step[j];
    const int64_t reach = (along_k ? w.k_step[j] : w.row_step[j]) * (taps.digit[j] - 1);
    const int64_t lower = w.start[j] + min_of(reach, int64_t(0)), upper = lower + (count - 1) * step + 1 - w.size[j];
    out.offset -= w.start[j] * w.stride[j];
    out.device.corner[j] = int32_t(lower), out.device.position_step[j] = int32_t(step);
    out.device.offset_first[j] = int32_t(max_of(-reach, int64_t(0)));
    out.device.offset_step[j] = int32_t(along_k ? w.k_step[j] : w.row_step[j]);
    const int dim = 3 - j;  // W is 1
    if (dim > spatial) continue;
    m.dims[dim] = uint64_t(w.size[j]);
    m.strides[dim - 1] = stride(w.stride[j], m.dims[dim]);
    m.element_strides[dim] = uint32_t(step);
    m.lower[dim - 1] = int(lower), m.upper[dim - 1] = int(upper);
    const int64_t most = spatial == 2 ? 255 : 31;
    if (std::abs(reach) > most) out.why = cat("TMA windows reach at most ", most, " elements; these reach ", std::abs(reach));
  }
  m.dims[spatial + 1] = uint64_t(positions.digit[0]);
  m.strides[spatial] = stride(at_position.of[0], m.dims[spatial + 1]);
  m.channels = uint32_t(128 / item), m.pixels = 64;
  out.device.channels_of_batch = int32_t(v.batch.size > 1 ? channels : 0);
  if (out.why.empty()) {
    m.address = reinterpret_cast<const void*>(uintptr_t(16));  // any; rules about the others are checked
    out.why = cuda::why_not(m);
  }
  return out;
}

// Whether the first spatial dimension does nothing.
bool is_flat(const GemmView& v) {
  for (const auto& [o, rows] : {std::pair(&v.a, &v.m), std::pair(&v.b, &v.n)}) {
    const GemmWindow& w = o->window;
    if (!w.on) continue;
    const GemmIndex &positions = w.row_digit ? *rows : v.k, &taps = w.row_digit ? v.k : *rows;
    if (w.size[0] != 1 || positions.digit[1] != 1 || taps.digit[0] != 1 || w.start[0] != 0) return false;
  }
  return true;
}

Phase phase_of(const GemmView& from, DType type) {
  Phase p;
  p.view = from;
  GemmView& v = p.view;
  const int64_t k_of_block = 128 / int64_t(itemsize(type));
  bool a_moves = !window_is_idle(v, v.a, v.m), b_moves = !window_is_idle(v, v.b, v.n);
  const int spatial = is_flat(v) ? 2 : 3;

  // k as taps and channels. A window whose rows are positions says which; otherwise positions are one long row of k.
  GemmIndex k = v.k;
  GemmStrides a_k = v.a.k, b_k = v.b.k;
  const bool rows_are_positions = (a_moves && v.a.window.row_digit) || (b_moves && v.b.window.row_digit);
  if (!rows_are_positions) {
    if (a_moves || b_moves) join(k, {a_moves ? &b_k : &a_k});
    else join(k, {&a_k, &b_k});
    if ((a_moves || b_moves) && k.first < kDigits - 1) p.a.why = "TMA needs pixels of dy that lie evenly";
  }
  if (b_moves && !v.b.window.row_digit) {
    p.n_limit = v.n.digit[3];
    v.n.digit[3] = ceil_div(p.n_limit, int64_t(64)) * 64;
    v.n.size = v.n.digit[0] * v.n.digit[1] * v.n.digit[2] * v.n.digit[3];
  }
  TmaOperand a = a_moves ? pixels_operand(v, v.a, v.m, type, spatial, "a") : tile_operand(v, v.a, v.m, k, a_k, type, "a");
  GemmIndex taps_of_b = v.n;
  if (p.n_limit) taps_of_b.digit[3] = p.n_limit;
  TmaOperand b = b_moves ? pixels_operand(v, v.b, taps_of_b, type, spatial, "b")
                      : tile_operand(v, v.b, v.n, k, b_k, type, "b");
  if (!p.a.why.empty()) a.why = p.a.why;
  p.a = std::move(a), p.b = std::move(b);

  Sm90Phase& d = p.device;
  d.k_blocks = int32_t(ceil_div(k.digit[3], k_of_block));
  for (int j = 0; j < 3; ++j) d.taps[j] = int32_t(k.digit[j]);
  for (const auto& [o, rows, moves] : {std::tuple(&v.a, &v.m, a_moves), std::tuple(&v.b, &v.n, b_moves)}) {
    if (!moves) continue;
    const GemmIndex &positions = o->window.row_digit ? *rows : v.k, &taps = o->window.row_digit ? v.k : *rows;
    for (int j = 0; j < 3; ++j) {
      d.positions[j] = int32_t(positions.digit[1 + j]);
      d.window[j] = int32_t(taps.digit[j]);
    }
    d.channel_blocks = int32_t(ceil_div(taps.digit[3], int64_t(64)));
    if (v.batch.size > 1 && rows_are_positions && k.digit[3] % k_of_block)
      p.a.why = cat("a block of k would reach into the next group: it needs a multiple of ", k_of_block,
                    " channels in each; got ", k.digit[3]);
  }
  return p;
}

std::vector<Phase> phases_of(const Sm90Task& t) {
  std::vector<Phase> phases;
  for (const GemmView& v : t.views) phases.push_back(phase_of(v, t.type));
  return phases;
}

struct Shape {  // what estimates need
  int64_t m = 0, n = 0, batch = 1, k_blocks = 0;  // of the largest phase
  size_t phases = 1;
};

Shape shape_of(const Sm90Task& t) {
  Shape s;
  int64_t work = 0;
  for (const GemmView& v : t.views) {
    Phase p = phase_of(v, t.type);
    s.m += p.view.m.size, s.n = p.view.n.size, s.batch = v.batch.size;
    work += p.view.m.size * p.device.taps[0] * p.device.taps[1] * p.device.taps[2] * p.device.k_blocks;
  }
  s.k_blocks = ceil_div(work, s.m);
  s.phases = t.views.size();
  return s;
}

// Loads of b along rows come 64 rows at a time from each block of the cluster.
bool fits(const Tile& t, const Phase& p) { return t.n / t.cluster >= 64 || !p.b.along_rows(); }

// Microseconds on the device for one tile shape. Clocks by the rates in docs/measured_facts.md: tensor cores 4096 FLOP a
// clock and SM in 16 bits (a block of 128 bytes of k takes m n / 32 clocks in any type), 46 bytes a clock and SM from L2.
double tile_us(const Sm90Task& task, const Shape& s, const Device& d, const Tile& t, int64_t splits) {
  const double clock_ghz = 1.7;
  const double block = max_of(double(t.m) * t.n / 32, (t.m + double(t.n) / t.cluster) * 128 / 46);
  const int64_t tiles_m = ceil_div(s.m, int64_t(t.m) * t.cluster) * t.cluster, tiles_n = ceil_div(s.n, int64_t(t.n));
  const int64_t tiles = tiles_m * tiles_n * s.batch * splits;
  const double out_bytes = splits > 1 ? 4 : double(itemsize(task.y));
  const double main = double(ceil_div(s.k_blocks, splits)) * block, end = 300 + double(t.m) * t.n * out_bytes / 24;
  const double rounds = double(ceil_div(tiles, int64_t(d.sm_count / t.cluster) * t.cluster));
  const double each = t.ping_pong ? max_of(main, (main + end) / 2) : main + end;
  double us = (rounds * each + min_of(main, end) + 1500) / (clock_ghz * 1e3);
  us = max_of(us, task.bytes / (0.9 * d.copy_gb_s * 1e3));
  // The parts mostly stay in the L2, which moves about twice what memory does.
  if (splits > 1) us += 3 + double(splits) * double(s.m) * double(s.n) * double(s.batch) * 8 / (2 * d.copy_gb_s * 1e3);
  return us + 3;
}

struct Choice90 {
  Tile tile;
  int splits;
  double us;
};

std::vector<Choice90> choices_of(const Sm90Task& task, const Device& d) {
  const Shape s = shape_of(task);
  const Phase p = phase_of(task.views.front(), task.type);
  std::vector<Choice90> all;
  for (const Tile& t : kTiles) {
    if (!fits(t, p)) continue;
    const int64_t tiles = ceil_div(s.m, int64_t(t.m)) * ceil_div(s.n, int64_t(t.n)) * s.batch;
    const int64_t most = s.phases > 1 ? 1 : min_of(s.k_blocks / 4, ceil_div(int64_t(2) * d.sm_count, tiles));
    Choice90 best{t, 1, tile_us(task, s, d, t, 1)};
    for (int64_t splits = 2; splits <= most; ++splits)
      if (double us = tile_us(task, s, d, t, splits); us < best.us) best = {t, int(splits), us};
    all.push_back(best);
  }
  std::ranges::stable_sort(all, {}, &Choice90::us);
  return all;
}

const char* source_text(Sm90Source s) {
  constexpr const char* names[] = {"tile_along_k", "tile_along_rows", "pixels_along_k", "pixels_along_rows"};
  return names[int(s)];
}

KernelSpec kernel_spec(DType type, DType y, const Tile& t, Sm90Source a, Sm90Source b, int spatial, int phases,
                       Activation activation) {
  KernelSpec spec{"cuda/gemm/sm90.cu",
                  cat("minidnn::gemm_sm90<", cuda_name(type), ", ", cuda_name(y), ", ", t.m, ", ", t.n, ", ", t.stages, ", ",
                      t.ping_pong ? "true" : "false", ", ", t.cluster, ", minidnn::Sm90Source::", source_text(a),
                      ", minidnn::Sm90Source::", source_text(b), ", ", spatial, ", ", phases,
                      ", minidnn::Activation::", name(activation), ">")};
  spec.min_arch = 90;
  return spec;
}
KernelSpec add_parts_spec(DType type, DType y, Activation activation) {
  return {"cuda/gemm/split_k.cu", cat("minidnn::gemm_add_parts<", cuda_name(type), ", ", cuda_name(y),
                                      ", minidnn::Activation::", name(activation), ">")};
}
unsigned smem_bytes(const Tile& t) { return unsigned(t.stages * (t.m + t.n) * 128 + 1024); }

constexpr int kMaxPhases = 8;

int64_t columns_of_parts(const GemmView& v) { return ceil_div(v.n.size, int64_t(8)) * 8; }

// [batch, m, columns] of float32 sums.
GemmOutput output_of_parts(const GemmView& v) {
  GemmView parts;
  parts.m.size = parts.m.digit[3] = v.m.size, parts.n.size = parts.n.digit[3] = columns_of_parts(v);
  parts.batch.size = parts.batch.digit[3] = v.batch.size;
  parts.y_m.of[3] = parts.n.size, parts.y_n.of[3] = 1, parts.y_batch.of[3] = parts.n.size * v.m.size;
  return output_of(parts, DType::float32, 16, false, false);
}

template <int kPhases> struct Plan90 final : Sm90Plan {
  Sm90Task task;
  Tile tile;
  int splits;
  int device;
  std::vector<Phase> phases;
  std::vector<Sm90Problem<kPhases>> problems;  // one for each launch
  std::shared_ptr<const cuda::Kernel> kernel, add_parts;
  GemmOutput output;  // of the whole, when k is split
  int64_t columns = 0;
  cuda::LaunchConfig config, add_config;

  void place_maps(Sm90Phase& to, const Phase& p, const GemmArgs& args) const {
    const size_t item = itemsize(task.type);
    auto encoded = [&](const TmaOperand& o, const void* base, int rows) {
      const char* address = static_cast<const char*>(base) + o.offset * int64_t(item);
      if (o.windowed()) {
        cuda::Im2colMap m = o.pixels;
        m.address = address, m.pixels = uint32_t(o.along_rows() ? 128 / item : rows);
        return std::bit_cast<TensorMap>(cuda::encode(m, device));
      }
      cuda::TiledMap m = o.tile;
      m.address = address, m.box[0] = uint32_t(128 / item), m.box[3] = uint32_t(o.along_rows() ? 128 / item : rows);
      return std::bit_cast<TensorMap>(cuda::encode(m, device));
    };
    to.map_a = encoded(p.a, args.a, tile.m);
    to.map_b = encoded(p.b, args.b, tile.n / tile.cluster);
  }

  void run(const GemmArgs& args, void* workspace, Stream stream) const override {
    GemmArgs now = args;
    if (splits > 1) now = {args.a, args.b, nullptr, nullptr, workspace};
    cuda::LaunchConfig launch = config;
    launch.stream = stream;
    size_t next = 0;
    for (Sm90Problem<kPhases> problem : problems) {
      for (int i = 0; i < problem.phase_count; ++i) place_maps(problem.phases[i], phases[next++], args);
      const int blocks = problem.tiles * tile.cluster;
      launch.grid = {unsigned(min_of(blocks, int(config.grid.x)))};
      cuda::launch(*kernel, launch, problem, now);
    }
    if (splits > 1) {
      launch = add_config;
      launch.stream = stream;
      const SplitSums sums{static_cast<const float*>(workspace), columns, problems.front().split_stride, splits};
      cuda::launch(*add_parts, launch, output, args, sums);
    }
  }
};

template <int kPhases>
std::unique_ptr<Sm90Plan> plan_with(const Sm90Task& task, const Device& d, const Tile& tile, int splits) {
  auto plan = std::make_unique<Plan90<kPhases>>();
  plan->task = task, plan->tile = tile, plan->splits = splits, plan->device = d.place.index;
  plan->phases = phases_of(task);
  const Phase& one = plan->phases.front();
  const DType y = splits > 1 ? DType::float32 : task.y;
  for (size_t i = 0; i < plan->phases.size(); i += kPhases) {
    Sm90Problem<kPhases>& problem = plan->problems.emplace_back();
    problem.splits = splits;
    for (size_t j = i; j < std::min(plan->phases.size(), i + kPhases); ++j) {
      const Phase& p = plan->phases[j];
      Sm90Phase& to = problem.phases[problem.phase_count++] = p.device;
      to.a = p.a.device, to.b = p.b.device;
      to.m_tiles = int32_t(ceil_div(p.view.m.size, int64_t(tile.m) * tile.cluster));
      to.n_tiles = int32_t(ceil_div(p.view.n.size, int64_t(tile.n)));
      to.first_tile = problem.tiles;
      problem.batches = int32_t(p.view.batch.size);
      problem.tiles += to.m_tiles * to.n_tiles * problem.batches * splits;
      to.y = output_of(p.view, task.y, task.alignment, task.has_c, task.has_bias, p.n_limit);
      if (splits > 1) {
        plan->output = to.y;
        plan->columns = columns_of_parts(p.view);
        to.y = output_of_parts(p.view);
        problem.split_stride = plan->columns * p.view.m.size * p.view.batch.size;
      }
    }
  }
  const int spatial = is_flat(task.views.front()) ? 2 : 3;
  plan->kernel = cuda::load_kernel(
      kernel_spec(task.type, y, tile, one.a.source, one.b.source, spatial, kPhases,
                  splits > 1 ? Activation::identity : task.activation),
      plan->device, int(smem_bytes(tile)));
  plan->config.block = {384};
  plan->config.cluster = {unsigned(tile.cluster)};
  plan->config.smem_bytes = smem_bytes(tile);
  plan->config.grid = {unsigned(d.sm_count / tile.cluster * tile.cluster)};
  if (splits > 1) {
    plan->add_parts = cuda::load_kernel(add_parts_spec(task.type, task.y, task.activation), plan->device);
    const int64_t rows = plan->output.m.size * plan->output.batch.size;
    plan->add_config.block = {32, 8};
    plan->add_config.grid = {unsigned(ceil_div(plan->columns, int64_t(128))), unsigned(min_of(rows, int64_t(65535))),
                             unsigned(ceil_div(rows, int64_t(65535)))};
  }
  return plan;
}

}  // namespace

std::string sm90_why_not(const Sm90Task& t, const Device& d) {
  if (d.arch / 10 != 9) return cat("wgmma is sm_90's; the device is sm_", d.arch);
  if (t.type == DType::float64) return "tensor cores multiply float64 in no engine of ours";
  if (t.alignment < 16) return cat("TMA needs pointers that are multiples of 16 bytes; one is a multiple of ", t.alignment);
  for (const GemmView& v : t.views) {
    for (int64_t size : {v.m.size, v.n.size, v.k.size, v.batch.size})
      if (size >= int64_t(1) << 30) return cat("counts in 32 bits; a side of the product has ", size);
    Phase p = phase_of(v, t.type);
    for (const TmaOperand* o : {&p.a, &p.b}) {
      if (!o->why.empty()) return o->why;
      if (t.type == DType::float32 && o->along_rows())
        return "TF32 operands must be contiguous along the sum, and one lies along the other dimension";
    }
    if (p.view.m.size * p.view.batch.size / 64 * ceil_div(p.view.n.size, int64_t(64)) >= int64_t(1) << 30)
      return "counts tiles in 32 bits; there are too many";
  }
  return "";
}

double sm90_estimate_us(const Sm90Task& t, const Device& d) { return choices_of(t, d).front().us; }

std::vector<std::string> sm90_configs(const Sm90Task& t, const Device& d) {
  std::vector<std::string> configs;
  for (const Choice90& c : choices_of(t, d)) configs.push_back(text(c.tile, c.splits));
  return configs;
}

namespace {

std::pair<Tile, int> parsed(const std::string& config) {
  size_t at = config.find(";split=");
  int splits = at == std::string::npos ? 1 : std::stoi(config.substr(at + 7));
  for (const Tile& t : kTiles)
    if (text(t, 1) == config.substr(0, at)) return {t, splits};
  throw NotSupported(cat("wgmma: unknown config '", config, "'"));
}

}  // namespace

size_t sm90_workspace_bytes(const Sm90Task& t, const std::string& config) {
  int splits = parsed(config).second;
  if (splits == 1) return 0;
  Phase p = phase_of(t.views.front(), t.type);
  return size_t(splits) * size_t(p.view.batch.size * p.view.m.size * columns_of_parts(p.view)) * 4;
}

std::unique_ptr<Sm90Plan> sm90_plan(const Sm90Task& t, const Device& d, const std::string& config) {
  auto [tile, splits] = parsed(config);
  if (t.views.size() == 1) return plan_with<1>(t, d, tile, splits);
  return plan_with<kMaxPhases>(t, d, tile, splits);
}

std::vector<KernelSpec> sm90_kernels(bool convolutions) {
  using enum Sm90Source;
  std::vector<KernelSpec> all;
  for (DType type : {DType::float16, DType::bfloat16, DType::float32})
    for (const Tile& t : kTiles) {
      auto add = [&](Sm90Source a, Sm90Source b, int phases, Activation activation = Activation::identity) {
        bool along_rows = a == tile_along_rows || b == tile_along_rows || b == pixels_along_rows;
        if (type == DType::float32 && along_rows) return;
        if (t.n / t.cluster < 64 && (b == tile_along_rows || b == pixels_along_rows)) return;
        all.push_back(kernel_spec(type, type, t, a, b, 2, phases, activation));
      };
      if (convolutions) {
        add(pixels_along_k, tile_along_k, 1);
        add(pixels_along_k, tile_along_rows, 1);
        add(pixels_along_k, tile_along_rows, kMaxPhases);
        add(tile_along_rows, pixels_along_rows, 1);
      } else {
        add(tile_along_k, tile_along_k, 1);
        add(tile_along_k, tile_along_rows, 1);
      }
    }
  return all;
}

}  // namespace minidnn
