// SPDX-License-Identifier: Apache-2.0
// cuda.norm.long_rows: gradients along long contiguous rows, in two passes; see rows_long.cu.
#include "cuda/norm/rows_long.h"

#include "cuda/norm/engines.h"
#include "cuda/norm/rows.h"
#include "cuda/norm/split.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace {

struct Cut {
  NormLongRows rows;
  int64_t vector = 1;
};

std::string parse(const RowNormProblem& p, const Device& d, Cut& c) {
  if (!p.backward) return "supports backward only";
  if (p.kind == RowNorm::group) return "supports layer and RMS norm only";
  NormRows contiguous;
  if (std::string why = contiguous_rows(p, contiguous, c.vector); !why.empty()) return why;
  NormLongRows& r = c.rows;
  r.rows = contiguous.rows, r.columns = contiguous.columns, r.centered = contiguous.centered;
  r.vectors = contiguous.vectors;
  const int64_t vectors = r.vectors, batches = ceil_div(r.rows, int64_t(kLongBatch));
  // Sums: four blocks per SM. A thread has at most 64 vectors of a row, as its plain float32 sums should be short.
  const int64_t chunks = std::clamp<int64_t>(4 * d.sm_count / batches, ceil_div<int64_t>(vectors, 64 * kLongThreads),
                                             ceil_div<int64_t>(vectors, kLongThreads));
  r.chunk = uint32_t(ceil_div(ceil_div(vectors, chunks), int64_t(kLongThreads)) * kLongThreads);
  r.chunks = uint32_t(ceil_div<int64_t>(vectors, r.chunk));
  // Map: six blocks per SM, of which about three run at the same time.
  r.tiles = uint32_t(ceil_div<int64_t>(vectors, kLongThreads));
  const int64_t sections = std::clamp<int64_t>(6 * d.sm_count / r.tiles, ceil_div(r.rows, int64_t(kMostLongSection)),
                                               std::max(batches, int64_t(1)));
  r.section = uint32_t(ceil_div(ceil_div(r.rows, sections), int64_t(kLongBatch)) * kLongBatch);
  r.sections = uint32_t(ceil_div<int64_t>(r.rows, r.section));
  if (batches * r.chunks > INT32_MAX || int64_t(r.sections) * r.tiles > INT32_MAX)
    return "supports at most 2^31 - 1 blocks; got more";
  return "";
}
size_t sums_bytes(const NormLongRows& r) { return size_t(r.rows) * r.chunks * 2 * sizeof(float); }

KernelSpec spec(DType t, int64_t vector, const char* pass) {
  return {"cuda/norm/rows_long.cu", cat("minidnn::norm_long_", pass, "<", cuda_name(t), ", ", vector, ">")};
}

struct LongRows final : Engine<RowNormProblem> {
  std::string name() const override { return "cuda.norm.long_rows"; }
  int revision() const override { return 2; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const RowNormProblem& p, const Device& d) const override {
    Cut c;
    return parse(p, d, c);
  }
  double estimate_us(const RowNormProblem& p, const Device& d) const override {
    Cut c;
    parse(p, d, c);
    return roofline_us(row_norm_flop(p), row_norm_bytes(p) * 5 / 3, d, c.vector > 1 ? 0.9 : 0.4) + 6;
  }
  size_t workspace_bytes(const RowNormProblem& p, const Device& d, const Config&) const override {
    Cut c;
    parse(p, d, c);
    return sums_bytes(c.rows) + size_t(c.rows.sections) * size_t(c.rows.columns) * 2 * sizeof(float);
  }
  std::unique_ptr<Plan<RowNormProblem>> build(const RowNormProblem& p, const Device& d, const Config&) const override {
    Cut c;
    parse(p, d, c);
    const NormLongRows r = c.rows;
    auto sums = cuda::load_kernel(spec(p.x.dtype, c.vector, "sums"), d.place.index);
    auto map = cuda::load_kernel(spec(p.x.dtype, c.vector, "map"), d.place.index);
    const NormFinish f = norm_rows_finish(r.sections);
    auto finish = cuda::load_kernel(f.kernel, d.place.index);
    cuda::LaunchConfig rows, columns, joining;
    rows.block = columns.block = {kLongThreads};
    rows.grid = {unsigned(ceil_div(r.rows, int64_t(kLongBatch)) * r.chunks)};
    columns.grid = {r.sections * r.tiles};
    joining.block = {unsigned(f.threads)};
    joining.grid = {unsigned(ceil_div(r.columns, f.columns))};
    return make_plan<RowNormProblem>([=](const RowNormArgs& a, void* workspace, Stream stream) {
      cuda::LaunchConfig first = rows, second = columns, last = joining;
      char* const partials = static_cast<char*>(workspace) + sums_bytes(r);
      cuda::launch(*sums, first, stream, r, a, workspace);
      cuda::launch(*map, second, stream, r, a, static_cast<const void*>(workspace), static_cast<void*>(partials));
      cuda::launch(*finish, last, stream, r.columns, int64_t(r.sections), static_cast<const void*>(partials), a.dscale,
                   a.dbias);
    });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType t : {DType::float32, DType::float16, DType::bfloat16})
      for (int64_t vector : {int64_t(16 / itemsize(t)), int64_t(1)})
        for (const char* pass : {"sums", "map"}) all.push_back(spec(t, vector, pass));
    return all;
  }
};

}  // namespace

const Engine<RowNormProblem>& norm_long_rows() {
  static const LongRows engine;
  return engine;
}

}  // namespace minidnn
