// SPDX-License-Identifier: Apache-2.0
// cuda.norm.rows: norms of contiguous rows that are kept on chip; see rows.cu.
#include "cuda/norm/rows.h"

#include "cuda/norm/engines.h"
#include "cuda/norm/split.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace {

constexpr int64_t kStaticBytes = 8 << 10;  // shared memory of a block: RowSums, and what the system reserves

int64_t vector_of(const RowNormProblem& p, const NormRows& r) {
  const int64_t wide = 16 / int64_t(itemsize(p.x.dtype));
  const int64_t even = r.groups ? r.columns / r.of_group : r.columns;  // what a vector must not straddle
  return p.alignment == 16 && even % wide == 0 ? wide : 1;
}

struct Cut {
  NormRows rows;
  int64_t vector = 1, held = 1;
  bool stays = false;  // persistent blocks: backward, and long rows
  // Persistent blocks: rows per iteration; shared memory of a block; blocks of an SM at most.
  int64_t rows_a_turn = 1, smem_bytes = 0, blocks_an_sm = 1;
};

int64_t threads_for(const Cut& c, int64_t each) {
  return ceil_div(ceil_div(int64_t(c.rows.vectors), each * c.rows.blocks), int64_t(32)) * 32;
}
// Sets the blocks of a row and their threads, so that a thread has at most `each` vectors. Returns false if that takes
// more than `most` blocks.
bool set_blocks(Cut& c, int64_t most, int64_t each, int64_t most_threads) {
  while (threads_for(c, each) > most_threads && c.rows.blocks < most) c.rows.blocks *= 2;
  c.rows.threads = uint32_t(min_of(threads_for(c, each), most_threads));
  return threads_for(c, each) <= most_threads;
}

// Forward, short rows. A thread has four vectors: enough bytes in flight, and short sums. Rows for which that takes
// more than 512 threads (two such blocks run on an SM at the same time) have eight vectors per thread; longer rows have
// clusters of such blocks; even longer ones blocks of 1024 threads, each with all registers of an SM.
bool hold(Cut& c, const Device& d) {
  const int64_t most = cuda::usual_cluster(d), most_held = 8, full = 512;
  const int64_t each = c.vector == 1 ? most_held : 4;
  NormRows& r = c.rows;
  if (threads_for(c, each) <= full) set_blocks(c, most, each, full);
  else if (!set_blocks(c, most, most_held, full) && !set_blocks(c, most, most_held, 1024)) return false;
  // Fewer lanes (at least a line of memory per load) take fewer steps to reduce a row. Used where there are enough rows
  // to fill the GPU nevertheless.
  for (uint32_t lanes : {16, 8})
    if (r.vectors <= lanes * each && r.rows * lanes >= int64_t(1024) * d.sm_count) r.threads = lanes;
  const int64_t w = ceil_div<int64_t>(r.vectors, r.threads * r.blocks);
  c.held = c.vector == 1 ? most_held : w <= 2 ? w : w <= 4 ? 4 : most_held;
  r.rows_at_once = r.threads <= 128 && r.blocks == 1 ? 256 / r.threads : 1;
  return true;
}

// Forward, long rows that need a cluster, from the length at which registers are no longer as fast
// (docs/notes/norm.md). Not for group norm, whose parameters differ between the rows of a column.
bool stream(Cut& c, const Device& d) {
  NormRows& r = c.rows;
  if (c.vector == 1 || r.groups || r.columns <= (c.vector == 4 ? 65536 : 16384)) return false;
  c.held = kNormRowsStreamed / c.vector;
  if (!set_blocks(c, cuda::largest_cluster(d), c.held, kNormRowsThreads)) return false;
  c.stays = true, r.rows_at_once = 1, c.rows_a_turn = norm_rows_a_turn(c.vector);
  const int64_t stage = r.threads * c.held * c.rows_a_turn * 16;
  r.stages = uint32_t(std::clamp<int64_t>((d.max_smem_bytes - kStaticBytes) / stage, 0, 4));
  c.smem_bytes = r.stages * stage;
  return r.stages > 0;
}

