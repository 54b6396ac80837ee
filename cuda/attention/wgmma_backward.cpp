// SPDX-License-Identifier: Apache-2.0
// The gradients of 16-bit operands on Hopper. The kernels are compiled for some head sizes (kChoices); others use the next
// larger one.
#include "cuda/attention/wgmma_backward.h"

#include <algorithm>
#include <bit>

#include "cpp/engine/engine_object.h"
#include "cpp/engine/roofline.h"
#include "cuda/attention/mma_backward.h"
#include "cuda/attention/wgmma.h"
#include "cuda/attention/wgmma_backward_params.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::attention {
namespace {

using Tile = AttentionBackwardTile;
using Params = AttentionWgmmaBackwardParams;
using Sums = AttentionWgmmaBackwardSums;

constexpr int64_t kRowThreads = 256, kDsinkThreads = 512, kUnusedThreads = 128;
constexpr int64_t kEndBytes = 2 * 128 * 64;  // 64 columns of 128 rows of dq
// A tile, and the part of the peak rate of wgmma that it reached on an H100 with long sequences.
struct Choice {
  Tile tile;  // D, rows of q, stages, Dv
  double rate;
};
// The sums and scores of a thread fit into its registers, Tile::own_registers().
constexpr Choice kChoices[] = {
    {{64, 128, 2}, 0.51}, {{128, 64, 2}, 0.62}, {{192, 64, 2, 128}, 0.4}, {{192, 64, 2}, 0.43}, {{256, 64, 2}, 0.46},
};
constexpr int kMostHead = std::end(kChoices)[-1].tile.head;

// The smallest tile that fits a problem.
const Choice& choice_of(const AttentionProblem& p) {
  return *std::ranges::find_if(
      kChoices, [&](const Choice& c) { return p.head_size() <= c.tile.head && p.value_size() <= c.tile.value; });
}
const Tile& tile_of(const AttentionProblem& p) { return choice_of(p).tile; }

KernelSpec spec(const char* kernel, const std::string& type, const Tile& t, const char* more = "") {
  KernelSpec s{"cuda/attention/wgmma_backward.cu",
               cat("minidnn::attention_wgmma_", kernel, "<", type, ", minidnn::AttentionBackwardTile{", t.head, ", ",
                   t.rows, ", ", t.stages, ", ", t.value, "}", more, ">")};
  s.min_arch = 90;
  return s;
}
KernelSpec main_spec(DType type, const Tile& t, bool ordered) {
  return spec("backward", cuda_name(type), t, ordered ? ", true" : ", false");
}
KernelSpec unused_spec(DType type) {
  return {"cuda/attention/mma_backward.cu", cat("minidnn::attention_mma_unused<", cuda_name(type), ">")};
}

// max_q and max_kv may be larger than the tensors.
int64_t row_tiles(const AttentionProblem& p) {
  return ceil_div(std::min(p.q_size(), p.q.shape[2]), int64_t(tile_of(p).rows));
}
int64_t column_tiles(const AttentionProblem& p) {
  return ceil_div(std::min(p.kv_size(), p.k.shape[2]), int64_t(tile_of(p).columns()));
}
int64_t row_blocks(const AttentionProblem& p) { return row_tiles(p) * p.batch() * p.heads(); }
int64_t column_blocks(const AttentionProblem& p) { return column_tiles(p) * p.batch() * p.kv_heads(); }
// The tiles of a head in workspace. Packed sequences begin at tiles of their own.
int64_t head_tiles(const AttentionProblem& p) {
  return p.packed ? p.q.shape[2] / tile_of(p).rows + p.packed : row_tiles(p);
}
int64_t workspace_tiles(const AttentionProblem& p) { return head_tiles(p) * p.q.shape[0] * p.heads(); }

Sums sums_of(const AttentionProblem& p, void* workspace, bool ordered) {
  const Tile& t = tile_of(p);
  const int64_t tiles = workspace_tiles(p);
  Sums to;
  to.dq = static_cast<float*>(workspace);
  to.lse = to.dq + tiles * t.sums();
  to.delta = to.lse + tiles * t.rows;
  to.next_item = reinterpret_cast<uint32_t*>(to.delta + tiles * t.rows);
  if (ordered) to.added = to.next_item + 1;
  return to;
}
size_t workspace_bytes_of(const AttentionProblem& p, bool ordered) {
  const Tile& t = tile_of(p);
  const int64_t tiles = workspace_tiles(p), counters = 1 + (ordered ? tiles : 0);
  return size_t(tiles * (t.sums() + 2 * t.rows) + counters) * sizeof(float);
}

Params params_of(const AttentionProblem& p, bool ordered) {
  const bool packed = p.packed > 0;
  Params to;
  to.scores = AttentionScoreParams(p);
  to.o = {p.o, packed};
  to.d_o = {p.d_o, packed};
  to.dq = {p.dq, packed};
  to.dk = {p.dk, packed};
  to.dv = {p.dv, packed};
  to.head_size = int32_t(p.head_size());
  to.value_size = int32_t(p.value_size());
  to.q_heads = FastDivmod(p.heads());
  to.row_tiles = FastDivmod(row_tiles(p));
  to.column_tiles = int32_t(column_tiles(p));
  to.items = int32_t(column_blocks(p));
  to.kv_head_batch = int32_t(p.kv_heads() * p.batch());
  to.delta_lanes = int32_t(std::bit_ceil(uint64_t(p.value_size() / 8)));
  to.head_tiles = head_tiles(p);
  if (!ordered) return to;
  // Blocks of a head wait for each other, so blocks of different heads run at the same time, as far as their q, d_o and
  // sums of dq fit into half of the L2 of an H100.
  constexpr int64_t kGroupBytes = 24 << 20;
  const int64_t head_bytes = std::min(p.q_size(), p.q.shape[2]) * (8 * tile_of(p).head) * (p.heads() / p.kv_heads());
  to.head_group = int32_t(std::clamp(kGroupBytes / head_bytes, int64_t(1), int64_t(to.kv_head_batch)));
  return to;
}

struct BackwardPlan final : Plan<AttentionProblem> {
  struct Launch {
    std::shared_ptr<const cuda::Kernel> kernel;
    cuda::LaunchConfig config;
  };
  AttentionProblem problem;
  Params params;
  bool ordered = false;
  int device = 0;
  Launch unused;  // zeros for rows of no sequence, if packed
  Launch begin, main, end, dsink;

