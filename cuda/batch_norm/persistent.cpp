// SPDX-License-Identifier: Apache-2.0
// cuda.batch_norm.persistent is the engine that computes batch norm in one launch. A cluster of blocks keeps whole
// channels in shared memory (see persistent.cu).
#include <algorithm>
#include <numeric>

#include "cpp/engine/engine_object.h"
#include "cuda/batch_norm/persistent_params.h"
#include "cuda/norm/channel_passes.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::batch_norm {
namespace {

constexpr int64_t kVector = 16;     // the number of bytes in a vector
constexpr size_t kMaxConfigs = 12;  // the maximum number of configs that find() tries

// One way to divide a batch norm among clusters of blocks, and its estimated time.
struct Candidate {
  PersistentTiling tiling;
  // `width` is the number of 16-byte vectors of each row that a cluster processes, or 0 for NCHW.
  int64_t blocks = 1, width = 0, threads = 0;
  int64_t clusters = 0, smem_bytes = 0;
  double us = 0;
  Config config() const {
    return cat("blocks=", blocks, width ? cat(";width=", width) : std::string(), ";threads=", threads);
  }
};

bool is_backward(const BatchNormProblem& p) { return p.direction == NormDirection::backward; }

// The layout of a dense tensor. NCHW: a plane is the contiguous elements of a channel in one image. NHWC: the tensor is
// a matrix of rows (pixels) and columns (channels). `group` adjacent columns share a mean and a variance.
struct ChannelLayout {
  ChannelTiling channels;
  // `vector` is the number of elements in 16 bytes. `items` is the number of vectors in a channel (NCHW) or of rows
  // (NHWC).
  int64_t vector = 1, group = 1, items = 0;
  bool columns = false;
};
std::string channel_layout(const BatchNormProblem& p, ChannelLayout& h) {
  ChannelTiling& c = h.channels;
  if (p.direction == NormDirection::inference) return "inference is not supported";
  if (p.x.dtype == DType::float64) return "float64 is not supported";
  if (std::string why = dense_channels(p, c); !why.empty()) return why;
  const int64_t size = int64_t(itemsize(p.x.dtype)), images = c.members / c.plane;
  h.vector = kVector / size;
  h.columns = c.plane == 1;
  c.parameters = c.channels;
  if (p.alignment < kVector) return cat("needs tensors aligned to 16 bytes; got ", p.alignment);
  // Planes that are too small or not a whole number of vectors are processed as columns: each image becomes one row of
  // a matrix, and each element of a plane becomes a column.
  if (!h.columns && (c.plane % h.vector || c.plane * size < 128)) {
    h.group = c.plane;
    h.columns = true;
    c.channels *= c.plane;
    c.by_group = FastDivmod(c.plane);
    c.plane = 1;
    if (c.channels >= int64_t(1) << 30) return cat("supports samples of fewer than 2^30 elements; got ", c.channels);
  }
  if (h.columns && c.channels % h.vector)
    return cat("needs rows of a multiple of ", h.vector, " elements; got ", c.channels);
  h.items = !h.columns ? c.members / h.vector : h.group > 1 ? images : c.members;
  if (!h.columns) c.by_plane = FastDivmod(c.plane / h.vector);
  return "";
}

// Returns the tile widths, in vectors, that are worth trying for NHWC. A tile is the columns that a cluster processes.
// It has at least 64 bytes of each row, or the whole row.
std::vector<int64_t> widths_of(const ChannelLayout& h) {
  if (!h.columns) return {0};
  const int64_t all = h.channels.channels / h.vector, unit = h.group / std::gcd(h.group, h.vector);
  std::vector<int64_t> widths;
  for (int64_t width = unit; width < all && widths.size() < 3; width *= 2)
    if (width * kVector >= 64) widths.push_back(width);
  if (widths.size() < 3 && (widths.empty() || widths.back() < all)) widths.push_back(all);
  return widths;
}

// Estimates how many clusters run at the same time. A cluster runs within one GPC (about 16 SMs of an H100), so some
// SMs of a GPC stay idle. Measured on an H100 with 8 blocks per cluster: 14 clusters at one block per SM, and 30 at
// two.
double at_once(int64_t blocks, int64_t per_sm, const Device& d) {
  const double slots = double(d.sm_count) * double(per_sm), gpcs = double(ceil_div<int64_t>(d.sm_count, 17));
  return std::floor(slots / double(blocks) - (blocks > 2 ? gpcs * (double(blocks) / 2 - 1) / double(blocks) : 0));
}

// Fills in the tiling and the estimated time w.us, which stays 0 if the tiling does not fit the device.
void complete(const BatchNormProblem& p, const ChannelLayout& h, const Device& d, Candidate& w) {
  ChannelTiling& c = w.tiling.channels;
  c = h.channels;
  const bool backward = is_backward(p);
  const int64_t chunk = ceil_div(h.items, w.blocks);
  // With w.blocks blocks, the last block would have no vectors or rows.
  if (ceil_div(h.items, chunk) != w.blocks) return;
  int64_t tiles = h.channels.channels, rows = w.threads, left = 0;
  if (h.columns) {
    rows = w.threads / w.width;
    if (rows == 0) return;
    const int64_t vectors = c.channels / h.vector;
    tiles = ceil_div(vectors, w.width);
    c.width = uint32_t(w.width);
    c.rows = uint32_t(rows);
    c.vectors = uint32_t(vectors);
    c.by_width = FastDivmod(w.width);
    c.tiles = uint32_t(tiles);
    c.by_tiles = FastDivmod(tiles);
    w.tiling.statistics = uint32_t(w.width * h.vector / h.group);
    w.tiling.within_warps = w.width < 32 && (w.width & (w.width - 1)) == 0;
    const int64_t joining = w.tiling.within_warps ? w.threads / 32 : rows;
    left = max_of(joining / 2 * w.width * 4 * (2 * h.vector + !backward), w.width * h.vector * 16) +
           (backward ? 0 : w.width * h.vector * 4);
  } else left = w.threads / 32 * 12;
  c.items = uint32_t(h.items);
  c.chunk = uint32_t(chunk);
  c.chunks = uint32_t(w.blocks);
  c.by_chunks = FastDivmod(w.blocks);
  w.clusters = tiles;
  w.tiling.block_vectors = uint32_t(chunk * max_of(w.width, int64_t(1)));
  w.tiling.stage_vectors =
      uint32_t(ceil_div(ceil_div(chunk, rows), int64_t(kStages * kVectorsAtOnce)) * kVectorsAtOnce);
  const int64_t sums = (w.blocks + 1) * int64_t(w.tiling.statistics) * 16 + left;
  w.tiling.sums_bytes = uint32_t(ceil_div(sums, kVector) * kVector);
  w.smem_bytes = w.tiling.sums_bytes + int64_t(w.tiling.block_vectors) * kVector * (backward ? 2 : 1);
  if (w.smem_bytes > d.max_smem_bytes) return;

  // The driver reserves 1 KB of shared memory for each block that runs on an SM.
  const int64_t per_sm =
      min_of((d.max_smem_bytes + 1024) / (w.smem_bytes + 1024), persistent_threads(backward, h.columns) / w.threads);
  const double together = at_once(w.blocks, per_sm, d);
  if (together < 1) return;
  // The estimate is a guess, not a measurement: the time of a copy, plus 2 us per wave (the clusters that run at the
  // same time). A partial last wave takes at least 0.4 of a full wave. For NHWC, a tenth is added if two clusters read
  // the same 128-byte line.
  const double waves = double(w.clusters) / together, whole = std::floor(waves), rest = waves - whole;
  const double busy = double(per_sm) * double(h.columns ? rows * w.width : w.threads);
  double bytes_us = norm_bytes(p) / (d.copy_gb_s * 1e3) / waves * (whole + (rest > 0 ? std::max(rest, 0.4) : 0));
  bytes_us *= (1.03 + 96 / busy) * (w.width * kVector % 128 && w.clusters > 1 ? 1.1 : 1);
  w.us = 3 + (w.blocks > 1 ? 1 : 0) + bytes_us + 2 * std::ceil(waves) / double(per_sm);
}

// Returns the divisions among clusters that fit the device, in the order of their estimated times, the fastest first.
std::vector<Candidate> candidates_of(const BatchNormProblem& p, const ChannelLayout& h, const Device& d) {
  std::vector<Candidate> candidates;
  for (int64_t blocks = 1; blocks <= (d.arch >= 90 ? 8 : 1); blocks *= 2)
    for (int64_t width : widths_of(h))
      for (int64_t threads = 128; threads <= persistent_threads(is_backward(p), h.columns); threads *= 2) {
        Candidate w{.blocks = blocks, .width = width, .threads = threads};
        complete(p, h, d, w);
        if (w.us > 0) candidates.push_back(w);
      }
  std::ranges::stable_sort(candidates, {}, &Candidate::us);
  if (candidates.size() > kMaxConfigs) candidates.resize(kMaxConfigs);
  return candidates;
}

KernelSpec spec(DType t, bool backward, bool columns) {
  return {"cuda/batch_norm/persistent.cu", cat("minidnn::batch_norm_persistent<", cuda_name(t), ", ",
                                               backward ? "true" : "false", ", ", columns ? "true" : "false", ">")};
}

}  // namespace

