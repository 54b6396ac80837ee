// SPDX-License-Identifier: Apache-2.0
// Tests how cuda.layer_norm.persistent_rows divides the rows of transformers among threads. For random rows, the
// threads together must hold the whole row. Blocks, clusters and shared memory must fit the device.
#include "cuda/layer_norm/persistent_rows_tiling.h"
#include "tests/cpp/h100.h"
#include "tests/cpp/random_problems.h"

using namespace minidnn;
using namespace minidnn::cuda::layer_norm;

static LayerNormProblem problem(DType t, int64_t rows, int64_t columns, bool backward) {
  LayerNormProblem p;
  p.kind = RowNorm::layer;
  p.backward = backward;
  p.axis = 1;
  p.x = p.out = described(t, {rows, columns}, false);
  if (backward) p.dy = p.x;
  return p;
}

static void check(const LayerNormProblem& p) {
  PersistentRowsTiling t;
  if (!tile_persistent_rows(p, h100(), t).empty()) return;
  const RowTiling& r = t.rows;
  const std::string what = Family<LayerNormProblem>::text(p);
  if (int64_t(r.threads) * r.blocks * t.thread_vectors * t.vector < r.columns)
    fail(cat(what, ": ", r.blocks, " blocks of ", r.threads, " threads do not have all elements of a row"));
  if (r.threads * r.rows_at_once > 1024) fail(cat(what, ": ", r.threads * r.rows_at_once, " threads"));
  if (r.blocks > 16 || (r.blocks & (r.blocks - 1))) fail(cat(what, ": a cluster of ", r.blocks));
  if (t.smem_bytes > h100().max_smem_bytes) fail(cat(what, ": ", t.smem_bytes, " bytes of shared memory"));
  if (p.backward && !t.persistent) fail(cat(what, ": the blocks are not persistent"));
  if (t.persistent && (r.stages < 1 || r.stages > 4)) fail(cat(what, ": ", r.stages, " stages"));
  if (max_persistent_blocks(t, h100()) < 1) fail(cat(what, ": no block"));
}

static PersistentRowsTiling tiling(DType t, int64_t rows, int64_t columns, bool backward) {
  PersistentRowsTiling found;
  const std::string why = tile_persistent_rows(problem(t, rows, columns, backward), h100(), found);
  if (!why.empty()) fail(cat("rows of ", columns, ": ", why));
  return found;
}
static void check_choices() {
  const PersistentRowsTiling bert = tiling(DType::bfloat16, 8192, 1024, false);
  if (bert.persistent || bert.rows.threads != 32 || bert.rows.blocks != 1)
    fail(cat("rows of 1024 have ", bert.rows.threads, " threads"));
  const PersistentRowsTiling very_long = tiling(DType::bfloat16, 512, 65536, false);
  if (!very_long.persistent || very_long.rows.blocks < 2) fail("rows of 65536 have no cluster");
  const PersistentRowsTiling gradient = tiling(DType::bfloat16, 8192, 1024, true);
  if (!gradient.persistent || gradient.rows.rows_at_once < 2) fail("gradients of rows of 1024: one row at a time");
}

int main() {
  check_choices();
  for (int i = 0; i < 4000; ++i) {
    constexpr DType types[] = {DType::float16, DType::bfloat16, DType::float32};
    const int64_t columns = pick(0, 1) ? 8 * pick(1, 16384) : pick(1, 3000);
    check(problem(types[pick(0, 2)], pick(1, 40000), columns, pick(0, 1)));
  }
  std::cout << (failures ? "FAILED" : "ok") << std::endl;
  return failures != 0;
}
