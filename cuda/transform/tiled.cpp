// SPDX-License-Identifier: Apache-2.0
// cuda.transform.tiled: transposes and changes of layout, through tiles in shared memory.
#include "cuda/transform/tiled.h"

#include <algorithm>

#include "cuda/runtime/plan.h"
#include "cuda/transform/engines.h"

namespace minidnn {
namespace {

struct Dimension {
  int64_t size, x, y;
};

// The copy, or why it is no transpose of few dimensions. Dimensions of one are dropped, neighbours in both tensors
// joined.
std::string parse(const TransformProblem& p, TiledCopy& c) {
  std::vector<Dimension> dims;
  for (int i = 0; i < p.y.rank; ++i)
    if (p.y.shape[i] != 1) dims.push_back({p.y.shape[i], p.x.stride[i], p.y.stride[i]});
  std::ranges::sort(dims, std::ranges::greater{}, &Dimension::y);
  for (size_t i = 0; i + 1 < dims.size();) {
    const Dimension &outer = dims[i], &inner = dims[i + 1];
    if (outer.x == inner.x * inner.size && outer.y == inner.y * inner.size) {
      dims[i] = {outer.size * inner.size, inner.x, inner.y};
      dims.erase(dims.begin() + std::ptrdiff_t(i) + 1);
    } else ++i;
  }
  auto take = [&](int64_t Dimension::* stride) {
    auto at = std::ranges::find(dims, 1, stride);
    Dimension found = at == dims.end() ? Dimension{0, 0, 0} : *at;
    if (at != dims.end()) dims.erase(at);
    return found;
  };
  const Dimension columns = take(&Dimension::x), lines = take(&Dimension::y);
  if (!columns.size || !lines.size)
    return "needs tensors that are contiguous along one dimension each, and not the same one";
  if (dims.size() > 2) return cat("walks two dimensions beside those it turns; there are ", dims.size());
  c.lines = lines.size, c.columns = columns.size, c.x_line = lines.x, c.y_column = columns.y;
  int64_t inner = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    const size_t to = 2 - dims.size() + i;
    c.x_outer[to] = dims[i].x, c.y_outer[to] = dims[i].y, c.outer *= dims[i].size;
    inner = dims[i].size;
  }
  c.inner = Divisor(inner);
  c.pairs = 1;
  for (int64_t even :
       {c.lines, c.columns, c.x_line, c.y_column, c.x_outer[0], c.x_outer[1], c.y_outer[0], c.y_outer[1]})
    c.pairs = c.pairs && even % 2 == 0;
  if (c.outer > 65535) return cat("launches 65535 planes at most; there are ", c.outer);
  if (ceil_div(c.lines, int64_t(32)) > 65535)
    return cat("launches 65535 rows of tiles at most, for ", c.lines, " lines");
  return "";
}

int tile_of(DType t) { return itemsize(t) < 4 ? 64 : 32; }
KernelSpec spec(DType t) {
  return {"cuda/transform/tiled.cu", cat("minidnn::transform_tiled<uint", 8 * itemsize(t), "_t, ", tile_of(t), ">")};
}

struct Tiled final : Engine<TransformProblem> {
  std::string name() const override { return "cuda.transform.tiled"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const TransformProblem& p, const Device&) const override {
    if (p.x.dtype != p.y.dtype || p.scaled) return "copies bits: neither casts nor scales";
    if (p.y.numel() == 0) return "needs something to copy";
    TiledCopy c;
    return parse(p, c);
  }
  double estimate_us(const TransformProblem& p, const Device& d) const override {
    TiledCopy c;
    parse(p, c);
    // Tiles at the edges are filled in part. Measured on an H100: NCHW to NHWC in 16 bits, element by element, at half
    // of the copy rate; the others are guesses.
    const double tile = tile_of(p.x.dtype), efficiency = itemsize(p.x.dtype) == 2 ? (c.pairs ? 0.75 : 0.5) : 0.6;
    const double full = std::ceil(double(c.lines) / tile) * std::ceil(double(c.columns) / tile) * tile * tile;
    return roofline_us(0, transform_bytes(p) * full / (double(c.lines) * double(c.columns)), d, efficiency);
  }
  std::unique_ptr<Plan<TransformProblem>> build(const TransformProblem& p, const Device& d,
                                                const Config&) const override {
    TiledCopy copy;
    parse(p, copy);
    const int64_t tile = tile_of(p.x.dtype);
    cuda::LaunchConfig config;
    config.block = {32, 8};
    config.grid = {unsigned(ceil_div(copy.columns, tile)), unsigned(ceil_div(copy.lines, tile)), unsigned(copy.outer)};
    auto kernel = cuda::load_kernel(spec(p.x.dtype), d.place.index);
    return make_plan<TransformProblem>([kernel, copy, config](const TransformArgs& a, void*, Stream stream) {
      cuda::LaunchConfig now = config;
      now.stream = stream;
      cuda::launch(*kernel, now, copy, a.x, a.y);
    });
  }
  std::vector<KernelSpec> kernels() const override {
    return {spec(DType::int8), spec(DType::float16), spec(DType::float32), spec(DType::float64)};
  }
};

}  // namespace

const Engine<TransformProblem>& transform_tiled() {
  static const Tiled engine;
  return engine;
}

}  // namespace minidnn
