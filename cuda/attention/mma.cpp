// SPDX-License-Identifier: Apache-2.0
// cuda.attention.mma: forward and decode on tensor cores, with all options. The kernel is compiled for some head sizes
// (kTiles16, kTiles32); others use the next larger one. If there are too few tiles of rows for the device, the
// columns of a tile are divided among blocks. These add their sums in a cluster, or a second kernel does.
#include "cuda/attention/mma.h"

#include <charconv>
#include <span>

#include "cpp/engine/engine_object.h"
#include "cuda/attention/mma_backward.h"
#include "cuda/attention/mma_params.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::attention {
namespace {

// The tiles for scores without and with options, and for few rows, which are compiled in both forms.
struct Tiles {
  std::span<const AttentionTile> plain, extras, few_rows;
};
// D, Dv, columns, warps, fragments of 16 rows of a warp, stages, blocks per SM, and bytes of an element. A thread uses at
// most 255 registers, and a block little enough shared memory that two fit on an SM of Hopper. If D and Dv have two tiles,
// the second one is for devices that give a block 99 KB only. Options need registers, so their tiles have fewer rows.
constexpr AttentionTile kPlain16[] = {{64, 64, 64, 4, 2, 2, 2, false, false},
                                      {96, 96, 64, 4, 2, 2, 2, false, false},
                                      {128, 128, 64, 4, 2, 2, 2, false, false},
                                      {192, 128, 64, 4, 2, 1, 2, false, false},
                                      {256, 256, 64, 4, 1, 1, 2, false, false}};
constexpr AttentionTile kExtras16[] = {{64, 64, 64, 4, 1, 2, 2, false, true},
                                       {128, 128, 64, 4, 1, 2, 2, false, true},
                                       {256, 256, 64, 4, 1, 1, 2, false, true}};
constexpr AttentionTile kFewRows16[] = {{64, 64, 128, 4, 1, 3, 2, true, false},
                                        {128, 128, 64, 4, 1, 3, 2, true, false},
                                        {128, 128, 64, 4, 1, 2, 3, true, false},
                                        {256, 256, 32, 2, 1, 3, 2, true, false},
                                        {256, 256, 32, 2, 1, 2, 3, true, false}};
constexpr Tiles kTiles16 = {kPlain16, kExtras16, kFewRows16};
constexpr AttentionTile kPlain32[] = {{64, 64, 32, 4, 2, 2, 2, false, false, 4},
                                      {128, 128, 32, 4, 2, 1, 2, false, false, 4},
                                      {256, 256, 16, 4, 1, 1, 2, false, false, 4}};
constexpr AttentionTile kExtras32[] = {{64, 64, 64, 4, 1, 2, 2, false, true, 4},
                                       {128, 128, 32, 4, 1, 2, 2, false, true, 4},
                                       {256, 256, 16, 4, 1, 1, 2, false, true, 4}};
constexpr AttentionTile kFewRows32[] = {{64, 64, 64, 4, 1, 2, 3, true, false, 4},
                                        {128, 128, 32, 2, 1, 2, 3, true, false, 4},
                                        {256, 256, 32, 2, 1, 1, 2, true, false, 4}};
constexpr Tiles kTiles32 = {kPlain32, kExtras32, kFewRows32};

bool is_float32(const AttentionProblem& p) { return p.q.dtype == DType::float32; }
const Tiles& tiles_for(DType type) { return type == DType::float32 ? kTiles32 : kTiles16; }

KernelSpec spec(DType type, const AttentionTile& t) {
  auto word = [](bool b) { return b ? "true" : "false"; };
  return {"cuda/attention/mma.cu",
          cat("minidnn::attention_mma<", cuda_name(type), ", minidnn::AttentionTile{", t.head, ", ", t.value, ", ",
              t.columns, ", ", t.warps, ", ", t.fragments, ", ", t.stages, ", ", t.blocks, ", ", word(t.along_columns),
              ", ", word(t.extras), ", ", t.bytes, "}>")};
}
KernelSpec join_spec(DType type) {
  return {"cuda/attention/mma.cu", cat("minidnn::attention_join<", cuda_name(type), ">")};
}

bool has_options(const AttentionProblem& p) {
  return p.has_softcap || p.bias.rank || p.alibi || p.has_dropout || p.negative_scale;
}

// How a problem is divided among blocks.
struct Tiling {
  AttentionTile tile{};
  int64_t pack = 1;     // heads that share a tile
  int64_t blocks = 1;   // tiles of rows of a sequence
  int64_t tiles = 1;    // of rows of all sequences and heads
  int64_t at_once = 1;  // blocks that the device runs at the same time
  int64_t most_splits = 1;
  int64_t splits = 1;  // as expected to be the fastest
  int64_t least_tiles = 1;

