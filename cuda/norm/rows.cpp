// SPDX-License-Identifier: Apache-2.0
// cuda.norm.rows: contiguous rows in registers; see rows.cu.
#include "cuda/norm/rows.h"

#include "cuda/norm/engines.h"
#include "cuda/norm/split.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace {

constexpr int64_t kMostBlocks = 8;  // of a cluster, as every device with clusters has them

int64_t vector_of(const RowNormProblem& p, const NormRows& r) {
  const int64_t wide = 16 / int64_t(itemsize(p.x.dtype));
  const int64_t even = r.groups ? r.columns / r.of_group : r.columns;  // what a vector must not straddle
  return p.alignment == 16 && even % wide == 0 ? wide : 1;
}

// Vectors a thread holds, as the kernels are made for: backward in shared memory, with sums of its columns in registers.
int64_t held(int64_t vectors, int64_t threads, int64_t vector, bool backward) {
  if (vector == 1) return backward ? 4 : 8;
  const int64_t w = ceil_div(vectors, threads);
  return w <= 2 ? w : w <= 4 ? 4 : 8;
}

struct Cut {
  NormRows rows;
  int64_t vector = 1, held = 1;
  int64_t smem_bytes = 0, blocks_an_sm = 1;  // backward: of a block, and of those at most
};

// Rows on their way, as many as shared memory has room for beside another block's; and where they end, sums that join.
void set_stages(const RowNormProblem& p, const Device& d, Cut& c) {
  NormRows& r = c.rows;
  const int64_t block = int64_t(r.threads) * r.rows_at_once, elements = c.held * c.vector;
  const int64_t stage = 2 * block * elements * int64_t(itemsize(p.x.dtype)), beside = 3 << 10;  // static, the system's
  c.blocks_an_sm = elements <= 8 ? 2 : 1;
  const int64_t room = (int64_t(d.max_smem_bytes) - beside) / c.blocks_an_sm;
  r.stages = uint32_t(std::clamp<int64_t>(room / stage, 1, 4));
  const int64_t joined = ceil_div(int64_t(r.rows_at_once), int64_t(2)) * r.threads * elements * 8;
  c.smem_bytes = std::max(r.stages * stage, r.rows_at_once > 1 ? joined : 0);
}

// The rows, or why they do not fit.
std::string parse(const RowNormProblem& p, const Device& d, Cut& c) {
  NormRows& r = c.rows;
  if (std::string why = contiguous_rows(p, r, c.vector); !why.empty()) return why;
  // Forward four vectors a thread: enough bytes in flight, and short sums. Beyond 512 threads, two blocks of which run at
  // once on an SM, eight; then clusters of such; then 1024 threads, whose row has an SM's registers for itself. Backward
  // two vectors, then as many as registers have sums for beside scale, then clusters, then without scale.
  const int64_t full = kNormRowsThreads, most = p.backward ? full : 1024, most_held = p.backward ? 4 : 8;
  const int64_t kept = p.backward ? min_of(most_held, 16 / c.vector) : most_held;
  const int64_t blocks_here = d.arch >= 90 ? kMostBlocks : 1, vectors = r.vectors;
  auto threads_of = [&](int64_t each) { return ceil_div(ceil_div(vectors, each * r.blocks), int64_t(32)) * 32; };
  int64_t threads = threads_of(c.vector == 1 ? most_held : p.backward ? 2 : 4);
  if (threads > full) threads = threads_of(kept);
  while (threads > full && r.blocks < blocks_here) r.blocks *= 2, threads = threads_of(kept);
  if (threads > most) threads = threads_of(most_held);
  r.threads = uint32_t(min_of(threads, most));
  if (d.arch < 90 && int64_t(r.threads) * most_held < r.vectors)
    return cat("rows of more than ", most * most_held * c.vector,
               " elements take clusters of blocks, of sm_90 on; they have ", r.columns);
  if (int64_t(r.threads) * r.blocks * most_held < r.vectors)
    return cat("holds rows of ", most * kMostBlocks * most_held * c.vector, " elements at most; there are ", r.columns);
  c.held = held(r.vectors, int64_t(r.threads) * r.blocks, c.vector, p.backward);
  if (p.backward) r.rows_at_once = r.blocks == 1 ? uint32_t(full) / r.threads : 1;
  else r.rows_at_once = r.threads <= 128 && r.blocks == 1 ? 256 / r.threads : 1;
  if (ceil_div(r.rows, int64_t(r.rows_at_once)) * r.blocks > INT32_MAX) return "launches 2^31 - 1 blocks at most";
  if (p.backward) set_stages(p, d, c);
  return "";
}

// Backward: blocks, or clusters, that stay. At most, since those that run at once are the driver's to know.
int64_t most_standing(const Cut& c, const Device& d) {
  const int64_t at_once = std::max<int64_t>(c.blocks_an_sm * d.sm_count / c.rows.blocks, 1);
  return std::min(at_once, ceil_div(c.rows.rows, int64_t(c.rows.rows_at_once)));
}

