// SPDX-License-Identifier: Apache-2.0
// Tests how cpu.matmul.packed divides a product into blocks. The blocks must cover y, all threads must have work,
// operands must be read in place where their layout allows it, and the arrays in the workspace must not overlap.
#include <algorithm>
#include <iostream>

#include "cpp/matmul/cpu/packed_tiling.h"
#include "cpp/simd/bf16_products.h"
#include "cpp/simd/gemm_microkernel.h"

using namespace minidnn;
using cpu::matmul::PackedTiling;
using Row = PackedTiling::Row;

static int failures = 0;

static void expect(bool right, const MatmulProblem& p, const char* what) {
  if (right) return;
  ++failures;
  std::cout << Family<MatmulProblem>::text(p) << ": " << what << std::endl;
}

static TensorDesc matrix(DType t, int64_t rows, int64_t columns, bool transposed) {
  TensorDesc d = dense(t, Shape{rows, columns}, Layout::channels_first, "test");
  if (transposed) {
    d.stride[0] = 1;
    d.stride[1] = rows;
  }
  return d;
}

// Makes the product y [m, n] = a [m, k] @ b [k, n]. A matrix is column-major if `transposed` contains its letter, else
// row-major.
static MatmulProblem product(int64_t m, int64_t n, int64_t k, const std::string& transposed = "",
                             DType t = DType::float32) {
  auto has = [&](char operand) { return transposed.find(operand) != std::string::npos; };
  MatmulProblem p{matrix(t, m, k, has('a')), matrix(t, k, n, has('b'))};
  p.y = matrix(t, m, n, has('y'));
  return p;
}

static void check(const MatmulProblem& p, bool transposed, Row row, bool a_in_place, bool b_in_place) {
  Device d;
  d.sm_count = 8;
  const PackedTiling t(p, d);
  expect(t.transposed == transposed, p, "wrong choice of whether y is computed transposed");
  expect(t.row == row, p, "wrong choice of how a single row is computed");
  expect(t.a_in_place == a_in_place, p, "wrong choice of whether a is read in place");
  expect(t.b_in_place == b_in_place, p, "wrong choice of whether b is read in place");
  expect(t.tiles * t.tile_rows >= t.s.m && t.panels * t.tile_columns >= t.s.n, p, "the tiles do not cover y");
  expect(t.blocks_down * t.block_tiles >= t.tiles && t.blocks_across * t.block_panels >= t.panels, p,
         "the blocks do not cover y");
  expect(t.blocks == t.s.batch * t.blocks_down * t.blocks_across, p, "wrong number of blocks");
  expect(t.block_tiles <= PackedTiling::kBlockTiles, p, "a block has more tiles than the epilogue has rows for");
  // Each thread must have a block, unless blocks are too small to be divided: at most 4 tiles (groups of rows) and one
  // panel (group of columns).
  expect(t.blocks >= d.sm_count || (t.block_tiles <= 4 && t.block_panels == 1), p, "a thread has no block");
  expect(t.slice == t.s.k || t.slice % PackedTiling::kSegment == 0, p, "a slice ends within a segment");

  const size_t size = itemsize(p.a.dtype) == 8 ? 8 : 4;
  const size_t a = t.a_in_place ? 0 : size_t(t.block_tiles * t.tile_rows * t.slice) * size;
  const size_t b = size_t(t.block_panels * t.tile_columns * t.slice) * size;
  const size_t sums = size_t(t.block_tiles * t.tile_rows * t.block_panels * t.tile_columns) * size;
  expect(a <= t.b_at && t.b_at + b <= t.sums_at && t.sums_at + sums <= t.scratch_bytes, p,
         "packed operands and sums overlap");
  expect(t.bytes == t.scratch_bytes * size_t(std::min<int64_t>(d.sm_count, t.blocks)), p,
         "the scratch of all threads is not in the workspace");
}

int main() {
  const int64_t rows = gemm_kernels().f32.rows;
  check(product(1024, 1024, 1024), false, Row::no, true, false);
  check(product(1024, 1024, 1024, "a"), false, Row::no, false, false);
  check(product(1024, 1024, 1024, "b"), false, Row::no, true, false);
  // y is transposed in memory. The engine computes y^T = b^T a^T, so its left operand is b^T.
  check(product(1024, 1024, 1024, "y"), true, Row::no, false, false);
  check(product(1024, 1024, 1024, "bay"), true, Row::no, true, false);
  check(product(1024, 1024, 1024, "", DType::float64), false, Row::no, true, false);
  // Elements of 16 bits are converted while they are packed. Pairs of bfloat16 along k need no conversion.
  check(product(1024, 1024, 1024, "", DType::float16), false, Row::no, false, false);
  check(product(1024, 1024, 1024, "", DType::bfloat16), false, Row::no, gemm_has_pairs() && !bf16_products(), false);
  check(product(1024, 1024, 1023, "", DType::bfloat16), false, Row::no, false, false);
  // Few tiles use each panel (group of columns) of b, so packing does not pay.
  check(product(2 * rows, 1024, 1024), false, Row::no, true, true);
  check(product(1, 2048, 2048), false, Row::wide, true, true);
  check(product(1, 2048, 2048, "b"), false, Row::dots, true, false);
  check(product(1, 2048, 2048, "", DType::bfloat16), false, Row::wide, false, true);
  check(product(1, 2048, 2048, "b", DType::float16), false, Row::dots, false, false);
  check(product(100, 333, 1000), false, Row::no, true, false);
  check(product(100, 333, 1), false, Row::no, false, false);
  std::cout << (failures ? "FAILED" : "ok") << std::endl;
  return failures != 0;
}
