// SPDX-License-Identifier: Apache-2.0
// cpu.pointwise.vectorized: vectorised loops over contiguous spans of the result. An operand that is not contiguous, is
// broadcast, or has elements narrower than float and int32_t is first copied to a buffer.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/pointwise/cpu/vectorized_kernel.h"
#include "cpp/pointwise/pointwise.h"
#include "cpp/simd/non_temporal.h"

namespace minidnn {
namespace cpu::pointwise {
namespace {

constexpr int64_t kBufferBytes = kPointwiseSpan * 8;

// Divides the elements [i, i + n) of the result into spans along which x has a constant stride. Calls f(start, offset,
// count, stride) for each span: its start relative to i, and its offset in x.
template <class F> void for_each_strided_span(const PointwiseIndexing& w, const PointwiseAccess& x, int64_t i,
                                              int64_t n, F&& f) {
  if (x.kind == Access::dense) return f(int64_t(0), i, n, int64_t(1));
  const int64_t last = w.shape[w.rank - 1], stride = x.strides[w.rank - 1];
  for (int64_t done = 0; done < n;) {
    int64_t rest = i + done, column = rest % last, at = column * stride;
    rest /= last;
    for (int64_t d = w.rank - 2; d >= 0; --d) {
      at += rest % w.shape[d] * x.strides[d];
      rest /= w.shape[d];
    }
    const int64_t count = min_of(n - done, last - column);
    f(done, at, count, stride);
    done += count;
  }
}

struct Source {
  const PointwiseAccess* access;
  const char* data;
  DType dtype;
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
    const PointwiseKernels& kernels = pointwise_kernels();
    const PointwiseIndexing w = indexing_of(p);
    const DType type = pointwise_dtype(p);
    const PointwiseGroup group = info(p.op).group;
    const PointwiseTypeKernels& type_kernels = kernels.of[int64_t(type)];
    const PointwiseFunction function = type_kernels.function[int64_t(p.op)];
    const int n = arity(group);
    const bool tests = gives_bool(group), selects = group == PointwiseGroup::select;
    const bool non_temporal =
        w.out.kind == Access::dense && !tests && cpu::non_temporal(double(w.n * int64_t(itemsize(type))));
    const int64_t grain = cpu::work_size(group == PointwiseGroup::maths1 || group == PointwiseGroup::maths2 ? 4 : 32);
    auto finish = kernels.finish;

    return make_plan<PointwiseProblem>([=, &kernels, &type_kernels](const PointwiseArgs& args, void*, Stream) {
      const Source sources[3] = {{&w.a, static_cast<const char*>(args.a), selects ? DType::boolean : type},
                                 {&w.b, static_cast<const char*>(args.b), type},
                                 {&w.c, static_cast<const char*>(args.c), type}};
      cpu::parallel_for(ceil_div(w.n, kPointwiseSpan), grain, [&](int64_t begin, int64_t end) {
        alignas(64) char buffers[4][kBufferBytes];
        bool constant[3] = {};
        for (int64_t span = begin; span < end; ++span) {
          const int64_t i = span * kPointwiseSpan, count = min_of(kPointwiseSpan, w.n - i);
          const void* operands[3] = {buffers[0], buffers[0], buffers[0]};
          for (int k = 0; k < n; ++k) {
            const Source& s = sources[k];
            const int64_t bytes = int64_t(itemsize(s.dtype));
            operands[k] = buffers[k];
            if (constant[k]) continue;
            if (s.access->kind == Access::dense && is_computed_in(s.dtype) && !(selects && k == 0)) {
              operands[k] = s.data + i * bytes;
            } else if (s.access->kind == Access::periodic && s.access->length == 1) {
              read(kernels, s.dtype, type, s.data, 0, kPointwiseSpan, buffers[k]);
              constant[k] = true;
            } else {
              for_each_strided_span(w, *s.access, i, count,
                                    [&](int64_t to, int64_t at, int64_t length, int64_t stride) {
                                      read(kernels, s.dtype, type, s.data + at * bytes, stride, length,
                                           buffers[k] + to * compute_bytes(type));
                                    });
            }
          }
          const bool direct_store = w.out.kind == Access::dense && !tests && is_computed_in(type) && !non_temporal;
          char* const out = static_cast<char*>(args.out);
          const int64_t out_bytes = tests ? 1 : int64_t(itemsize(type));
          void* const result = direct_store ? out + i * out_bytes : buffers[3];
          function(operands[0], operands[1], operands[2], result, count);
          if (direct_store) continue;
          for_each_strided_span(w, w.out, i, count, [&](int64_t from, int64_t at, int64_t length, int64_t stride) {
            const char* x = buffers[3] + from * compute_bytes(type);
            char* to = out + at * out_bytes;
            if (tests) type_kernels.write_bool(x, length, to, stride);
            else if (stride == 1) type_kernels.write(x, length, to, non_temporal);
            else type_kernels.write_strided(x, length, to, stride);
          });
        }
        if (non_temporal) finish();
      });
    });
  }

 private:
  static bool is_computed_in(DType t) {
    return t == DType::float32 || t == DType::float64 || t == DType::int32 || t == DType::int64;
  }
  static int64_t compute_bytes(DType t) { return max_of<int64_t>(int64_t(itemsize(t)), 4); }

  // Reads elements of `dtype` as the C++ type in which elements of `type` are computed. The two differ only for the
  // bool condition of `where`.
  static void read(const PointwiseKernels& kernels, DType dtype, DType type, const void* from, int64_t stride,
                   int64_t n, void* to) {
    if (dtype == type) return kernels.of[int64_t(type)].read(from, stride, n, to);
    auto x = static_cast<const uint8_t*>(from);
    auto fill = [=](auto* out) __attribute__((optimize("O3"))) {
      if (stride == 1)
        for (int64_t i = 0; i < n; ++i) out[i] = x[i] != 0;
      else
        for (int64_t i = 0; i < n; ++i) out[i] = x[i * stride] != 0;
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
