// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "cpp/core/dtype.h"
#include "cuda/gemm/parts.h"
#include "cuda/gemm/sm90.h"
#include "cuda/gemm/sm90_host.h"
#include "cuda/runtime/tensor_map.h"

namespace minidnn {
namespace {

struct Tile {
  int m, n, stages;
  bool ping_pong;
  int cluster;
};
// Warpgroups of 64 or 128 rows each, 32 to 192 sums a thread; as many stages as 227 KB hold, eight at most. 192 rows
// or columns are for 14 x 14 pixels of 64 images, 66 tiles on two thirds of an H100's multiprocessors or 132 on all; 160
// columns for 320 channels.
constexpr Tile kTiles[] = {
    {128, 256, 4, false, 2}, {128, 256, 4, false, 1}, {256, 128, 4, false, 2}, {256, 128, 4, false, 1},
    {192, 128, 5, false, 1}, {128, 192, 5, true, 1},  {128, 128, 6, true, 2},  {128, 128, 6, true, 1},
    {128, 128, 6, false, 2}, {128, 128, 6, false, 1}, {64, 256, 5, true, 1},   {64, 128, 8, true, 1},
    {128, 64, 8, true, 1},   {64, 64, 8, true, 1},    {128, 192, 5, false, 1}, {256, 160, 4, false, 1},
};

constexpr unsigned smem_bytes(const Tile& t) {
  return unsigned(t.stages * (t.m + t.n) * 128 + 1024 + 4 * sm90_warpgroups(t.m) * kLinesBytes);
}
static_assert(std::ranges::all_of(kTiles,
                                  [](const Tile& t) { return smem_bytes(t) + 24 * unsigned(t.stages) <= 232448; }),
              "with barriers, a block of sm_90 has no more");

// How many parts k has, and whether the blocks of a cluster take and add them, or a second pass does. Clusters of two:
// of four or eight an H100 holds fewer than fill it, and they took up to twice the time.
constexpr int kInCluster = 2;
struct Split {
  int parts = 1;
  bool in_cluster = false;
  int cluster() const { return in_cluster ? parts : 1; }
  int passes() const { return in_cluster ? 1 : parts; }  // how many parts are written
};

std::string text(const Tile& t, const Split& split) {
  std::string s = cat("tile=", t.m, "x", t.n);
  if (!t.ping_pong && (t.m * t.n == 128 * 128 || t.n == 192)) s += ";shared";
  if (t.cluster > 1) s += cat(";cluster=", t.cluster);
  if (split.parts > 1) s += cat(";split=", split.parts);
  return split.in_cluster ? s + ";in_cluster" : s;
}

// One operand, ready but for its address and the size of its boxes.
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

// A task in the terms of the main loop.
struct Lowering {
  std::string why;         // why it can not be
  bool exchanged = false;  // a and b
  GemmView view;           // the first, with room for the positions of all, and its n rounded up where taps lie in it
  int64_t n_limit = 0;     // where it was
  TmaOperand a, b;
  int spatial = 2;
  int64_t k_blocks = 0;  // in each tap
  int32_t positions[3]{1, 1, 1}, window[3]{1, 1, 1};
  int64_t channel_blocks = 0;
  std::vector<Sm90Phase> phases;  // those with most taps first, so that the last tiles of all are short

