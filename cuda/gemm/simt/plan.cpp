// SPDX-License-Identifier: Apache-2.0
#include "cuda/gemm/simt/plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "cpp/activation/activation.h"
#include "cpp/core/dtype.h"

namespace minidnn {
namespace {

template <int M, int N> constexpr SimtTileSize size_of() {
  return {M, N, SimtTile<M, N>::kThreads, SimtTile<M, N>::kBlocksPerSm, kSimtSharedBytes<M, N>};
}
constexpr SimtTileSize kTiles[] = {size_of<128, 128>(), size_of<128, 64>(), size_of<64, 64>(), size_of<128, 32>(),
                                   size_of<128, 16>()};
constexpr int64_t kItem = sizeof(float);
constexpr int64_t kMost = (int64_t(1) << 31) - 1;  // limit of numbers that the kernel keeps in 32 bits

// A digit of an index and everything that depends on it: its strides in elements in each tensor that uses the index,
// and what it adds to the coordinates (`position`) and the tap numbers (`tap`) of a window. A "walker" is such a
// tensor.
constexpr int kWalkers = 5;
struct Digit {
  int64_t size = 1;
  std::array<int64_t, kWalkers> stride{};
  std::array<int64_t, 3> position{}, tap{};

  bool moves_window() const { return position != std::array<int64_t, 3>{} || tap != std::array<int64_t, 3>{}; }
};
using Axis = std::vector<Digit>;                          // the last digit is fastest
enum { kOperand, kY, kC, kBias };                         // walkers of rows and columns
enum { kA, kB };                                          // walkers of k
enum { kBatchA, kBatchB, kBatchY, kBatchC, kBatchBias };  // walkers of the batch

Axis axis_of(const GemmIndex& index, std::initializer_list<const GemmStrides*> walkers) {
  Axis axis(kDigits);
  for (int j = 0; j < kDigits; ++j) {
    axis[j].size = index.digit[j];
    int w = 0;
    for (const GemmStrides* s : walkers) axis[j].stride[w++] = s->of[j];
  }
  return axis;
}

int64_t size_of(const Axis& axis) {
  int64_t size = 1;
  for (const Digit& d : axis) size *= d.size;
  return size;
}

// A score of how well 8 threads read along an axis: the number of neighbours in memory (at most 8), divided by their
// distance.
double neighbourhood(Axis axis, int walker) {
  std::erase_if(axis, [](const Digit& d) { return d.size == 1; });
  if (axis.empty()) return 0;
  auto step = [&](const Digit& d) { return std::abs(d.stride[walker]); };
  std::ranges::stable_sort(axis, {}, step);
  int64_t least = step(axis.front()), run = 1;
  for (const Digit& d : axis)
    if (step(d) == least * run) run *= d.size;
  return double(std::min<int64_t>(run, 8)) / double(std::max<int64_t>(least, 1));
}

// Sorts digits by decreasing stride of a walker, removes digits of size 1, and joins neighbouring digits if all walkers
// have one stride over them.
void arrange(Axis& axis, int walker) {
  std::erase_if(axis, [](const Digit& d) { return d.size == 1; });
  std::ranges::stable_sort(
      axis, [&](const Digit& a, const Digit& b) { return std::abs(a.stride[walker]) > std::abs(b.stride[walker]); });
  for (size_t j = axis.size(); j-- > 1;) {
    Digit &slow = axis[j - 1], &fast = axis[j];
    bool joins = !slow.moves_window() && !fast.moves_window();
    for (int w = 0; w < kWalkers; ++w) joins = joins && slow.stride[w] == fast.stride[w] * fast.size;
    if (!joins) continue;
    slow.size *= fast.size, slow.stride = fast.stride;
    axis.erase(axis.begin() + int64_t(j));
  }
}

struct Product {
  Axis m, n, k, batch;
  int64_t a_offset, b_offset, y_offset;
  SimtWindow window;
  bool windowed = false;  // a is read through a window and some elements are outside
  int tap_bits = 0;
  bool a_along_k = false, b_along_k = false;
};

// Records the dimensions in which a's window reaches outside, and the digits that move it.
void add_window(Product& p, const GemmView& v) {
  const GemmWindow& w = v.a.window;
  if (!w.on || v.k.size == 0) return;
  const bool taps_in_k = w.row_digit == 1;
  Axis &taps = taps_in_k ? p.k : p.m, &positions = taps_in_k ? p.m : p.k;
  p.window.taps_in_k = taps_in_k;
  for (int j = 0; j < 3; ++j) {
    const int64_t tap_step = taps_in_k ? w.k_step[j] : w.row_step[j];
    const int64_t position_step = taps_in_k ? w.row_step[j] : w.k_step[j];
    const int64_t tap_reach = (taps[j].size - 1) * tap_step;
    const int64_t position_reach = (positions[1 + j].size - 1) * position_step;
    const int64_t low = w.start[j] + min_of(tap_reach, int64_t(0)) + min_of(position_reach, int64_t(0));
    const int64_t high = w.start[j] + max_of(tap_reach, int64_t(0)) + max_of(position_reach, int64_t(0));
    if (low >= 0 && high < w.size[j]) continue;
    p.windowed = true;
    p.window.taps[j] = uint32_t(taps[j].size), p.window.first_bit[j] = uint32_t(p.tap_bits);
    p.window.size[j] = uint32_t(w.size[j]), p.window.start[j] = int32_t(w.start[j]);
    p.window.tap_step[j] = int32_t(tap_step);
    p.tap_bits += int(min_of(taps[j].size, int64_t(1) << 20));
    taps[j].tap[j] = 1, positions[1 + j].position[j] = position_step;
  }
}

Product product_of(const GemmView& v) {
  Product p;
  p.m = axis_of(v.m, {&v.a.row, &v.y_m, &v.c_m, &v.bias_m});
  p.n = axis_of(v.n, {&v.b.row, &v.y_n, &v.c_n, &v.bias_n});
  p.k = axis_of(v.k, {&v.a.k, &v.b.k});
  p.batch = axis_of(v.batch, {&v.a.batch, &v.b.batch, &v.y_batch, &v.c_batch, &v.bias_batch});
  p.a_offset = v.a.offset, p.b_offset = v.b.offset, p.y_offset = v.y_offset;
  add_window(p, v);
  p.a_along_k = neighbourhood(p.k, kA) > neighbourhood(p.m, kOperand);
  p.b_along_k = neighbourhood(p.k, kB) > neighbourhood(p.n, kOperand);
  arrange(p.m, p.a_along_k ? kY : kOperand);
  arrange(p.n, p.b_along_k ? kY : kOperand);
  arrange(p.k, !p.a_along_k && p.b_along_k ? kB : kA);
  arrange(p.batch, kBatchY);
  return p;
}

// Which operand becomes a: the windowed one, if its window reaches outside in any phase. Otherwise the choice is free.
enum class Sides { as_they_are, exchanged, free };
Sides sides_of(const GemmTask& t) {
  for (const GemmView& v : t.views) {
    if (v.a.window.on && product_of(v).windowed) return Sides::as_they_are;
    if (v.b.window.on && product_of(transposed(v)).windowed) return Sides::exchanged;
  }
  return Sides::free;
}

// How many tiles cover a view. If the choice of a is free, the better one counts.
int64_t tiles_over(const GemmView& v, Sides sides, int64_t tile_m, int64_t tile_n) {
  const int64_t as_they_are = ceil_div(v.m.size, tile_m) * ceil_div(v.n.size, tile_n) * v.batch.size;
  const int64_t exchanged = ceil_div(v.n.size, tile_m) * ceil_div(v.m.size, tile_n) * v.batch.size;
  return sides == Sides::as_they_are ? as_they_are
         : sides == Sides::exchanged ? exchanged
                                     : min_of(as_they_are, exchanged);
}

// The products of all phases for a tile of m x n. The order of additions in an element does not depend on which operand
// is a: a product and its transpose have the same bits.
struct Products {
  std::vector<Product> phases;
  bool exchanged = false;
};
Products products_of(const GemmTask& t, int64_t tile_m, int64_t tile_n) {
  Products all;
  Sides sides = sides_of(t);
  if (sides == Sides::free) {
    const GemmView& v = t.views.front();
    const int64_t as_they_are = tiles_over(v, Sides::as_they_are, tile_m, tile_n);
    const int64_t exchanged = tiles_over(v, Sides::exchanged, tile_m, tile_n);
    const Product p = product_of(v);
    const bool along_m = neighbourhood(p.m, kY) >= neighbourhood(p.n, kY);
    sides = (as_they_are != exchanged ? as_they_are < exchanged : along_m) ? Sides::as_they_are : Sides::exchanged;
  }
  all.exchanged = sides == Sides::exchanged;
  for (const GemmView& v : t.views) all.phases.push_back(product_of(all.exchanged ? transposed(v) : v));
  return all;
}

// Whether four neighbours along the last digit of the axis, from a multiple of four on, are 16 aligned bytes of a
// tensor for all values of the other digits.
bool in_vectors(const Axis& axis, int walker, bool through_window, int64_t alignment, int64_t offset,
                std::initializer_list<std::pair<const Axis*, int>> others) {
  if (alignment < 16 || axis.empty() || offset % 4) return false;
  const Digit& last = axis.back();
  if (last.stride[walker] != 1 || last.size % 4 || (through_window && last.moves_window())) return false;
  auto even = [](const Digit& d, int w) { return d.stride[w] % 4 == 0; };
  bool all = std::all_of(axis.begin(), axis.end() - 1, [&](const Digit& d) { return even(d, walker); });
  for (auto [other, w] : others)
    all = all && std::ranges::all_of(*other, [&, w = w](const Digit& d) { return even(d, w); });
  return all;
}

SimtIndex index_of(const Axis& axis) {
  SimtIndex index;
  index.size = uint32_t(size_of(axis));
  for (size_t back = 1; back < kDigits && back <= axis.size(); ++back)
    index.by[kDigits - 1 - back] = FastDivmod(max_of(axis[axis.size() - back].size, int64_t(1)));  // k may be empty
  return index;
}
GemmStrides bytes_of(const Axis& axis, int walker) {
  GemmStrides s;
  for (size_t back = 1; back <= axis.size(); ++back)
    s.of[kDigits - back] = axis[axis.size() - back].stride[walker] * kItem;
  return s;
}

// Sets the strides of y to those of the layout [slow, columns] with `fast` contiguous, the layout of the parts of a
// split k.
void lay_out(Axis& slow, Axis& fast, int64_t columns) {
  int64_t step = 1;
  for (size_t j = fast.size(); j-- > 0; step *= fast[j].size) fast[j].stride[kY] = step;
  step = columns;
  for (size_t j = slow.size(); j-- > 0; step *= slow[j].size) slow[j].stride[kY] = step;
}

void fill(const Axis& axis, GemmIndex& index, std::initializer_list<std::pair<int, GemmStrides*>> walkers) {
  index.first = kDigits - int64_t(std::max<size_t>(axis.size(), 1));
  for (size_t back = 1; back <= axis.size(); ++back) {
    const Digit& d = axis[axis.size() - back];
    index.size *= index.digit[kDigits - back] = d.size;
    for (auto [w, strides] : walkers) strides->of[kDigits - back] = d.stride[w];
  }
}

// The view of the kernel that adds the parts of a split k: y, c and bias. Columns are the axis whose neighbours are
// contiguous in y, if there is one.
GemmView view_of_y(const Product& p, const Axis& rows, const Axis& columns) {
  GemmView v;
  fill(rows, v.m, {{kY, &v.y_m}, {kC, &v.c_m}, {kBias, &v.bias_m}});
  fill(columns, v.n, {{kY, &v.y_n}, {kC, &v.c_n}, {kBias, &v.bias_n}});
  fill(p.batch, v.batch, {{kBatchY, &v.y_batch}, {kBatchC, &v.c_batch}, {kBatchBias, &v.bias_batch}});
  v.y_offset = p.y_offset;
  return v;
}

// The number of elements of y. At most kMostParts of them can pass through parts, whose offsets have 31 bits.
constexpr double kMostParts = double(kMost) / 2;
double elements_of(const GemmTask& t) {
  double elements = 0;
  for (const GemmView& v : t.views) elements += double(v.m.size) * double(v.n.size) * double(v.batch.size);
  return elements;
}

// Whether kernel.cu applies this activation. Others go through parts, even if there is only one part.
bool is_simple(Activation a) { return a == Activation::identity || a == Activation::relu; }

KernelSpec kernel_spec(const SimtTileSize& t, bool vectors_a, bool vectors_b) {
  return {"cuda/gemm/simt/kernel.cu",
          cat("minidnn::simt_gemm<", t.m, ", ", t.n, ", ", vectors_a ? 4 : 1, ", ", vectors_b ? 4 : 1, ">")};
}
// What estimates depend on. These are sizes alone; a product and its transpose therefore split k in the same way and
// have the same bits.
struct Sizes {
  double tiles = 0, slices = 0;  // tiles of all phases; average slices of k in a tile
};
Sizes sizes_of(const GemmTask& t, const SimtTileSize& tile) {
  Sizes s;
  double work = 0;
  const Sides sides = sides_of(t);
  for (const GemmView& v : t.views) {
    const double tiles = double(tiles_over(v, sides, tile.m, tile.n));
    s.tiles += tiles;
    work += tiles * double(ceil_div(v.k.size, int64_t(kSimtTileK)));
  }
  s.slices = work / std::max(s.tiles, 1.0);
  return s;
}

// The fraction of an SM's peak rate at a number of resident warps. A warp with 128 sums a thread waits less often.
// Fitted by eye on an H100: eight of the nine products of the benchmark's list are within 7 % of the estimate; the
// ninth is bound by memory and takes 9 % more.
double busy(double warps, double sums) {
  const double each = std::max(1.0, warps / 4) * std::sqrt(sums / 64);  // work of a scheduler
  return 0.95 * std::min(1.0, warps / 4) * each / (each + 0.5);
}

double config_us(const GemmTask& t, const Device& d, const SimtConfig& c, const Sizes& s) {
  const auto& [tile, splits, cluster] = c;
  // Clusters do not use all SMs. A cluster of eight must fit in one GPC, and some of an H100's GPCs are too small for
  // two such clusters.
  const double sms = cluster ? 0.9 * d.sm_count : d.sm_count;
  const double blocks = std::ceil(s.tiles * splits / sms);  // blocks of the SM that has most
  const double at_once = std::min(tile.blocks_per_sm, 227 * 1024 / (tile.smem_bytes + 1024));
  const double slices = std::ceil(s.slices / splits) + 4;  // 4: slices in flight at the start, and the epilogue
  // Instructions of a thread for a slice: multiply-adds, loads from shared memory, five for each element that it
  // fetches, and about 20 more.
  const double sums = tile.m * tile.n / tile.threads, reads = sums > 64 ? 6 : 4;
  const double others = kSimtTileK * reads + 5.0 * kSimtTileK * (tile.m + tile.n) / tile.threads + 20;
  const double flop = 2.0 * tile.m * tile.n * kSimtTileK * slices * (1 + others / (kSimtTileK * sums));
  const double sm_rate = d.fp32_gflop_s * 1e3 / d.sm_count;
  const double full = std::floor(blocks / at_once) * at_once, rest = blocks - full, warps = tile.threads / 32;
  double us = full * flop / (sm_rate * busy(at_once * warps, sums));
  if (rest > 0) us += rest * flop / (sm_rate * busy(rest * warps, sums));
  us = std::max(us, t.bytes / (0.9 * d.copy_gb_s * 1e3)) + 6;
  // A product of 512 x 512 x 512 with clusters of eight took 14 us more than this sum, including code that was not yet
  // in the caches. (Measured with an older main loop. Until it is measured again, clusters are configurations that
  // find() may try but that are never the first choice.)
  if (cluster) us += 14;
  else if (splits > 1 || !is_simple(t.activation))
    // parts are written and read, mostly in the L2
    us += 3 + 2 * splits * elements_of(t) * kItem / (1.5 * d.copy_gb_s * 1e3);
  return us;
}

// Clusters whose blocks add up their slices of k.
constexpr int kMostOfCluster = 8;  // every GPU that has clusters allows this size
bool clusters(const GemmTask& t, const Device& d) { return d.arch >= 90 && is_simple(t.activation); }

struct Candidate {
  SimtConfig config;
  double us;
};
// Each tile without a split, and with its best numbers of splits. No splits if k is too short, or if there are phases
// (backward_data).
std::vector<Candidate> choices_of(const GemmTask& t, const Device& d) {
  const bool splits_k = t.views.size() == 1;
  std::vector<Candidate> all;
  for (const SimtTileSize& tile : kTiles) {
    const Sizes s = sizes_of(t, tile);
    auto add_best = [&](double most, bool cluster) {
      Candidate best{{}, 1e300};
      for (int splits = 2; splits <= most; splits += cluster ? splits : splits < 8 ? 1 : splits / 4) {
        const SimtConfig c{tile, splits, cluster};
        if (double us = config_us(t, d, c, s); us < best.us) best = {c, us};
      }
      if (most >= 2) all.push_back(best);
    };
    all.push_back({{tile, 1, false}, config_us(t, d, {tile, 1, false}, s)});
    const double most = splits_k ? std::min(s.slices / 4, std::ceil(8.0 * d.sm_count / s.tiles)) : 1;
    if (elements_of(t) < kMostParts) add_best(most, false);
    if (clusters(t, d)) add_best(std::min(most, double(kMostOfCluster)), true);
  }
  std::ranges::stable_sort(all, {}, &Candidate::us);
  return all;
}

struct Launcher final : GemmPlan {
  SimtLaunches launches;
  std::shared_ptr<const cuda::Kernel> kernel;
  cuda::LaunchConfig config;
  std::unique_ptr<SplitKReduce> add_parts;

