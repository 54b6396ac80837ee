// SPDX-License-Identifier: Apache-2.0
#include "cuda/gemm/simt/plan.h"

#include <algorithm>
#include <cmath>

#include "cpp/activation/activation.h"
#include "cpp/core/dtype.h"

namespace minidnn {
namespace {

using namespace simt;

GemmIndex32 index_of(const Axis& axis) {
  GemmIndex32 index;
  index.size = uint32_t(size_of(axis));
  for (size_t back = 1; back < kDigits && back <= axis.size(); ++back)
    // max_of(): the dimensions of an empty k have size 0
    index.by[kDigits - 1 - back] = FastDivmod(max_of(axis[axis.size() - back].size, int64_t(1)));
  return index;
}
GemmStrides bytes_of(const Axis& axis, int tensor) {
  GemmStrides s;
  for (size_t back = 1; back <= axis.size(); ++back)
    s.of[kDigits - back] = axis[axis.size() - back].stride[tensor] * kItem;
  return s;
}

// Sets the strides of y to those of the workspace: contiguous along `fast`, `columns` elements apart along `slow`.
void lay_out(Axis& slow, Axis& fast, int64_t columns) {
  int64_t step = 1;
  for (size_t j = fast.size(); j-- > 0; step *= fast[j].size) fast[j].stride[kY] = step;
  step = columns;
  for (size_t j = slow.size(); j-- > 0; step *= slow[j].size) slow[j].stride[kY] = step;
}

void fill(const Axis& axis, GemmIndex& index, std::initializer_list<std::pair<int, GemmStrides*>> tensors) {
  index.first = kDigits - int64_t(std::max<size_t>(axis.size(), 1));
  for (size_t back = 1; back <= axis.size(); ++back) {
    const Digit& d = axis[axis.size() - back];
    index.size *= index.digit[kDigits - back] = d.size;
    for (auto [w, strides] : tensors) strides->of[kDigits - back] = d.stride[w];
  }
}

// A GemmView without operands for SplitKReduce: the layouts of y, c and bias.
GemmView view_of_y(const Product& p, const Axis& rows, const Axis& columns) {
  GemmView v;
  fill(rows, v.m, {{kY, &v.y_m}, {kC, &v.c_m}, {kBias, &v.bias_m}});
  fill(columns, v.n, {{kY, &v.y_n}, {kC, &v.c_n}, {kBias, &v.bias_n}});
  fill(p.batch, v.batch, {{kBatchY, &v.y_batch}, {kBatchC, &v.c_batch}, {kBatchBias, &v.bias_batch}});
  v.y_offset = p.y_offset;
  return v;
}

// Whether a second kernel applies the epilogue, to sums in the workspace.
bool uses_workspace(const GemmTask& t, const SimtConfig& c) {
  return (c.splits > 1 && !c.cluster) || !is_simple(t.activation);
}

// Whether rows of y (m) are closer in memory than columns (n).
bool y_along_m(const Product& p) { return neighbourhood(p.m, kY) >= neighbourhood(p.n, kY); }

// The layouts of y, c and bias for SplitKReduce, transposed if y is stored along m.
GemmView reduced_view(const Product& p) { return y_along_m(p) ? view_of_y(p, p.n, p.m) : view_of_y(p, p.m, p.n); }

// The parameters of one product that do not depend on the tile.
SimtPhase phase_of(const Product& p) {
  SimtPhase phase;
  phase.m = index_of(p.m);
  phase.n = index_of(p.n);
  phase.k = index_of(p.k);
  phase.a_row = bytes_of(p.m, kOperand);
  phase.b_row = bytes_of(p.n, kOperand);
  phase.a_k = bytes_of(p.k, kA);
  phase.b_k = bytes_of(p.k, kB);
  phase.y_m = bytes_of(p.m, kY);
  phase.y_n = bytes_of(p.n, kY);
  phase.a_offset = p.a_offset * kItem;
  phase.b_offset = p.b_offset * kItem;
  phase.y_offset = p.y_offset * kItem;
  phase.window = p.window;
  const Axis &positions = p.window.taps_in_k ? p.m : p.k, &taps = p.window.taps_in_k ? p.k : p.m;
  for (int w = 0; w < 3; ++w) {
    for (size_t back = 1; back <= positions.size(); ++back)
      phase.window.position_of[w][kDigits - back] = int32_t(positions[positions.size() - back].position[w]);
    for (size_t back = 1; back <= taps.size(); ++back)
      phase.window.tap_of[w][kDigits - back] = int32_t(taps[taps.size() - back].tap[w]);
  }
  return phase;
}

// Sets the parameters that all phases of a launch share.
void set_strides(SimtParams& params, const Product& p) {
  params.batch = index_of(p.batch);
  params.a_batch = bytes_of(p.batch, kBatchA);
  params.b_batch = bytes_of(p.batch, kBatchB);
  params.y_batch = bytes_of(p.batch, kBatchY);
  params.c_batch = bytes_of(p.batch, kBatchC);
  params.bias_batch = bytes_of(p.batch, kBatchBias);
  params.c_m = bytes_of(p.m, kC);
  params.c_n = bytes_of(p.n, kC);
  params.bias_m = bytes_of(p.m, kBias);
  params.bias_n = bytes_of(p.n, kBias);
}

KernelSpec kernel_spec(const SimtTileSize& t, bool vectors_a, bool vectors_b) {
  return {"cuda/gemm/simt/kernel.cu",
          cat("minidnn::simt_gemm<", t.m, ", ", t.n, ", ", vectors_a ? 4 : 1, ", ", vectors_b ? 4 : 1, ">")};
}
struct Launcher final : GemmPlan {
  SimtLaunches launches;
  std::shared_ptr<const cuda::Kernel> kernel;
  cuda::LaunchConfig config;
  std::unique_ptr<SplitKReduce> split_k_reduce;

