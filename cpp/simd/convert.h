// SPDX-License-Identifier: Apache-2.0
// Loops over spans of contiguous elements, for files X_isa.cpp, which are compiled once per instruction set. The loops
// read and write elements of 16 and 32 bits as float, and float64 as double. Their stores can bypass the caches.
// Conversions give the same bits as core/half.h, except for the payloads of float16 NaNs.
#pragma once
#include "cpp/core/host_device/half.h"
#include "cpp/simd/simd.h"

namespace minidnn::MINIDNN_ISA {

// The number of elements per iteration of a loop. The last elements of a span are padded to a whole iteration.
constexpr int64_t kStep = kLanes<float> < 16 ? 16 : 32;
// The largest number of elements that are converted to float together. These floats stay in the first-level cache until
// they are used.
constexpr int64_t kSpan = 256;
// A loop pads a span to whole iterations. The padded span must fit a buffer of kSpan elements.
static_assert(kSpan % kStep == 0);

// The order of floats in a buffer. `memory` is the usual order. `lanes` is the order that is cheapest to compute: for
// bfloat16, even elements before odd elements in each kStep. It suits code that treats all elements equally.
enum class Order { memory, lanes };

// All functions are in an unnamed namespace, as in every file that is compiled once per instruction set
// (cpp/core/cpu/isa.h).
namespace {

inline __attribute__((always_inline)) int64_t whole_steps(int64_t n) { return (n + kStep - 1) & -kStep; }

template <Order order, class T> void widen(const T* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; i += kStep)
    for (int j = 0; j < kStep; ++j) to[i + j] = float(from[i + j]);
}
template <Order order, class T> void narrow(const float* from, T* to, int64_t n) {
  for (int64_t i = 0; i < n; i += kStep)
    for (int j = 0; j < kStep; ++j) to[i + j] = T(from[i + j]);
}

// A vector of 32-bit words, each with two bfloat16 elements. It has at most kStep / 2 words.
typedef uint32_t Twos __attribute__((vector_size(kVectorBytes < 32 ? kVectorBytes : 32)));
typedef float FloatsOfTwos __attribute__((vector_size(sizeof(Twos))));
constexpr int kTwos = sizeof(Twos) / 4, kHalf = kStep / 2;

template <> [[maybe_unused]] void widen<Order::lanes>(const bfloat16* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; i += kStep)
#pragma GCC unroll 2
    for (int j = 0; j < kHalf; j += kTwos) {
      Twos v;
      __builtin_memcpy(&v, from + i + 2 * j, sizeof v);
      const Twos even = v << 16, odd = v & 0xffff0000;
      __builtin_memcpy(to + i + j, &even, sizeof v);
      __builtin_memcpy(to + i + kHalf + j, &odd, sizeof v);
    }
}
// Rounds floats to bfloat16. The results are in the upper halves of 32-bit words.
inline __attribute__((always_inline)) Twos nearest_bfloat16s(const float* from) {
  FloatsOfTwos v;
  __builtin_memcpy(&v, from, sizeof v);
  const Twos u = Twos(v), nearest = u + 0x7fff + (u >> 16 & 1);
  return v != v ? u | 0x400000 : nearest;
}
template <> [[maybe_unused]] void narrow<Order::lanes>(const float* from, bfloat16* to, int64_t n) {
  for (int64_t i = 0; i < n; i += kStep)
#pragma GCC unroll 2
    for (int j = 0; j < kHalf; j += kTwos) {
      const Twos v = nearest_bfloat16s(from + i + j) >> 16 | (nearest_bfloat16s(from + i + kHalf + j) & 0xffff0000);
      __builtin_memcpy(to + i + 2 * j, &v, sizeof v);
    }
}

#ifdef __F16C__
inline __attribute__((always_inline)) void widen_float16(const float16* from, float* to, int64_t n) {
  typedef short Halves __attribute__((vector_size(16)));
  for (int64_t i = 0; i < n; i += 8) {
    Halves h;
    __builtin_memcpy(&h, from + i, sizeof h);
    auto v = __builtin_ia32_vcvtph2ps256(h);
    __builtin_memcpy(to + i, &v, sizeof v);
  }
}
inline __attribute__((always_inline)) void narrow_float16(const float* from, float16* to, int64_t n) {
  typedef float Floats __attribute__((vector_size(32)));
  for (int64_t i = 0; i < n; i += 8) {
    Floats v;
    __builtin_memcpy(&v, from + i, sizeof v);
    auto h = __builtin_ia32_vcvtps2ph256(v, 0);  // rounding mode 0: to nearest, ties to even
    __builtin_memcpy(to + i, &h, sizeof h);
  }
}
template <> [[maybe_unused]] void widen<Order::memory>(const float16* from, float* to, int64_t n) {
  widen_float16(from, to, n);
}
template <> [[maybe_unused]] void widen<Order::lanes>(const float16* from, float* to, int64_t n) {
  widen_float16(from, to, n);
}
template <> [[maybe_unused]] void narrow<Order::memory>(const float* from, float16* to, int64_t n) {
  narrow_float16(from, to, n);
}
template <> [[maybe_unused]] void narrow<Order::lanes>(const float* from, float16* to, int64_t n) {
  narrow_float16(from, to, n);
}
#endif