KernelSpec spec(DType t, bool backward, int64_t vector, int64_t held) {
  return {"cuda/norm/rows.cu",
          cat("minidnn::norm_rows_", backward ? "backward<" : "forward<", cuda_name(t), ", ", vector, ", ", held, ">")};
}

struct Rows final : Engine<RowNormProblem> {
  std::string name() const override { return "cuda.norm.rows"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const RowNormProblem& p, const Device& d) const override {
    Cut c;
    return parse(p, d, c);
  }
  double estimate_us(const RowNormProblem& p, const Device& d) const override {
    Cut c;
    parse(p, d, c);
    // Backward sums of columns are written and read once more by each block; partly filled blocks keep registers idle.
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
    auto kernel = cuda::load_kernel(spec(p.x.dtype, p.backward, c.vector, c.held), d.place.index, int(c.smem_bytes));
    cuda::LaunchConfig config;
    config.smem_bytes = unsigned(c.smem_bytes);
    config.block = {r.threads * r.rows_at_once};
    if (r.blocks > 1) config.cluster = {r.blocks};
    if (!p.backward) {
      config.grid = {unsigned(ceil_div(r.rows, int64_t(r.rows_at_once)) * r.blocks)};
      return make_plan<RowNormProblem>([=](const RowNormArgs& a, void*, Stream stream) {
        cuda::LaunchConfig now = config;
        now.stream = stream;
        cuda::launch(*kernel, now, r, a);
      });
    }
    auto finish = cuda::load_kernel(norm_rows_finish(), d.place.index);
    const int64_t fit = std::max(cuda::fit_at_once(*kernel, config, d), 1);
    const int64_t standing = std::min<int64_t>(most_standing(c, d), fit);
    config.grid = {unsigned(standing * r.blocks)};
    cuda::LaunchConfig joining;
    joining.block = {kNormFinishThreads};
    joining.grid = {unsigned(ceil_div(r.columns, int64_t(kNormFinishChannels)))};
    joining.programmatic = d.arch >= 90;
    return make_plan<RowNormProblem>([=](const RowNormArgs& a, void* workspace, Stream stream) {
      cuda::LaunchConfig first = config, second = joining;
      first.stream = second.stream = stream;
      cuda::launch(*kernel, first, r, a, workspace);
      cuda::launch(*finish, second, r.columns, standing, static_cast<const void*>(workspace), a.dscale, a.dbias);
    });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all{norm_rows_finish()};
    for (DType t : {DType::float32, DType::float16, DType::bfloat16}) {
      const int64_t wide = 16 / int64_t(itemsize(t));
      for (int64_t w : {1, 2, 4, 8}) all.push_back(spec(t, false, wide, w));
      for (int64_t w : {1, 2, 4}) all.push_back(spec(t, true, wide, w));
      all.push_back(spec(t, false, 1, 8));
      all.push_back(spec(t, true, 1, 4));
    }
    return all;
  }
};

}  // namespace

std::string contiguous_rows(const RowNormProblem& p, NormRows& r, int64_t& vector) {
  if (p.x.dtype == DType::float64) return "computes in float32, and x is float64";
  if (p.x.numel() == 0) return "there are no rows";
  const RowNormSpaces s = row_norm_spaces(p);
  auto alike = [](const NormOffsets& o) { return o.dy == o.x && o.out == o.x; };
  r.rows = s.rows.size, r.columns = s.members.size, r.centered = s.centered;
  const bool contiguous =
      (r.columns == 1 || (s.members.rank <= 2 && alike(s.members.run_step()) && s.members.run_step().x == 1)) &&
      (r.rows == 1 || (s.rows.rank <= 2 && alike(s.rows.run_step()) && s.rows.run_step().x == r.columns));
  const char* const layout = "reads rows that are contiguous and lie one behind the other, in all tensors alike";
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
    if (p.backward) return "sums parameters along rows backward, and group norm has one for a plane";
    if (!channels_in_order(p.x)) return "finds an element's channel by its place in NCHW";
    r.groups = uint32_t(p.groups), r.of_group = uint32_t(p.x.shape[1] / p.groups);
  }
  vector = vector_of(p, r);
  if (r.columns / vector >= int64_t(1) << 24) return cat("counts 2^24 - 1 vectors of a row at most");
  r.vectors = uint32_t(r.columns / vector);
  if (r.groups) r.span = Divisor(r.vectors / r.of_group);
  return "";
}

KernelSpec norm_rows_finish() { return {"cuda/norm/rows.cu", "minidnn::norm_rows_finish<0>"}; }
const Engine<RowNormProblem>& norm_rows() {
  static const Rows engine;
  return engine;
}

}  // namespace minidnn
