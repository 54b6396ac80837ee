// SPDX-License-Identifier: Apache-2.0
// Loads and stores of spans of elements, which pointwise.h declares, for tensors with any strides.
#include "cpp/pointwise/cpu/vectorized_kernel.h"
#include "cpp/pointwise/pointwise.h"

namespace minidnn {
namespace {

// Divides the elements [i, i + n) of the result into spans along which x has a constant stride. Calls f(start, offset,
// count, stride) for each span: its start relative to i, and its offset in x.
template <class F> void for_each_strided_span(const ElementIndexing& w, const PointwiseAccess& x, int64_t i, int64_t n,
                                              F&& f) {
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

int64_t compute_bytes(DType t) { return int64_t(itemsize(compute_dtype(t))); }

}  // namespace

DType compute_dtype(DType t) {
  if (t == DType::float64 || t == DType::int64) return t;
  return is_floating(t) ? DType::float32 : DType::int32;
}

const ElementSpans& element_spans(DType t) { return pointwise_kernels().of[int64_t(t)]; }
PointwiseFunction pointwise_function(Pointwise op, DType t) {
  return pointwise_kernels().of[int64_t(t)].function[int64_t(op)];
}
void order_stores() { pointwise_kernels().finish(); }

void load_span(const ElementLayout& t, const void* data, int64_t i, int64_t n, void* to) {
  const auto read = element_spans(t.dtype).read;
  if (t.access.kind == Access::periodic && t.access.length == 1) return read(data, 0, n, to);
  const int64_t bytes = int64_t(itemsize(t.dtype)), to_bytes = compute_bytes(t.dtype);
  for_each_strided_span(t.elements, t.access, i, n, [&](int64_t start, int64_t at, int64_t count, int64_t stride) {
    read(static_cast<const char*>(data) + at * bytes, stride, count, static_cast<char*>(to) + start * to_bytes);
  });
}

void store_span(const ElementLayout& t, DType type, const void* from, int64_t i, int64_t n, void* data,
                bool non_temporal) {
  const ElementSpans& spans = element_spans(type);
  const int64_t bytes = int64_t(itemsize(t.dtype)), from_bytes = compute_bytes(type);
  for_each_strided_span(t.elements, t.access, i, n, [&](int64_t start, int64_t at, int64_t count, int64_t stride) {
    const char* const elements = static_cast<const char*>(from) + start * from_bytes;
    char* const to = static_cast<char*>(data) + at * bytes;
    if (t.dtype == DType::boolean) spans.write_bool(elements, count, to, stride);
    else if (stride == 1) spans.write(elements, count, to, non_temporal);
    else spans.write_strided(elements, count, to, stride);
  });
}

}  // namespace minidnn