  Tiling(const AttentionProblem& p, const Device& d) {
    const int64_t group = p.heads() / p.kv_heads(), rows = p.q_size() * group;
    // With more rows, their tiles would read k and v too often.
    constexpr int64_t kFewRows = 32;
    const Tiles& all = tiles_for(p.q.dtype);
    const bool few = rows <= kFewRows;
    const auto tiles_of = few ? all.few_rows : has_options(p) || p.pages_of_sequence ? all.extras : all.plain;
    tile = *std::ranges::find_if(tiles_of, [&](const AttentionTile& t) {
      return p.head_size() <= t.head && p.value_size() <= t.value && t.smem_bytes() <= d.max_smem_bytes;
    });
    if (few) tile.extras = has_options(p);
    const int64_t of_tile = tile.rows();
    if (p.q_size() <= 8 * of_tile && ceil_div(rows, of_tile) < group * ceil_div(p.q_size(), of_tile)) pack = group;
    const int64_t most_rows = std::min(p.q_size(), p.q.shape[2]);        // max_q may be larger
    blocks = std::max(ceil_div(most_rows * pack, of_tile), int64_t(1));  // without rows, a block clears packed o
    tiles = blocks * p.batch() * (p.heads() / pack);
    at_once = d.sm_count * std::clamp((d.max_smem_bytes + 1024) / (int64_t(tile.smem_bytes()) + 1024), int64_t(1),
                                      int64_t(tile.blocks));
    // A part has at least 256 columns. So a result does not depend on the size of a cache, only on the length in it.
    constexpr int64_t kLeastColumns = 256;
    least_tiles = kLeastColumns / tile.columns;
    if (p.packed) return;
    most_splits = std::clamp(ceil_div(p.kv_size(), kLeastColumns), int64_t(1), int64_t(kAttentionMostSplits));
    const int64_t fit = at_once / tiles;
    if (!tile.along_columns) {
      splits = std::max(fit, int64_t(1));
    } else if (fit >= 2) {
      splits = fit / 2;  // measured: half as many blocks as fit read k and v faster than all that fit
    } else {
      // The least number of parts that leaves little of the last wave idle.
      constexpr double kBusy = 0.9;
      auto busy = [&](int64_t n) { return double(tiles * n) / double(ceil_div(tiles * n, at_once) * at_once); };
      while (busy(splits) < kBusy && tiles * splits < 2 * at_once) ++splits;
    }
    splits = std::min(splits, most_splits);
  }
};

// Whether the parts of the columns are blocks of a cluster, which add their sums in shared memory.
bool in_cluster(const Tiling& t, int64_t splits, const Device& d) {
  return t.tile.along_columns && splits > 1 && splits <= usual_cluster(d);
}

int64_t splits_of(const Config& config) {
  int64_t splits = 1;
  if (config.starts_with("split=")) std::from_chars(config.data() + 6, config.data() + config.size(), splits);
  return splits;
}
Config config_of(int64_t splits) { return splits > 1 ? cat("split=", splits) : ""; }

int64_t rows_of(const AttentionProblem& p) { return p.batch() * p.heads() * p.q_size(); }

struct MmaPlan final : Plan<AttentionProblem> {
  std::shared_ptr<const cuda::Kernel> kernel, join;
  cuda::LaunchConfig config, join_config;
  AttentionForwardParams params;
  int64_t sums = 0;  // elements of AttentionPartials::sums

