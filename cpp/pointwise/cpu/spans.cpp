// SPDX-License-Identifier: Apache-2.0
// Loads and stores of spans of elements, which pointwise.h declares, for tensors with any strides.
#include <cstring>

#include "cpp/pointwise/cpu/vectorized_kernel.h"
#include "cpp/pointwise/pointwise.h"

namespace minidnn {
namespace {

// Rows of n elements. Steps are the distances of elements, and pitches those of rows, in elements.
struct Rows {
  int64_t n, rows, from_step, from_pitch, to_step, to_pitch;
};

// Divides the elements [i, i + n) of the result into rows along which x has a constant stride. Calls f(start, offset,
// count, rows) for rows of `count` elements: the start of the first one relative to i, and its offset in x. Rows follow
// one another in the result, and have the distance of the last dimension but one in x.
template <class F> void for_each_rows(const ElementIndexing& w, const PointwiseAccess& x, int64_t i, int64_t n, F&& f) {
  const int64_t last = w.rank - 1, size = w.shape[last];
  int64_t coordinates[kMaxRank], at = 0;
  for (int64_t d = last, rest = i; d >= 0; rest /= w.shape[d--]) {
    coordinates[d] = rest % w.shape[d];
    at += coordinates[d] * x.strides[d];
  }
  for (int64_t done = 0; done < n;) {
    int64_t count = min_of(n - done, size - coordinates[last]), rows = 1;
    if (count == size && last > 0) rows = min_of((n - done) / size, w.shape[last - 1] - coordinates[last - 1]);
    f(done, at, count, rows);
    done += count * rows;
    at -= coordinates[last] * x.strides[last];
    coordinates[last] = 0;
    for (int64_t d = last - 1, step = rows; d >= 0; --d, step = 1) {
      at += step * x.strides[d];
      if ((coordinates[d] += step) < w.shape[d]) break;
      at -= w.shape[d] * x.strides[d];
      coordinates[d] = 0;
    }
  }
}

// Copies contiguous bytes in steps of 16. The last step may overlap the one before it.
inline void copy_row(const char* from, char* to, int64_t bytes) {
  if (bytes < 16 || bytes > 256) {
    std::memcpy(to, from, size_t(bytes));
    return;
  }
  for (int64_t k = 0; k + 16 < bytes; k += 16) std::memcpy(to + k, from + k, 16);
  std::memcpy(to + bytes - 16, from + bytes - 16, 16);
}
template <class Word> void copy_rows(const char* from, char* to, const Rows& r) {
  constexpr int64_t kBytes = sizeof(Word);
  for (int64_t row = 0; row < r.rows; ++row, from += r.from_pitch * kBytes, to += r.to_pitch * kBytes) {
    if (r.from_step == 1 && r.to_step == 1) {
      copy_row(from, to, r.n * kBytes);
      continue;
    }
    const Word* x = reinterpret_cast<const Word*>(from);
    Word* y = reinterpret_cast<Word*>(to);
    for (int64_t k = 0; k < r.n; ++k, x += r.from_step, y += r.to_step) *y = *x;
  }
}
// Returns copy_rows() for elements of a number of bytes.
auto row_copy(int64_t bytes) {
  return bytes == 1   ? copy_rows<uint8_t>
         : bytes == 2 ? copy_rows<uint16_t>
         : bytes == 4 ? copy_rows<uint32_t>
                      : copy_rows<uint64_t>;
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
    auto copy = [&](int64_t start, Word* to, int64_t count) {
      copy_rows<Word>(reinterpret_cast<const char*>(from + start * x.stride), reinterpret_cast<char*>(to),
                      {count, 1, x.stride, 0, 1, 0});
    };
    copy(element, to, first);
    copy(0, to + first, period - first);
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
  const PointwiseAccess& x = t.access;
  const int64_t bytes = itemsize(t.dtype), last = t.elements.rank - 1;
  auto from = static_cast<const char*>(data);
  if (x.kind == Access::dense) return copy_row(from + i * bytes, static_cast<char*>(to), n * bytes);
  if (x.kind == Access::periodic)
    return with_word(bytes, [&](auto type) {
      using Word = typename decltype(type)::type;
      copy_period(x, static_cast<const Word*>(data), i, n, static_cast<Word*>(to));
    });
  const int64_t step = x.strides[last], pitch = last > 0 ? x.strides[last - 1] : 0;
  for_each_rows(t.elements, x, i, n,
                [&, copy = row_copy(bytes)](int64_t start, int64_t at, int64_t count, int64_t rows) {
                  copy(from + at * bytes, static_cast<char*>(to) + start * bytes, {count, rows, step, pitch, 1, count});
                });
}
void scatter_span(const ElementLayout& t, const void* from, int64_t i, int64_t n, void* data) {
  const PointwiseAccess& x = t.access;
  const int64_t bytes = itemsize(t.dtype), last = t.elements.rank - 1;
  auto elements = static_cast<const char*>(from);
  auto to = static_cast<char*>(data);
  if (x.kind == Access::dense) return copy_row(elements, to + i * bytes, n * bytes);
  const int64_t step = x.strides[last], pitch = last > 0 ? x.strides[last - 1] : 0;
  for_each_rows(t.elements, x, i, n,
                [&, copy = row_copy(bytes)](int64_t start, int64_t at, int64_t count, int64_t rows) {
                  copy(elements + start * bytes, to + at * bytes, {count, rows, 1, count, step, pitch});
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
