// SPDX-License-Identifier: Apache-2.0
// cpu.reduce.vectorized: vectorised reductions. An output is one element of the result. A vector holds several elements
// of one output, or one element of each of several outputs, whichever is contiguous. If there are few outputs, their
// elements are divided into chunks. Chunks depend on the shape alone, so results do not depend on the number of
// threads.
#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/reduce/cpu/vectorized_kernel.h"
#include "cpp/reduce/reduce.h"

namespace minidnn {
namespace cpu::reduce {
namespace {

constexpr int64_t kChunk = 65536;  // the least number of elements of x that one thread reads
// Contiguous elements of the result are processed in multiples of this number, which fills cache lines.
constexpr int64_t kOutputsMultiple = 32;
// The largest number of partial results of short rows that are combined as longer rows.
constexpr int64_t kFolded = 256;
// If there are fewer blocks of results than this number, each reduction is divided into chunks, so that all threads get
// work.
constexpr int64_t kEnoughChunks = 256;

struct Tiling {
  // The outputs (elements of the result) as nested loops. The innermost loop has `outputs` outputs. `kept` has the
  // strides of the outer loops in x, and `outs` their strides in y.
  TensorDesc kept, outs;
  int64_t outputs = 1, output_stride = 0, y_stride = 0;
  TensorDesc spans;          // the dimensions that are reduced, except the innermost of them
  int64_t n = 1, pitch = 1;  // length and stride of the innermost dimension that is reduced
  // True if each lane of a vector has its own output, false if all lanes reduce to one output.
  bool across_outputs = false;
  // `block` outputs are processed at a time. The n elements of each are divided into `chunks` chunks of `chunk`
  // elements.
  int64_t block = 0, chunks = 1, chunk = 0;
  int64_t blocks() const { return ceil_div(outputs, block); }
};

std::string fill_tiling(const ReduceProblem& p, Tiling& t) {
  // Elements of the result may be computed in any order, so their dimensions are sorted by stride in x.
  const ReduceView v = reduce_view(p);
  std::vector<int> order;
  for (int i = 0; i < v.kept.rank; ++i)
    if (v.kept.shape[i] != 1) order.push_back(i);
  std::ranges::stable_sort(order, std::greater(), [&](int i) { return std::abs(v.kept.stride[i]); });
  for (int i : order) {
    const int64_t n = v.kept.shape[i], from = v.kept.stride[i], to = p.y.stride[i], last = t.kept.rank - 1;
    if (last >= 0 && t.kept.stride[last] == from * n && t.outs.stride[last] == to * n) {
      t.kept.shape[last] *= n;
      t.kept.stride[last] = from;
      t.outs.stride[last] = to;
    } else {
      t.kept.shape[last + 1] = n;
      t.kept.stride[last + 1] = from;
      t.outs.stride[last + 1] = to;
      t.outs.rank = ++t.kept.rank;
    }
  }
  if (t.kept.rank) {
    const int64_t last = t.outs.rank = --t.kept.rank;
    t.outputs = t.kept.shape[last];
    t.output_stride = t.kept.stride[last];
    t.y_stride = t.outs.stride[last];
  }
  std::copy_n(t.kept.shape, kMaxRank, t.outs.shape);
  // Reduced dimensions may be reordered, except for argmax and argmin, whose indices count in the order of x.
  t.spans = joined(v.reduced, kind_of(p.mode) != ReduceKind::arg);
  if (t.spans.rank) {
    t.n = t.spans.shape[--t.spans.rank];
    t.pitch = t.spans.stride[t.spans.rank];
  }
  t.across_outputs = t.pitch != 1 || t.n == 1;
  if (t.across_outputs && t.output_stride != 1 && (t.n > 1 || t.outputs > 1))
    return "needs the innermost reduced dimension or the innermost kept dimension of x to be contiguous";
  const int64_t spans = t.spans.numel(), outer = t.kept.numel();
  const int64_t blocks = ceil_div(t.outputs, cpu::work_size(kReduceOutputs, kOutputsMultiple)),
                chunk = cpu::work_size(kChunk);
  t.block = t.across_outputs ? ceil_div(ceil_div(t.outputs, blocks), kOutputsMultiple) * kOutputsMultiple
                             : std::clamp<int64_t>(chunk / (t.n * spans), 1, kReduceOutputs);
  // The spans of several outputs are adjacent: a block reads a page at a time.
  constexpr int64_t kPage = 1024, kBlocks = 16;
  if (!t.across_outputs && spans > 1)
    t.block = max_of(t.block, min_of(ceil_div(kPage, t.n), ceil_div(t.outputs, kBlocks)));
  t.chunk = t.n;
  if (spans == 1 && outer * t.blocks() < kEnoughChunks)
    t.chunk = min_of(t.n, t.across_outputs ? ceil_div(chunk, min_of(t.outputs, t.block)) : chunk);
  t.chunks = ceil_div(t.n, t.chunk);
  return "";
}

template <ReduceKind kind, class Acc>
reduction::State<kind, Acc> state(const Acc* values, const int64_t* indices, int64_t i) {
  if constexpr (kind == ReduceKind::arg) return {values[i], indices[i]};
  else return {values[i]};
}

bool is_wide(const ReduceProblem& p) { return !is_floating(p.x.dtype) || p.x.dtype == DType::float64; }

// Acc is the type of partial results.
template <ReduceKind kind, class Acc> void compute(const ReduceProblem& p, const Tiling& t, const ReduceArgs& a) {
  const bool wide = is_wide(p);
  const auto wide_loop = reduction::is_integer<Acc> ? reduce_wide_kernels().i64 : reduce_wide_kernels().f64;
  const auto& loops = t.across_outputs ? reduce_kernels().across_outputs : reduce_kernels().along_output;
  const ReduceLoop loop = wide ? nullptr : loops[int64_t(p.x.dtype)][int64_t(p.mode)];
  const int64_t outputs = p.y.numel(), count = p.x.numel() / outputs, spans = t.spans.numel(), blocks = t.blocks();
  const int64_t item = int64_t(itemsize(p.x.dtype)), step = t.across_outputs ? t.pitch : t.output_stride;
  const Acc nothing = reduction::identity<kind, Acc>().value;
  const bool float_results = is_floating(p.y.dtype) && p.y.dtype != DType::float64;
  auto finish = [&](int64_t outer, int64_t first, int64_t n, const Acc* values, const int64_t* indices) {
    const int64_t at = t.outs.offset_of(outer) + first * t.y_stride;
    if constexpr (kind != ReduceKind::arg && !reduction::is_integer<Acc>)
      if (float_results && t.y_stride == 1)
        return reduce_wide_kernels().finish(p.mode, values, n, count, p.y.dtype,
                                            static_cast<char*>(a.y) + at * int64_t(itemsize(p.y.dtype)));
    for (int64_t j = 0; j < n; ++j)
      reduction::finish(p.mode, p.y, a.y, at + j * t.y_stride, state<kind, Acc>(values, indices, j), count);
  };
  auto run = [&](const ReduceChunk& c) {
    if (wide) wide_loop(c, p.x.dtype, p.mode, t.across_outputs);
    else loop(c);
  };
  // Combines n elements of each of `outputs` outputs. Short rows without gaps are combined as longer rows: each of these
  // has several elements of an output.
  auto combine = [&](const char* x, int64_t outputs, int64_t n, Acc* values, int64_t index, int64_t* indices) {
    int64_t times = 1;
    if (kind != ReduceKind::arg && t.across_outputs && step == outputs && t.output_stride == 1)
      while (2 * times * outputs <= kFolded && 4 * times <= n) times *= 2;
    int64_t done = 0;
    if constexpr (kind != ReduceKind::arg)
      if (times > 1) {
        Acc some[kFolded];
        const int64_t row = times * outputs, rows = n / times;
        std::fill_n(some, row, nothing);
        run({x, row, row, rows, reinterpret_cast<double*>(some), 0, nullptr});
        for (int64_t j = 0; j < row; ++j)
          values[j % outputs] = reduction::combined<kind, Acc>({values[j % outputs]}, {some[j]}).value;
        done = rows * times;
      }
    if (done < n)
      run({x + done * step * item, step, outputs, n - done, reinterpret_cast<double*>(values), index, indices});
  };
  // The partial results of all chunks, [output][chunk].
  const size_t slots = t.chunks > 1 ? size_t(outputs * t.chunks) : 0;
  std::unique_ptr<Acc[]> chunk_values(slots ? new Acc[slots] : nullptr);
  std::unique_ptr<int64_t[]> chunk_indices(slots && kind == ReduceKind::arg ? new int64_t[slots] : nullptr);
  const int64_t work = min_of(t.outputs, t.block) * t.chunk * spans;
  cpu::parallel_for(t.kept.numel() * blocks * t.chunks, max_of<int64_t>(cpu::work_size(kChunk) / work, 1),
                    [&](int64_t begin, int64_t end) {
                      Acc values[kReduceOutputs];
                      int64_t indices[kReduceOutputs];
                      for (int64_t i = begin; i < end; ++i) {
                        const int64_t chunk = i % t.chunks, outer = i / t.chunks / blocks,
                                      first = i / t.chunks % blocks * t.block;
                        const int64_t count_of_block = min_of(t.block, t.outputs - first), at = chunk * t.chunk;
                        std::fill_n(values, count_of_block, nothing);
                        std::fill_n(indices, count_of_block, -1);
                        auto x = static_cast<const char*>(a.x) +
                                 (t.kept.offset_of(outer) + first * t.output_stride + at * t.pitch) * item;
                        for (int64_t span = 0; span < spans; ++span)
                          combine(x + t.spans.offset_of(span) * item, count_of_block, min_of(t.chunk, t.n - at), values,
                                  span * t.n + at, indices);
                        if (!slots) {
                          finish(outer, first, count_of_block, values, indices);
                          continue;
                        }
                        for (int64_t j = 0; j < count_of_block; ++j) {
                          const int64_t slot = (outer * t.outputs + first + j) * t.chunks + chunk;
                          chunk_values[slot] = values[j];
                          if (kind == ReduceKind::arg) chunk_indices[slot] = indices[j];
                        }
                      }
                    });
  for (int64_t i = 0; slots && i < outputs; ++i) {
    auto s = reduction::identity<kind, Acc>();
    for (int64_t chunk = 0; chunk < t.chunks; ++chunk)
      s = reduction::combined<kind, Acc>(
          s, state<kind, Acc>(chunk_values.get(), chunk_indices.get(), i * t.chunks + chunk));
    int64_t index = 0;
    if constexpr (kind == ReduceKind::arg) index = s.index;
    finish(i / t.outputs, i % t.outputs, 1, &s.value, &index);
  }
}

}  // namespace

struct Vectorized final : Engine<ReduceProblem> {
  std::string name() const override { return "cpu.reduce.vectorized"; }
  std::string why_not(const ReduceProblem& p, const Device&) const override {
    if (p.x.numel() == 0) return "x is empty";
    Tiling t;
    return fill_tiling(p, t);
  }
  double estimate_us(const ReduceProblem& p, const Device& d) const override {
    return roofline_us(0, reduce_bytes(p), d, 1);
  }
  std::unique_ptr<Plan<ReduceProblem>> build(const ReduceProblem& p, const Device&, const Config&) const override {
    Tiling t;
    fill_tiling(p, t);
    return make_plan<ReduceProblem>([p, t](const ReduceArgs& a, void*, Stream) {
      with_reduction(p, [&](auto kind, auto acc) {
        using Acc = std::conditional_t<reduction::is_integer<decltype(acc)>, int64_t, double>;
        compute<decltype(kind)::value, Acc>(p, t, a);
      });
    });
  }
};

}  // namespace cpu::reduce

void reduce_rows(ReduceMode mode, const float* x, int64_t rows, int64_t cols, float* to) {
  const ReduceLoop loop = reduce_kernels().along_output[int64_t(DType::float32)][int64_t(mode)];
  auto reduce = [&]<ReduceKind kind> {
    double values[kReduceOutputs];
    for (int64_t first = 0, count; first < rows; first += count) {
      count = min_of(rows - first, kReduceOutputs);
      std::fill_n(values, count, reduction::identity<kind, double>().value);
      loop({x + first * cols, cols, count, cols, values, 0, nullptr});
      for (int64_t i = 0; i < count; ++i)
        to[first + i] = float(reduction::finished(mode, reduction::State<kind, double>{values[i]}, cols));
    }
  };
  switch (kind_of(mode)) {
    case ReduceKind::prod:
      return reduce.template operator()<ReduceKind::prod>();
    case ReduceKind::max:
      return reduce.template operator()<ReduceKind::max>();
    default:
      return reduce.template operator()<ReduceKind::sum>();
  }
}

template const Engine<ReduceProblem>& engine_object<ReduceProblem, cpu::reduce::Vectorized>();

}  // namespace minidnn
