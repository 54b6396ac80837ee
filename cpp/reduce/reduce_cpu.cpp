// SPDX-License-Identifier: Apache-2.0
// cpu.reduce.runs: vectors along the elements of an output where these lie beside each other, or across outputs that do.
// Few outputs are cut into parts, as the shape says, so that results do not depend on how many threads there are.
#include <memory>

#include "cpp/cpu/threads.h"
#include "cpp/reduce/reduce.h"
#include "cpp/reduce/reduce_kernels.h"

namespace minidnn {
namespace {

constexpr int64_t kPart = 65536;  // elements worth waking a thread for
constexpr int64_t kEnough = 256;  // pieces of work for any number of threads

// x[kept][run][element], or x[kept][row][column].
struct Loops {
  TensorDesc kept, runs;
  bool across = false;
  int64_t n = 1;  // elements of a run, or columns
  int64_t rows = 1, pitch = 0;
  int64_t parts = 1, part = 0;  // of an output: so many elements of a run, or rows
};

std::string parse(const ReduceProblem& p, Loops& l) {
  const ReduceView v = reduce_view(p);
  l.kept = joined(v.kept, false), l.runs = joined(v.reduced, true);
  auto innermost = [](const TensorDesc& d) { return d.rank && d.stride[d.rank - 1] == 1; };
  if (innermost(l.runs)) {
    l.n = l.runs.shape[--l.runs.rank];
    l.part = l.n;
    if (l.kept.numel() < kEnough && l.runs.numel() == 1) l.part = min_of(l.n, kPart);
    l.parts = ceil_div(l.n, l.part);
    return "";
  }
  if (!innermost(l.kept) || l.runs.rank > 1)
    return "needs elements of an output, or outputs and one dimension of rows, that lie beside each other";
  l.across = true;
  l.n = l.kept.shape[--l.kept.rank];
  if (l.runs.rank) l.rows = l.runs.shape[0], l.pitch = l.runs.stride[0];
  l.part = l.rows;
  if (l.kept.numel() * ceil_div(l.n, kReduceColumns) < kEnough)
    l.part = min_of(l.rows, ceil_div(kPart, min_of(l.n, kReduceColumns)));
  l.parts = ceil_div(l.rows, l.part);
  return "";
}

template <ReduceKind kind> void compute(const ReduceProblem& p, const Loops& l, const ReduceArgs& a) {
  const int64_t dtype = int64_t(p.x.dtype), mode = int64_t(p.mode), item = int64_t(itemsize(p.x.dtype));
  const auto along = reduce_kernels().along[dtype][mode];
  const auto across = reduce_kernels().across[dtype][mode];
  const int64_t outputs = p.y.numel(), count = p.x.numel() / outputs;
  const double nothing = reduction::identity<kind, double>().value;
  auto x = static_cast<const char*>(a.x);
  std::unique_ptr<double[]> partials(l.parts > 1 ? new double[size_t(outputs * l.parts)] : nullptr);
  auto finish = [&](int64_t output, double v) {
    reduction::finish<kind, double>(p.mode, p.y, a.y, p.y.offset_of(output), {v}, count);
  };
  if (l.across) {
    const int64_t blocks = ceil_div(l.n, kReduceColumns), outer = l.kept.numel();
    const int64_t work = min_of(l.n, kReduceColumns) * l.part;
    cpu::parallel_for(outer * blocks * l.parts, max_of<int64_t>(kPart / work, 1), [&](int64_t begin, int64_t end) {
      double sums[kReduceColumns];
      for (int64_t i = begin; i < end; ++i) {
        const int64_t part = i % l.parts, block = i / l.parts % blocks, o = i / l.parts / blocks;
        const int64_t column = block * kReduceColumns, columns = min_of(kReduceColumns, l.n - column);
        const int64_t row = part * l.part;
        for (double& v : sums) v = nothing;
        across(x + (l.kept.offset_of(o) + row * l.pitch + column) * item, l.pitch, min_of(l.part, l.rows - row),
               columns, sums);
        for (int64_t j = 0; j < columns; ++j) {
          const int64_t output = o * l.n + column + j;
          if (partials) partials[output * l.parts + part] = sums[j];
          else finish(output, sums[j]);
        }
      }
    });
  } else {
    const int64_t runs = l.runs.numel();
    cpu::parallel_for(outputs * l.parts, max_of<int64_t>(kPart / (l.part * runs), 1), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t output = i / l.parts, at = i % l.parts * l.part;
        double v = nothing;
        for (int64_t run = 0; run < runs; ++run)
          along(x + (l.kept.offset_of(output) + l.runs.offset_of(run) + at) * item, min_of(l.part, l.n - at), &v);
        if (partials) partials[i] = v;
        else finish(output, v);
      }
    });
  }
  for (int64_t output = 0; partials && output < outputs; ++output) {
    reduction::State<kind, double> s{nothing};
    for (int64_t part = 0; part < l.parts; ++part)
      s = reduction::combined<kind, double>(s, {partials[output * l.parts + part]});
    finish(output, s.value);
  }
}

struct Runs final : Engine<ReduceProblem> {
  std::string name() const override { return "cpu.reduce.runs"; }
  std::string why_not(const ReduceProblem& p, const Device&) const override {
    if (!is_floating(p.x.dtype) || p.x.dtype == DType::float64) return "reads float32, float16 and bfloat16";
    if (kind_of(p.mode) == ReduceKind::arg) return "finds values, not their places";
    if (p.x.numel() == 0) return "needs something to reduce";
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
