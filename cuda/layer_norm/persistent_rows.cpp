// SPDX-License-Identifier: Apache-2.0
// cuda.layer_norm.persistent_rows: norms of contiguous rows that are kept on chip; see persistent_rows.cu and
// persistent_rows_backward.cu.
#include "cuda/layer_norm/persistent_rows_params.h"

#include "cpp/engine/engine_object.h"
#include "cuda/layer_norm/rows.h"
#include "cuda/norm/channel_passes_params.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::layer_norm {
namespace {

constexpr int64_t kStaticBytes = 8 << 10;  // shared memory of a block: RowSums, and what the system reserves

struct Tiling {
  RowTiling rows;
  int64_t vector = 1, thread_vectors = 1;
  bool persistent = false;  // persistent blocks: backward, and long rows
  // Persistent blocks: rows per iteration; shared memory of a block; blocks of an SM at most.
  int64_t rows_per_iteration = 1, smem_bytes = 0, blocks_an_sm = 1;
};

int64_t threads_for(const Tiling& c, int64_t each) {
  return ceil_div(ceil_div(int64_t(c.rows.vectors), each * c.rows.blocks), int64_t(32)) * 32;
}
// Sets the blocks of a row and their threads, so that a thread has at most `each` vectors. Returns false if that takes
// more than `most` blocks.
bool set_blocks(Tiling& c, int64_t most, int64_t each, int64_t most_threads) {
  while (threads_for(c, each) > most_threads && c.rows.blocks < most) c.rows.blocks *= 2;
  c.rows.threads = uint32_t(min_of(threads_for(c, each), most_threads));
  return threads_for(c, each) <= most_threads;
}

// Forward, short rows. A thread has four vectors: enough bytes in flight, and short sums. Rows for which that
// takes more than 512 threads (two such blocks run on an SM at the same time) have eight vectors per thread; longer
// rows have clusters of such blocks; even longer ones blocks of 1024 threads, each with all registers of an SM.
bool tile_registers(Tiling& c, const Device& d) {
  const int64_t most = cuda::usual_cluster(d), max_thread_vectors = 8, full = 512;
  const int64_t each = c.vector == 1 ? max_thread_vectors : 4;
  RowTiling& r = c.rows;
  if (threads_for(c, each) <= full) set_blocks(c, most, each, full);
  else if (!set_blocks(c, most, max_thread_vectors, full) && !set_blocks(c, most, max_thread_vectors, 1024))
    return false;
  // Fewer lanes reduce a row in fewer steps, but leave fewer threads. They are used if there are enough rows to fill
  // the GPU. Eight lanes still load a whole line of memory at a time.
  for (uint32_t lanes : {16, 8})
    if (r.vectors <= lanes * each && r.rows * lanes >= int64_t(1024) * d.sm_count) r.threads = lanes;
  const int64_t w = ceil_div<int64_t>(r.vectors, r.threads * r.blocks);
  c.thread_vectors = c.vector == 1 ? max_thread_vectors : w <= 2 ? w : w <= 4 ? 4 : max_thread_vectors;
  r.rows_at_once = r.threads <= 128 && r.blocks == 1 ? 256 / r.threads : 1;
  return true;
}

// Forward, long rows that need a cluster, from the length at which registers are no longer as fast
// (docs/notes/layer_norm.md). Not for group norm, whose parameters differ between the rows of a column.
bool tile_forward_smem(Tiling& c, const Device& d) {
  RowTiling& r = c.rows;
  if (c.vector == 1 || r.groups || r.columns <= (c.vector == 4 ? 65536 : 16384)) return false;
  c.thread_vectors = kForwardElements / c.vector;
  if (!set_blocks(c, cuda::largest_cluster(d), c.thread_vectors, kMaxRowThreads)) return false;
  c.persistent = true;
  r.rows_at_once = 1;
  c.rows_per_iteration = rows_per_iteration(c.vector);
  const int64_t stage = r.threads * c.thread_vectors * c.rows_per_iteration * 16;
  r.stages = uint32_t(std::clamp<int64_t>((d.max_smem_bytes - kStaticBytes) / stage, 0, 4));
  c.smem_bytes = r.stages * stage;
  return r.stages > 0;
}

// Backward. Short rows have two vectors per thread. With growing length, a thread has as many vectors as registers have
// sums and scale for; then a row has a cluster; then scale is in shared memory. There are as many stages (4 at most) as
// fit shared memory, or half of it where two blocks share an SM.
bool tile_backward_smem(Tiling& c, const Device& d, const LayerNormProblem& p) {
  RowTiling& r = c.rows;
  const int64_t most = cuda::usual_cluster(d), full = kMaxRowThreads,
                kept = c.vector == 1 ? 4 : kScaleInRegisters / c.vector;
  const int64_t max_thread_vectors = c.vector == 1 ? 4 : 2 * kept;
  if (threads_for(c, 2) <= full && c.vector > 1) set_blocks(c, most, 2, full);
  else if (!set_blocks(c, most, kept, full) && !set_blocks(c, cuda::largest_cluster(d), max_thread_vectors, full))
    return false;
  const int64_t w = ceil_div<int64_t>(r.vectors, r.threads * r.blocks);
  c.thread_vectors = c.vector == 1 ? 4 : w <= 2 ? w : w <= 4 ? 4 : 8;
  c.persistent = true;
  r.rows_at_once = r.blocks == 1 ? uint32_t(full) / r.threads : 1;
  const int64_t block = int64_t(r.threads) * r.rows_at_once, elements = c.thread_vectors * c.vector;
  const int64_t stage = 2 * block * elements * int64_t(itemsize(p.x.dtype));
  const int64_t scale = elements > kScaleInRegisters ? block * elements * 4 : 0;
  c.blocks_an_sm = elements <= kTwoBlocksPerSm ? 2 : 1;
  const int64_t smem = (int64_t(d.max_smem_bytes) - kStaticBytes) / c.blocks_an_sm - scale;
  r.stages = uint32_t(std::clamp<int64_t>(smem / stage, 0, c.thread_vectors == 8 ? 1 : 4));
  // At its end, a block joins the sums of the rows that it processed together, in the same shared memory.
  const int64_t joined = ceil_div(int64_t(r.rows_at_once), int64_t(2)) * r.threads * elements * 8;
  c.smem_bytes = std::max(r.stages * stage + scale, r.rows_at_once > 1 ? joined : 0);
  return r.stages > 0;
}

// Fills in the tiling, or returns why the rows do not fit.
std::string parse(const LayerNormProblem& p, const Device& d, Tiling& c) {
  if (std::string why = contiguous_rows(p, c.rows, c.vector); !why.empty()) return why;
  Tiling in_smem = c;
  if (!p.backward && tile_forward_smem(in_smem, d)) c = in_smem;
  else if (!(p.backward ? tile_backward_smem(c, d, p) : tile_registers(c, d))) {
    return cat("supports rows that fit the registers and shared memory of up to ", cuda::largest_cluster(d),
               " blocks of ", d.max_smem_bytes, " bytes; got ", c.rows.columns, " elements");
  }
  if (ceil_div(c.rows.rows, int64_t(c.rows.rows_at_once)) * c.rows.blocks > INT32_MAX)
    return "supports at most 2^31 - 1 blocks; got more";
  return "";
}

// An upper bound of the number of persistent blocks (or clusters). Only the driver knows how many run at the same time.
int64_t max_persistent_blocks(const Tiling& c, const Device& d) {
  const int64_t at_once = std::max<int64_t>(c.blocks_an_sm * d.sm_count / c.rows.blocks, 1);
  return std::min(at_once, ceil_div(c.rows.rows, c.rows.rows_at_once * c.rows_per_iteration));
}

KernelSpec kernel_of(DType t, std::string_view kernel, int64_t vector, int64_t thread_vectors) {
  return {kernel == "backward" ? "cuda/layer_norm/persistent_rows_backward.cu" : "cuda/layer_norm/persistent_rows.cu",
          cat("minidnn::layer_norm_rows_", kernel, "<", cuda_name(t), ", ", vector, ", ", thread_vectors, ">")};
}
KernelSpec stream_spec(DType t) {
  const int64_t vector = 16 / int64_t(itemsize(t));
  return kernel_of(t, "forward_smem", vector, kForwardElements / vector);
}
KernelSpec spec(const LayerNormProblem& p, const Tiling& c) {
  if (c.persistent && !p.backward) return stream_spec(p.x.dtype);
  return kernel_of(p.x.dtype, p.backward ? "backward" : "forward", c.vector, c.thread_vectors);
}

}  // namespace

