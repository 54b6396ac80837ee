// SPDX-License-Identifier: Apache-2.0
// cuda.attention.wgmma: forward of 16-bit operands on Hopper. The kernel is compiled for some head sizes.
// Others use the next larger one. A block of threads runs on each SM.
#include "cuda/attention/wgmma.h"

#include <bit>
#include <cmath>
#include <numeric>

#include "cpp/engine/engine_object.h"
#include "cuda/attention/mma.h"
#include "cuda/attention/wgmma_params.h"
#include "cuda/runtime/plan.h"
#include "cuda/runtime/tensor_map.h"

namespace minidnn {
namespace cuda::attention {
namespace {

// A tile, and the part of the peak rate of wgmma that it reached on an H100 with long sequences.
struct Choice {
  WgmmaTile tile;  // D, Dv, columns, warpgroups, stages of q, stages of k and v, turns, options
  double rate;
};
// Scores and sums of a thread fit into 240 registers (two warpgroups) or 160 (three).
constexpr Choice kPlainChoices[] = {
    {{64, 64, 128, 3, 2, 2, true, 0}, 0.54},   {{64, 64, 128, 2, 2, 2, true, 0}, 0.44},
    {{96, 96, 128, 2, 2, 2, true, 0}, 0.6},    {{128, 128, 128, 2, 2, 2, true, 0}, 0.68},
    {{192, 128, 128, 2, 1, 2, true, 0}, 0.7},  {{192, 192, 96, 2, 1, 2, false, 0}, 0.7},
    {{256, 256, 80, 2, 1, 2, false, 0}, 0.78},
};
constexpr WgmmaTile kOptionTiles[] = {
    {64, 64, 128, 2, 2, 2, true}, {128, 128, 128, 2, 2, 2, true}, {256, 256, 64, 2, 1, 2, false}};
// Code that a call does not use takes time, so there is a kernel for each option, and one for all of them. `rate` is that
// of D 128.
struct OptionSet {
  int options;
  double rate;
};
constexpr OptionSet kOptionSets[] = {
    {kAlibi, 0.57}, {kBias, 0.32}, {kSoftcap, 0.33}, {kDropout, 0.26}, {kAllOptions, 0.2}};

KernelSpec spec(DType type, const WgmmaTile& t) {
  KernelSpec spec{"cuda/attention/wgmma.cu",
                  cat("minidnn::attention_wgmma<", cuda_name(type), ", minidnn::WgmmaTile{", t.head, ", ", t.value,
                      ", ", t.columns, ", ", t.warpgroups, ", ", t.q_stages, ", ", t.stages, ", ",
                      t.turns ? "true" : "false", ", ", t.options, "}>")};
  spec.min_arch = 90;
  return spec;
}

// The options of a problem. With a scale that is not above 0, scores are in natural units, as with options.
int options_of(const AttentionProblem& p) {
  return (p.bias.rank ? kBias : 0) + (p.alibi ? kAlibi : 0) + (p.has_softcap ? kSoftcap : 0) +
         (p.has_dropout ? kDropout : 0);
}
bool is_plain(const AttentionProblem& p) { return options_of(p) == 0 && !p.negative_scale; }

Config config_of(const WgmmaTile& t) { return cat("tile=", t.rows(), "x", t.columns); }

int64_t blocks_of(const AttentionProblem& p, const WgmmaTile& t) {
  const int64_t most_rows = std::min(p.q_size(), p.q.shape[2]);         // max_q may be larger
  return std::max(ceil_div(most_rows, int64_t(t.rows())), int64_t(1));  // without rows, a block clears packed o
}
// Whether some rows see fewer columns than others.
bool has_band(const AttentionProblem& p) { return p.left >= 0 || p.right >= 0; }

// The pairs of a row and a column of a head that a tile computes, including hidden ones.
double computed_pairs(const AttentionProblem& p, const WgmmaTile& t) {
  double columns = double(ceil_div(p.kv_size(), int64_t(t.columns)) * t.columns);
  if (has_band(p)) {
    // A tile sees all columns between the first one of its first row and the last one of its last row.
    const double rows = std::max(attention_sequences(p) * double(p.heads() * p.q_size()), 1.0);
    const double more = (t.rows() + t.columns - std::gcd(t.rows(), t.columns)) / 2.0;  // at an end of the range
    columns = std::min(columns, attention_pairs(p) / rows + more * ((p.left >= 0) + (p.right >= 0)));
  }
  return double(blocks_of(p, t) * t.rows()) * columns;
}
// The time of a head on one SM, in units that all tiles share.
double cost(const AttentionProblem& p, const Choice& c) {
  return computed_pairs(p, c.tile) * (c.tile.head + c.tile.value) / c.rate;
}

Choice with_options(WgmmaTile t, const OptionSet& set) {
  t.options = set.options;
  return {t, set.rate * (t.head <= 64 ? 0.62 : t.head <= 128 ? 1 : 1.3)};
}

// The tiles that fit a problem, the fastest first.
std::vector<Choice> choices_of(const AttentionProblem& p) {
  std::vector<Choice> all;
  auto add = [&](const Choice& c) {
    if (p.head_size() <= c.tile.head && p.value_size() <= c.tile.value &&
        (all.empty() || (c.tile.head == all.front().tile.head && c.tile.value == all.front().tile.value)))
      all.push_back(c);
  };
  if (is_plain(p)) {
    for (const Choice& c : kPlainChoices) add(c);
  } else {
    const int needed = options_of(p);
    const OptionSet set =
        *std::ranges::find_if(kOptionSets, [&](const OptionSet& s) { return !(needed & ~s.options); });
    for (const WgmmaTile& t : kOptionTiles) add(with_options(t, set));
  }
  std::ranges::stable_sort(all, {}, [&](const Choice& c) { return cost(p, c); });
  return all;
}
WgmmaTile tile_of(const AttentionProblem& p, const Config& config) {
  const std::vector<Choice> all = choices_of(p);
  const auto found = std::ranges::find_if(all, [&](const Choice& c) { return config_of(c.tile) == config; });
  return (found == all.end() ? all.front() : *found).tile;
}

struct WgmmaPlan final : Plan<AttentionProblem> {
  std::shared_ptr<const cuda::Kernel> kernel;
  cuda::LaunchConfig config;
  AttentionProblem problem;
  WgmmaTile tile;
  AttentionWgmmaParams params;
  int device = 0;

