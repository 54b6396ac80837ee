// SPDX-License-Identifier: Apache-2.0
// cpu.pointwise.vectorized: vectorised loops over contiguous spans of the result. An operand that is not contiguous, is
// broadcast, or has elements narrower than float and int32_t is first copied to a buffer.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/pointwise/pointwise.h"
#include "cpp/simd/non_temporal.h"

namespace minidnn {
namespace cpu::pointwise {
namespace {

constexpr int64_t kBufferBytes = kPointwiseSpan * 8;

struct Source {
  const PointwiseAccess* access;
  const char* data;
};

// Returns a number that is equal for spans of a periodic operand with equal elements, or -1. [i, i + count) is the span.
int64_t contents_of(const PointwiseAccess& x, int64_t i, int64_t count) {
  if (x.kind != Access::periodic) return -1;
  if (x.inner == 1 && kPointwiseSpan % x.length == 0) return 0;
  return i / x.inner == (i + count - 1) / x.inner ? i / x.inner % x.length : -1;
}
// Returns the offset of the elements [i, i + count) if they are contiguous in the memory of the operand, or -1.
int64_t contiguous_at(const PointwiseAccess& x, int64_t i, int64_t count) {
  if (x.kind == Access::dense) return i;
  if (x.kind != Access::periodic || x.inner != 1 || x.stride != 1) return -1;
  return i % x.length + count <= x.length ? i % x.length : -1;
}

}  // namespace

struct Vectorized final : Engine<PointwiseProblem> {
  std::string name() const override { return "cpu.pointwise.vectorized"; }
  std::string why_not(const PointwiseProblem&, const Device&) const override { return ""; }
  double estimate_us(const PointwiseProblem& p, const Device& d) const override {
    return roofline_us(pointwise_flop(p), pointwise_bytes(p), d, 1.5);
  }
  std::unique_ptr<Plan<PointwiseProblem>> build(const PointwiseProblem& p, const Device&,
                                                const Config&) const override {
    const PointwiseIndexing w = indexing_of(p);
    const DType type = pointwise_dtype(p);
    const PointwiseGroup group = info(p.op).group;
    const PointwiseFunction direct = direct_pointwise_function(p.op, type);
    const PointwiseFunction function = direct ? direct : pointwise_function(p.op, type);
    const int n = arity(group);
    const bool selects = group == PointwiseGroup::select;
    const bool non_temporal =
        w.out.kind == Access::dense && !gives_bool(group) && cpu::non_temporal(double(w.n * int64_t(itemsize(type))));
    const int64_t grain = cpu::work_size(group == PointwiseGroup::maths1 || group == PointwiseGroup::maths2 ? 4 : 32);
    const int64_t bytes = int64_t(itemsize(type)), out_bytes = int64_t(itemsize(p.out.dtype));
    // Whether the function reads and writes elements as they are in memory.
    const bool reads_stored = direct || type == compute_dtype(type);
    const bool writes_stored = direct || (reads_stored && !gives_bool(group));
    const bool direct_store = w.out.kind == Access::dense && writes_stored && !non_temporal;
    auto is_direct = [&](const PointwiseAccess& x) { return reads_stored && x.kind == Access::dense; };
    const bool one_loop =
        direct_store && !selects && is_direct(w.a) && (n < 2 || is_direct(w.b)) && (n < 3 || is_direct(w.c));

    return make_plan<PointwiseProblem>([=](const PointwiseArgs& args, void*, Stream) {
      const Source sources[3] = {{&w.a, static_cast<const char*>(args.a)},
                                 {&w.b, static_cast<const char*>(args.b)},
                                 {&w.c, static_cast<const char*>(args.c)}};
      const ElementLayout out{w, w.out, p.out.dtype};
      cpu::parallel_for(ceil_div(w.n, kPointwiseSpan), grain, [&](int64_t begin, int64_t end) {
        if (one_loop) {
          const int64_t i = begin * kPointwiseSpan, count = min_of(end * kPointwiseSpan, w.n) - i;
          auto at = [&](int k) { return sources[k < n ? k : 0].data + i * bytes; };
          return function(at(0), at(1), at(2), static_cast<char*>(args.out) + i * out_bytes, count);
        }
        alignas(64) char buffers[4][kBufferBytes];
        int64_t contents[3] = {-1, -1, -1};  // what each buffer holds (contents_of())
        for (int64_t span = begin; span < end; ++span) {
          const int64_t i = span * kPointwiseSpan, count = min_of(kPointwiseSpan, w.n - i);
          const void* operands[3] = {buffers[0], buffers[0], buffers[0]};
          for (int k = 0; k < n; ++k) {
            const Source& s = sources[k];
            const bool condition = selects && k == 0;
            operands[k] = buffers[k];
            if (reads_stored && !condition)
              if (const int64_t at = contiguous_at(*s.access, i, count); at >= 0) {
                operands[k] = s.data + at * bytes;
                continue;
              }
            const int64_t wanted = contents_of(*s.access, i, count);
            if (wanted >= 0 && wanted == contents[k]) continue;
            contents[k] = wanted;
            if (condition) load_condition(s, w, type, i, count, buffers[k]);
            else if (reads_stored) gather_span({w, *s.access, type}, s.data, i, count, buffers[k]);
            else load_span({w, *s.access, type}, s.data, i, count, buffers[k]);
          }
          char* const to = static_cast<char*>(args.out) + i * out_bytes;
          void* const result = direct_store ? to : buffers[3];
          function(operands[0], operands[1], operands[2], result, count);
          if (direct_store) continue;
          if (!direct) store_span(out, type, result, i, count, args.out, non_temporal);
          else if (non_temporal) copy_non_temporal(result, to, count * out_bytes);
          else scatter_span(out, result, i, count, args.out);
        }
        if (non_temporal) order_stores();
      });
    });
  }

 private:
  // Reads elements of the bool condition of `where` as the C++ type in which elements of `type` are computed.
  static void load_condition(const Source& s, const ElementIndexing& w, DType type, int64_t i, int64_t n, void* to) {
    alignas(64) int32_t condition[kPointwiseSpan];
    load_span({w, *s.access, DType::boolean}, s.data, i, n, condition);
    auto fill = [=](auto* out) __attribute__((optimize("O3"))) {
      for (int64_t k = 0; k < n; ++k) out[k] = condition[k];
    };
    if (type == DType::float64) fill(static_cast<double*>(to));
    else if (is_floating(type)) fill(static_cast<float*>(to));
    else if (type == DType::int64) fill(static_cast<int64_t*>(to));
    else fill(static_cast<int32_t*>(to));
  }
};

}  // namespace cpu::pointwise

template const Engine<PointwiseProblem>& engine_object<PointwiseProblem, cpu::pointwise::Vectorized>();

}  // namespace minidnn