struct PersistentRows final : Engine<LayerNormProblem> {
  std::string name() const override { return "cuda.layer_norm.persistent_rows"; }
  int revision() const override { return 2; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const LayerNormProblem& p, const Device& d) const override {
    Tiling c;
    return parse(p, d, c);
  }
  double estimate_us(const LayerNormProblem& p, const Device& d) const override {
    Tiling c;
    parse(p, d, c);
    // Backward, each block writes its sums of columns, which are read once more. 0.7: blocks whose threads are not all
    // used leave registers idle.
    const double sums = p.backward ? double(max_persistent_blocks(c, d)) * double(c.rows.columns) * 8 : 0;
    const double kept = p.backward && c.thread_vectors * c.vector > 16 ? 0.7 : 0.88;
    return roofline_us(row_norm_flop(p), row_norm_bytes(p) + sums, d, c.vector > 1 ? p.backward ? kept : 0.9 : 0.5) +
           (p.backward ? 3 : 0);
  }
  size_t workspace_bytes(const LayerNormProblem& p, const Device& d, const Config&) const override {
    if (!p.backward) return 0;
    Tiling c;
    parse(p, d, c);
    return size_t(max_persistent_blocks(c, d)) * size_t(c.rows.columns) * 2 * sizeof(float);
  }
  std::unique_ptr<Plan<LayerNormProblem>> build(const LayerNormProblem& p, const Device& d,
                                                const Config&) const override {
    Tiling c;
    parse(p, d, c);
    const RowTiling r = c.rows;
    auto kernel = cuda::load_kernel(spec(p, c), d.place.index, int(c.smem_bytes));
    cuda::LaunchConfig config;
    config.smem_bytes = unsigned(c.smem_bytes);
    config.block = {r.threads * r.rows_at_once};
    if (r.blocks > 1) config.cluster = {r.blocks};
    config.grid = {unsigned(ceil_div(r.rows, int64_t(r.rows_at_once)) * r.blocks)};
    int64_t persistent_blocks = 0;
    if (c.persistent) {
      persistent_blocks =
          std::min<int64_t>(max_persistent_blocks(c, d), std::max(cuda::fit_at_once(*kernel, config, d), 1));
      config.grid = {unsigned(persistent_blocks * r.blocks)};
    }
    if (!p.backward)
      return make_plan<LayerNormProblem>(
          [=](const LayerNormArgs& a, void*, Stream stream) { cuda::launch(*kernel, config, stream, r, a); });
    const ParameterSums f = parameter_sums(persistent_blocks);
    auto finish = cuda::load_kernel(f.kernel, d.place.index);
    cuda::LaunchConfig joining;
    joining.block = {unsigned(f.threads)};
    joining.grid = {unsigned(ceil_div(r.columns, f.columns))};
    joining.programmatic = d.arch >= 90;
    return make_plan<LayerNormProblem>([=](const LayerNormArgs& a, void* workspace, Stream stream) {
      cuda::LaunchConfig first = config, second = joining;
      cuda::launch(*kernel, first, stream, r, a, workspace);
      cuda::launch(*finish, second, stream, r.columns, persistent_blocks, static_cast<const void*>(workspace), a.dscale,
                   a.dbias);
    });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all{parameter_sums(1).kernel, parameter_sums(INT32_MAX).kernel};
    for (DType t : {DType::float32, DType::float16, DType::bfloat16}) {
      const int64_t wide = 16 / int64_t(itemsize(t));
      for (int64_t w : {1, 2, 4, 8}) all.push_back(kernel_of(t, "forward", wide, w));
      for (int64_t w = 1; w * wide <= 2 * kScaleInRegisters; w *= 2) all.push_back(kernel_of(t, "backward", wide, w));
      all.push_back(kernel_of(t, "forward", 1, 8));
      all.push_back(kernel_of(t, "backward", 1, 4));
      all.push_back(stream_spec(t));
    }
    return all;
  }
};

}  // namespace cuda::layer_norm

template const Engine<LayerNormProblem>& engine_object<LayerNormProblem, cuda::layer_norm::PersistentRows>();

}  // namespace minidnn
