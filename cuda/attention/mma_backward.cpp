// SPDX-License-Identifier: Apache-2.0
#include "cuda/attention/mma_backward.h"

#include <bit>
#include <span>

#include "cuda/attention/mma.h"
#include "cuda/attention/mma_backward_params.h"
#include "cuda/runtime/plan.h"

namespace minidnn::cuda::attention {
namespace {

constexpr const char* kFile = "cuda/attention/mma_backward.cu";
constexpr int64_t kDeltaThreads = 256, kDsinkThreads = 512, kUnusedThreads = 128;

// BackwardTile of mma_backward.cu. The tiles are chosen so that sums and scores of a thread fit into 255 registers.
struct Tile {
  int64_t head, row_blocks, loop;
  int64_t warps = 4, bytes = 2;  // bytes: of an element
  int64_t most_stages = 2;

  int64_t threads() const { return 32 * warps; }
  int64_t own() const { return 16 * row_blocks * warps; }
  int64_t column_parts() const { return max_of(head / 128, int64_t(1)); }
  int64_t smem_bytes(int64_t stages) const {
    const int64_t two_rows = 2 * bytes * head;
    return two_rows * own() + stages * loop * (two_rows + int64_t(sizeof(AttentionRowSums)));
  }
  // One stage fits into the shared memory of every device with tensor cores. For 16 bits, it takes more time than two.
  // For float32, two blocks with one stage on an SM take less time than one block with two stages.
  int64_t stages(const Device& d) const { return smem_bytes(most_stages) <= d.max_smem_bytes ? most_stages : 1; }
};
// The tiles of the kernels of k and v, and of q; for scores without and with options; for heads of up to 64, 128 and 256
// elements. With options, larger tiles would need too many registers and take more than 2 s to compile.
enum class Owner { kv, q };
constexpr Tile kTiles16[2][2][3] = {
    {{{64, 2, 32}, {128, 1, 64}, {256, 1, 32}}, {{64, 2, 32}, {128, 1, 64}, {256, 1, 32}}},
    {{{64, 2, 64}, {128, 2, 32}, {256, 1, 32}}, {{64, 2, 32}, {128, 1, 64}, {256, 1, 32}}}};
// The tiles for float32, of both kernels, for scores without and with options.
constexpr Tile kTiles32[2][3] = {{{64, 2, 32, 4, 4, 2}, {128, 1, 32, 4, 4, 1}, {256, 1, 16, 2, 4, 1}},
                                 {{64, 1, 64, 4, 4, 2}, {128, 1, 32, 4, 4, 1}, {256, 1, 16, 2, 4, 1}}};

bool has_extras(const AttentionProblem& p) { return p.bias.rank || p.alibi || p.has_softcap || p.has_dropout; }

std::span<const Tile> tiles_for(DType type, Owner owner, bool extras) {
  if (type == DType::float32) return kTiles32[extras];
  return kTiles16[int(owner)][extras];
}
const Tile& tile_of(Owner owner, const AttentionProblem& p) {
  const int64_t size = std::max(p.head_size(), p.value_size());
  return tiles_for(p.q.dtype, owner, has_extras(p))[size <= 64 ? 0 : size <= 128 ? 1 : 2];
}

const char* kernel_of(Owner owner) { return owner == Owner::kv ? "attention_mma_dkv" : "attention_mma_dq"; }

KernelSpec spec(Owner owner, DType type, const Tile& t, bool extras) {
  return {kFile, cat("minidnn::", kernel_of(owner), "<", cuda_name(type), ", minidnn::BackwardTile<", t.head, ", ",
                     t.row_blocks, ", ", t.loop, ", ", t.warps, ">, ", extras ? "true" : "false", ">")};
}
KernelSpec spec(const char* kernel, DType type) { return {kFile, cat("minidnn::", kernel, "<", cuda_name(type), ">")}; }
KernelSpec dsink_spec() { return {kFile, "minidnn::attention_mma_dsink<float>"}; }

int64_t rows_of_q(const AttentionProblem& p) { return p.q.shape[0] * p.heads() * p.q.shape[2]; }
int64_t blocks_of(Owner owner, const AttentionProblem& p) {
  const Tile& t = tile_of(owner, p);
  if (owner == Owner::q) return ceil_div(p.q_size(), t.own()) * p.batch() * p.heads();
  return ceil_div(p.kv_size(), t.own()) * p.batch() * p.kv_heads() * t.column_parts();
}

AttentionBackwardParams params_of(const AttentionProblem& p) {
  AttentionBackwardParams to;
  const bool packed = p.packed > 0;
  to.scores = AttentionScoreParams(p);
  to.q = {p.q, packed};
  to.k = {p.k, packed};
  to.v = {p.v, packed};
  to.o = {p.o, packed};
  to.d_o = {p.d_o, packed};
  to.dq = {p.dq, packed};
  to.dk = {p.dk, packed};
  to.dv = {p.dv, packed};
  to.head_size = int32_t(p.head_size());
  to.value_size = int32_t(p.value_size());
  to.q_heads = FastDivmod(p.heads());
  to.kv_heads = FastDivmod(p.kv_heads() * tile_of(Owner::kv, p).column_parts());
  to.batch = FastDivmod(p.batch());
  to.q_rows = FastDivmod(p.q.shape[2]);
  to.all_q_rows = rows_of_q(p);
  to.delta_lanes = int32_t(std::bit_ceil(uint64_t(ceil_div(p.value_size(), int64_t(8)))));
  to.lse_factor = has_extras(p) ? 1.0f : 1.44269504f;
  if (!p.dbias.rank) return to;
  to.dbias_bytes = int32_t(itemsize(p.dbias.dtype));
  for (int i = 0; i < 4; ++i) to.dbias[i] = p.dbias.stride[i];
  return to;
}

struct BackwardPlan final : Plan<AttentionProblem> {
  struct Launch {
    std::shared_ptr<const cuda::Kernel> kernel;
    cuda::LaunchConfig config;
    AttentionBackwardParams params;
  };
  AttentionProblem problem;
  std::shared_ptr<const cuda::Kernel> unused;  // zeros for rows of no sequence, if packed
  cuda::LaunchConfig of_unused;
  std::vector<Launch> launches;