  void run(const AttentionArgs& args, void* workspace, Stream stream) const override {
    AttentionPartials partials;
    if (join) partials = {static_cast<float*>(workspace), static_cast<float*>(workspace) + sums};
    cuda::launch(*kernel, config, stream, params, args, partials);
    if (join) cuda::launch(*join, join_config, stream, params, args, partials);
  }
};

std::string why_not_vectors(const char* name, const TensorDesc& d) {
  const int64_t elements = 16 / itemsize(d.dtype);
  if (d.shape[3] % elements)
    return cat("needs head sizes that are multiples of ", elements, "; ", name, " has ", d.shape[3]);
  if (d.stride[3] != 1) return cat("needs contiguous heads; those of ", name, " have the stride ", d.stride[3]);
  for (int i = 0; i < 3; ++i)
    if (d.shape[i] > 1 && d.stride[i] % elements)
      return cat("needs strides that are multiples of ", elements, "; ", name, " has the stride ", d.stride[i]);
  return "";
}

std::string why_not_dtype(const AttentionProblem& p, bool tf32) {
  if (p.q.dtype == DType::float16 || p.q.dtype == DType::bfloat16) return "";
  if (!tf32) return cat("supports float16 and bfloat16 only; got ", minidnn::name(p.q.dtype));
  if (!is_float32(p)) return cat("supports float16, bfloat16 and float32 only; got ", minidnn::name(p.q.dtype));
  return p.ieee ? "math='ieee' asks for float32 products, and this engine computes TF32 products" : "";
}

}  // namespace

std::string mma_why_not(const AttentionProblem& p, const Device& d, bool tf32) {
  constexpr int64_t kMostHead = 256;
  if (d.arch < 80) return cat("needs the tensor cores of sm_80 or later; got sm_", d.arch);
  if (std::string why = why_not_dtype(p, tf32); !why.empty()) return why;
  if (p.head_size() > kMostHead || p.value_size() > kMostHead)
    return cat("supports head sizes up to ", kMostHead, "; got ", p.head_size(), " and ", p.value_size());
  for (const auto& [label, desc] : {std::pair("q", &p.q), {"k", &p.k}, {"v", &p.v}, {"o", &p.o}})
    if (std::string why = why_not_vectors(label, *desc); !why.empty()) return why;
  if (p.alignment < 16) return cat("needs tensors that begin at multiples of 16 bytes; got ", p.alignment);
  const int64_t rows = std::max({p.q.shape[2], p.k.shape[2], p.q_size(), p.kv_size()});
  if (rows > kMmaMostRows) return cat("supports at most ", kMmaMostRows, " rows; got ", rows);
  constexpr int64_t kMostExact = int64_t(1) << 23;
  if (p.alibi && rows > kMostExact) return cat("supports at most ", kMostExact, " rows with alibi; got ", rows);
  constexpr int64_t kMostTiles = int64_t(1) << 30;
  if (p.batch() * p.heads() * ceil_div(p.q_size(), int64_t(16)) > kMostTiles)
    return cat("supports at most ", kMostTiles, " tiles of 16 rows");
  return "";
}