  int64_t all_blocks() const {
    int64_t count = 0;
    for (const Sm90Phase& p : phases) count += p.blocks;
    return count;
  }
};

// One stride for the whole index, or none.
std::optional<int64_t> single_stride(GemmIndex index, GemmStrides strides) {
  join(index, {&strides});
  if (index.first < kDigits - 1) return std::nullopt;
  return index.size == 1 ? 0 : strides.of[kDigits - 1];
}

// A window that moves over nothing: its one tap stays in the tensor, and positions lie evenly.
bool window_is_idle(const GemmOperand& o, const GemmIndex& rows, const GemmIndex& k) {
  const GemmWindow& w = o.window;
  if (!w.on) return true;
  const GemmIndex &positions = w.row_digit ? rows : k, &taps = w.row_digit ? k : rows;
  for (int j = 0; j < 3; ++j) {
    const int64_t step = w.row_digit ? w.row_step[j] : w.k_step[j];
    if (taps.digit[j] != 1 || w.start[j] < 0 || w.start[j] + (positions.digit[1 + j] - 1) * step >= w.size[j])
      return false;
  }
  return single_stride(positions, w.row_digit ? o.row : o.k).has_value();
}

template <class Map> Map map_of(DType type) {
  Map m;
  m.dtype = type, m.tf32 = type == DType::float32;
  m.swizzle_bytes = 128, m.l2_promotion_bytes = 256;
  return m;
}

// (contiguous, tap, tap, other, batch). `k` counts channels, whose stride in this operand is `channel`.
TmaOperand tile_operand(const GemmView& v, const GemmOperand& o, const GemmIndex& rows, int64_t k, int64_t channel,
                        bool with_taps, DType type, const char* name) {
  TmaOperand out;
  out.offset = o.offset;
  const int64_t item = int64_t(itemsize(type));
  const std::optional<int64_t> row = single_stride(rows, o.row), batch = single_stride(v.batch, o.batch);
  if (!row) out.why = cat("TMA needs rows of ", name, " that lie evenly");
  else if (!batch) out.why = cat("TMA needs matrices of ", name, " that lie evenly");
  if (!out.why.empty()) return out;
  const bool along_k = k == 1 ? *row != 1 : channel == 1;
  if (!along_k && *row != 1) out.why = cat("TMA needs ", name, " contiguous along one of its dimensions");
  out.source = along_k ? Sm90Source::tile_along_k : Sm90Source::tile_along_rows;
  int64_t tap_count[2] = {1, 1}, tap_stride[2]{};  // the map's dimensions 1 and 2
  if (with_taps) {
    const GemmTaps& t = v.taps;
    int64_t unit[3];
    for (int j = 0; j < 3; ++j) {
      unit[j] = o.k.of[j] / t.step[j];
      out.offset -= t.first[j] * unit[j];
    }
    if (t.window[0] > 1 && t.window[1] > 1 && unit[0] != unit[1] * t.window[1])
      out.why = cat("TMA needs the taps of ", name, " to lie evenly");
    tap_count[0] = t.window[2], tap_count[1] = t.window[0] * t.window[1];
    tap_stride[0] = unit[2], tap_stride[1] = t.window[1] > 1 ? unit[1] : unit[0];
    const int64_t digit_step[3] = {t.step[0] * t.window[1], t.step[1], t.step[2]};
    for (int j = 0; j < 3; ++j) out.device.tap_step[j] = int32_t(digit_step[j]);
    for (int i = 0; i < 2; ++i)
      if (tap_count[i] > 1 && tap_stride[i] < 0) {  // a map has no negative strides: its taps run the other way
        out.offset += tap_stride[i] * (tap_count[i] - 1);
        tap_stride[i] = -tap_stride[i];
        for (int j = i == 0 ? 2 : 0; j < (i == 0 ? 3 : 2); ++j) out.device.tap_step[j] *= -1;
      }
  }
  out.device.batch_step = *batch != 0;
  cuda::TiledMap& m = out.tile = map_of<cuda::TiledMap>(type);
  m.rank = 5;
  const int64_t dims[] = {along_k ? k : rows.size, tap_count[0], tap_count[1], along_k ? rows.size : k,
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
  if (out.offset * item % 16) out.why = cat("TMA needs ", name, " to begin at a multiple of 16 bytes");
  return out;
}

// The first tap's coordinates in a tile map.
void first_tap(const TmaOperand& o, const GemmTaps& t, int32_t (&at)[2]) {
  at[0] = int32_t(o.device.tap_step[2] < 0 ? t.window[2] - 1 - t.first[2] : t.first[2]);
  const int64_t outer = t.first[0] * t.window[1] + t.first[1];
  at[1] = int32_t(o.device.tap_step[1] < 0 ? t.window[0] * t.window[1] - 1 - outer : outer);
}

// What one tap adds to a coordinate, for the dimension j.
int64_t tap_reach(const GemmWindow& w, int j) { return w.row_digit ? w.k_step[j] : w.row_step[j]; }

// An im2col map, whose dimensions are (channels of all groups, W, H[, D], N). `lower`: the least coordinate of a
// position.
TmaOperand pixels_operand(const GemmView& v, const GemmOperand& o, const GemmIndex& positions, int64_t channels,
                          const int64_t (&lower)[3], DType type, int spatial, const char* name) {
  const GemmWindow& w = o.window;
  const bool along_k = w.row_digit == 1;  // a row is a position
  const GemmStrides &at_position = along_k ? o.row : o.k, &at_tap = along_k ? o.k : o.row;
  const int64_t item = int64_t(itemsize(type));
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
    out.offset -= w.start[j] * w.stride[j];
    out.device.corner[j] = int32_t(lower[j]), out.device.position_step[j] = int32_t(step);
    out.device.offset_step[j] = int32_t(tap_reach(w, j));
    const int dim = 3 - j;  // W is 1
    if (dim > spatial) continue;
    m.dims[dim] = uint64_t(w.size[j]);
    m.strides[dim - 1] = stride(w.stride[j], m.dims[dim]);
    m.element_strides[dim] = uint32_t(step);
    m.lower[dim - 1] = int(lower[j]), m.upper[dim - 1] = int(lower[j] + (count - 1) * step + 1 - w.size[j]);
  }
  m.dims[spatial + 1] = uint64_t(positions.digit[0]);
  m.strides[spatial] = stride(at_position.of[0], m.dims[spatial + 1]);
  m.channels = uint32_t(128 / item), m.pixels = 64;
  out.device.channels_of_batch = int32_t(v.batch.size > 1 ? channels : 0);
  if (out.why.empty()) {
    m.address = reinterpret_cast<const void*>(uintptr_t(16));  // any; the rules about the rest are checked
    out.why = cuda::why_not(m);
  }
  return out;
}

Lowering lowered_as_it_is(const GemmTask& task) {
  Lowering low;
  GemmView& v = low.view = task.views.front();
  const int64_t k_of_block = 128 / int64_t(itemsize(task.type));
  const bool many = task.views.size() > 1;
  GemmIndex GemmView::* const walked = v.b.window.on && v.b.window.row_digit ? &GemmView::n : &GemmView::m;
  if (many) {
    GemmIndex& all = v.*walked;
    for (const GemmView& phase : task.views)
      for (int j = 1; j < kDigits; ++j) all.digit[j] = max_of(all.digit[j], (phase.*walked).digit[j]);
    all.size = all.digit[0] * all.digit[1] * all.digit[2] * all.digit[3], all.first = 0;
  }
  const bool a_moves = v.a.window.on && (many || !window_is_idle(v.a, v.m, v.k));
  const bool b_moves = v.b.window.on && (many || !window_is_idle(v.b, v.n, v.k));
  const GemmOperand* moving = a_moves ? &v.a : b_moves ? &v.b : nullptr;
  const bool taps_in_k = moving && moving->window.row_digit;  // else k is pixels, or plain

  // The channels of k, and their stride in each operand.
  int64_t k = v.k.digit[3], a_channel = v.a.k.of[3], b_channel = v.b.k.of[3];
  if (!taps_in_k) {
    GemmIndex joined = v.k;
    GemmStrides a_k = v.a.k, b_k = v.b.k;
    if (b_moves) join(joined, {&a_k});
    else join(joined, {&a_k, &b_k});
    if (joined.first < kDigits - 1) low.why = "TMA needs a sum that runs evenly through memory";
    k = joined.digit[3], a_channel = a_k.of[3], b_channel = b_k.of[3];
  }
  low.k_blocks = ceil_div(k, k_of_block);

  int64_t lower[3]{};  // of the window's coordinates, over all taps and phases
  const GemmIndex& positions = taps_in_k ? v.*walked : v.k;
  if (moving) {
    const GemmWindow& first = moving->window;
    bool flat = first.size[0] == 1 && positions.digit[1] == 1 && v.taps.window[0] == 1;
    for (int j = 0; j < 3; ++j) {
      bool any = false;
      for (const GemmView& phase : task.views) {
        const GemmWindow& w = (a_moves ? phase.a : phase.b).window;
        if (phase.taps.count[j] == 0) continue;
        const int64_t reach = tap_reach(w, j) * (phase.taps.count[j] - 1),
                      least = w.start[j] + min_of(reach, int64_t(0));
        lower[j] = any ? min_of(lower[j], least) : least;
        any = true;
      }
      low.positions[j] = int32_t(positions.digit[1 + j]);
      low.window[j] = int32_t(v.taps.count[j]);
    }
    low.spatial = flat && lower[0] == 0 ? 2 : 3;
    low.channel_blocks = ceil_div(v.n.digit[3], k_of_block);
    if (taps_in_k && v.batch.size > 1 && k % k_of_block)
      low.why = cat("a block of k would reach into the next group: it needs a multiple of ", k_of_block,
                    " channels in each; got ", k);
  }
  const GemmIndex n = v.n;
  if (b_moves && !taps_in_k) {
    low.n_limit = n.digit[3];
    v.n.digit[3] = low.channel_blocks * k_of_block;
    v.n.size = v.n.digit[0] * v.n.digit[1] * v.n.digit[2] * v.n.digit[3];
  }
  const int64_t channels = taps_in_k ? k : n.digit[3];
  low.a = a_moves ? pixels_operand(v, v.a, positions, channels, lower, task.type, low.spatial, "a")
                  : tile_operand(v, v.a, v.m, k, a_channel, taps_in_k, task.type, "a");
  low.b = b_moves ? pixels_operand(v, v.b, positions, channels, lower, task.type, low.spatial, "b")
                  : tile_operand(v, v.b, n, k, b_channel, taps_in_k, task.type, "b");
  for (const GemmView& phase : task.views) {
    Sm90Phase& to = low.phases.emplace_back();
    to.part.y_offset = phase.y_offset;
    std::ranges::copy((phase.*walked).digit, to.part.limit);
    for (int j = 0; j < 3; ++j) {
      to.taps[j] = taps_in_k ? int32_t(phase.taps.count[j]) : 1;
      if (!moving || phase.taps.count[j] == 0) continue;
      const int64_t offset = (a_moves ? phase.a : phase.b).window.start[j] - lower[j];
      (a_moves ? to.a_offset : to.b_offset)[j] = int32_t(offset);
      const int64_t most = low.spatial == 2 ? 255 : 31;
      const int64_t last = offset + tap_reach(moving->window, j) * (phase.taps.count[j] - 1);
      if (max_of(offset, last) > most)
        low.why = cat("TMA windows reach at most ", most, " elements; got ", max_of(offset, last));
    }
    if (taps_in_k) first_tap(a_moves ? low.b : low.a, phase.taps, a_moves ? to.b_tap : to.a_tap);
    to.blocks = int32_t(to.taps[0] * to.taps[1] * to.taps[2] * low.k_blocks);
    if (to.blocks == 0) to.blocks = 1, to.k_shift = 1 << 30;
  }
  std::ranges::stable_sort(low.phases, std::ranges::greater{}, &Sm90Phase::blocks);
  for (const TmaOperand* o : {&low.a, &low.b})
    if (low.why.empty()) low.why = o->why;
  return low;
}

GemmOutput output_of(const GemmTask& t, const Lowering& low) {
  GemmOutput y = output_of(low.view, t.y, t.alignment, t.has_c, t.has_bias, low.n_limit);
  if (low.phases.size() > 1) {  // not joined: phases limit each digit
    if (low.exchanged) y.n = low.view.n, y.y_n = low.view.y_n;
    else y.m = low.view.m, y.y_m = low.view.y_m, y.y_turned = 0;
    divide(y);
  }
  return y;
}

// How sums go to y: by columns where lanes have neighbouring rows of an a in registers.
GemmStore store_of(const GemmTask& t, const Lowering& low) {
  const GemmOutput y = output_of(t, low);
  if (t.type == DType::float32 && low.a.along_rows() && low.n_limit == 0 && y.y_columns) {
    const bool even = y.n.first == kDigits - 1;
    if (low.phases.size() == 1 && even) return GemmStore::columns;
    bool fits = low.phases.size() > 1 && low.exchanged;
    for (const Sm90Phase& p : low.phases) fits = fits && p.part.y_offset % 4 == 0;
    int64_t reach = 0;  // of columns, in 32 bits
    for (int j = 0; j < kDigits; ++j) fits = fits && y.y_n.of[j] >= 0, reach += (y.n.digit[j] - 1) * y.y_n.of[j];
    if (fits && reach < int64_t(1) << 31) return GemmStore::phases;
  }
  return store_of(y, t.has_c);
}

// TF32 that is contiguous along its rows is read into registers, as a, or turned on the way, as b: b alone becomes a,
// where columns of y are neighbours, since the sums of a's rows then are a lane's.
Lowering lowered(const GemmTask& task) {
  const Lowering low = lowered_as_it_is(task);
  if (task.type != DType::float32 || low.a.along_rows() || !low.b.along_rows() || low.view.y_n.of[kDigits - 1] != 1)
    return low;
  GemmTask other = task;
  for (GemmView& view : other.views) view = transposed(view);
  Lowering exchanged = lowered_as_it_is(other);
  exchanged.exchanged = true;
  return task.views.size() == 1 || store_of(other, exchanged) == GemmStore::phases ? exchanged : low;
}

struct Extents {                                              // what estimates need
  int64_t m = 0, n = 0, batch = 1, phases = 1, k_blocks = 0;  // m is a phase's; k_blocks are averaged
  bool turned_a = false, turned_b = false;
  bool both_along_rows = false;  // in 16 bits
  bool pixels_a = false, pixels_b = false;
  int64_t tiles_m(const Tile& t) const { return phases * ceil_div(m, int64_t(t.m) * t.cluster) * t.cluster; }
};

Extents shape_of(const GemmTask& task, const Lowering& low) {
  const int64_t phases = int64_t(low.phases.size());
  return {low.view.m.size,
          low.view.n.size,
          low.view.batch.size,
          phases,
          ceil_div(low.all_blocks(), phases),
          task.type == DType::float32 && low.a.along_rows(),
          task.type == DType::float32 && low.b.along_rows(),
          task.type != DType::float32 && low.a.along_rows() && low.b.along_rows(),
          low.a.windowed(),
          low.b.windowed()};
}

// Loads of b along rows come 64 rows at a time from each block of the cluster. TF32 along rows takes registers: those of
// a, or those of the warps that turn b: 192 columns are too many beside 128 rows, and wanted beside 64 only there.
bool fits(const Tile& t, DType type, bool a_along_rows, bool b_along_rows) {
  const int rows = t.ping_pong ? t.m : t.m / sm90_warpgroups(t.m);  // of a warpgroup
  const bool turned = type == DType::float32 && (a_along_rows || b_along_rows);
  return (t.n / t.cluster % 64 == 0 || !b_along_rows) && (!turned || rows * t.n <= 128 * 128) &&
         (t.n != 192 || turned != t.ping_pong);
}

// Microseconds for one tile shape, fitted to 1800 timings of matmuls and ResNet-50's convolutions in bfloat16 and TF32 on
// an H100 (docs/measured_facts.md): 8 % off in the mean, and what it picks is 1.3 % slower than the best. Tensor cores do
// 4096 FLOP a clock and SM in 16 bits, so that 128 bytes of k take m n / 32 clocks at least, in TF32 too.
double tile_us(const GemmTask& task, const Extents& s, const Device& d, const Tile& t, const Split& split) {
  const double clocks_per_us = 1700;
  auto l2_bytes_per_clock = [](bool pixels) { return pixels ? 54.0 : 64.7; };  // of each SM
  const double elements = double(t.m) * t.n;
  const double multiply = elements / 32 * (t.m == 192 ? 1.154 : 1.091) + 52;
  const double load =
      128 * (t.m / l2_bytes_per_clock(s.pixels_a) + double(t.n) / t.cluster / l2_bytes_per_clock(s.pixels_b));
  double block = max_of(multiply, load) + 0.06 * min_of(multiply, load);
  // Shared memory, 128 bytes a clock: both are written, a is read once, b by each 64 rows of a, and twice more if turned.
  if (s.turned_a || s.turned_b) block = max_of(block, 1.081 * (2.0 * t.m + t.n * ((s.turned_b ? 3 : 1) + t.m / 64)));
  const double main = double(ceil_div(s.k_blocks, int64_t(split.parts))) * block +
                      (t.cluster > 1 ? 605 : 250);  // blocks wait for each other
  double end = 161 + elements / split.cluster() * (split.passes() > 1 || itemsize(task.y) == 4 ? 0.067 : 0.029);
  // Two barriers, sums to other blocks and back from shared memory.
  if (split.in_cluster) end += 2230 + elements * 0.29;
  const bool overlap = t.ping_pong && !split.in_cluster;
  const double each = overlap ? max_of(main, (main + end) / 2) : main + end;
  const int64_t at_once = d.sm_count / (t.cluster * split.cluster());
  const int64_t work = s.tiles_m(t) / t.cluster * ceil_div(s.n, int64_t(t.n)) * s.batch * split.passes();
  const double rounds = double(ceil_div(work, at_once));
  const double on_chip = (rounds * each + (overlap ? min_of(main, end) : 0) + 1342) / clocks_per_us;
  const double memory = task.bytes / (0.961 * d.copy_gb_s * 1e3) + 3.1;
  // The two overlap, less so where they are equal.
  double us = std::pow(std::pow(on_chip, 2.94) + std::pow(memory, 2.94), 1 / 2.94) + (t.cluster > 1 ? 4.1 : 3.1);
  // The parts of a split k are written and read once, mostly in the L2; and a second launch.
  if (split.passes() > 1)
    us += 6.3 + double(split.parts) * double(s.m * s.phases) * double(s.n) * double(s.batch) * 8 / 5.2e6;
  return us;
}

struct Choice90 {
  Tile tile;
  Split split;
  double us;
};

std::vector<Choice90> choices_of(const GemmTask& task, const Device& d) {
  const Lowering low = lowered(task);
  const Extents s = shape_of(task, low);
  std::vector<Choice90> all;
  for (const Tile& t : kTiles) {
    if (!fits(t, task.type, low.a.along_rows(), low.b.along_rows())) continue;
    const int64_t tiles = s.tiles_m(t) * ceil_div(s.n, int64_t(t.n)) * s.batch, outputs = s.m * s.n * s.batch;
    const int64_t most = s.phases > 1 || outputs >= int64_t(1) << 31
                             ? 1
                             : min_of(s.k_blocks / 4, ceil_div(int64_t(2) * d.sm_count, tiles));
    Choice90 best{t, {}, tile_us(task, s, d, t, {})};
    for (int parts = 2; parts <= most; ++parts)
      if (double us = tile_us(task, s, d, t, {parts}); us < best.us) best = {t, {parts}, us};
    all.push_back(best);
    const Split in_cluster{kInCluster, true};
    // Of two operands along rows, in 16 bits, it was slower than a second pass each time.
    if (t.cluster == 1 && kInCluster <= most && !s.both_along_rows)
      all.push_back({t, in_cluster, tile_us(task, s, d, t, in_cluster)});
  }
  std::ranges::stable_sort(all, {}, &Choice90::us);
  return all;
}

const char* source_text(Sm90Source s) {
  constexpr const char* names[] = {"tile_along_k", "tile_along_rows", "pixels_along_k", "pixels_along_rows"};
  return names[int(s)];
}

// What a kernel does with its sums: compiled in, since code that is not used takes its time, too (measured_facts.md).
struct Ending {
  Activation activation = Activation::identity;
  bool bias = false, c = false;
  GemmStore store = GemmStore::lines;