  void run(const AttentionArgs& args, void*, Stream stream) const override {
    AttentionWgmmaParams to = params;
    to.q = map_of(problem.q, args.q, tile.rows(), device);
    to.k = map_of(problem.k, args.k, tile.columns, device);
    to.v = map_of(problem.v, args.v, tile.columns, device);
    cuda::launch(*kernel, config, stream, to, args);
  }
};

}  // namespace

std::string why_not_map(const char* name, const TensorDesc& d) {
  constexpr int64_t kMostBytes = int64_t(1) << 40;
  for (int i = 0; i < 3; ++i)
    if (d.shape[i] > 1 && (d.stride[i] <= 0 || d.stride[i] * 2 >= kMostBytes))
      return cat("needs strides above 0 and below 2^39; ", name, " has the stride ", d.stride[i]);
  return "";
}

TensorMap map_of(const TensorDesc& d, const void* data, int64_t rows, int device) {
  constexpr int kFrom[] = {3, 2, 1, 0};
  cuda::TiledMap m;
  m.address = data;
  m.dtype = d.dtype;
  m.swizzle_bytes = 128;
  m.l2_promotion_bytes = 256;
  m.rank = 5;
  for (int i = 0; i < 5; ++i) {
    const int64_t size = i < 4 ? d.shape[kFrom[i]] : 1;
    m.dims[i] = uint64_t(size);
    m.box[i] = 1;
    if (i > 0) m.strides[i - 1] = size == 1 ? 16 : uint64_t(d.stride[kFrom[i]] * 2);
  }
  m.box[0] = 64;
  m.box[1] = uint32_t(rows);
  return std::bit_cast<TensorMap>(cuda::encode(m, device));
}

std::string wgmma_why_not(const AttentionProblem& p, const Device& d) {
  if (d.arch / 10 != 9) return cat("needs wgmma, which sm_90 has; got sm_", d.arch);
  if (std::string why = mma_why_not(p, d); !why.empty()) return why;
  if (p.pages_of_sequence) return "does not support pages";
  if (p.k.shape[2] == 0 || p.q.shape[2] == 0) return "needs rows of q and k";
  for (const auto& [label, desc] : {std::pair("q", &p.q), {"k", &p.k}, {"v", &p.v}})
    if (std::string why = why_not_map(label, *desc); !why.empty()) return why;
  return "";
}

struct Wgmma final : Engine<AttentionProblem> {
  std::string name() const override { return "cuda.attention.wgmma"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const AttentionProblem& p, const Device& d) const override {
    if (p.direction == AttentionDirection::backward) return "does not compute gradients";
    return wgmma_why_not(p, d);
  }
  double estimate_us(const AttentionProblem& p, const Device& d) const override {
    const Choice c = choices_of(p).front();
    const double heads = attention_sequences(p) * double(p.heads()), blocks = heads * double(blocks_of(p, c.tile));
    // wgmma has 15 times the rate of float32 on an H100. With a band, tiles of different sizes fill the device.
    const double rate = 15 * d.fp32_gflop_s * 1e3, rounds = std::ceil(blocks / d.sm_count);
    const double used = has_band(p) || p.packed ? std::min(1.0, blocks / d.sm_count) : blocks / (rounds * d.sm_count);
    const double compute = 2 * heads * cost(p, c) / (rate * used);
    return 6 + std::max(compute, attention_bytes(p) / (0.85 * d.copy_gb_s * 1e3));
  }
  std::vector<Config> configs(const AttentionProblem& p, const Device&) const override {
    std::vector<Config> all;
    for (const Choice& c : choices_of(p)) all.push_back(config_of(c.tile));
    return all;
  }
  size_t workspace_bytes(const AttentionProblem&, const Device&, const Config&) const override { return 0; }
  std::unique_ptr<Plan<AttentionProblem>> build(const AttentionProblem& p, const Device& d,
                                                const Config& config) const override {
    const WgmmaTile t = tile_of(p, config);
    auto plan = std::make_unique<WgmmaPlan>();
    plan->problem = p;
    plan->tile = t;
    plan->device = d.place.index;
    AttentionWgmmaParams& to = plan->params;
    to.scores = AttentionScoreParams(p);
    to.o = {p.o, p.packed > 0};
    to.value_size = int32_t(p.value_size());
    to.blocks = int32_t(blocks_of(p, t));
    // With a causal mask, tiles of rows differ in time.
    to.has_pairs = !p.packed && has_band(p) && (p.left < 0 || p.right < 0);
    const int64_t units = to.has_pairs ? ceil_div(int64_t(to.blocks), int64_t(2)) : to.blocks;
    to.units = int32_t(units * p.batch() * p.heads());
    to.heads = FastDivmod(p.heads());
    to.head_units = FastDivmod(units);
    plan->kernel = cuda::load_kernel(spec(p.q.dtype, t), d.place.index, t.smem_bytes());
    // Blocks are persistent. Tiles whose time depends on lengths are distributed better by the device.
    const bool has_lengths = p.packed || p.has_q_lengths || p.has_kv_lengths;
    plan->config.grid = {unsigned(has_lengths ? to.units : std::min(to.units, d.sm_count))};
    plan->config.block = {unsigned(t.threads())};
    plan->config.smem_bytes = unsigned(t.smem_bytes());
    plan->config.programmatic = true;
    return plan;
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType type : {DType::float16, DType::bfloat16}) {
      for (const Choice& c : kPlainChoices) all.push_back(spec(type, c.tile));
      for (const OptionSet& set : kOptionSets)
        for (const WgmmaTile& t : kOptionTiles) all.push_back(spec(type, with_options(t, set).tile));
    }
    return all;
  }
};

}  // namespace cuda::attention

template const Engine<AttentionProblem>& engine_object<AttentionProblem, cuda::attention::Wgmma>();

}  // namespace minidnn