struct Persistent final : Engine<BatchNormProblem> {
  std::string name() const override { return "cuda.batch_norm.persistent"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const BatchNormProblem& p, const Device& d) const override {
    ChannelLayout h;
    if (std::string why = channel_layout(p, h); !why.empty()) return why;
    if (!candidates_of(p, h, d).empty()) return "";
    const int64_t of_tensor = h.items * widths_of(h).front() * kVector;
    return cat("needs shared memory for ", h.columns ? "64 bytes or more of neighbouring channels" : "a channel",
               " of all samples, ", h.columns ? of_tensor : h.items * kVector, " bytes",
               is_backward(p) ? " in each of x and dy" : "", "; ", d.arch >= 90 ? "eight blocks have " : "a block has ",
               d.max_smem_bytes, d.arch >= 90 ? " each" : "");
  }
  double estimate_us(const BatchNormProblem& p, const Device& d) const override {
    ChannelLayout h;
    channel_layout(p, h);
    return candidates_of(p, h, d).front().us;
  }
  std::vector<Config> configs(const BatchNormProblem& p, const Device& d) const override {
    ChannelLayout h;
    channel_layout(p, h);
    std::vector<Config> all;
    for (const Candidate& w : candidates_of(p, h, d)) all.push_back(w.config());
    return all;
  }
  std::unique_ptr<Plan<BatchNormProblem>> build(const BatchNormProblem& p, const Device& d,
                                                const Config& config) const override {
    ChannelLayout h;
    channel_layout(p, h);
    const std::vector<Candidate> candidates = candidates_of(p, h, d);
    const auto named = std::ranges::find(candidates, config, &Candidate::config);
    const Candidate w = named == candidates.end() ? candidates.front() : *named;
    auto kernel = cuda::load_kernel(spec(p.x.dtype, is_backward(p), h.columns), d.place.index, int(w.smem_bytes));
    cuda::LaunchConfig launch;
    launch.block = {unsigned(w.threads)};
    launch.grid = {unsigned(w.clusters * w.blocks)};
    launch.smem_bytes = unsigned(w.smem_bytes);
    if (w.blocks > 1) launch.cluster = {unsigned(w.blocks)};
    return make_plan<BatchNormProblem>([=, tiling = w.tiling](const BatchNormArgs& a, void*, Stream stream) {
      cuda::launch(*kernel, launch, stream, tiling, a);
    });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType t : {DType::float32, DType::float16, DType::bfloat16})
      for (bool backward : {false, true})
        for (bool columns : {false, true}) all.push_back(spec(t, backward, columns));
    return all;
  }
};

}  // namespace cuda::batch_norm

template const Engine<BatchNormProblem>& engine_object<BatchNormProblem, cuda::batch_norm::Persistent>();

}  // namespace minidnn
