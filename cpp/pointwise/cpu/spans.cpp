// SPDX-License-Identifier: Apache-2.0
// Loads and stores of spans of elements, which pointwise.h declares, for tensors with any strides.
#include <cstring>

#include "cpp/pointwise/cpu/vectorized_kernel.h"
#include "cpp/pointwise/pointwise.h"

namespace minidnn {
namespace {

// Divides the elements [i, i + n) of the result into spans along which x has a constant stride. Calls f(start, offset,
// count, stride) for each span: its start relative to i, and its offset in x.
template <class F> void for_each_strided_span(const ElementIndexing& w, const PointwiseAccess& x, int64_t i, int64_t n,
                                              F&& f) {
  if (x.kind == Access::dense) return f(int64_t(0), i, n, int64_t(1));
  const int64_t last = w.rank - 1, size = w.shape[last], stride = x.strides[last];
  int64_t coordinates[kMaxRank], at = 0;
  for (int64_t d = last, rest = i; d >= 0; rest /= w.shape[d--]) {
    coordinates[d] = rest % w.shape[d];
    at += coordinates[d] * x.strides[d];
  }
  for (int64_t done = 0, count; done < n; done += count) {
    count = min_of(n - done, size - coordinates[last]);
    f(done, at, count, stride);
    at -= coordinates[last] * stride;
    coordinates[last] = 0;
    for (int64_t d = last - 1; d >= 0; --d) {
      at += x.strides[d];
      if (++coordinates[d] < w.shape[d]) break;
      at -= w.shape[d] * x.strides[d];
      coordinates[d] = 0;
    }
  }
}

// Copies n elements of `bytes` bytes, whose distances are the strides `from_step` and `to_step`.
void copy_elements(const char* from, int64_t from_step, char* to, int64_t to_step, int64_t n, int64_t bytes) {
  if (from_step == 1 && to_step == 1 && n * bytes >= 8) {
    // Short rows are copied by words, the last of which may overlap the one before it.
    const int64_t all = n * bytes;
    if (all > 64) {
      std::memcpy(to, from, size_t(all));
      return;
    }
    for (int64_t k = 0; k + 8 < all; k += 8) std::memcpy(to + k, from + k, 8);
    std::memcpy(to + all - 8, from + all - 8, 8);
    return;
  }
  auto copy = [=]<class Word>(Word) {
    for (int64_t k = 0; k < n; ++k) std::memcpy(to + k * to_step * bytes, from + k * from_step * bytes, sizeof(Word));
  };
  switch (bytes) {
    case 1:
      return copy(uint8_t());
    case 2:
      return copy(uint16_t());
    case 4:
      return copy(uint32_t());
    default:
      return copy(uint64_t());
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

void gather_span(const ElementLayout& t, const void* data, int64_t i, int64_t n, void* to) {
  const int64_t bytes = int64_t(itemsize(t.dtype));
  for_each_strided_span(t.elements, t.access, i, n, [&](int64_t start, int64_t at, int64_t count, int64_t stride) {
    copy_elements(static_cast<const char*>(data) + at * bytes, stride, static_cast<char*>(to) + start * bytes, 1, count,
                  bytes);
  });
}
void scatter_span(const ElementLayout& t, const void* from, int64_t i, int64_t n, void* data) {
  const int64_t bytes = int64_t(itemsize(t.dtype));
  for_each_strided_span(t.elements, t.access, i, n, [&](int64_t start, int64_t at, int64_t count, int64_t stride) {
    copy_elements(static_cast<const char*>(from) + start * bytes, 1, static_cast<char*>(data) + at * bytes, stride,
                  count, bytes);
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
