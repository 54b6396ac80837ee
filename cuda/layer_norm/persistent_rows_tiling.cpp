// SPDX-License-Identifier: Apache-2.0
#include "cuda/layer_norm/persistent_rows_tiling.h"

#include <algorithm>

#include "cuda/layer_norm/rows.h"
#include "cuda/runtime/plan.h"

namespace minidnn::cuda::layer_norm {
namespace {

constexpr int64_t kStaticBytes = 8 << 10;  // bytes of shared memory in a block for static variables and for the system

int64_t threads_for(const PersistentRowsTiling& t, int64_t each) {
  return ceil_div(ceil_div(int64_t(t.rows.vectors), each * t.rows.blocks), int64_t(32)) * 32;
}
// Chooses how many blocks and threads share a row, if a thread has at most `each` vectors. Returns false if the row
// needs more than `most` blocks.
bool set_blocks(PersistentRowsTiling& t, int64_t most, int64_t each, int64_t most_threads) {
  while (threads_for(t, each) > most_threads && t.rows.blocks < most) t.rows.blocks *= 2;
  t.rows.threads = uint32_t(min_of(threads_for(t, each), most_threads));
  return threads_for(t, each) <= most_threads;
}

// Chooses the tiling of the forward kernel for rows that are in registers. From short to long rows: four vectors per
// thread, eight vectors per thread, a cluster of blocks of 512 threads (two blocks per SM), a cluster of blocks of 1024
// threads.
bool tile_registers(PersistentRowsTiling& t, const Device& d) {
  const int64_t most = cuda::usual_cluster(d), max_thread_vectors = 8, full = 512;
  const int64_t each = t.vector == 1 ? max_thread_vectors : 4;
  RowTiling& r = t.rows;
  if (threads_for(t, each) <= full) set_blocks(t, most, each, full);
  else if (!set_blocks(t, most, max_thread_vectors, full) && !set_blocks(t, most, max_thread_vectors, 1024))
    return false;
  // With 16 or 8 lanes per row, sums take fewer shuffles, but the grid has fewer threads. So there must be enough rows
  // to fill the GPU. Eight lanes still load a whole cache line of 128 bytes.
  for (uint32_t lanes : {16, 8})
    if (r.vectors <= lanes * each && r.rows * lanes >= int64_t(1024) * d.sm_count) r.threads = lanes;
  const int64_t w = ceil_div<int64_t>(r.vectors, r.threads * r.blocks);
  t.thread_vectors = t.vector == 1 ? max_thread_vectors : w <= 2 ? w : w <= 4 ? 4 : max_thread_vectors;
  r.rows_at_once = r.threads <= 128 && r.blocks == 1 ? 256 / r.threads : 1;
  return true;
}

// Chooses the tiling of the forward kernel for long rows, which are in the shared memory of a cluster. Returns false
// for shorter rows, which are at least as fast in registers (docs/notes/layer_norm.md), and for group norm.
bool tile_forward_smem(PersistentRowsTiling& t, const Device& d) {
  RowTiling& r = t.rows;
  if (t.vector == 1 || r.groups || r.columns <= (t.vector == 4 ? 65536 : 16384)) return false;
  t.thread_vectors = kForwardElements / t.vector;
  if (!set_blocks(t, cuda::largest_cluster(d), t.thread_vectors, kMaxRowThreads)) return false;
  t.persistent = true;
  r.rows_at_once = 1;
  t.rows_per_iteration = rows_per_iteration(t.vector);
  const int64_t stage = r.threads * t.thread_vectors * t.rows_per_iteration * 16;
  r.stages = uint32_t(std::clamp<int64_t>((d.max_smem_bytes - kStaticBytes) / stage, 0, 4));
  t.smem_bytes = r.stages * stage;
  return r.stages > 0;
}

// Chooses the tiling of the backward kernel. From short to long rows: two vectors per thread, up to kScaleInRegisters
// elements per thread, a cluster of blocks, twice as many elements per thread with scale in shared memory.
bool tile_backward_smem(PersistentRowsTiling& t, const Device& d, const LayerNormProblem& p) {
  RowTiling& r = t.rows;
  const int64_t most = cuda::usual_cluster(d), full = kMaxRowThreads,
                kept = t.vector == 1 ? 4 : kScaleInRegisters / t.vector;
  const int64_t max_thread_vectors = t.vector == 1 ? 4 : 2 * kept;
  if (threads_for(t, 2) <= full && t.vector > 1) set_blocks(t, most, 2, full);
  else if (!set_blocks(t, most, kept, full) && !set_blocks(t, cuda::largest_cluster(d), max_thread_vectors, full))
    return false;
  const int64_t w = ceil_div<int64_t>(r.vectors, r.threads * r.blocks);
  t.thread_vectors = t.vector == 1 ? 4 : w <= 2 ? w : w <= 4 ? 4 : 8;
  t.persistent = true;
  r.rows_at_once = r.blocks == 1 ? uint32_t(full) / r.threads : 1;
  const int64_t block = int64_t(r.threads) * r.rows_at_once, elements = t.thread_vectors * t.vector;
  const int64_t stage = 2 * block * elements * int64_t(itemsize(p.x.dtype));
  const int64_t scale = elements > kScaleInRegisters ? block * elements * 4 : 0;
  t.blocks_per_sm = elements <= kTwoBlocksPerSm ? 2 : 1;
  const int64_t smem = (int64_t(d.max_smem_bytes) - kStaticBytes) / t.blocks_per_sm - scale;
  r.stages = uint32_t(std::clamp<int64_t>(smem / stage, 0, t.thread_vectors == 8 ? 1 : 4));
  // The final addition of dscale and dbias reuses the shared memory of the rows.
  const int64_t joined = ceil_div(int64_t(r.rows_at_once), int64_t(2)) * r.threads * elements * 8;
  t.smem_bytes = std::max(r.stages * stage + scale, r.rows_at_once > 1 ? joined : 0);
  return r.stages > 0;
}

}  // namespace

std::string tile_persistent_rows(const LayerNormProblem& p, const Device& d, PersistentRowsTiling& t) {
  if (std::string why = contiguous_rows(p, t.rows, t.vector); !why.empty()) return why;
  PersistentRowsTiling in_smem = t;
  if (!p.backward && tile_forward_smem(in_smem, d)) t = in_smem;
  else if (!(p.backward ? tile_backward_smem(t, d, p) : tile_registers(t, d))) {
    return cat("supports rows that fit the registers and shared memory of up to ", cuda::largest_cluster(d),
               " blocks of ", d.max_smem_bytes, " bytes; got ", t.rows.columns, " elements");
  }
  if (ceil_div(t.rows.rows, int64_t(t.rows.rows_at_once)) * t.rows.blocks > INT32_MAX)
    return "supports at most 2^31 - 1 blocks; got more";
  return "";
}

int64_t max_persistent_blocks(const PersistentRowsTiling& t, const Device& d) {
  const int64_t at_once = std::max<int64_t>(t.blocks_per_sm * d.sm_count / t.rows.blocks, 1);
  return std::min(at_once, ceil_div(t.rows.rows, t.rows.rows_at_once * t.rows_per_iteration));
}

}  // namespace minidnn::cuda::layer_norm
