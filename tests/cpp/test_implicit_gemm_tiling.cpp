// SPDX-License-Identifier: Apache-2.0
// Tests how cpu.conv.implicit_gemm divides layers of ResNet-50. Work items must cover each result pixel for each panel
// (a group of output channels) exactly once. The arrays in the workspace must not overlap.
#include <map>

#include "cpp/conv/cpu/implicit_gemm/implicit_gemm_tiling.h"
#include "tests/cpp/conv_problem.h"

using namespace minidnn;
using cpu::conv::ImplicitGemmTiling;

static void check_blocks(const ConvProblem& p, const ImplicitGemmTiling& t) {
  // For each phase (a set of result pixels), the number of pairs of a result pixel and a panel that the work items
  // cover.
  std::map<int64_t, int64_t> products;
  for (const auto& b : t.blocks) {
    expect(b.panel >= 0 && b.panels > 0 && b.panel + b.panels <= t.panels, p, "a block has panels that do not exist");
    expect(b.rows > 0 && b.rows <= t.block_rows, p, "a block has more rows than fit its scratch");
    for (int64_t i = b.phase; i < b.phase + b.phases; ++i) {
      const int64_t all = t.g.images * volume(t.phases[size_t(i)].count);
      products[i] += std::max<int64_t>(std::min(b.rows, all - b.row), 0) * b.panels;
    }
  }
  for (size_t i = 0; i < t.phases.size(); ++i)
    expect(products[int64_t(i)] == t.g.groups * t.g.images * volume(t.phases[i].count) * t.panels, p,
           "the blocks do not cover each row and panel once");
}

static void check(const ConvProblem& p, size_t phases, int64_t merged, bool transposes_pixels) {
  const ImplicitGemmTiling t(p, cpu_with_threads(8));
  check_blocks(p, t);
  expect(t.phases.size() == phases, p, "wrong number of phases");
  expect(t.merged == merged, p, "wrong number of taps in a segment");
  expect(t.transposes_pixels == transposes_pixels, p, "wrong choice of where pixels are transposed");
  expect(t.weights_at <= t.copy_at && t.copy_at + t.input.bytes() <= t.zeros_at, p, "the copy of x overlaps the zeros");
  expect(t.zeros_at + size_t(t.channels * t.merged) * 4 <= t.scratch_at, p, "the zeros overlap the scratch");
  expect(t.bytes >= t.scratch_at + t.scratch_bytes * 8, p, "the scratch of 8 threads is longer than the workspace");
  expect(t.panel_at <= t.scratch_bytes && t.sums_at < t.transposed_at, p, "wrong layout of the scratch of a thread");
}

int main() {
  using enum ConvDirection;
  // The kernel reads a row of the 7x7 window (7 elements of 3 channels) as contiguous memory.
  check(square_conv(forward, 32, 3, 224, 64, 7, 2), 1, 7, false);
  check(square_conv(forward, 32, 64, 56, 64, 3, 1), 1, 1, false);
  check(square_conv(forward, 1, 512, 7, 512, 3, 1), 1, 1, false);
  check(square_conv(forward, 32, 256, 56, 64, 1, 1), 1, 1, false);
  check(square_conv(forward, 32, 256, 56, 64, 1, 1, Layout::channels_first), 1, 1, true);
  // The stride is 2x2, so dx has four phases: pixels in even or odd rows, and in even or odd columns.
  check(square_conv(backward_data, 32, 128, 56, 128, 3, 2), 4, 1, false);
  check(square_conv(backward_data, 32, 64, 56, 64, 3, 1), 1, 1, false);
  std::cout << (failures ? "FAILED" : "ok") << std::endl;
  return failures != 0;
}
