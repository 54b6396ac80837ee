// SPDX-License-Identifier: Apache-2.0
// cuda.layer_norm.two_pass is the engine for gradients of layer and RMS norm with long contiguous rows. It reads x and
// dy twice (see two_pass.cu).
#include "cuda/layer_norm/two_pass_params.h"

#include "cpp/engine/engine_object.h"
#include "cuda/layer_norm/rows.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::layer_norm {
namespace {

struct Tiling {
  TwoPassTiling rows;
  int64_t vector = 1;
};

// Fills in the tiling. Returns "" if the engine supports the problem. If not, returns the reason.
std::string tile(const LayerNormProblem& p, const Device& d, Tiling& c) {
  if (!p.backward) return "supports backward only";
  if (p.kind == RowNorm::group) return "supports layer and RMS norm only";
  RowTiling contiguous;
  if (std::string why = contiguous_rows(p, contiguous, c.vector); !why.empty()) return why;
  TwoPassTiling& r = c.rows;
  r.rows = contiguous.rows;
  r.columns = contiguous.columns;
  r.centered = contiguous.centered;
  r.vectors = contiguous.vectors;
  const int64_t vectors = r.vectors, batches = ceil_div(r.rows, int64_t(kTwoPassRows));
  // The launch that computes the sums of rows has about four blocks per SM. A thread adds up at most 64 vectors of a
  // row, because rounding errors of float32 sums grow with the number of terms.
  const int64_t chunks = std::clamp<int64_t>(4 * d.sm_count / batches, ceil_div<int64_t>(vectors, 64 * kTwoPassThreads),
                                             ceil_div<int64_t>(vectors, kTwoPassThreads));
  r.chunk = uint32_t(ceil_div(ceil_div(vectors, chunks), int64_t(kTwoPassThreads)) * kTwoPassThreads);
  r.chunks = uint32_t(ceil_div<int64_t>(vectors, r.chunk));
  // The launch that computes dx has about six blocks per SM. About three of the six run at the same time.
  r.tiles = uint32_t(ceil_div<int64_t>(vectors, kTwoPassThreads));
  const int64_t sections = std::clamp<int64_t>(6 * d.sm_count / r.tiles, ceil_div(r.rows, int64_t(kMaxSectionRows)),
                                               std::max(batches, int64_t(1)));
  r.section = uint32_t(ceil_div(ceil_div(r.rows, sections), int64_t(kTwoPassRows)) * kTwoPassRows);
  r.sections = uint32_t(ceil_div<int64_t>(r.rows, r.section));
  if (batches * r.chunks > INT32_MAX || int64_t(r.sections) * r.tiles > INT32_MAX)
    return "supports at most 2^31 - 1 blocks; got more";
  return "";
}
size_t sums_bytes(const TwoPassTiling& r) { return size_t(r.rows) * r.chunks * 2 * sizeof(float); }

KernelSpec spec(DType t, int64_t vector, const char* pass) {
  return {"cuda/layer_norm/two_pass.cu",
          cat("minidnn::layer_norm_two_pass_", pass, "<", cuda_name(t), ", ", vector, ">")};
}

}  // namespace

struct TwoPass final : Engine<LayerNormProblem> {
  std::string name() const override { return "cuda.layer_norm.two_pass"; }
  int revision() const override { return 2; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const LayerNormProblem& p, const Device& d) const override {
    Tiling c;
    return tile(p, d, c);
  }
  double estimate_us(const LayerNormProblem& p, const Device& d) const override {
    Tiling c;
    tile(p, d, c);
    return roofline_us(row_norm_flop(p), row_norm_bytes(p) * 5 / 3, d, c.vector > 1 ? 0.9 : 0.4) + 6;
  }
  size_t workspace_bytes(const LayerNormProblem& p, const Device& d, const Config&) const override {
    Tiling c;
    tile(p, d, c);
    return sums_bytes(c.rows) + size_t(c.rows.sections) * size_t(c.rows.columns) * 2 * sizeof(float);
  }
  std::unique_ptr<Plan<LayerNormProblem>> build(const LayerNormProblem& p, const Device& d,
                                                const Config&) const override {
    Tiling c;
    tile(p, d, c);
    const TwoPassTiling r = c.rows;
    auto sums = cuda::load_kernel(spec(p.x.dtype, c.vector, "sums"), d.place.index);
    auto map = cuda::load_kernel(spec(p.x.dtype, c.vector, "map"), d.place.index);
    const ParameterSums f = parameter_sums(r.sections);
    auto finish = cuda::load_kernel(f.kernel, d.place.index);
    cuda::LaunchConfig rows, columns, joining;
    rows.block = columns.block = {kTwoPassThreads};
    rows.grid = {unsigned(ceil_div(r.rows, int64_t(kTwoPassRows)) * r.chunks)};
    columns.grid = {r.sections * r.tiles};
    joining.block = {unsigned(f.threads)};
    joining.grid = {unsigned(ceil_div(r.columns, f.columns))};
    return make_plan<LayerNormProblem>([=](const LayerNormArgs& a, void* workspace, Stream stream) {
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

}  // namespace cuda::layer_norm

template const Engine<LayerNormProblem>& engine_object<LayerNormProblem, cuda::layer_norm::TwoPass>();

}  // namespace minidnn
