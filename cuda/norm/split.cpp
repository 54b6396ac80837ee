// SPDX-License-Identifier: Apache-2.0
// cuda.norm.split: batch norm of dense tensors, channels first or last, in two passes. cuda.norm.groups: group and
// instance norm in the same way. See split.cu.
#include "cuda/norm/split.h"

#include "cuda/norm/engines.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace {

constexpr int64_t kMost = int64_t(1) << 30;  // items of a channel, and blocks: they fit 32-bit arithmetic

// Whether the step is equal in all tensors, as these layouts require.
bool alike(const NormOffsets& s) { return s.dy == s.x && s.out == s.x && s.other == s.x && s.dresidual == s.x; }

}  // namespace

std::string dense_norm(const NormProblem& p, NormSplit& c) {
  const NormSpaces s = norm_spaces(p);
  const char* const layout = "needs dense tensors with equal strides, in the order [N][C][space] or [N][space][C]";
  if (p.x.numel() == 0) return "x is empty";
  for (const NormSpace* space : {&s.groups, &s.members})
    for (int64_t i = 0; i < space->rank; ++i)
      if (!alike(space->step[i])) return layout;
  c.channels = s.groups.size, c.members = s.members.size;
  const NormOffsets channel = s.groups.run_step();
  if (s.groups.rank > 1 || (c.channels > 1 && channel.parameter != 1)) return layout;
  const bool columns = c.channels > 1 && channel.x == 1;
  if (columns) {
    c.plane = 1;
    if (s.members.rank > 1 || (c.members > 1 && s.members.run_step().x != c.channels)) return layout;
  } else {
    c.plane = c.channels > 1 ? channel.x : c.members;
    if (s.members.rank > 2 || s.members.run() != c.plane || (c.plane > 1 && s.members.run_step().x != 1)) return layout;
    if (s.members.rank == 2 && s.members.step[0].x != c.plane * c.channels) return layout;
  }
  if (c.members >= kMost) return cat("supports fewer than 2^30 elements in a channel; got ", c.members);
  if (c.channels >= int64_t(1) << 24) return cat("supports fewer than 2^24 channels; got ", c.channels);
  return "";
}