// Backward. Short rows have two vectors per thread. With growing length, a thread has as many vectors as registers have
// sums and scale for; then a row has a cluster; then scale is in shared memory. There are as many stages (4 at most) as
// fit shared memory, or half of it where two blocks share an SM.
bool ring(Cut& c, const Device& d, const RowNormProblem& p) {
  NormRows& r = c.rows;
  const int64_t most = cuda::usual_cluster(d), full = kNormRowsThreads,
                kept = c.vector == 1 ? 4 : kNormRowsKept / c.vector;
  const int64_t most_held = c.vector == 1 ? 4 : 2 * kept;
  if (threads_for(c, 2) <= full && c.vector > 1) set_blocks(c, most, 2, full);
  else if (!set_blocks(c, most, kept, full) && !set_blocks(c, cuda::largest_cluster(d), most_held, full)) return false;
  const int64_t w = ceil_div<int64_t>(r.vectors, r.threads * r.blocks);
  c.held = c.vector == 1 ? 4 : w <= 2 ? w : w <= 4 ? 4 : 8;
  c.stays = true, r.rows_at_once = r.blocks == 1 ? uint32_t(full) / r.threads : 1;
  const int64_t block = int64_t(r.threads) * r.rows_at_once, elements = c.held * c.vector;
  const int64_t stage = 2 * block * elements * int64_t(itemsize(p.x.dtype));
  const int64_t scale = elements > kNormRowsKept ? block * elements * 4 : 0;
  c.blocks_an_sm = elements <= kNormRowsShared ? 2 : 1;
  const int64_t room = (int64_t(d.max_smem_bytes) - kStaticBytes) / c.blocks_an_sm - scale;
  r.stages = uint32_t(std::clamp<int64_t>(room / stage, 0, c.held == 8 ? 1 : 4));
  // At its end, a block joins the sums of the rows that it processed together, in the same shared memory.
  const int64_t joined = ceil_div(int64_t(r.rows_at_once), int64_t(2)) * r.threads * elements * 8;
  c.smem_bytes = std::max(r.stages * stage + scale, r.rows_at_once > 1 ? joined : 0);
  return r.stages > 0;
}

// Fills in the cut, or returns why the rows do not fit.
std::string parse(const RowNormProblem& p, const Device& d, Cut& c) {
  if (std::string why = contiguous_rows(p, c.rows, c.vector); !why.empty()) return why;
  Cut streamed = c;
  if (!p.backward && stream(streamed, d)) c = streamed;
  else if (!(p.backward ? ring(c, d, p) : hold(c, d))) {
    return cat("supports rows that fit the registers and shared memory of up to ", cuda::largest_cluster(d),
               " blocks of ", d.max_smem_bytes, " bytes; got ", c.rows.columns, " elements");
  }
  if (ceil_div(c.rows.rows, int64_t(c.rows.rows_at_once)) * c.rows.blocks > INT32_MAX)
    return "supports at most 2^31 - 1 blocks; got more";
  return "";
}

// An upper bound of the number of persistent blocks (or clusters). Only the driver knows how many run at the same time.
int64_t most_standing(const Cut& c, const Device& d) {
  const int64_t at_once = std::max<int64_t>(c.blocks_an_sm * d.sm_count / c.rows.blocks, 1);
  return std::min(at_once, ceil_div(c.rows.rows, c.rows.rows_at_once * c.rows_a_turn));
}

KernelSpec kernel_of(DType t, const char* kernel, int64_t vector, int64_t held) {
  return {"cuda/norm/rows.cu", cat("minidnn::norm_rows_", kernel, "<", cuda_name(t), ", ", vector, ", ", held, ">")};
}
KernelSpec stream_spec(DType t) {
  const int64_t vector = 16 / int64_t(itemsize(t));
  return kernel_of(t, "stream", vector, kNormRowsStreamed / vector);
}
KernelSpec spec(const RowNormProblem& p, const Cut& c) {
  if (c.stays && !p.backward) return stream_spec(p.x.dtype);
  return kernel_of(p.x.dtype, p.backward ? "backward" : "forward", c.vector, c.held);
}