  void add(const KernelSpec& s, int64_t blocks, int64_t threads, int64_t smem, int64_t stages, const Device& d) {
    Launch l{cuda::load_kernel(s, d.place.index, int(smem)), {}, params_of(problem)};
    l.config.grid = {unsigned(blocks)};
    l.config.block = {unsigned(threads)};
    l.config.smem_bytes = unsigned(smem);
    l.params.stages = int32_t(stages);
    launches.push_back(std::move(l));
  }
  void run(const AttentionArgs& a, void* workspace, Stream stream) const override {
    if (unused) cuda::launch(*unused, of_unused, stream, problem, a);
    for (const Launch& l : launches) cuda::launch(*l.kernel, l.config, stream, l.params, a, workspace);
  }
};

}  // namespace

std::string gradients_why_not(const AttentionProblem& p) {
  if (p.q.numel() == 0 || p.k.numel() == 0 || p.q_size() == 0 || p.kv_size() == 0) return "needs rows of q and k";
  // Gradients are dense, and have the stride orders of q, k and v.
  const int64_t elements = 16 / itemsize(p.d_o.dtype);
  for (int i = 0; i < 4; ++i)
    if (p.d_o.shape[i] > 1 && (i == 3 ? p.d_o.stride[i] != 1 : p.d_o.stride[i] % elements != 0))
      return cat("needs a contiguous last dimension of do, and other strides that are multiples of ", elements,
                 "; got ", p.d_o.stride[i]);
  for (const TensorDesc* gradient : {&p.dq, &p.dk, &p.dv})
    if (gradient->stride[3] != 1) return "needs heads of q, k and v whose last dimension has the smallest stride";
  return "";
}

std::string mma_backward_why_not(const AttentionProblem& p, const Device& d) {
  if (const std::string why = mma_why_not(p, d, true); !why.empty()) return why;
  if (std::string why = gradients_why_not(p); !why.empty()) return why;
  constexpr int64_t kMost = (int64_t(1) << 31) - 1;
  if (rows_of_q(p) > kMost || blocks_of(Owner::kv, p) > kMost || blocks_of(Owner::q, p) > kMost)
    return cat("supports at most ", kMost, " rows and tiles");
  if (!p.dbias.rank) return "";
  const int64_t full[] = {p.batch(), p.heads(), p.q_size(), p.kv_size()};
  for (int i = 0; i < 4; ++i)
    if (p.dbias.shape[i] != full[i]) return "does not sum the gradient of a bias that is broadcast";
  return "";
}

double mma_backward_estimate_us(const AttentionProblem& p, const Device& d) {
  // The rate of products in units of that of float32, at most eight for 16 bits. Seven products are computed where five
  // are counted. The rates and the efficiencies are from an H100: for 16 bits half the speed of cuDNN, and 2.2 to 4.5
  // times as long with options.
  const bool is_float32 = p.q.dtype == DType::float32;
  const int64_t head = tile_of(Owner::kv, p).head;
  const double rate = !is_float32 ? 8 : head <= 64 ? 3.2 : head <= 128 ? 2.6 : 0.9;
  const double efficiency = !has_extras(p) ? 0.7 : is_float32 ? 0.35 : 0.23;
  const double blocks = double(std::min(blocks_of(Owner::kv, p), blocks_of(Owner::q, p)));
  const double used = std::clamp(blocks / d.sm_count, 0.01, 1.0);
  return 8 + roofline_us(1.4 * attention_flop(p) / rate, attention_bytes(p), d, efficiency) / used;
}

size_t mma_backward_workspace_bytes(const AttentionProblem& p) {
  return size_t(rows_of_q(p)) * sizeof(AttentionRowSums);
}

std::unique_ptr<Plan<AttentionProblem>> mma_backward_plan(const AttentionProblem& p, const Device& d) {
  auto plan = std::make_unique<BackwardPlan>();
  plan->problem = p;
  const DType type = p.q.dtype;
  if (p.packed) {
    plan->unused = cuda::load_kernel(spec("attention_mma_unused", type), d.place.index);
    plan->of_unused.block = {unsigned(kUnusedThreads)};
    plan->of_unused.grid = {unsigned(ceil_div(std::max(p.q.shape[2], p.k.shape[2]), kUnusedThreads / 32))};
  }
  const int64_t lanes = rows_of_q(p) * params_of(p).delta_lanes;
  plan->add(spec("attention_mma_delta", type), ceil_div(lanes, kDeltaThreads), kDeltaThreads, 0, 0, d);
  for (Owner owner : {Owner::kv, Owner::q}) {
    const Tile& t = tile_of(owner, p);
    plan->add(spec(owner, type, t, has_extras(p)), blocks_of(owner, p), t.threads(), t.smem_bytes(t.stages(d)),
              t.stages(d), d);
  }
  if (p.has_sink) plan->add(dsink_spec(), p.heads(), kDsinkThreads, 0, 0, d);
  return plan;
}

std::vector<KernelSpec> mma_backward_kernels() {
  std::vector<KernelSpec> all{dsink_spec()};
  for (DType type : {DType::float16, DType::bfloat16, DType::float32}) {
    for (const char* kernel : {"attention_mma_delta", "attention_mma_unused"}) all.push_back(spec(kernel, type));
    for (Owner owner : {Owner::kv, Owner::q})
      for (bool extras : {false, true})
        for (const Tile& t : tiles_for(type, owner, extras)) all.push_back(spec(owner, type, t, extras));
  }
  return all;
}

}  // namespace minidnn::cuda::attention