namespace {

int64_t vector_of(const NormProblem& p, const NormSplit& c) {
  const int64_t wide = 16 / int64_t(itemsize(p.x.dtype));
  return p.alignment == 16 && (c.plane > 1 ? c.plane : c.channels) % wide == 0 ? wide : 1;
}

// Divides c among blocks.
void divide(NormSplit& c, int64_t vector, const Device& d) {
  // About 16 blocks per SM, in several waves if fewer fit at the same time: the idle time at the end is small. Columns
  // have 8: their blocks have more work at the beginning and the end, and each writes the sums of all its channels.
  const int64_t blocks = max_of((c.plane > 1 ? 16 : 8) * d.sm_count / c.samples, int64_t(1));
  int64_t tiles = c.channels, least = 4 * kNormThreads;  // items worth a block
  if (c.plane > 1) {
    c.items = uint32_t(c.items / vector);
    c.by_plane = FastDivmod(c.plane / vector);
  } else {
    c.vectors = uint32_t(c.channels / vector);
    // A warp reads whole lines of memory if rows are long, otherwise several rows.
    tiles = ceil_div(int64_t(c.vectors), int64_t(32));
    c.width = uint32_t(ceil_div(int64_t(c.vectors), tiles));
    c.rows = uint32_t(kNormThreads / c.width);
    c.by_width = FastDivmod(c.width);
    c.tiles = uint32_t(tiles), c.by_tiles = FastDivmod(tiles);
    least = kNormBatch * c.rows;  // whole batches, except in the last chunk
  }
  int64_t chunks = std::clamp<int64_t>(blocks / tiles, 1, ceil_div<int64_t>(c.items, least));
  // At most 1024 rows per thread, as its plain float32 sums should be short.
  if (c.plane == 1) chunks = max_of(chunks, ceil_div<int64_t>(c.items, int64_t(1024) * c.rows));
  c.chunk = uint32_t(ceil_div(ceil_div<int64_t>(c.items, chunks), least) * least);
  c.chunks = uint32_t(ceil_div<int64_t>(c.items, c.chunk));
  c.by_chunks = FastDivmod(c.chunks);
}
// Takes planes that are not whole vectors as columns, with one row per image, if the planes of all channels together
// are whole vectors. A column is one element of an image; the columns of a plane share a statistic. Only from 16 images
// on, as each column has 16 bytes of partial results.
void planes_as_columns(const NormProblem& p, NormSplit& c) {
  if (c.plane == 1 || vector_of(p, c) > 1) return;
  NormSplit columns = c;
  columns.channels = c.channels * c.plane, columns.plane = 1, columns.by_group = FastDivmod(c.plane);
  const int64_t images = c.members / c.plane;
  if (vector_of(p, columns) == 1 || images < 16 || columns.channels >= kMost) return;
  columns.items = uint32_t(images);
  c = columns;
}
NormSplit split_of(const NormProblem& p, const Device& d) {
  NormSplit c;
  dense_norm(p, c);
  c.items = uint32_t(c.members);
  planes_as_columns(p, c);
  divide(c, vector_of(p, c), d);
  return c;
}
// Group norm: each sample is divided separately.
NormSplit split_of(const RowNormProblem& p, const NormProblem& like, const Device& d) {
  NormSplit c;
  dense_norm(like, c);
  const int64_t samples = p.x.shape[0], channels = c.channels, of_group = channels / p.groups;
  c.items = uint32_t(c.members / samples);
  c.members = c.members / samples * of_group;
  if (channels == 1) c.plane = c.items;  // dense_norm() took all samples as one contiguous plane
  c.parameters = channels, c.by_group = FastDivmod(of_group);
  if (c.plane > 1) c.channels *= samples;
  else c.samples = samples;
  divide(c, vector_of(like, c), d);
  return c;
}

int64_t blocks_of(const NormSplit& c) {
  return (c.plane > 1 ? c.channels : c.samples * int64_t(c.tiles)) * int64_t(c.chunks);
}
size_t partial_bytes(const NormSplit& c) {
  return size_t(c.chunks) * size_t(c.samples * c.channels) * 4 * sizeof(float);
}

KernelSpec spec(const NormProblem& p, const NormSplit& c, const char* pass) {
  const bool backward = p.direction == NormDirection::backward;
  return {"cuda/norm/split.cu",
          cat("minidnn::norm_", c.plane > 1 ? "planes_" : "columns_", pass, "<", cuda_name(p.x.dtype), ", ",
              vector_of(p, c), ", ", backward ? "true" : "false", ">")};
}
KernelSpec finish_spec(bool backward) {
  return {"cuda/norm/split.cu", cat("minidnn::norm_finish<", backward ? "true" : "false", ">")};
}

struct Split final : Engine<NormProblem> {
  std::string name() const override { return "cuda.norm.split"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const NormProblem& p, const Device&) const override {
    if (p.x.dtype == DType::float64) return "float64 is not supported";
    NormSplit c;
    return dense_norm(p, c);
  }
  double estimate_us(const NormProblem& p, const Device& d) const override {
    const NormSplit c = split_of(p, d);
    const bool sums = p.direction != NormDirection::inference;
    const double once = double(p.x.numel()) * double(itemsize(p.x.dtype));
    const double again = !sums ? 0 : once * double(1 + (p.direction == NormDirection::backward) * (1 + p.relu));
    // Guesses: vectors are near the copy rate, single elements at half of it; two more launches.
    return roofline_us(norm_flop(p), norm_bytes(p) + again, d, vector_of(p, c) > 1 ? 0.85 : 0.4) + (sums ? 4 : 0);
  }
  size_t workspace_bytes(const NormProblem& p, const Device& d, const Config&) const override {
    if (p.direction == NormDirection::inference) return 0;
    return partial_bytes(split_of(p, d));
  }
  std::unique_ptr<Plan<NormProblem>> build(const NormProblem& p, const Device& d, const Config&) const override {
    const NormSplit c = split_of(p, d);
    std::shared_ptr<const cuda::Kernel> sums, finish, map = cuda::load_kernel(spec(p, c, "map"), d.place.index);
    if (p.direction != NormDirection::inference) {
      sums = cuda::load_kernel(spec(p, c, "sums"), d.place.index);
      finish = cuda::load_kernel(finish_spec(p.direction == NormDirection::backward), d.place.index);
    }
    cuda::LaunchConfig blocks, joining;
    blocks.block = {kNormThreads}, blocks.grid = {unsigned(blocks_of(c))};
    joining.block = {kFinishThreads};
    joining.grid = {unsigned(ceil_div(c.channels / int64_t(c.by_group.divisor), int64_t(kFinishChannels)))};
    const bool early = sums && d.arch >= 90;
    return make_plan<NormProblem>([=](const NormArgs& a, void* workspace, Stream stream) {
      cuda::LaunchConfig wide = blocks, narrow = joining;
      if (sums) {
        cuda::launch(*sums, wide, stream, c, a, workspace);
        wide.programmatic = narrow.programmatic = early;
        cuda::launch(*finish, narrow, stream, c, a, static_cast<const void*>(workspace));
      }
      cuda::launch(*map, wide, stream, c, a, static_cast<const NormLine*>(nullptr));
    });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all{finish_spec(false), finish_spec(true)};
    for (DType t : {DType::float32, DType::float16, DType::bfloat16})
      for (bool backward : {false, true})
        for (const char* kind : {"planes_sums", "planes_map", "columns_sums", "columns_map"})
          for (int64_t vector : {int64_t(16 / itemsize(t)), int64_t(1)})
            all.push_back({"cuda/norm/split.cu", cat("minidnn::norm_", kind, "<", cuda_name(t), ", ", vector, ", ",
                                                     backward ? "true" : "false", ">")});
    return all;
  }
};

KernelSpec groups_finish_spec(bool backward) {
  return {"cuda/norm/split.cu", cat("minidnn::norm_groups_finish<", backward ? "true" : "false", ">")};
}

// A batch norm with the tensors of a group norm.
NormProblem batch_norm_like(const RowNormProblem& p) {
  NormProblem like{p.backward ? NormDirection::backward : NormDirection::training, p.x, p.dy, p.out, 1, 2};
  like.alignment = p.alignment;
  return like;
}

struct Groups final : Engine<RowNormProblem> {
  std::string name() const override { return "cuda.norm.groups"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const RowNormProblem& p, const Device&) const override {
    if (p.kind != RowNorm::group) return "supports group and instance norm only";
    if (p.x.dtype == DType::float64) return "float64 is not supported";
    NormSplit c;
    std::string why = dense_norm(batch_norm_like(p), c);
    if (why.empty() && p.x.shape[0] * c.channels >= int64_t(1) << 24)
      why = cat("supports fewer than 2^24 channels of all samples together; got ", p.x.shape[0] * c.channels);
    return why;
  }
  double estimate_us(const RowNormProblem& p, const Device& d) const override {
    const NormProblem like = batch_norm_like(p);
    NormSplit c;
    dense_norm(like, c);
    const double again = row_norm_bytes(p) * (p.backward ? 2.0 / 3 : 0.5);
    // Planes that are shorter than a block's batch leave threads idle.
    const double busy = c.plane > 1 ? std::min(1.0, double(c.plane) / (4 * kNormThreads)) : 1;
    return roofline_us(row_norm_flop(p), row_norm_bytes(p) + again, d,
                       (vector_of(like, c) > 1 ? 0.8 : 0.4) * std::max(busy, 0.1)) +
           5;
  }
  size_t workspace_bytes(const RowNormProblem& p, const Device& d, const Config&) const override {
    const NormSplit c = split_of(p, batch_norm_like(p), d);
    return partial_bytes(c) + size_t(c.samples * c.channels) * (sizeof(NormLine) + 2 * sizeof(float));
  }
  std::unique_ptr<Plan<RowNormProblem>> build(const RowNormProblem& p, const Device& d, const Config&) const override {
    const NormProblem like = batch_norm_like(p);
    const NormSplit c = split_of(p, like, d);
    auto sums = cuda::load_kernel(spec(like, c, "sums"), d.place.index);
    auto finish = cuda::load_kernel(groups_finish_spec(p.backward), d.place.index);
    auto map = cuda::load_kernel(spec(like, c, "map"), d.place.index);
    std::shared_ptr<const cuda::Kernel> parameters;
    const NormFinish join = norm_rows_finish(p.x.shape[0]);
    if (p.backward) parameters = cuda::load_kernel(join.kernel, d.place.index);
    cuda::LaunchConfig blocks, groups, channels;
    blocks.block = {kNormThreads}, blocks.grid = {unsigned(blocks_of(c))};
    groups.block = {kNormThreads};
    groups.grid = {unsigned(ceil_div(p.x.shape[0] * p.groups, int64_t(kNormThreads / 32)))};
    channels.block = {unsigned(join.threads)};
    channels.grid = {unsigned(ceil_div(c.parameters, join.columns))};
    return make_plan<RowNormProblem>([=, samples = p.x.shape[0], partials = partial_bytes(c), early = d.arch >= 90](
                                         const RowNormArgs& r, void* workspace, Stream stream) {
      NormArgs a{.x = r.x,
                 .dy = r.dy,
                 .out = r.out,
                 .scale = r.scale,
                 .bias = r.bias,
                 .mean = r.mean,
                 .inv_std = r.inv_std,
                 .dscale = r.dscale,
                 .dbias = r.dbias,
                 .eps = r.eps};
      auto* lines = reinterpret_cast<NormLine*>(static_cast<char*>(workspace) + partials);
      const void* const parts = lines + samples * c.parameters;
      cuda::LaunchConfig wide = blocks, narrow = groups, last = channels;
      cuda::launch(*sums, wide, stream, c, a, workspace);
      wide.programmatic = narrow.programmatic = early;
      cuda::launch(*finish, narrow, stream, c, a, workspace, parts, lines);
      if (parameters) cuda::launch(*parameters, last, stream, c.parameters, samples, parts, r.dscale, r.dbias);
      cuda::launch(*map, wide, stream, c, a, lines);
    });
  }
  std::vector<KernelSpec> kernels() const override { return {groups_finish_spec(false), groups_finish_spec(true)}; }
};

}  // namespace

const Engine<RowNormProblem>& norm_groups() {
  static const Groups engine;
  return engine;
}
const Engine<NormProblem>& norm_split() {
  static const Split engine;
  return engine;
}

}  // namespace minidnn