  std::string text() const {
    constexpr const char* stores[] = {"lines", "turned", "any", "columns", "phases"};
    return cat("minidnn::Activation::", name(activation), bias ? ", true" : ", false", c ? ", true" : ", false",
               ", minidnn::GemmStore::", stores[int(store)]);
  }
};

KernelSpec kernel_spec(DType type, DType y, const Tile& t, const Split& split, Sm90Source a, Sm90Source b, int spatial,
                       const Ending& ending) {
  KernelSpec spec{"cuda/gemm/sm90.cu",
                  cat("minidnn::gemm_sm90<", cuda_name(type), ", ", cuda_name(y), ", ", t.m, ", ", t.n, ", ", t.stages,
                      ", ", t.ping_pong ? "true" : "false", ", ", t.cluster, ", ", split.cluster(),
                      ", minidnn::Sm90Source::", source_text(a), ", minidnn::Sm90Source::", source_text(b), ", ",
                      spatial, ", ", ending.text(), ">")};
  spec.min_arch = 90;
  return spec;
}

struct Plan90 final : GemmPlan {
  DType type;
  Tile tile;
  int device, blocks_of_tile;
  bool exchanged;
  TmaOperand a, b;
  std::vector<Sm90Problem> problems;  // one for each launch, but for the maps
  std::shared_ptr<const cuda::Kernel> kernel;
  std::optional<AddParts> add_parts;  // where k is split
  cuda::LaunchConfig config;

