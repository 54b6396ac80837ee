// SPDX-License-Identifier: Apache-2.0
#include "cuda/reduce/tiling.h"

#include <algorithm>
#include <bit>

namespace minidnn::cuda::reduce {
namespace {

// The number of blocks per SM if there are several chunks per result. The blocks run in two or three waves, so that the
// last wave is short.
constexpr int64_t kBlocksPerSm = 16;
// The maximum number of elements of x that a block reduces. It leaves room for int32_t indices past the last element.
constexpr int64_t kMostElements = INT32_MAX - 2 * kThreads * kAhead * 8;
constexpr const char* kTooMany = "supports fewer than 2^31 elements of x in a thread block; got more";

std::string refusal(const ReduceProblem& p) {
  if (!is_floating(p.x.dtype) || p.x.dtype == DType::float64)
    return cat("supports float32, float16 and bfloat16 only; got ", minidnn::name(p.x.dtype));
  if (p.x.numel() == 0) return "x is empty";
  return "";
}
CachePolicy policy_of(const ReduceProblem& p, const Device& d) { return policy_of_once(reduce_bytes(p), d.l2_bytes); }
// Returns the number of chunks per result, at most `most`. `groups` is the number of blocks that the grid would have
// without chunks.
int64_t chunks_for(int64_t groups, int64_t most, const Device& d) {
  const int64_t wanted = kBlocksPerSm * d.sm_count;
  return groups * 2 > wanted ? 1 : std::clamp<int64_t>(ceil_div(wanted, groups), 1, max_of<int64_t>(most, 1));
}

}  // namespace

int64_t lanes_for(int64_t vectors) {
  return std::clamp<int64_t>(int64_t(std::bit_ceil(uint64_t(ceil_div(vectors, kAhead)))), 1, kThreads);
}

std::string tile_contiguous_axis(const ReduceProblem& p, const Device& d, ReduceRows& r) {
  if (std::string why = refusal(p); !why.empty()) return why;
  const ReduceView v = reduce_view(p);
  r.mode = p.mode;
  r.policy = policy_of(p, d);
  r.y = joined(p.y, false);
  r.kept = joined(v.kept, false);
  r.spans = joined(v.reduced, kind_of(p.mode) != ReduceKind::arg);
  if (r.spans.rank == 0 || r.spans.stride[r.spans.rank - 1] != 1)
    return "needs a reduced dimension of x to be contiguous";
  r.span = r.spans.shape[--r.spans.rank];
  const int64_t vector = 16 / int64_t(itemsize(p.x.dtype)), outputs = p.y.numel(), spans = r.spans.numel();
  r.count = spans * r.span;
  r.lanes = lanes_for(ceil_div(r.span, vector));
  r.slices = 1;
  r.slice = r.span;
  r.spans_per_chunk = spans;
  r.chunks = 1;
  const int64_t step = kThreads * kAhead * vector;  // the number of elements that a block loads at a time
  const int64_t chunks = chunks_for(ceil_div(outputs * r.lanes, kThreads), r.count / step, d);
  if (chunks > 1) {
    r.spans_per_chunk = ceil_div(spans, min_of(spans, chunks));
    const int64_t groups = ceil_div(spans, r.spans_per_chunk);
    r.slice = ceil_div(ceil_div(r.span, max_of<int64_t>(chunks / groups, 1)), step) * step;
    r.slice = min_of(r.slice, r.span);
    r.slices = ceil_div(r.span, r.slice);
    r.chunks = groups * r.slices;
    r.lanes = lanes_for(ceil_div(r.slice, vector));
  } else {
    // If there are many results, one warp computes each, because a warp needs no block-wide barrier.
    const int64_t enough = ceil_div(int64_t(2048) * d.sm_count, outputs);
    r.lanes = min_of(r.lanes, max_of(int64_t(std::bit_ceil(uint64_t(enough))), int64_t(32)));
  }
  r.items = outputs * r.chunks;
  if (ceil_div(r.items, kThreads / r.lanes) > 0x7fffffff) return "supports at most 2^31 - 1 blocks; got more";
  if ((r.spans_per_chunk - 1) * r.span + r.slice > kMostElements) return kTooMany;
  return "";
}

std::string tile_strided_axis(const ReduceProblem& p, const Device& d, ReduceColumns& c) {
  if (std::string why = refusal(p); !why.empty()) return why;
  const ReduceView v = reduce_view(p);
  const TensorDesc rows = joined(v.reduced, kind_of(p.mode) != ReduceKind::arg);
  c.mode = p.mode;
  c.policy = policy_of(p, d);
  c.y = joined(p.y, false);
  c.outer = joined(v.kept, false);
  if (c.outer.rank == 0 || c.outer.stride[c.outer.rank - 1] != 1) return "needs a kept dimension of x to be contiguous";
  if (rows.rank > 1) return cat("needs reduced dimensions that join into one with a single stride; got ", rows.rank);
  c.columns = c.outer.shape[--c.outer.rank];
  c.rows = rows.rank ? rows.shape[0] : 1;
  c.pitch = rows.rank ? rows.stride[0] : 0;
  c.outputs = p.y.numel();
  const int64_t vector = 16 / int64_t(itemsize(p.x.dtype));
  int64_t aligned = c.columns | c.pitch;
  for (int i = 0; i < c.outer.rank; ++i) aligned |= c.outer.stride[i];
  c.wide = aligned % vector == 0 && p.alignment == 16;
  c.whole_rows = c.pitch > 0 ? max_of<int64_t>(c.rows - ceil_div(2 * vector, c.pitch), 0) : 0;
  const int64_t vectors = ceil_div(c.columns, vector);
  c.lanes = std::clamp<int64_t>(int64_t(std::bit_ceil(uint64_t(vectors))), 1, 32);
  c.column_blocks = ceil_div(vectors, c.lanes);
  const int64_t groups = c.column_blocks * c.outer.numel(), high = kThreads / c.lanes;
  c.rows_per_chunk = ceil_div(c.rows, chunks_for(groups, c.rows / (kAhead * high), d));
  c.chunks = ceil_div(c.rows, c.rows_per_chunk);
  if (double(groups) * double(c.chunks) > 0x7fffffff) return "supports at most 2^31 - 1 blocks; got more";
  if (c.rows_per_chunk > kMostElements) return kTooMany;
  return "";
}

}  // namespace minidnn::cuda::reduce
