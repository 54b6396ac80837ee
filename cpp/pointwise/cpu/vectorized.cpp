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
    const PointwiseFunction function = pointwise_function(p.op, type);
    const int n = arity(group);
    const bool tests = gives_bool(group), selects = group == PointwiseGroup::select;
    const bool non_temporal =
        w.out.kind == Access::dense && !tests && cpu::non_temporal(double(w.n * int64_t(itemsize(type))));
    const int64_t grain = cpu::work_size(group == PointwiseGroup::maths1 || group == PointwiseGroup::maths2 ? 4 : 32);
    const int64_t bytes = int64_t(itemsize(type));
    const bool computed_as_stored = type == compute_dtype(type);
    const bool direct_store = w.out.kind == Access::dense && !tests && computed_as_stored && !non_temporal;

    return make_plan<PointwiseProblem>([=](const PointwiseArgs& args, void*, Stream) {
      const Source sources[3] = {{&w.a, static_cast<const char*>(args.a)},
                                 {&w.b, static_cast<const char*>(args.b)},
                                 {&w.c, static_cast<const char*>(args.c)}};
      cpu::parallel_for(ceil_div(w.n, kPointwiseSpan), grain, [&](int64_t begin, int64_t end) {
        alignas(64) char buffers[4][kBufferBytes];
        bool constant[3] = {};
        for (int64_t span = begin; span < end; ++span) {
          const int64_t i = span * kPointwiseSpan, count = min_of(kPointwiseSpan, w.n - i);
          const void* operands[3] = {buffers[0], buffers[0], buffers[0]};
          for (int k = 0; k < n; ++k) {
            const Source& s = sources[k];
            operands[k] = buffers[k];
            if (constant[k]) continue;
            constant[k] = s.access->kind == Access::periodic && s.access->length == 1;
            const int64_t loaded = constant[k] ? kPointwiseSpan : count;
            if (selects && k == 0) load_condition(s, w, type, i, loaded, buffers[k]);
            else if (s.access->kind == Access::dense && computed_as_stored) operands[k] = s.data + i * bytes;
            else load_span({w, *s.access, type}, s.data, i, loaded, buffers[k]);
          }
          void* const result = direct_store ? static_cast<char*>(args.out) + i * bytes : buffers[3];
          function(operands[0], operands[1], operands[2], result, count);
          if (!direct_store) store_span({w, w.out, p.out.dtype}, type, result, i, count, args.out, non_temporal);
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