  TensorMap map_of(const TmaOperand& o, const void* base, int rows) const {
    const uint32_t item = uint32_t(itemsize(type)), lines = 128 / item;
    const char* address = static_cast<const char*>(base) + o.offset * int64_t(item);
    if (o.windowed()) {
      cuda::Im2colMap m = o.pixels;
      m.address = address, m.pixels = o.along_rows() ? lines : uint32_t(rows);
      return std::bit_cast<TensorMap>(cuda::encode(m, device));
    }
    cuda::TiledMap m = o.tile;
    m.address = address, m.box[0] = 128 / item, m.box[3] = o.along_rows() ? lines : uint32_t(rows);
    return std::bit_cast<TensorMap>(cuda::encode(m, device));
  }

  void run(const GemmArgs& args, void* workspace, Stream stream) const override {
    GemmArgs now = args;
    if (add_parts) now = {args.a, args.b, nullptr, nullptr, workspace};
    cuda::LaunchConfig launch = config;
    launch.stream = stream;
    const TensorMap map_a = map_of(a, exchanged ? args.b : args.a, tile.m),
                    map_b = map_of(b, exchanged ? args.a : args.b, tile.n / tile.cluster);
    for (Sm90Problem problem : problems) {
      problem.map_a = map_a, problem.map_b = map_b;
      launch.grid = {unsigned(min_of(problem.tiles * blocks_of_tile, int(config.grid.x)))};
      cuda::launch(*kernel, launch, problem, now);
    }
    if (add_parts) add_parts->run(args, workspace, stream);
  }
};

}  // namespace

std::string sm90_why_not(const GemmTask& t, const Device& d) {
  if (d.arch / 10 != 9) return cat("wgmma is sm_90's; the device is sm_", d.arch);
  if (t.type == DType::float64) return "tensor cores multiply float64 in no engine of ours";
  if (t.alignment < 16)
    return cat("TMA needs pointers that are multiples of 16 bytes; one is a multiple of ", t.alignment);
  for (const GemmView& v : t.views)
    for (int64_t size : {v.m.size, v.n.size, v.k.size, v.batch.size})
      if (size >= int64_t(1) << 30) return cat("counts in 32 bits; a side of the product has ", size);
  const Lowering low = lowered(t);
  if (!low.why.empty()) return low.why;
  const Extents s = shape_of(t, low);
  if (s.phases * ceil_div(s.m, int64_t(64)) * ceil_div(s.n, int64_t(64)) * s.batch >= int64_t(1) << 24)
    return "counts tiles in 32 bits; there are too many";
  return "";
}

double sm90_estimate_us(const GemmTask& t, const Device& d) { return choices_of(t, d).front().us; }

std::vector<std::string> sm90_configs(const GemmTask& t, const Device& d) {
  std::vector<std::string> configs;
  for (const Choice90& c : choices_of(t, d)) configs.push_back(text(c.tile, c.split));
  return configs;
}

namespace {

std::pair<Tile, Split> parsed(const std::string& config) {
  const size_t at = config.find(";split=");
  Split split;
  if (at != std::string::npos) split = {std::stoi(config.substr(at + 7)), config.ends_with(";in_cluster")};
  for (const Tile& t : kTiles)
    if (text(t, split) == config) return {t, split};
  throw NotSupported(cat("wgmma: unknown config '", config, "'"));
}

}  // namespace

size_t sm90_workspace_bytes(const GemmTask& t, const std::string& config) {
  const int parts = parsed(config).second.passes();
  if (parts == 1) return 0;
  const Lowering low = lowered(t);
  return Parts(low.view, store_of(t, low) == GemmStore::columns).bytes(parts);
}

std::unique_ptr<GemmPlan> sm90_plan(const GemmTask& task, const Device& d, const std::string& config) {
  const auto [tile, split] = parsed(config);
  const Lowering low = lowered(task);
  const GemmView& v = low.view;
  const GemmStore store = store_of(task, low);
  const bool columns = store == GemmStore::columns;
  auto plan = std::make_unique<Plan90>();
  plan->type = task.type, plan->tile = tile, plan->device = d.place.index;
  plan->exchanged = low.exchanged, plan->a = low.a, plan->b = low.b;

  Sm90Problem problem{};
  problem.a = low.a.device, problem.b = low.b.device;
  problem.y = output_of(task, low);
  const int passes = split.passes();
  if (passes > 1) {
    const Parts parts(v, columns);
    const GemmOutput turned = output_of(transposed(v), task.y, task.alignment, task.has_c, task.has_bias);
    plan->add_parts.emplace(task, columns ? turned : problem.y, parts.columns, passes, d);
    problem.y = parts.output, problem.split_stride = parts.part_stride;
  }
  const int64_t m_tiles = ceil_div(v.m.size, int64_t(tile.m) * tile.cluster),
                n_tiles = ceil_div(v.n.size, int64_t(tile.n));
  const int64_t group_m = min_of(m_tiles, int64_t(8)), last = m_tiles % group_m;
  problem.m_tiles = int32_t(m_tiles);
  problem.per_matrix = Divisor(m_tiles * n_tiles);
  problem.splits = Divisor(passes), problem.batches = Divisor(v.batch.size);
  problem.per_group = Divisor(group_m * n_tiles), problem.group_m = Divisor(group_m);
  problem.last_group_m = Divisor(last ? last : group_m);
  problem.k_blocks = Divisor(low.k_blocks);
  const int64_t blocks = low.all_blocks();
  problem.k_each = int32_t(blocks / split.parts), problem.k_more = int32_t(blocks % split.parts);
  if (low.phases.size() == 1 && problem.k_more == 0) problem.k_of_tile = problem.k_each;
  for (int j = 0; j < 3; ++j)
    problem.positions[j] = Divisor(low.positions[j]), problem.window[j] = Divisor(low.window[j]);
  problem.channel_blocks = Divisor(max_of(low.channel_blocks, int64_t(1)));
  for (size_t first = 0; first < low.phases.size(); first += kSm90Phases) {
    const size_t count = std::min(low.phases.size() - first, size_t(kSm90Phases));
    std::copy_n(low.phases.begin() + std::ptrdiff_t(first), count, problem.phases);
    if (low.phases.size() == 1) problem.phases[0].part = problem.y.part;
    problem.tiles = int32_t(m_tiles * n_tiles * v.batch.size * passes * int64_t(count));
    plan->problems.push_back(problem);
  }

  Ending ending{.store = columns ? GemmStore::columns : GemmStore::lines};  // of parts
  if (passes == 1) ending = {task.activation, task.has_bias, task.has_c, store};
  plan->kernel = cuda::load_kernel(kernel_spec(task.type, passes > 1 ? DType::float32 : task.y, tile, split,
                                               low.a.source, low.b.source, low.spatial, ending),
                                   plan->device, int(smem_bytes(tile)));
  plan->config.block = {unsigned(128 + 128 * sm90_warpgroups(tile.m))};
  plan->config.programmatic = true;
  plan->blocks_of_tile = tile.cluster * split.cluster();
  plan->config.cluster = {unsigned(plan->blocks_of_tile)};
  plan->config.smem_bytes = smem_bytes(tile);
  // Blocks that add in a cluster take one tile and end.
  plan->config.grid = {split.in_cluster ? unsigned(problem.tiles * plan->blocks_of_tile)
                                        : unsigned(d.sm_count / tile.cluster * tile.cluster)};
  return plan;
}

std::vector<KernelSpec> sm90_kernels(bool convolutions) {
  using enum Sm90Source;
  std::vector<KernelSpec> all;
  for (DType type : {DType::float16, DType::bfloat16, DType::float32})
    for (const Tile& t : kTiles) {
      const bool tf32 = type == DType::float32;
      auto add = [&](Sm90Source a, Sm90Source b, GemmStore usual = GemmStore::lines) {
        if (!fits(t, type, a == tile_along_rows, b == tile_along_rows || b == pixels_along_rows)) return;
        all.push_back(kernel_spec(type, type, t, {}, a, b, 2, {.store = usual}));
        if (t.m * t.n == 64 * 64)
          for (GemmStore store : {GemmStore::turned, GemmStore::any})
            if (!tf32 || store == GemmStore::any)
              all.push_back(kernel_spec(type, type, t, {}, a, b, 2, {.store = store}));
        if (t.m * t.n == 128 * 128 && t.cluster == 1 && !t.ping_pong && usual != GemmStore::phases)
          all.push_back(kernel_spec(type, type, t, {kInCluster, true}, a, b, 2, {.store = usual}));
      };
      if (convolutions) {
        add(pixels_along_k, tile_along_k);
        add(tile_along_rows, pixels_along_rows);
        if (!tf32) add(pixels_along_k, tile_along_rows);
        else
          for (GemmStore store : {GemmStore::columns, GemmStore::phases}) add(tile_along_rows, pixels_along_k, store);
      } else {
        add(tile_along_k, tile_along_k);
        if (tf32) add(tile_along_rows, tile_along_k, GemmStore::columns);
        else add(tile_along_k, tile_along_rows);
      }
    }
  if (!convolutions) std::ranges::copy(add_parts_kernels(), std::back_inserter(all));
  return all;
}

}  // namespace minidnn
