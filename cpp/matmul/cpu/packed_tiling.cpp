// SPDX-License-Identifier: Apache-2.0
#include "cpp/matmul/cpu/packed_tiling.h"

#include <algorithm>

#include "cpp/core/cpu/work_size.h"
#include "cpp/simd/bf16_products.h"
#include "cpp/simd/gemm_microkernel.h"

namespace minidnn {
namespace cpu::matmul {
namespace {

// kSlice steps of k are packed at a time, for kBlockPanels groups of columns of b (200 KB with vectors of 32 bytes). If
// a is packed, too, blocks are wider, so that each packed row of a is used for more columns. With AMX, a slice of a panel
// takes 32 KB.
constexpr int64_t kSlice = 512, kBlockPanels = 6, kPackedSlice = 256, kPackedPanels = 12;
// b is not packed if a block of y has at most this number of tiles of rows.
constexpr int64_t kFewTiles = 2;

bool has_contiguous_columns(const MatmulProblem& p) {
  const int64_t last = p.y.rank - 1;
  return p.a.dtype != DType::float64 && p.y.stride[last] != 1 && p.y.stride[last - 1] == 1 && p.y.shape[last] > 1 &&
         p.y.shape[last - 1] > 1;
}
MatmulProblem transpose(MatmulProblem p) {
  std::swap(p.a, p.b);
  for (TensorDesc* d : {&p.a, &p.b, &p.c, &p.y}) {
    if (!d->rank) continue;
    std::swap(d->shape[d->rank - 2], d->shape[d->rank - 1]);
    std::swap(d->stride[d->rank - 2], d->stride[d->rank - 1]);
  }
  return p;
}

bool is_summed_in_its_dtype(const MatmulProblem& p) { return itemsize(p.a.dtype) >= 4; }
PackedTiling::Row row_of(const MatmulProblem& p, const MatmulSizes& s) {
  using enum PackedTiling::Row;
  if (s.m != 1 || s.k < 2 || s.n < 2) return no;
  if (p.b.stride[p.b.rank - 1] == 1) return wide;
  return p.b.stride[p.b.rank - 2] == 1 && p.a.stride[p.a.rank - 1] == 1 ? dots : no;
}

}  // namespace

PackedTiling::PackedTiling(const MatmulProblem& problem, const Device& d)
    : transposed(has_contiguous_columns(problem)),
      p(transposed ? transpose(problem) : problem),
      s(sizes_of(p)),
      row(row_of(p, s)) {
  const GemmKernels& kernels = gemm_kernels();
  const bool wide = row == Row::wide;
  tile_rows = wide ? 1 : p.a.dtype == DType::float64 ? kernels.f64.rows : kernels.f32.rows;
  switch (p.a.dtype) {
    case DType::float64:
      tile_columns = wide ? kernels.row_f64.wide.columns : kernels.f64.columns;
      break;
    case DType::float16:
      tile_columns = wide ? kernels.row_f16.columns : kernels.f32.columns;
      break;
    case DType::bfloat16:
      tile_columns = wide ? kernels.row_bf16.columns : kernels.f32.columns;
      break;
    default:
      tile_columns = wide ? kernels.row_f32.wide.columns : kernels.f32.columns;
  }
  pairs = p.a.dtype == DType::bfloat16 && row == Row::no && s.k > 1 && gemm_has_pairs();
  amx = pairs && bf16_products();
  if (amx) tile_rows = kBf16Lines;
  divide(d);

  const size_t size = itemsize(sum_dtype(p.a.dtype));
  size_t reserved = 0;
  auto reserve = [&](int64_t elements) {
    const size_t at = reserved;
    reserved += ceil_div<size_t>(size_t(elements) * size, 64) * 64;
    return at;
  };
  // With AMX, steps are rounded up to kBf16Steps, and take half of `size`.
  const int64_t steps = amx ? ceil_div(slice, kBf16Steps) * kBf16Steps : slice;
  if (!a_in_place) reserve(block_tiles * tile_rows * steps);
  b_at = reserve(block_panels * tile_columns * steps);
  sums_at = reserve(block_tiles * tile_rows * block_panels * tile_columns);
  scratch_bytes = reserved;
  bytes = scratch_bytes * size_t(std::min<int64_t>(d.sm_count, blocks));
}

void PackedTiling::divide(const Device& d) {
  const bool same = is_summed_in_its_dtype(p);
  tiles = ceil_div(s.m, tile_rows);
  panels = ceil_div(s.n, tile_columns);
  a_in_place = !amx && (pairs ? s.k % 2 == 0 : same) && p.a.stride[p.a.rank - 1] == 1 && s.k > 1;
  slice = std::min(cpu::work_size(a_in_place || amx ? kSlice : kPackedSlice, kSegment), s.k);
  block_tiles = std::min(cpu::work_size(amx ? kBlockTiles * kGemmRows / kBf16Lines : kBlockTiles), tiles);
  block_panels = std::min(cpu::work_size(a_in_place ? kBlockPanels : kPackedPanels), panels);
  auto count_blocks = [&] {
    blocks_down = ceil_div(tiles, block_tiles);
    blocks_across = ceil_div(panels, block_panels);
    return blocks = s.batch * blocks_down * blocks_across;
  };
  // Halves the size of the blocks of y until there are at least two blocks for each thread.
  while (count_blocks() < 2 * d.sm_count && d.sm_count > 1 && (block_tiles > 4 || block_panels > 1))
    if (block_tiles > 4) block_tiles = ceil_div<int64_t>(block_tiles, 2);
    else block_panels = ceil_div<int64_t>(block_panels, 2);
  // Makes all blocks of y nearly equal in size.
  block_tiles = ceil_div(tiles, blocks_down);
  block_panels = ceil_div(panels, blocks_across);
  count_blocks();
  b_in_place = (same || row == Row::wide) && p.b.stride[p.b.rank - 1] == 1 && s.n > 1 && block_tiles <= kFewTiles;
}

}  // namespace cpu::matmul
}  // namespace minidnn