// Copies whole cache lines with stores that bypass the caches, so that the cache lines of `to` are not read first. `to`
// must be aligned to 64 bytes.
[[maybe_unused]] void store_nontemporal(const void* from, void* to, int64_t bytes) {
  typedef float Line __attribute__((vector_size(16)));
  for (int64_t i = 0; i < bytes; i += 64)
#pragma GCC unroll 4
    for (int j = 0; j < 64; j += 16) {
      Line v;
      __builtin_memcpy(&v, static_cast<const char*>(from) + i + j, 16);
#ifdef __SSE__
      __builtin_ia32_movntps(reinterpret_cast<float*>(static_cast<char*>(to) + i + j), v);
#else
      __builtin_memcpy(static_cast<char*>(to) + i + j, &v, 16);
#endif
    }
}
// A fence that must be executed before another thread reads what store_nontemporal() has written.
[[maybe_unused]] void store_fence() {
#ifdef __SSE__
  __builtin_ia32_sfence();
#endif
}
// Returns the number of elements from `to` to the next cache line.
template <class T> int64_t until_line(const T* to) {
  return int64_t(-reinterpret_cast<uintptr_t>(to) & 63) / int64_t(sizeof(T));
}
template <class T> void copy_span(const T* from, T* to, int64_t n, bool non_temporal) {
  if (non_temporal) {
    constexpr int64_t kLine = 64 / sizeof(T);
    const int64_t head = min_of(until_line(to), n), lines = (n - head) & -kLine;
    __builtin_memcpy(to, from, size_t(head) * sizeof(T));
    store_nontemporal(from + head, to + head, lines * int64_t(sizeof(T)));
    from += head + lines;
    to += head + lines;
    n -= head + lines;
  }
  __builtin_memcpy(to, from, size_t(n) * sizeof(T));
}

// Whether elements of type T are numbers of the arithmetic, which need no conversion.
template <class T> constexpr bool kIsWide = sizeof(T) >= 4;

// Reads n <= kSpan elements as floats, and pads them with the value `beyond` to a multiple of kStep elements. Writes
// the floats to `scratch` and returns `scratch`. If no conversion and no padding is needed, returns `from` instead.
template <Order order, class T>
const Accumulator<T>* read_span(const T* from, Accumulator<T>* scratch, int64_t n, Accumulator<T> beyond = 0) {
  const int64_t whole = n & -kStep;
  if constexpr (kIsWide<T>) {
    if (n == whole) return from;
    for (int64_t i = 0; i < kStep; ++i) scratch[whole + i] = beyond;
    __builtin_memcpy(scratch, from, size_t(n) * sizeof(T));
  } else {
    widen<order>(from, scratch, whole);
    if (whole < n) {
      T rest[kStep];
      for (T& v : rest) v = T(beyond);
      __builtin_memcpy(rest, from + whole, size_t(n - whole) * sizeof(T));
      widen<order>(rest, scratch + whole, kStep);
    }
  }
  return scratch;
}
// Rounds n floats to T and stores them at `to`. This is the inverse of read_span().
template <Order order, class T>
void write_span(const Accumulator<T>* from, T* to, int64_t n, bool non_temporal) {
  if constexpr (kIsWide<T>) {
    copy_span(from, to, n, non_temporal);
  } else {
    alignas(64) T rounded[kSpan];
    const int64_t whole = non_temporal ? 0 : n & -kStep;
    narrow<order>(from, to, whole);
    narrow<order>(from + whole, rounded, whole_steps(n - whole));
    copy_span(rounded, to + whole, n - whole, non_temporal);
  }
}

// Writes n elements to `to`, at most kSpan at a time. make(i, count, floats) computes elements [i, i + count), and may
// write up to a multiple of kStep.
template <Order order, class T, class Make>
inline __attribute__((always_inline)) void write_all(T* to, int64_t n, bool non_temporal, Make make) {
  // Several spans are copied at once, because a non-temporal copy writes the cache lines at its two ends only partly.
  constexpr int64_t kStage = 4 * kSpan;
  alignas(64) Accumulator<T> results[kSpan];
  alignas(64) T stage[kStage];
  for (int64_t i = 0, count; i < n; i += count) {
    count = min_of(kSpan, n - i);
    const int64_t at = i % kStage;
    const bool direct_store = !non_temporal && count % kStep == 0;
    T* const destination = direct_store ? to + i : stage + at;
    if constexpr (kIsWide<T>) {
      make(i, count, destination);
    } else {
      make(i, count, results);
      narrow<order>(results, destination, whole_steps(count));
    }
    if (direct_store) continue;
    if (!non_temporal) __builtin_memcpy(to + i, destination, size_t(count) * sizeof(T));
    else if (at + count == kStage || i + count == n) copy_span(stage, to + i - at, at + count, true);
  }
}

