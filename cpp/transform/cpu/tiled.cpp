// SPDX-License-Identifier: Apache-2.0
// cpu.transform.tiled: copies, casts and scaling of contiguous spans of the result. If x and the result are contiguous
// along different dimensions, the engine first transposes a tile of x, by vectors, into a buffer that fits the
// first-level cache.
#include <algorithm>
#include <bit>

#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/simd/non_temporal.h"
#include "cpp/transform/cpu/tiled_kernel.h"
#include "cpp/transform/transform.h"

namespace minidnn {
namespace cpu::transform {
namespace {

// The number of bytes that are transposed at a time, half of a first-level cache.
constexpr int64_t kTileBytes = 16384;
// The number of elements of a tile along the dimension in which x is contiguous, or less if the dimension is smaller.
constexpr int64_t kTileSide = 64;
// The smallest number of bytes that a thread gets.
constexpr int64_t kGrainBytes = 65536;

struct Dim {
  // The size of a dimension, its stride in x, and its stride in y.
  int64_t size, x, y;
};

// A copy as loops over two-dimensional tiles. `outer` has the dimensions outside a tile. `across` is contiguous in y.
// If it is not contiguous in x, tiles are transposed, and `along` is contiguous in x.
struct Loops {
  int outers = 0;
  Dim outer[kMaxRank]{};
  Dim across{1, 1, 1}, along{1, 0, 0};
  bool transposed = false;
  int64_t tile_across = 1, tile_along = 1;
};

// Describes a copy as loops over two-dimensional tiles in `l` and returns "". Otherwise returns the reason.
std::string parse(const TransformProblem& p, Loops& l) {
  Dim dims[kMaxRank];
  int n = 0;
  for (int i = 0; i < p.y.rank; ++i)
    if (p.y.shape[i] != 1) dims[n++] = {p.y.shape[i], p.x.stride[i], p.y.stride[i]};
  std::sort(dims, dims + n, [](const Dim& a, const Dim& b) { return a.y > b.y; });
  int merged = 0;
  for (int i = 0; i < n; ++i) {
    Dim* last = merged ? &dims[merged - 1] : nullptr;
    if (last && last->y == dims[i].y * dims[i].size && last->x == dims[i].x * dims[i].size)
      *last = {last->size * dims[i].size, dims[i].x, dims[i].y};
    else dims[merged++] = dims[i];
  }
  n = merged;
  const int64_t bytes = itemsize(p.x.dtype);
  if (n > 0) {
    if (dims[n - 1].y != 1) return "needs a result that is contiguous along a dimension";
    l.across = dims[--n];
    l.transposed = l.across.x != 1;
  }
  if (n > 0) {
    auto along = dims + n - 1;
    if (l.transposed) along = std::find_if(dims, dims + n, [](const Dim& d) { return d.x == 1; });
    if (along == dims + n) return "needs an x that is contiguous along a dimension";
    l.along = *along;
    std::copy(along + 1, dims + n, along);
    --n;
  } else if (l.transposed) {
    return "needs an x that is contiguous along a dimension";
  }
  l.outers = n;
  std::copy(dims, dims + n, l.outer);
  const int64_t elements = max_of<int64_t>(cpu::work_size(kTileBytes) / bytes, 1), side = cpu::work_size(kTileSide);
  if (l.transposed) {
    l.tile_along = min_of(min_of(l.along.size, side), elements);
    l.tile_across = min_of(l.across.size, elements / l.tile_along);
    if (l.tile_across < side) l.tile_along = min_of(l.along.size, elements / l.tile_across);
  } else {
    l.tile_across = min_of(l.across.size, elements);
    l.tile_along = min_of(l.along.size, max_of<int64_t>(elements / l.tile_across, 1));
  }
  return "";
}

TransformLoop loop_for(const TransformProblem& p) {
  const TransformKernels& k = transform_kernels();
  int64_t from = int64_t(p.x.dtype), to = int64_t(p.y.dtype);
  if (from == to && !p.scaled) return k.copy[std::countr_zero(uint64_t(itemsize(p.x.dtype)))];
  if (from > int64_t(DType::uint8) || to > int64_t(DType::bfloat16)) return nullptr;
  return (p.scaled ? k.scale : k.cast)[from][to];
}

}  // namespace

struct Tiled final : Engine<TransformProblem> {
  std::string name() const override { return "cpu.transform.tiled"; }
  std::string why_not(const TransformProblem& p, const Device&) const override {
    if (p.x.dtype == DType::boolean) return "bool is not supported";
    if (!loop_for(p))
      return cat(
          "supports casts and scaling from float32, float16, bfloat16, int8 and uint8 to float32, float16 and bfloat16 "
          "only; got ",
          minidnn::name(p.x.dtype), " to ", minidnn::name(p.y.dtype));
    Loops loops;
    return parse(p, loops);
  }
  // The estimate assumes twice the rate of copies of the device (copy_gb_s). A dense copy is 2.5 times as fast as with
  // the reference engine, which reaches 20 GB/s (measured on 2 Zen 3 cores, 2026-11).
  double estimate_us(const TransformProblem& p, const Device& d) const override {
    return roofline_us(0, transform_bytes(p), d, 2);
  }
  std::unique_ptr<Plan<TransformProblem>> build(const TransformProblem& p, const Device&,
                                                const Config&) const override {
    Loops loops;
    parse(p, loops);
    const int64_t x_bytes = itemsize(p.x.dtype), y_bytes = itemsize(p.y.dtype);
    const bool non_temporal = cpu::non_temporal(double(p.y.numel() * y_bytes));
    const TransformLoop loop = loop_for(p);
    const TransformTranspose transpose = transform_kernels().transpose[std::countr_zero(uint64_t(x_bytes))];
    const auto finish = transform_kernels().finish;
    const bool reads_y = p.reads_y;
    const int64_t tiles_across = ceil_div(loops.across.size, loops.tile_across);
    const int64_t tiles_along = ceil_div(loops.along.size, loops.tile_along);
    int64_t items = tiles_across * tiles_along;
    for (int i = 0; i < loops.outers; ++i) items *= loops.outer[i].size;
    const int64_t grain =
        max_of<int64_t>(cpu::work_size(kGrainBytes) / (loops.tile_across * loops.tile_along * y_bytes), 1);

    return make_plan<TransformProblem>([=](const TransformArgs& a, void*, Stream) {
      const TransformScale scale{float(a.alpha), float(a.beta), reads_y};
      cpu::parallel_for(items, grain, [&](int64_t begin, int64_t end) {
        alignas(64) char tile[kTileBytes + 16];
        for (int64_t item = begin; item < end; ++item) {
          int64_t rest = item;
          const int64_t i = rest % tiles_across * loops.tile_across;
          rest /= tiles_across;
          const int64_t j = rest % tiles_along * loops.tile_along;
          rest /= tiles_along;
          int64_t x_at = i * loops.across.x + j * loops.along.x, y_at = i + j * loops.along.y;
          for (int k = loops.outers - 1; k >= 0; --k) {
            const Dim& d = loops.outer[k];
            x_at += rest % d.size * d.x;
            y_at += rest % d.size * d.y;
            rest /= d.size;
          }
          const int64_t across = min_of(loops.tile_across, loops.across.size - i);
          const int64_t along = min_of(loops.tile_along, loops.along.size - j);
          TransformSpans spans{static_cast<const char*>(a.x) + x_at * x_bytes,
                               static_cast<char*>(a.y) + y_at * y_bytes,
                               along,
                               across,
                               loops.along.x,
                               loops.along.y,
                               non_temporal};
          if (loops.transposed) {
            transpose(spans.x, loops.across.x, tile, across, along);
            spans.x = tile;
            spans.x_pitch = across;
          }
          if (spans.x_pitch == across && spans.y_pitch == across) {
            spans.n *= along;
            spans.rows = 1;
          }
          loop(spans, scale);
        }
        if (non_temporal) finish();
      });
    });
  }
};

}  // namespace cpu::transform

CastSpan cast_on_span(DType from, DType to) { return transform_kernels().cast_computed[int64_t(from)][int64_t(to)]; }

template const Engine<TransformProblem>& engine_object<TransformProblem, cpu::transform::Tiled>();

}  // namespace minidnn