struct Rows final : Engine<RowNormProblem> {
  std::string name() const override { return "cuda.norm.rows"; }
  int revision() const override { return 2; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const RowNormProblem& p, const Device& d) const override {
    Cut c;
    return parse(p, d, c);
  }
  double estimate_us(const RowNormProblem& p, const Device& d) const override {
    Cut c;
    parse(p, d, c);
    // Backward, each block writes its sums of columns, which are read once more. 0.7: blocks whose threads are not all
    // used leave registers idle.
    const double sums = p.backward ? double(most_standing(c, d)) * double(c.rows.columns) * 8 : 0;
    const double kept = p.backward && c.held * c.vector > 16 ? 0.7 : 0.88;
    return roofline_us(row_norm_flop(p), row_norm_bytes(p) + sums, d, c.vector > 1 ? p.backward ? kept : 0.9 : 0.5) +
           (p.backward ? 3 : 0);
  }
  size_t workspace_bytes(const RowNormProblem& p, const Device& d, const Config&) const override {
    if (!p.backward) return 0;
    Cut c;
    parse(p, d, c);
    return size_t(most_standing(c, d)) * size_t(c.rows.columns) * 2 * sizeof(float);
  }
  std::unique_ptr<Plan<RowNormProblem>> build(const RowNormProblem& p, const Device& d, const Config&) const override {
    Cut c;
    parse(p, d, c);
    const NormRows r = c.rows;
    auto kernel = cuda::load_kernel(spec(p, c), d.place.index, int(c.smem_bytes));
    cuda::LaunchConfig config;
    config.smem_bytes = unsigned(c.smem_bytes);
    config.block = {r.threads * r.rows_at_once};
    if (r.blocks > 1) config.cluster = {r.blocks};
    config.grid = {unsigned(ceil_div(r.rows, int64_t(r.rows_at_once)) * r.blocks)};
    int64_t standing = 0;
    if (c.stays) {
      standing = std::min<int64_t>(most_standing(c, d), std::max(cuda::fit_at_once(*kernel, config, d), 1));
      config.grid = {unsigned(standing * r.blocks)};
    }
    if (!p.backward)
      return make_plan<RowNormProblem>(
          [=](const RowNormArgs& a, void*, Stream stream) { cuda::launch(*kernel, config, stream, r, a); });
    const NormFinish f = norm_rows_finish(standing);
    auto finish = cuda::load_kernel(f.kernel, d.place.index);
    cuda::LaunchConfig joining;
    joining.block = {unsigned(f.threads)};
    joining.grid = {unsigned(ceil_div(r.columns, f.columns))};
    joining.programmatic = d.arch >= 90;
    return make_plan<RowNormProblem>([=](const RowNormArgs& a, void* workspace, Stream stream) {
      cuda::LaunchConfig first = config, second = joining;
      cuda::launch(*kernel, first, stream, r, a, workspace);
      cuda::launch(*finish, second, stream, r.columns, standing, static_cast<const void*>(workspace), a.dscale,
                   a.dbias);
    });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all{norm_rows_finish(1).kernel, norm_rows_finish(INT32_MAX).kernel};
    for (DType t : {DType::float32, DType::float16, DType::bfloat16}) {
      const int64_t wide = 16 / int64_t(itemsize(t));
      for (int64_t w : {1, 2, 4, 8}) all.push_back(kernel_of(t, "forward", wide, w));
      for (int64_t w = 1; w * wide <= 2 * kNormRowsKept; w *= 2) all.push_back(kernel_of(t, "backward", wide, w));
      all.push_back(kernel_of(t, "forward", 1, 8));
      all.push_back(kernel_of(t, "backward", 1, 4));
      all.push_back(stream_spec(t));
    }
    return all;
  }
};

}  // namespace

std::string contiguous_rows(const RowNormProblem& p, NormRows& r, int64_t& vector) {
  if (p.x.dtype == DType::float64) return "float64 is not supported";
  if (p.x.numel() == 0) return "x is empty";
  const RowNormSpaces s = row_norm_spaces(p);
  auto alike = [](const NormOffsets& o) { return o.dy == o.x && o.out == o.x; };
  r.rows = s.rows.size, r.columns = s.members.size, r.centered = s.centered;
  r.per_column = 1 / float(r.columns);
  const bool contiguous =
      (r.columns == 1 || (s.members.rank <= 2 && alike(s.members.run_step()) && s.members.run_step().x == 1)) &&
      (r.rows == 1 || (s.rows.rank <= 2 && alike(s.rows.run_step()) && s.rows.run_step().x == r.columns));
  const char* const layout = "needs contiguous rows, one after another, in all tensors";
  if (!contiguous) return layout;
  if (s.members.rank == 2) {
    const NormOffsets& outer = s.members.step[0];
    if (!alike(outer) || outer.x != s.members.run()) return layout;
  }
  if (s.rows.rank == 2) {
    const NormOffsets& outer = s.rows.step[0];
    if (!alike(outer) || outer.x != s.rows.run() * r.columns) return layout;
  }
  if (p.kind == RowNorm::group) {
    if (p.backward) return "the gradient of group and instance norm is not supported";
    if (!channels_in_order(p.x)) return "needs x in the order NCHW for group and instance norm";
    r.groups = uint32_t(p.groups), r.of_group = uint32_t(p.x.shape[1] / p.groups);
  }
  if (p.kind != RowNorm::group && r.columns > 1 && (s.members.rank > 1 || s.members.run_step().parameter != 1))
    return "needs scale and bias in the memory order of the elements of a row";
  vector = vector_of(p, r);
  if (r.columns / vector >= int64_t(1) << 24)
    return cat("supports rows of fewer than 2^24 vectors; got ", r.columns / vector);
  r.vectors = uint32_t(r.columns / vector);
  if (r.groups) r.span = FastDivmod(r.vectors / r.of_group);
  return "";
}

NormFinish norm_rows_finish(int64_t count) {
  constexpr int64_t kFew = 16;
  if (count <= kFew)
    return {{"cuda/norm/rows.cu", "minidnn::norm_rows_finish_few<0>"}, kNormFewThreads, kNormFewThreads};
  return {{"cuda/norm/rows.cu", "minidnn::norm_rows_finish<0>"}, kNormFinishThreads, kNormFinishChannels};
}
const Engine<RowNormProblem>& norm_rows() {
  static const Rows engine;
  return engine;
}

}  // namespace minidnn