  void run(const GemmArgs& args, void* workspace, Stream stream) const override {
    GemmArgs now = args;
    if (launches.parts) now = {args.a, args.b, nullptr, nullptr, workspace};
    if (launches.exchanged) std::swap(now.a, now.b);
    cuda::LaunchConfig launch = config;
    for (size_t i = 0; i < launches.params.size(); ++i) {
      SimtParams params = launches.params[i];
      params.args = now;
      launch.grid = {launches.blocks[i]};
      cuda::launch(*kernel, launch, stream, params);
    }
    if (add_parts) add_parts->run(args, workspace, stream);
  }
};

}  // namespace

std::string simt_why_not(const GemmTask& t) {
  if (t.type != DType::float32) return cat("supports float32 only; got ", name(t.type));
  for (const GemmView& v : t.views) {
    for (int64_t size : {v.m.size, v.n.size, v.k.size, v.batch.size})
      if (size > kMost / 2) return cat("supports M, N, K and batch below 2^30; got ", size);
    const GemmWindow& w = v.b.window.on ? v.b.window : v.a.window;
    for (int j = 0; j < 3 && w.on; ++j) {
      const GemmIndex& rows = v.b.window.on ? v.n : v.m;
      const double reach = std::abs(double(w.start[j])) +
                           double(rows.digit[w.row_digit + j]) * std::abs(double(w.row_step[j])) +
                           double(v.k.digit[w.k_digit + j]) * std::abs(double(w.k_step[j]));
      if (reach > double(kMost / 2) || w.size[j] > kMost / 2)
        return cat("supports windows that move over fewer than 2^30 elements; got ",
                   std::max(reach, double(w.size[j])));
    }
    const int tap_bits = product_of(v.b.window.on ? transposed(v) : v).tap_bits;
    if (tap_bits > kSimtTapBits)
      return cat("supports at most ", kSimtTapBits, " taps along the dimensions that have padding; got ", tap_bits);
    const double across = double(max_of(v.m.size, v.n.size)) / 16 + 1,
                 down = double(min_of(v.m.size, v.n.size)) / 128 + 1;
    if (across * down * double(v.batch.size) * kSimtPhases > double(kMost))
      return "supports at most 2^31 - 1 blocks; got more";
  }
  if (!is_simple(t.activation) && elements_of(t) >= kMostParts)
    return cat("supports activation '", name(t.activation), "' for fewer than 2^30 results; got ", elements_of(t));
  return "";
}

double simt_estimate_us(const GemmTask& t, const Device& d) { return choices_of(t, d).front().us; }

std::vector<Config> simt_configs(const GemmTask& t, const Device& d) {
  std::vector<Config> configs;
  for (const Candidate& c : choices_of(t, d)) {
    const auto& [tile, splits, cluster] = c.config;
    configs.push_back(cat("tile=", tile.m, "x", tile.n));
    if (splits > 1) configs.back() += cat(cluster ? ";cluster=" : ";split=", splits);
  }
  return configs;
}

SimtConfig simt_config(const Config& config) {
  const size_t at = config.find(';'), value = config.find('=', at == std::string::npos ? 0 : at) + 1;
  const bool cluster = at != std::string::npos && config.substr(at, 9) == ";cluster=";
  const int splits = at == std::string::npos ? 1 : std::stoi(config.substr(value));
  for (const SimtTileSize& t : kTiles)
    if (config.substr(0, at) == cat("tile=", t.m, "x", t.n)) return {t, splits, cluster};
  throw NotSupported(cat("simt: unknown config '", config, "'"));
}

SimtLaunches simt_launches(const GemmTask& t, const SimtConfig& c) {
  SimtLaunches all;
  all.parts = (c.splits > 1 && !c.cluster) || !is_simple(t.activation);
  const int64_t tile_m = c.tile.m, tile_n = c.tile.n;
  int64_t part_stride = 0;
  auto [products, exchanged] = products_of(t, tile_m, tile_n);
  all.exchanged = exchanged;
  // Phases differ in sizes and in windows, but all phases of a launch read and write in the same way.
  const Product& first = products.front();
  bool a_along_k = first.a_along_k, b_along_k = first.b_along_k;
  all.vectors_a = !a_along_k,
  all.vectors_b = !b_along_k && tile_n >= 64;  // there are no kernels for narrow tiles with vectors of b
  if (all.parts) {
    Product& p = products.front();
    const bool along_m = neighbourhood(p.m, kY) >= neighbourhood(p.n, kY);
    Axis &slow = along_m ? p.n : p.m, &fast = along_m ? p.m : p.n;
    all.of_parts = view_of_y(p, slow, fast);
    const Parts parts(all.of_parts);
    lay_out(slow, fast, parts.columns);
    int64_t step = parts.columns * size_of(slow);
    for (size_t j = p.batch.size(); j-- > 0; step *= p.batch[j].size) p.batch[j].stride[kBatchY] = step;
    part_stride = parts.part_stride;
    p.y_offset = 0;
  }
  const bool along_m = neighbourhood(first.m, kY) >= neighbourhood(first.n, kY);
  bool vectors_y = true;
  for (const Product& p : products) {
    all.vectors_a = all.vectors_a &&
                    in_vectors(p.m, kOperand, p.windowed, t.alignment, p.a_offset, {{&p.k, kA}, {&p.batch, kBatchA}});
    all.vectors_b =
        all.vectors_b && in_vectors(p.n, kOperand, false, t.alignment, p.b_offset, {{&p.k, kB}, {&p.batch, kBatchB}});
    const int64_t alignment = all.parts ? 16 : t.alignment;
    const Axis &along = along_m ? p.m : p.n, &across = along_m ? p.n : p.m;
    vectors_y = vectors_y && in_vectors(along, kY, false, alignment, p.y_offset, {{&across, kY}, {&p.batch, kBatchY}});
  }
  for (size_t i = 0; i < products.size(); i += kSimtPhases) {
    SimtParams& params = all.params.emplace_back();
    const size_t end = std::min(products.size(), i + kSimtPhases);
    uint32_t most_tiles = 0;
    int64_t most_m = 0, most_n = 0;
    bool one_digit_k = true;
    for (size_t j = i; j < end; ++j) {
      const Product& p = products[j];
      SimtPhase& phase = params.phase[j - i];
      one_digit_k = one_digit_k && p.k.size() <= 1 && !p.windowed;
      phase.m = index_of(p.m), phase.n = index_of(p.n), phase.k = index_of(p.k);
      phase.a_row = bytes_of(p.m, kOperand), phase.b_row = bytes_of(p.n, kOperand);
      phase.a_k = bytes_of(p.k, kA), phase.b_k = bytes_of(p.k, kB);
      phase.y_m = bytes_of(p.m, kY), phase.y_n = bytes_of(p.n, kY);
      phase.a_offset = p.a_offset * kItem, phase.b_offset = p.b_offset * kItem, phase.y_offset = p.y_offset * kItem;
      phase.window = p.window;
      const Axis &positions = p.window.taps_in_k ? p.m : p.k, &taps = p.window.taps_in_k ? p.k : p.m;
      for (int w = 0; w < 3; ++w) {
        for (size_t back = 1; back <= positions.size(); ++back)
          phase.window.position_of[w][kDigits - back] = int32_t(positions[positions.size() - back].position[w]);
        for (size_t back = 1; back <= taps.size(); ++back)
          phase.window.tap_of[w][kDigits - back] = int32_t(taps[taps.size() - back].tap[w]);
      }
      const int64_t tiles_m = ceil_div(int64_t(phase.m.size), tile_m),
                    tiles_n = ceil_div(int64_t(phase.n.size), tile_n);
      phase.tiles = uint32_t(tiles_m * tiles_n);
      most_tiles = std::max(most_tiles, phase.tiles);
      most_m = std::max(most_m, tiles_m), most_n = std::max(most_n, tiles_n);
    }
    // Concurrent blocks should share as much data as they can: they traverse the shorter side first.
    const bool fast_m = most_m <= most_n;
    for (size_t j = i; j < end; ++j) {
      SimtPhase& phase = params.phase[j - i];
      phase.fast =
          FastDivmod(fast_m ? ceil_div(phase.m.size, uint32_t(tile_m)) : ceil_div(phase.n.size, uint32_t(tile_n)));
    }
    const Product& p = products[i];
    params.batch = index_of(p.batch);
    params.a_batch = bytes_of(p.batch, kBatchA), params.b_batch = bytes_of(p.batch, kBatchB);
    params.y_batch = bytes_of(p.batch, kBatchY);
    params.c_batch = bytes_of(p.batch, kBatchC), params.bias_batch = bytes_of(p.batch, kBatchBias);
    params.c_m = bytes_of(p.m, kC), params.c_n = bytes_of(p.n, kC);
    params.bias_m = bytes_of(p.m, kBias), params.bias_n = bytes_of(p.n, kBias);
    params.y_split = part_stride * kItem;
    params.phases = FastDivmod(uint32_t(end - i)), params.tiles = FastDivmod(most_tiles),
    params.splits = FastDivmod(uint32_t(c.splits));
    uint32_t longest_k = 0;
    for (size_t j = 0; j < end - i; ++j) longest_k = std::max(longest_k, params.phase[j].k.size);
    params.k_per_split = ceil_div(ceil_div(longest_k, uint32_t(c.splits)), uint32_t(kSimtTileK)) * kSimtTileK;
    params.flags = (a_along_k ? kSimtAAlongK : 0u) | (b_along_k ? kSimtBAlongK : 0u) | (fast_m ? kSimtFastM : 0u) |
                   (along_m ? kSimtAlongM : 0u) | (vectors_y ? kSimtVectors : 0u) |
                   (t.activation == Activation::relu && !all.parts ? kSimtRelu : 0u) |
                   (one_digit_k ? kSimtOneDigitK : 0u) | (c.cluster ? kSimtCluster : 0u);
    all.blocks.push_back(uint32_t(size_of(p.batch)) * uint32_t(c.splits) * most_tiles * uint32_t(end - i));
  }
  return all;
}

size_t simt_workspace_bytes(const GemmTask& t, const Config& config) {
  const SimtConfig c = simt_config(config);
  const SimtLaunches l = simt_launches(t, c);
  return l.parts ? Parts(l.of_parts).bytes(c.splits) : 0;
}

std::unique_ptr<GemmPlan> simt_plan(const GemmTask& t, const Device& d, const Config& config) {
  const SimtConfig c = simt_config(config);
  auto plan = std::make_unique<Launcher>();
  plan->launches = simt_launches(t, c);
  plan->kernel = cuda::load_kernel(kernel_spec(c.tile, plan->launches.vectors_a, plan->launches.vectors_b),
                                   d.place.index, c.tile.smem_bytes);
  plan->config.block = {unsigned(c.tile.threads)};
  plan->config.smem_bytes = unsigned(c.tile.smem_bytes);
  if (c.cluster) plan->config.cluster = {unsigned(c.splits)};
  if (plan->launches.parts) plan->add_parts = std::make_unique<SplitKReduce>(t, plan->launches.of_parts, c.splits, d);
  return plan;
}

std::vector<KernelSpec> simt_kernels() {
  std::vector<KernelSpec> all;
  for (const SimtTileSize& t : kTiles)
    for (bool a : {false, true})
      for (bool b : {false, true})
        if (t.n >= 64 || !b) all.push_back(kernel_spec(t, a, b));
  for (KernelSpec& s : add_parts_kernels()) all.push_back(std::move(s));
  return all;
}

}  // namespace minidnn
