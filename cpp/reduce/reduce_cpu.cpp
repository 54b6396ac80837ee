// SPDX-License-Identifier: Apache-2.0
// cpu.reduce.vectorized: vectors along the elements of one output if these are contiguous, or across outputs if those are. If
// there are few outputs, each is divided into parts. The shape alone decides the division, so results do not depend on
// the number of threads.
#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "cpp/core/thread_pool.h"
#include "cpp/core/work_size.h"
#include "cpp/reduce/reduce.h"
#include "cpp/reduce/reduce_kernels.h"

namespace minidnn {
namespace {

constexpr int64_t kPart = 65536;  // elements worth waking a thread for
constexpr int64_t kEven = 32;     // contiguous outputs that fill vectors and cache lines
constexpr int64_t kEnough = 256;  // chunks of work that suffice for any number of threads

struct Loops {
  // The layouts of outputs in x and in y: `outputs` innermost outputs are `apart` elements apart in x and `out_step`
  // apart in y; `kept` and `outs` are the dimensions around them.
  TensorDesc kept, outs;
  int64_t outputs = 1, apart = 0, out_step = 0;
  TensorDesc runs;           // the dimensions of one output's elements, without the innermost
  int64_t n = 1, pitch = 1;  // the innermost dimension's length and stride
  bool across = false;       // true: vectors hold several outputs; false: vectors hold elements of one output
  // `block` outputs are processed at a time; each output's `n` elements are divided into `parts` parts of `part`
  // elements.
  int64_t block = 0, parts = 1, part = 0;
  int64_t blocks() const { return ceil_div(outputs, block); }
};

std::string parse(const ReduceProblem& p, Loops& l) {
  // Outputs are independent, so sort them by their strides in x, together with their strides in y.
  const ReduceView v = reduce_view(p);
  std::vector<int> order;
  for (int i = 0; i < v.kept.rank; ++i)
    if (v.kept.shape[i] != 1) order.push_back(i);
  std::ranges::stable_sort(order, std::greater(), [&](int i) { return std::abs(v.kept.stride[i]); });
  for (int i : order) {
    const int64_t n = v.kept.shape[i], from = v.kept.stride[i], to = p.y.stride[i], last = l.kept.rank - 1;
    if (last >= 0 && l.kept.stride[last] == from * n && l.outs.stride[last] == to * n) {
      l.kept.shape[last] *= n, l.kept.stride[last] = from, l.outs.stride[last] = to;
    } else {
      l.kept.shape[last + 1] = n, l.kept.stride[last + 1] = from, l.outs.stride[last + 1] = to;
      l.outs.rank = ++l.kept.rank;
    }
  }
  if (l.kept.rank) {
    const int64_t last = l.outs.rank = --l.kept.rank;
    l.outputs = l.kept.shape[last], l.apart = l.kept.stride[last], l.out_step = l.outs.stride[last];
  }
  std::copy_n(l.kept.shape, kMaxRank, l.outs.shape);
  l.runs = joined(v.reduced, kind_of(p.mode) != ReduceKind::arg);  // argmax and argmin count elements in x's order
  if (l.runs.rank) l.n = l.runs.shape[--l.runs.rank], l.pitch = l.runs.stride[l.runs.rank];
  l.across = l.pitch != 1 || l.n == 1;
  if (l.across && l.apart != 1 && (l.n > 1 || l.outputs > 1))
    return "needs the innermost reduced dimension or the innermost kept dimension of x to be contiguous";
  const int64_t runs = l.runs.numel(), outer = l.kept.numel();
  const int64_t blocks = ceil_div(l.outputs, cpu::work_size(kReduceOutputs, kEven)), part = cpu::work_size(kPart);
  l.block = l.across ? ceil_div(ceil_div(l.outputs, blocks), kEven) * kEven
                     : std::clamp<int64_t>(part / (l.n * runs), 1, kReduceOutputs);
  l.part = l.n;
  if (runs == 1 && outer * l.blocks() < kEnough)
    l.part = min_of(l.n, l.across ? ceil_div(part, min_of(l.outputs, l.block)) : part);
  l.parts = ceil_div(l.n, l.part);
  return "";
}

template <ReduceKind kind> reduction::State<kind, double> state(const double* values, const int64_t* places,
                                                                int64_t i) {
  if constexpr (kind == ReduceKind::arg) return {values[i], places[i]};
  else return {values[i]};
}

template <ReduceKind kind> void compute(const ReduceProblem& p, const Loops& l, const ReduceArgs& a) {
  const auto& loops = l.across ? reduce_kernels().across : reduce_kernels().along;
  const ReduceLoop loop = loops[int64_t(p.x.dtype)][int64_t(p.mode)];
  const int64_t outputs = p.y.numel(), count = p.x.numel() / outputs, runs = l.runs.numel(), blocks = l.blocks();
  const int64_t item = int64_t(itemsize(p.x.dtype)), step = l.across ? l.pitch : l.apart;
  const double nothing = reduction::identity<kind, double>().value;
  auto finish = [&](int64_t outer, int64_t first, int64_t n, auto state_of) {
    const int64_t at = l.outs.offset_of(outer) + first * l.out_step;
    auto to = static_cast<float*>(a.y) + at;
    // The common case: no dispatch on the dtype for each element.
    if (kind != ReduceKind::arg && p.y.dtype == DType::float32)
      for (int64_t j = 0; j < n; ++j) to[j * l.out_step] = float(reduction::finished(p.mode, state_of(j), count));
    else
      for (int64_t j = 0; j < n; ++j) reduction::finish(p.mode, p.y, a.y, at + j * l.out_step, state_of(j), count);
  };
  // Partial results, [output][part].
  const size_t room = l.parts > 1 ? size_t(outputs * l.parts) : 0;
  std::unique_ptr<double[]> part_values(room ? new double[room] : nullptr);
  std::unique_ptr<int64_t[]> part_places(room && kind == ReduceKind::arg ? new int64_t[room] : nullptr);
  const int64_t work = min_of(l.outputs, l.block) * l.part * runs;
  cpu::parallel_for(
      l.kept.numel() * blocks * l.parts, max_of<int64_t>(cpu::work_size(kPart) / work, 1),
      [&](int64_t begin, int64_t end) {
        double values[kReduceOutputs];
        int64_t places[kReduceOutputs];
        for (int64_t i = begin; i < end; ++i) {
          const int64_t part = i % l.parts, outer = i / l.parts / blocks, first = i / l.parts % blocks * l.block;
          const int64_t some = min_of(l.block, l.outputs - first), at = part * l.part;
          std::fill_n(values, some, nothing);
          std::fill_n(places, some, -1);
          auto x = static_cast<const char*>(a.x) + (l.kept.offset_of(outer) + first * l.apart + at * l.pitch) * item;
          for (int64_t run = 0; run < runs; ++run)
            loop({x + l.runs.offset_of(run) * item, step, some, min_of(l.part, l.n - at), values, run * l.n + at,
                  places});
          if (!room) {
            finish(outer, first, some, [&](int64_t j) { return state<kind>(values, places, j); });
            continue;
          }
          for (int64_t j = 0; j < some; ++j) {
            const int64_t slot = (outer * l.outputs + first + j) * l.parts + part;
            part_values[slot] = values[j];
            if (kind == ReduceKind::arg) part_places[slot] = places[j];
          }
        }
      });
  for (int64_t i = 0; room && i < outputs; ++i) {
    auto s = reduction::identity<kind, double>();
    for (int64_t part = 0; part < l.parts; ++part)
      s = reduction::combined<kind, double>(s, state<kind>(part_values.get(), part_places.get(), i * l.parts + part));
    finish(i / l.outputs, i % l.outputs, 1, [&](int64_t) { return s; });
  }
}

struct Runs final : Engine<ReduceProblem> {
  std::string name() const override { return "cpu.reduce.vectorized"; }
  std::string why_not(const ReduceProblem& p, const Device&) const override {
    if (!is_floating(p.x.dtype) || p.x.dtype == DType::float64)
      return cat("supports float32, float16 and bfloat16 only; got ", minidnn::name(p.x.dtype));
    if (p.x.numel() == 0) return "x is empty";
    Loops l;
    return parse(p, l);
  }
  double estimate_us(const ReduceProblem& p, const Device& d) const override {
    return roofline_us(0, reduce_bytes(p), d, 1);
  }
  std::unique_ptr<Plan<ReduceProblem>> build(const ReduceProblem& p, const Device&, const Config&) const override {
    Loops l;
    parse(p, l);
    return make_plan<ReduceProblem>([p, l](const ReduceArgs& a, void*, Stream) {
      switch (kind_of(p.mode)) {
        case ReduceKind::prod:
          return compute<ReduceKind::prod>(p, l, a);
        case ReduceKind::max:
          return compute<ReduceKind::max>(p, l, a);
        case ReduceKind::arg:
          return compute<ReduceKind::arg>(p, l, a);
        default:
          return compute<ReduceKind::sum>(p, l, a);
      }
    });
  }
};

}  // namespace

const Engine<ReduceProblem>& reduce_runs_cpu() {
  static const Runs engine;
  return engine;
}

}  // namespace minidnn
