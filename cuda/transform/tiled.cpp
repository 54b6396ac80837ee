// SPDX-License-Identifier: Apache-2.0
// cuda.transform.tiled: an engine for transposes and other changes of layout. It copies tiles through shared memory.
#include "cuda/transform/tiled_params.h"

#include "cpp/engine/engine_object.h"
#include "cpp/transform/transform.h"
#include "cuda/runtime/plan.h"
#include "cuda/transform/copy_dimensions.h"

namespace minidnn {
namespace cuda::transform {
namespace {

constexpr int64_t kMostBlocks = 0x7fffffff;

int64_t lines_of(int64_t item) {
  return item == 1   ? TiledShape<1>::kLines
         : item == 2 ? TiledShape<2>::kLines
         : item == 4 ? TiledShape<4>::kLines
                     : TiledShape<8>::kLines;
}
struct TiledTiling {
  TiledCopy copy;
  int64_t blocks = 1;   // the number of tiles, which is the number of blocks
  std::string why_not;  // empty if the kernel can run the problem; if not, the reason
};

TiledTiling tiling_of(const TransformProblem& p) {
  TiledTiling t;
  TiledCopy& c = t.copy;
  const auto refuse = [&](std::string why) {
    t.why_not = std::move(why);
    return t;
  };
  std::vector<CopyDimension> dims = copy_dimensions(p);
  auto take = [&](int64_t CopyDimension::* stride) {
    auto at = std::ranges::find(dims, 1, stride);
    CopyDimension found = at == dims.end() ? CopyDimension{0, 0, 0} : *at;
    if (at != dims.end()) dims.erase(at);
    return found;
  };
  const CopyDimension columns = take(&CopyDimension::x), lines = take(&CopyDimension::y);
  if (!columns.size || !lines.size) return refuse("needs x and the result to be contiguous along different dimensions");
  if (dims.size() > kTiledOuters)
    return refuse(
        cat("supports at most ", kTiledOuters, " dimensions besides the two transposed ones; got ", dims.size()));
  c.lines = lines.size;
  c.columns = columns.size;
  c.x_line = lines.x;
  c.y_column = columns.y;
  const int64_t item = int64_t(itemsize(p.x.dtype)), side = 128 / item, high = lines_of(item);
  const int64_t line_tiles = ceil_div(c.lines, high), column_tiles = ceil_div(c.columns, side);
  t.blocks = line_tiles * column_tiles;
  int64_t x_strides = c.x_line * item, y_strides = c.y_column * item;
  for (size_t i = 0; i < dims.size(); ++i) {
    const CopyDimension& d = dims[dims.size() - 1 - i];
    c.x_outer[i] = d.x;
    c.y_outer[i] = d.y;
    x_strides |= d.x * item;
    y_strides |= d.y * item;
    if (i + 1 < kTiledOuters && d.size < kMostBlocks) c.outer[i] = FastDivmod(d.size);
    if (t.blocks > kMostBlocks / d.size) return refuse("supports at most 2^31 - 1 tiles; got more");
    t.blocks *= d.size;
  }
  c.line_tiles = FastDivmod(line_tiles);
  c.column_tiles = FastDivmod(column_tiles);
  c.x_bytes = word_bytes_of(x_strides);
  c.y_bytes = word_bytes_of(y_strides);
  return t;
}

KernelSpec spec(DType t) {
  return {"cuda/transform/tiled.cu", cat("minidnn::transform_tiled<uint", 8 * itemsize(t), "_t>")};
}

}  // namespace

struct Tiled final : Engine<TransformProblem> {
  std::string name() const override { return "cuda.transform.tiled"; }
  int revision() const override { return 2; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const TransformProblem& p, const Device&) const override {
    if (p.x.dtype != p.y.dtype || p.scaled) return "casts and scaling are not supported";
    if (p.y.numel() == 0) return "the result is empty";
    return tiling_of(p).why_not;
  }
  double estimate_us(const TransformProblem& p, const Device& d) const override {
    const TiledCopy c = tiling_of(p).copy;
    // The efficiencies are estimates, not measurements. Loads and stores of fewer than 16 bytes need proportionally
    // more instructions.
    const int64_t item = int64_t(itemsize(p.x.dtype));
    const double narrowest = double(min_of(c.x_bytes, c.y_bytes));
    const double efficiency = narrowest >= 8 ? 0.85 : narrowest >= 4 ? 0.75 : 0.55;
    const double high = double(lines_of(item)), wide = 128.0 / double(item);
    const double full = std::ceil(double(c.lines) / high) * high * std::ceil(double(c.columns) / wide) * wide;
    const double filled = double(c.lines) * double(c.columns) / full;
    return roofline_us(0, transform_bytes(p), d,
                       // Tiles that are at least half filled still reach the full rate.
                       min_of(efficiency, 2 * filled));
  }
  // The order of the tiles. walk=columns: adjacent blocks, which run at the same time, copy tiles that are adjacent
  // along the dimension in which x is contiguous. walk=lines: along the dimension in which y is contiguous.
  std::vector<Config> configs(const TransformProblem&, const Device&) const override {
    return {"walk=columns", "walk=lines"};
  }
  std::unique_ptr<Plan<TransformProblem>> build(const TransformProblem& p, const Device& d,
                                                const Config& order) const override {
    const TiledTiling tiling = tiling_of(p);
    TiledCopy copy = tiling.copy;
    copy.lines_first = order == "walk=lines";
    cuda::LaunchConfig config;
    config.block = {kTiledThreads};
    config.grid = {unsigned(tiling.blocks)};
    auto kernel = cuda::load_kernel(spec(p.x.dtype), d.place.index);
    return make_plan<TransformProblem>([kernel, copy, config](const TransformArgs& a, void*, Stream stream) {
      TiledCopy aligned = copy;
      aligned.x_bytes = min_of(copy.x_bytes, word_bytes_of(int64_t(reinterpret_cast<uintptr_t>(a.x))));
      aligned.y_bytes = min_of(copy.y_bytes, word_bytes_of(int64_t(reinterpret_cast<uintptr_t>(a.y))));
      cuda::launch(*kernel, config, stream, aligned, a.x, a.y);
    });
  }
  std::vector<KernelSpec> kernels() const override {
    return {spec(DType::int8), spec(DType::float16), spec(DType::float32), spec(DType::float64)};
  }
};

}  // namespace cuda::transform

template const Engine<TransformProblem>& engine_object<TransformProblem, cuda::transform::Tiled>();

}  // namespace minidnn
