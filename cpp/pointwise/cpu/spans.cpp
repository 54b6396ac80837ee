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
    // Whole rows along the last dimension but one.
    if (last > 0 && coordinates[last] == 0)
      for (; coordinates[last - 1] + 1 < w.shape[last - 1] && done + count + size <= n; ++coordinates[last - 1]) {
        done += count;
        at += x.strides[last - 1];
        f(done, at, count = size, stride);
      }
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

// Copies contiguous bytes. Short rows are copied by words, the last of which may overlap the one before it.
inline void copy_row(const char* from, char* to, int64_t bytes) {
  if (bytes > 64 || bytes < 8) {
    std::memcpy(to, from, size_t(bytes));
    return;
  }
  for (int64_t k = 0; k + 8 < bytes; k += 8) std::memcpy(to + k, from + k, 8);
  std::memcpy(to + bytes - 8, from + bytes - 8, 8);
}
// Copies n words, whose distances are the strides `from_step` and `to_step`.
template <class Word> void copy_words(const Word* from, int64_t from_step, Word* to, int64_t to_step, int64_t n) {
  if (from_step == 1 && to_step == 1)
    return copy_row(reinterpret_cast<const char*>(from), reinterpret_cast<char*>(to), n * int64_t(sizeof(Word)));
  if (to_step == 1)
    for (int64_t k = 0; k < n; ++k, from += from_step) to[k] = *from;
  else
    for (int64_t k = 0; k < n; ++k, to += to_step) *to = from[k * from_step];
}
// Writes n equal words.
template <class Word> void fill(Word v, Word* to, int64_t n) {
  if constexpr (sizeof(Word) == 1) {
    std::memset(to, v, size_t(n));
  } else if (n < 16) {
    for (int64_t k = 0; k < n; ++k) to[k] = v;
  } else if constexpr (sizeof(Word) == 2) {
    const uint32_t two = uint32_t(v) << 16 | v;
    element_spans(DType::float32).read(&two, 0, n / 2, to);
    to[n - 1] = v;
  } else {
    element_spans(sizeof(Word) == 4 ? DType::float32 : DType::float64).read(&v, 0, n, to);
  }
}
// Repeats the first `some` words of memory until n words are written.
template <class Word> void repeat(Word* to, int64_t some, int64_t n) {
  for (int64_t count; some < n; some += count) {
    count = min_of(some, n - some);
    std::memcpy(to + some, to, size_t(count) * sizeof(Word));
  }
}

// Copies the elements [i, i + n) of a periodic operand. Each is repeated `inner` times, and the whole after `length`.
template <class Word> void copy_period(const PointwiseAccess& x, const Word* from, int64_t i, int64_t n, Word* to) {
  int64_t element = i / x.inner % x.length;
  if (x.inner == 1) {
    const int64_t period = min_of(n, x.length), first = min_of(period, x.length - element);
    copy_words(from + element * x.stride, x.stride, to, 1, first);
    copy_words(from, x.stride, to + first, 1, period - first);
    return repeat(to, period, n);
  }
  for (int64_t done = 0, left = x.inner - i % x.inner; done < n; done += left, left = x.inner) {
    left = min_of(left, n - done);
    fill(from[element * x.stride], to + done, left);
    if (++element == x.length) element = 0;
  }
}

}  // namespace

DType compute_dtype(DType t) {
  if (t == DType::float64 || t == DType::int64) return t;
  return is_floating(t) ? DType::float32 : DType::int32;
}

const ElementSpans& element_spans(DType t) { return pointwise_kernels().of[int64_t(t)]; }
PointwiseFunction pointwise_function(Pointwise op, DType t) {
  return pointwise_kernels().of[int64_t(t)].function[int64_t(op)];
}
void copy_non_temporal(const void* from, void* to, int64_t bytes) {
  pointwise_kernels().copy_non_temporal(from, to, bytes);
}
void order_stores() { pointwise_kernels().finish(); }

PointwiseFunction direct_pointwise_function(Pointwise op, DType t) {
  if (t < DType::float16 || t > DType::uint8) return nullptr;
  return pointwise_kernels().direct[int64_t(t) - int64_t(DType::float16)].function[int64_t(op)];
}

void gather_span(const ElementLayout& t, const void* data, int64_t i, int64_t n, void* to) {
  with_word(itemsize(t.dtype), [&](auto type) {
    using Word = typename decltype(type)::type;
    auto from = static_cast<const Word*>(data);
    auto words = static_cast<Word*>(to);
    if (t.access.kind == Access::periodic) return copy_period(t.access, from, i, n, words);
    for_each_strided_span(t.elements, t.access, i, n, [=](int64_t start, int64_t at, int64_t count, int64_t stride) {
      copy_words(from + at, stride, words + start, 1, count);
    });
  });
}
void scatter_span(const ElementLayout& t, const void* from, int64_t i, int64_t n, void* data) {
  with_word(itemsize(t.dtype), [&](auto type) {
    using Word = typename decltype(type)::type;
    auto words = static_cast<const Word*>(from);
    auto to = static_cast<Word*>(data);
    for_each_strided_span(t.elements, t.access, i, n, [=](int64_t start, int64_t at, int64_t count, int64_t stride) {
      copy_words(words + start, 1, to + at, stride, count);
    });
  });
}

void load_span(const ElementLayout& t, const void* data, int64_t i, int64_t n, void* to) {
  const auto read = element_spans(t.dtype).read;
  const int64_t bytes = int64_t(itemsize(t.dtype));
  if (t.access.kind == Access::dense) return read(static_cast<const char*>(data) + i * bytes, 1, n, to);
  if (t.access.kind == Access::periodic && t.access.length == 1) return read(data, 0, n, to);
  if (compute_dtype(t.dtype) == t.dtype) return gather_span(t, data, i, n, to);
  alignas(64) char gathered[kPointwiseSpan * sizeof(float)];
  gather_span(t, data, i, n, gathered);
  read(gathered, 1, n, to);
}
void store_span(const ElementLayout& t, DType type, const void* from, int64_t i, int64_t n, void* data,
                bool non_temporal) {
  const ElementSpans& spans = element_spans(type);
  const bool tests = t.dtype == DType::boolean;
  auto write = [&](void* to, bool bypass) {
    if (tests) spans.write_bool(from, n, to, 1);
    else spans.write(from, n, to, bypass);
  };
  const int64_t bytes = int64_t(itemsize(t.dtype));
  if (t.access.kind == Access::dense) return write(static_cast<char*>(data) + i * bytes, non_temporal);
  if (!tests && compute_dtype(type) == type) return scatter_span(t, from, i, n, data);
  alignas(64) char narrow[kPointwiseSpan * sizeof(float)];
  write(narrow, false);
  scatter_span(t, narrow, i, n, data);
}

}  // namespace minidnn