  void run(const GemmArgs& args, void* workspace, Stream stream) const override {
    GemmArgs now = args;
    if (launches.to_workspace) now = {args.a, args.b, nullptr, nullptr, workspace};
    if (launches.exchanged) std::swap(now.a, now.b);
    cuda::LaunchConfig launch = config;
    for (size_t i = 0; i < launches.params.size(); ++i) {
      SimtParams params = launches.params[i];
      params.args = now;
      launch.grid = {launches.blocks[i]};
      cuda::launch(*kernel, launch, stream, params);
    }
    if (split_k_reduce) split_k_reduce->run(args, workspace, stream);
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
  if (!is_simple(t.activation) && elements_of(t) >= kMaxWorkspaceElements)
    return cat("supports activation '", name(t.activation), "' for fewer than 2^30 results; got ", elements_of(t));
  return "";
}

double simt_estimate_us(const GemmTask& t, const Device& d) { return simt_tilings(t, d).front().us; }

std::vector<Config> simt_configs(const GemmTask& t, const Device& d) {
  std::vector<Config> configs;
  for (const SimtTiling& c : simt_tilings(t, d)) {
    const auto& [tile, splits, cluster] = c.config;
    configs.push_back(cat("tile=", tile.m, "x", tile.n));
    if (splits > 1) configs.back() += cat(cluster ? ";cluster=" : ";split=", splits);
  }
  return configs;
}

SimtLaunches simt_launches(const GemmTask& t, const SimtConfig& c) {
  SimtLaunches all;
  all.to_workspace = uses_workspace(t, c);
  const int64_t tile_m = c.tile.m, tile_n = c.tile.n;
  int64_t split_stride = 0;
  auto [products, exchanged] = products_of(t, tile_m, tile_n);
  all.exchanged = exchanged;
  // Phases differ in sizes and windows, but not in how operands are read and y is written.
  const Product& first = products.front();
  bool a_along_k = first.a_along_k, b_along_k = first.b_along_k;
  all.vectors_a = !a_along_k;
  // Kernels with fewer than 64 columns do not read b by vectors.
  all.vectors_b = !b_along_k && tile_n >= 64;
  if (all.to_workspace) {
    Product& p = products.front();
    const bool along_m = y_along_m(p);
    Axis &slow = along_m ? p.n : p.m, &fast = along_m ? p.m : p.n;
    all.reduced = reduced_view(p);
    const SplitKWorkspace layout(all.reduced);
    lay_out(slow, fast, layout.columns);
    int64_t step = layout.columns * size_of(slow);
    for (size_t j = p.batch.size(); j-- > 0; step *= p.batch[j].size) p.batch[j].stride[kBatchY] = step;
    split_stride = layout.partition_stride;
    p.y_offset = 0;
  }
  const bool along_m = y_along_m(first);
  bool vectors_y = true;
  for (const Product& p : products) {
    all.vectors_a = all.vectors_a &&
                    in_vectors(p.m, kOperand, p.windowed, t.alignment, p.a_offset, {{&p.k, kA}, {&p.batch, kBatchA}});
    all.vectors_b =
        all.vectors_b && in_vectors(p.n, kOperand, false, t.alignment, p.b_offset, {{&p.k, kB}, {&p.batch, kBatchB}});
    const int64_t alignment = all.to_workspace ? 16 : t.alignment;
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
      SimtPhase& phase = params.phase[j - i] = phase_of(p);
      one_digit_k = one_digit_k && p.k.size() <= 1 && !p.windowed;
      const int64_t tiles_m = ceil_div(int64_t(phase.m.size), tile_m),
                    tiles_n = ceil_div(int64_t(phase.n.size), tile_n);
      phase.tiles = uint32_t(tiles_m * tiles_n);
      most_tiles = std::max(most_tiles, phase.tiles);
      most_m = std::max(most_m, tiles_m);
      most_n = std::max(most_n, tiles_n);
    }
    // Consecutive blocks traverse the shorter dimension of y (in tiles) first, so that they share operands.
    const bool fast_m = most_m <= most_n;
    for (size_t j = i; j < end; ++j) {
      SimtPhase& phase = params.phase[j - i];
      phase.fast =
          FastDivmod(fast_m ? ceil_div(phase.m.size, uint32_t(tile_m)) : ceil_div(phase.n.size, uint32_t(tile_n)));
    }
    set_strides(params, products[i]);
    params.y_split = split_stride * kItem;
    params.phases = FastDivmod(uint32_t(end - i));
    params.tiles = FastDivmod(most_tiles);
    params.splits = FastDivmod(uint32_t(c.splits));
    uint32_t longest_k = 0;
    for (size_t j = 0; j < end - i; ++j) longest_k = std::max(longest_k, params.phase[j].k.size);
    params.k_per_split = ceil_div(ceil_div(longest_k, uint32_t(c.splits)), uint32_t(kSimtTileK)) * kSimtTileK;
    params.flags = (a_along_k ? kSimtAAlongK : 0u) | (b_along_k ? kSimtBAlongK : 0u) | (fast_m ? kSimtFastM : 0u) |
                   (along_m ? kSimtAlongM : 0u) | (vectors_y ? kSimtVectors : 0u) |
                   (t.activation == Activation::relu && !all.to_workspace ? kSimtRelu : 0u) |
                   (one_digit_k ? kSimtOneDigitK : 0u) | (c.cluster ? kSimtCluster : 0u);
    all.blocks.push_back(uint32_t(size_of(products[i].batch)) * uint32_t(c.splits) * most_tiles * uint32_t(end - i));
  }
  return all;
}

size_t simt_workspace_bytes(const GemmTask& t, const Config& config) {
  const SimtConfig c = simt_config(config);
  if (!uses_workspace(t, c)) return 0;
  const Products products = products_of(t, c.tile.m, c.tile.n);
  return SplitKWorkspace(reduced_view(products.phases.front())).bytes(c.splits);
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
  if (plan->launches.to_workspace)
    plan->split_k_reduce = std::make_unique<SplitKReduce>(t, plan->launches.reduced, c.splits, d);
  return plan;
}

std::vector<KernelSpec> simt_kernels() {
  std::vector<KernelSpec> all;
  for (const SimtTileSize& t : simt_tile_sizes())
    for (bool a : {false, true})
      for (bool b : {false, true})
        if (t.n >= 64 || !b) all.push_back(kernel_spec(t, a, b));
  for (KernelSpec& s : split_k_reduce_kernels()) all.push_back(std::move(s));
  return all;
}

}  // namespace minidnn