struct Mma final : Engine<AttentionProblem> {
  static bool is_backward(const AttentionProblem& p) { return p.direction == AttentionDirection::backward; }
  std::string name() const override { return "cuda.attention.mma"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const AttentionProblem& p, const Device& d) const override {
    return is_backward(p) ? mma_backward_why_not(p, d) : mma_why_not(p, d, true);
  }
  double estimate_us(const AttentionProblem& p, const Device& d) const override {
    if (is_backward(p)) return mma_backward_estimate_us(p, d);
    const Tiling t(p, d);
    // Measured on an H100: 350 TFLOP/s at D 128 for 16 bits, and 150 for float32, where the float32 units have 67. All
    // rows of a tile take the same time.
    const int head = t.tile.head;
    const double rate = 5.2 * d.fp32_gflop_s * 1e3 * (t.tile.extras ? 0.5 : 1) * (is_float32(p) ? 0.45 : 1) *
                        (head <= 64    ? 0.8
                         : head <= 128 ? 1
                                       : 0.65);
    const double rows = double(t.blocks * t.tile.rows()) / double(std::max(p.q_size() * t.pack, int64_t(1)));
    const double heads = double(head + t.tile.value) / double(p.head_size() + p.value_size());
    const double busy = std::min(1.0, double(t.tiles * t.splits) / double(t.at_once));
    const double compute = attention_flop(p) * rows * heads / (rate * busy);
    const double memory = attention_bytes(p) / (0.85 * d.copy_gb_s * 1e3);
    return 5 + (t.splits > 1 ? 3 : 0) + std::max(compute, memory);
  }
  std::vector<Config> configs(const AttentionProblem& p, const Device& d) const override {
    if (is_backward(p)) return {""};
    const Tiling t(p, d);
    std::vector<Config> all{config_of(t.splits)};
    if (t.tiles >= 4 * t.at_once) return all;
    for (int64_t splits : {t.splits / 2, 2 * t.splits, int64_t(1)})
      if (splits >= 1 && splits <= t.most_splits && std::ranges::find(all, config_of(splits)) == all.end())
        all.push_back(config_of(splits));
    return all;
  }
  size_t workspace_bytes(const AttentionProblem& p, const Device& d, const Config& config) const override {
    if (is_backward(p)) return mma_backward_workspace_bytes(p);
    const int64_t splits = splits_of(config);
    return splits > 1 && !in_cluster(Tiling(p, d), splits, d)
               ? size_t(splits * rows_of(p) * (p.value_size() + 2)) * sizeof(float)
               : 0;
  }
  std::unique_ptr<Plan<AttentionProblem>> build(const AttentionProblem& p, const Device& d,
                                                const Config& config) const override {
    if (is_backward(p)) return mma_backward_plan(p, d);
    const Tiling t(p, d);
    auto plan = std::make_unique<MmaPlan>();
    AttentionForwardParams& to = plan->params;
    to.scores = AttentionScoreParams(p);
    const bool packed = p.packed > 0;
    to.q = {p.q, packed};
    to.k = {p.k, packed};
    to.v = {p.v, packed};
    to.o = {p.o, packed};
    to.head_size = int32_t(p.head_size());
    to.value_size = int32_t(p.value_size());
    to.pack = FastDivmod(t.pack);
    to.head_batches = FastDivmod(p.batch() * (p.heads() / t.pack));
    to.heads = FastDivmod(p.heads() / t.pack);
    to.blocks = int32_t(t.blocks);
    to.splits = int32_t(splits_of(config));
    to.in_cluster = in_cluster(t, to.splits, d);
    to.least_tiles = to.splits > 1 ? int32_t(t.least_tiles) : 1;
    to.pages_of_sequence = int32_t(p.pages_of_sequence);
    to.pages = int32_t(p.k.shape[0]);
    if (p.pages_of_sequence) to.page_size = FastDivmod(p.k.shape[2]);
    plan->kernel = cuda::load_kernel(spec(p.q.dtype, t.tile), d.place.index, t.tile.smem_bytes());
    plan->config.grid = {unsigned(t.tiles), unsigned(to.splits)};
    plan->config.block = {unsigned(t.tile.threads())};
    plan->config.smem_bytes = unsigned(t.tile.smem_bytes());
    if (to.in_cluster) plan->config.cluster = {1, unsigned(to.splits)};
    if (to.splits == 1 || to.in_cluster) return plan;
    plan->sums = to.splits * rows_of(p) * p.value_size();
    plan->join = cuda::load_kernel(join_spec(p.q.dtype), d.place.index);
    plan->join_config.grid = {unsigned(rows_of(p))};
    plan->join_config.block = {128};
    plan->join_config.programmatic = d.arch >= 90;
    return plan;
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all = mma_backward_kernels();
    for (DType type : {DType::float16, DType::bfloat16, DType::float32}) {
      const Tiles& tiles = tiles_for(type);
      for (const auto& group : {tiles.plain, tiles.extras, tiles.few_rows})
        for (const AttentionTile& t : group) all.push_back(spec(type, t));
      for (AttentionTile t : tiles.few_rows) {
        t.extras = true;
        all.push_back(spec(type, t));
      }
      all.push_back(join_spec(type));
    }
    return all;
  }
};

}  // namespace cuda::attention

template const Engine<AttentionProblem>& engine_object<AttentionProblem, cuda::attention::Mma>();

}  // namespace minidnn