  static Launch launch_of(const KernelSpec& s, int64_t blocks, int64_t threads, int64_t smem, const Device& d) {
    Launch l{cuda::load_kernel(s, d.place.index, int(smem)), {}};
    l.config.grid = {unsigned(blocks)};
    l.config.block = {unsigned(threads)};
    l.config.smem_bytes = unsigned(smem);
    return l;
  }
  void run(const AttentionArgs& a, void* workspace, Stream stream) const override {
    const Tile& t = tile_of(problem);
    const Sums sums = sums_of(problem, workspace, ordered);
    const AttentionWgmmaBackwardMaps maps{
        map_of(problem.q, a.q, t.rows, device), map_of(problem.k, a.k, t.columns(), device),
        map_of(problem.v, a.v, t.columns(), device), map_of(problem.d_o, a.d_o, t.rows, device)};
    if (unused.kernel) cuda::launch(*unused.kernel, unused.config, stream, problem, a);
    cuda::launch(*begin.kernel, begin.config, stream, params, a, sums);
    cuda::launch(*main.kernel, main.config, stream, params, a, maps, sums);
    cuda::launch(*end.kernel, end.config, stream, params, a, sums);
    if (dsink.kernel) cuda::launch(*dsink.kernel, dsink.config, stream, params, a, sums);
  }
};

std::string backward_why_not(const AttentionProblem& p, const Device& d) {
  if (p.direction != AttentionDirection::backward) return "computes gradients only";
  if (std::string why = wgmma_why_not(p, d); !why.empty()) return why;
  if (p.bias.rank || p.alibi || p.has_softcap || p.has_dropout)
    return "does not support bias, alibi, softcap or dropout";
  if (p.negative_scale) return "needs a scale above 0";
  if (p.head_size() > kMostHead || p.value_size() > kMostHead)
    return cat("supports head sizes up to ", kMostHead, "; got ", p.head_size(), " and ", p.value_size());
  if (std::string why = gradients_why_not(p); !why.empty()) return why;
  if (std::string why = why_not_map("do", p.d_o); !why.empty()) return why;
  constexpr int64_t kMost = (int64_t(1) << 31) - 1;
  if (row_blocks(p) > kMost || column_blocks(p) > kMost) return cat("supports at most ", kMost, " tiles");
  return "";
}

double backward_estimate_us(const AttentionProblem& p, const Device& d, bool ordered) {
  // wgmma has 15 times the rate of float32 on an H100.
  const Choice& c = choice_of(p);
  const Tile& t = c.tile;
  const double rate = 15 * d.fp32_gflop_s * 1e3 * c.rate * (!ordered ? 1 : t.is_wide() ? 0.83 : 0.95);
  const int64_t blocks = column_blocks(p), rounds = ceil_div(blocks, int64_t(d.sm_count));
  // With a window or lengths, items have different sizes, which are distributed evenly, and masks take time.
  const bool band = p.left >= 0 || p.right >= 0 || p.packed;
  const double used =
      band ? 0.9 * std::min(1.0, double(blocks) / d.sm_count) : double(blocks) / double(rounds * d.sm_count);
  const double padded = wasted(std::min(p.q_size(), p.q.shape[2]), int64_t(t.rows)) *
                        wasted(std::min(p.kv_size(), p.k.shape[2]), int64_t(t.columns())) * (t.head + t.value) /
                        double(p.head_size() + p.value_size());
  const double compute = attention_flop(p) * padded / (rate * used);
  // The other kernels read o and d_o, write and read the sums, and write dq.
  const double bytes = 2.0 * double(2 * p.o.numel() + p.dq.numel()) + 2.0 * double(workspace_bytes_of(p, ordered));
  return 20 + compute + bytes / (d.copy_gb_s * 1e3);
}

std::unique_ptr<Plan<AttentionProblem>> backward_plan(const AttentionProblem& p, const Device& d, bool ordered) {
  using Made = BackwardPlan;
  auto plan = std::make_unique<Made>();
  const Tile& t = tile_of(p);
  const DType type = p.q.dtype;
  plan->problem = p;
  plan->params = params_of(p, ordered);
  plan->ordered = ordered;
  plan->device = d.place.index;
  if (p.packed)
    plan->unused = Made::launch_of(
        unused_spec(type), ceil_div(std::max(p.q.shape[2], p.k.shape[2]), kUnusedThreads / 32), kUnusedThreads, 0, d);
  plan->begin = Made::launch_of(spec("begin", cuda_name(type), t), row_blocks(p), kRowThreads, 0, d);
  plan->main = Made::launch_of(main_spec(type, t, ordered), std::min(column_blocks(p), int64_t(d.sm_count)),
                               t.threads(), t.smem_bytes(), d);
  plan->end = Made::launch_of(spec("end", cuda_name(type), t), row_blocks(p), kRowThreads, kEndBytes, d);
  plan->main.config.programmatic = plan->end.config.programmatic = true;
  if (p.has_sink) plan->dsink = Made::launch_of(spec("dsink", "float", t), p.heads(), kDsinkThreads, 0, d);
  return plan;
}

std::vector<KernelSpec> backward_kernels(bool ordered) {
  std::vector<KernelSpec> all;
  for (const Choice& c : kChoices) {
    const Tile& t = c.tile;
    all.push_back(spec("dsink", "float", t));
    for (DType type : {DType::float16, DType::bfloat16}) {
      for (const char* kernel : {"begin", "end"}) all.push_back(spec(kernel, cuda_name(type), t));
      all.push_back(main_spec(type, t, ordered));
    }
  }
  return all;
}

}  // namespace

std::string WgmmaGradients::why_not(const AttentionProblem& p, const Device& d) const { return backward_why_not(p, d); }
double WgmmaGradients::estimate_us(const AttentionProblem& p, const Device& d) const {
  return backward_estimate_us(p, d, ordered_);
}
size_t WgmmaGradients::workspace_bytes(const AttentionProblem& p, const Device&, const Config&) const {
  return workspace_bytes_of(p, ordered_);
}
std::unique_ptr<Plan<AttentionProblem>> WgmmaGradients::build(const AttentionProblem& p, const Device& d,
                                                              const Config&) const {
  return backward_plan(p, d, ordered_);
}
std::vector<KernelSpec> WgmmaGradients::kernels() const { return backward_kernels(ordered_); }

struct WgmmaBackward final : WgmmaGradients {
  WgmmaBackward() : WgmmaGradients(false) {}
  std::string name() const override { return "cuda.attention.wgmma_backward"; }
};

}  // namespace cuda::attention

template const Engine<AttentionProblem>& engine_object<AttentionProblem, cuda::attention::WgmmaBackward>();

}  // namespace minidnn
