// SPDX-License-Identifier: Apache-2.0
// Tests how cuda.reduce.contiguous_axis and cuda.reduce.strided_axis divide typical problems. For random problems, the
// chunks of the reduced elements must cover these elements exactly, no chunk may be empty, and block sizes must fit the
// device.
#include "cuda/reduce/tiling.h"
#include "tests/cpp/h100.h"
#include "tests/cpp/random_problems.h"

using namespace minidnn;
using namespace minidnn::cuda::reduce;

static ReduceProblem problem(DType t, const Shape& x, int64_t axes) {
  ReduceProblem p;
  p.mode = ReduceMode::sum;
  p.axes = axes;
  p.x = described(t, x, false);
  Shape y;
  for (size_t i = 0; i < x.size(); ++i)
    if (!(axes >> i & 1)) y.push_back(x[i]);
  p.y = described(t, y, false);
  return p;
}

static void check_contiguous(const ReduceProblem& p) {
  ReduceRows r{};
  if (!tile_contiguous_axis(p, h100(), r).empty()) return;
  const std::string what = Family<ReduceProblem>::text(p);
  const int64_t spans = r.spans.numel();
  if (r.lanes < 1 || r.lanes > kThreads || (r.lanes & (r.lanes - 1))) fail(cat(what, ": ", r.lanes, " lanes"));
  if (r.count * p.y.numel() != p.x.numel()) fail(cat(what, ": an output has ", r.count, " elements"));
  if (r.slices * r.slice < r.span || (r.slices - 1) * r.slice >= r.span)
    fail(cat(what, ": ", r.slices, " slices of ", r.slice, " are not a span of ", r.span));
  const int64_t groups = r.chunks / r.slices;
  if (groups * r.spans_per_chunk < spans || (groups - 1) * r.spans_per_chunk >= spans)
    fail(cat(what, ": ", groups, " groups of ", r.spans_per_chunk, " are not ", spans, " spans"));
  if (r.slices > 1 && r.spans_per_chunk > 1) fail(cat(what, ": a chunk has slices of several spans"));
  if (r.items != p.y.numel() * r.chunks) fail(cat(what, ": ", r.items, " items"));
}
static void check_strided(const ReduceProblem& p) {
  ReduceColumns c{};
  if (!tile_strided_axis(p, h100(), c).empty()) return;
  const std::string what = Family<ReduceProblem>::text(p);
  const int64_t vector = 16 / int64_t(itemsize(p.x.dtype));
  if (c.lanes < 1 || c.lanes > 32 || (c.lanes & (c.lanes - 1))) fail(cat(what, ": ", c.lanes, " lanes"));
  if (c.column_blocks * c.lanes * vector < c.columns) fail(cat(what, ": blocks do not cover the columns"));
  if (c.chunks * c.rows_per_chunk < c.rows || (c.chunks - 1) * c.rows_per_chunk >= c.rows)
    fail(cat(what, ": ", c.chunks, " chunks of ", c.rows_per_chunk, " are not ", c.rows, " rows"));
  if (c.wide && c.columns % vector) fail(cat(what, ": rows of ", c.columns, " elements are not whole vectors"));
}

static void check_choices() {
  ReduceRows all{}, rows{};
  tile_contiguous_axis(problem(DType::float32, {1 << 24}, 1), h100(), all);
  if (all.chunks < 132) fail(cat("one output of 2^24 elements has ", all.chunks, " chunks"));
  tile_contiguous_axis(problem(DType::bfloat16, {65536, 1024}, 2), h100(), rows);
  if (rows.chunks != 1 || rows.lanes != 32)
    fail(cat("short rows have ", rows.chunks, " chunks, ", rows.lanes, " lanes"));
  ReduceColumns columns{};
  tile_strided_axis(problem(DType::float32, {1 << 20, 64}, 1), h100(), columns);
  if (columns.chunks < 132 || !columns.wide) fail(cat("64 long columns have ", columns.chunks, " chunks"));
}

int main() {
  check_choices();
  for (int i = 0; i < 2000; ++i) {
    constexpr DType types[] = {DType::float16, DType::bfloat16, DType::float32};
    Shape x;
    for (int64_t rank = pick(1, 4); rank > 0; --rank) x.push_back(pick(0, 3) ? pick(1, 40) : pick(1, 4000));
    const ReduceProblem p = problem(types[pick(0, 2)], x, pick(1, (1 << x.size()) - 1));
    check_contiguous(p);
    check_strided(p);
  }
  std::cout << (failures ? "FAILED" : "ok") << std::endl;
  return failures != 0;
}