// Computes out[i] = f(a[i], b[i]) for n elements, where n is rounded down to a multiple of kStep. `out` may be a or b.
// If f ignores its second argument, the caller passes a as b.
template <class A, class F>
inline __attribute__((always_inline)) void each(const A* a, const A* b, A* out, int64_t n, F f) {
  n &= -kStep;
#pragma GCC ivdep  // `out` is the same memory as an input, or does not overlap it
  for (int64_t i = 0; i < n; ++i) out[i] = f(a[i], b[i]);
}
// A 32-bit word with two bfloat16 elements. A shift converts the lower element to float, and a mask converts the upper
// one. Neither conversion needs a vector shuffle.
typedef uint32_t Two __attribute__((aligned(2), may_alias));
template <class F>
inline __attribute__((always_inline)) void each(const bfloat16* a, const bfloat16* b, bfloat16* out, int64_t n, F f) {
  auto as = reinterpret_cast<const Two*>(a), bs = reinterpret_cast<const Two*>(b);
  auto outs = reinterpret_cast<Two*>(out);
  n = (n & -kStep) / 2;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t x = as[i], y = bs[i];
    const float low = f(detail::float_of(x << 16), detail::float_of(y << 16));
    const float high = f(detail::float_of(x & 0xffff0000), detail::float_of(y & 0xffff0000));
    outs[i] = nearest_bfloat16(low) >> 16 | (nearest_bfloat16(high) & 0xffff0000);
  }
}
template <class F>
inline __attribute__((always_inline)) void each(const float16* a, const float16* b, float16* out, int64_t n, F f) {
  alignas(64) float as[kSpan], bs[kSpan];
  for (int64_t i = 0; i < n; i += kSpan) {
    const int64_t count = min_of(kSpan, n - i);
    widen<Order::lanes>(a + i, as, count);
    if (b != a) widen<Order::lanes>(b + i, bs, count);
    each(as, b != a ? bs : as, as, count, f);
    narrow<Order::lanes>(as, out + i, count);
  }
}

// Copy n <= kStep elements. load_step() sets the rest of `to` to zero. Masked vectors of floats take less time than
// copies of a variable length.
template <class T> inline __attribute__((always_inline)) void load_step(const T* from, T* to, int64_t n) {
  if constexpr (sizeof(T) == 4) {
    for (int64_t i = 0; i < kStep; i += kFloats)
      store(to + i, i < n ? load_first(from + i, min_of<int64_t>(n - i, kFloats)) : Floats{});
  } else {
    __builtin_memset(to, 0, kStep * sizeof(T));
    __builtin_memcpy(to, from, size_t(n) * sizeof(T));
  }
}
template <class T> inline __attribute__((always_inline)) void store_step(const T* from, T* to, int64_t n) {
  if constexpr (sizeof(T) == 4) {
    for (int64_t i = 0; i < n; i += kFloats) store_first(to + i, min_of<int64_t>(n - i, kFloats), load(from + i));
  } else {
    __builtin_memcpy(to, from, size_t(n) * sizeof(T));
  }
}

// Computes any number n of elements by calls of loop(a, b, out, count), where count is a multiple of kStep.
template <class T, class Loop>
inline __attribute__((always_inline)) void map_all(const T* a, const T* b, T* out, int64_t n, bool non_temporal,
                                                   Loop loop) {
  alignas(64) T results[kSpan];
  // Computes count <= kStep elements, in buffers that are padded with zeros.
  auto padded_step = [&](int64_t i, int64_t count) {
    alignas(64) T as[kStep], bs[kStep];
    load_step(a + i, as, count);
    load_step(b + i, bs, count);
    loop(as, bs, results, kStep);
    store_step(results, out + i, count);
  };
  int64_t i = 0;
  if (non_temporal) {
    for (const int64_t head = min_of(until_line(out), n); i < head;) {
      const int64_t count = min_of(kStep, head - i);
      padded_step(i, count);
      i += count;
    }
    for (; i + kSpan <= n; i += kSpan) {
      loop(a + i, b + i, results, kSpan);
      store_nontemporal(results, out + i, kSpan * int64_t(sizeof(T)));
    }
    const int64_t lines = (n - i) * int64_t(sizeof(T)) & -64, count = lines / int64_t(sizeof(T)) & -kStep;
    loop(a + i, b + i, results, count);
    copy_span(results, out + i, count, true);
    i += count;
  }
  const int64_t whole = (n - i) & -kStep;
  loop(a + i, b + i, out + i, whole);
  if (i + whole < n) padded_step(i + whole, n - i - whole);
}

}  // namespace
}  // namespace minidnn::MINIDNN_ISA
