// SPDX-License-Identifier: Apache-2.0
// The vector types of GCC and Clang, with the register width of the instruction set that a file is compiled for. This
// header has loads, stores, and reductions over the lanes of a vector. float32 vectors can be loaded from float32,
// bfloat16 and float16 memory, and stored to it. 16-bit types are for storage only. Conversions give the same bits as
// in cpp/core/host_device/half.h, except for the payloads of NaNs. Only files X_isa.cpp, which are compiled once per
// instruction set, include this header.
#pragma once
#include <cstdint>

#include "cpp/core/host_device/half.h"

#ifndef MINIDNN_ISA
#error "compiled once per instruction set: name the file X_isa.cpp"
#endif

namespace minidnn::MINIDNN_ISA {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
constexpr int kVectorRegisters = 32;
#elif defined(__AVX__)
constexpr int kVectorBytes = 32;
constexpr int kVectorRegisters = 16;
#elif defined(__aarch64__)
constexpr int kVectorBytes = 16;
constexpr int kVectorRegisters = 32;
#else
constexpr int kVectorBytes = 16;
constexpr int kVectorRegisters = 16;
#endif

template <class T> struct VectorOf {
  typedef T type __attribute__((vector_size(kVectorBytes)));
};
template <class T> using Vector = typename VectorOf<T>::type;
template <class T> constexpr int kLanes = kVectorBytes / int(sizeof(T));

// load() and store() accept aligned and unaligned addresses.
template <class T> inline __attribute__((always_inline)) Vector<T> load(const T* from) {
  Vector<T> v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
template <class T> inline __attribute__((always_inline)) void store(T* to, Vector<T> v) {
  __builtin_memcpy(to, &v, sizeof v);
}
// Returns v, and makes the compiler keep it in a register. Without this function, GCC would load v from memory again
// for each use.
template <class V> inline __attribute__((always_inline)) V keep_in_register(V v) {
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#elif defined(__x86_64__)
  asm("" : "+x"(v));
#else
  asm("" : "+w"(v));
#endif
  return v;
}
// dispatch_count() calls f(Count<n>{}) with n as a compile-time constant in [1, most]. for_balanced_chunks() divides n
// elements into chunks of nearly equal size, at most `most`, and calls f(first, Count<size>{}) for each.
template <int n> struct Count {
  static constexpr int value = n;
};
template <int most, class F> inline __attribute__((always_inline)) void dispatch_count(int64_t n, F&& f) {
  if constexpr (most > 1)
    if (n < most) return dispatch_count<most - 1>(n, f);
  f(Count<most>{});
}
template <int most, class F> inline __attribute__((always_inline)) void for_balanced_chunks(int64_t n, F&& f) {
  for (int64_t times = (n + most - 1) / most, first = 0, some; times > 0; --times, first += some) {
    some = (n - first + times - 1) / times;
    dispatch_count<most>(some, [&](auto count) { f(first, count); });
  }
}
// The numbers of the lanes of a vector type V: 0, 1, ... Its elements are integers as wide as those of V.
template <class V> inline __attribute__((always_inline)) auto lane_numbers() {
  decltype(V{} == V{}) lane;
  for (int i = 0; i < int(sizeof(V) / sizeof(V{}[0])); ++i) lane[i] = i;
  return lane;
}
// Reduces all lanes of a vector with the operation `op`: combines both halves of the vector, then both halves of the
// result, and so on.
template <class V, class Op> inline __attribute__((always_inline)) auto reduce_lanes(V v, Op op) {
  const auto lane = lane_numbers<V>();
#pragma GCC unroll 4
  for (int half = int(sizeof v / sizeof v[0]) / 2; half > 0; half /= 2) v = op(v, __builtin_shuffle(v, lane ^ half));
  return v[0];
}
// Returns the sum of all lanes. The order of the additions is always the same.
template <class V> inline __attribute__((always_inline)) auto sum_lanes(V v) {
  return reduce_lanes(v, [](V a, V b) __attribute__((always_inline)) { return a + b; });
}
// Returns a mask of the first n lanes of a vector type V.
template <class V> inline __attribute__((always_inline)) auto first_lanes(int64_t n) {
  const auto lane = lane_numbers<V>();
  return lane < decltype(lane){} + decltype(+lane[0])(n);
}
// Returns v, with zeros in all lanes but the first n, or in all lanes before lane n.
template <class V> inline __attribute__((always_inline)) V lanes_before(int64_t n, V v) {
  const auto mask = first_lanes<V>(n);
  return (V)((decltype(+mask))v & mask);
}
template <class V> inline __attribute__((always_inline)) V lanes_from(int64_t n, V v) {
  const auto mask = first_lanes<V>(n);
  return (V)((decltype(+mask))v & ~mask);
}

using Floats = Vector<float>;
using Words = Vector<uint32_t>;
typedef uint16_t Halves __attribute__((vector_size(kVectorBytes / 2)));
constexpr int kFloats = kLanes<float>;

MINIDNN_HD Floats floats(float v) { return v - Floats{}; }  // v - 0 keeps -0, but v + 0 would turn -0 into +0
MINIDNN_HD Floats select(Vector<int32_t> mask, Floats yes, Floats no) {
  return (Floats)((Vector<int32_t>(yes) & mask) | (Vector<int32_t>(no) & ~mask));
}
// Returns whether any lane is not 0.
MINIDNN_HD bool any_of(Vector<int32_t> v) {
#if defined(__AVX512F__)
  return __builtin_ia32_ptestmd512(v, v, (unsigned short)(-1)) != 0;
#elif defined(__AVX__)
  typedef long long Whole __attribute__((vector_size(32)));
  return !__builtin_ia32_ptestz256((Whole)v, (Whole)v);
#else
  int32_t all = 0;
  for (int i = 0; i < kFloats; ++i) all |= v[i];
  return all != 0;
#endif
}
MINIDNN_HD Halves load_halves(const void* from) {
  Halves h;
  __builtin_memcpy(&h, from, sizeof h);
  return h;
}

// Loads as many elements as a vector has floats (kFloats), and converts them to float. `from` may be unaligned.
MINIDNN_HD Floats load_floats(const float* from) { return load(from); }
// floats_of() converts the bits of 16-bit elements, whose type is that of the pointer.
MINIDNN_HD Floats floats_of(Halves h, const bfloat16*) { return (Floats)(__builtin_convertvector(h, Words) << 16); }
MINIDNN_HD Floats load_floats(const bfloat16* from) { return floats_of(load_halves(from), from); }

// Rounds floats to bfloat16. Each result is in the upper half of a 32-bit word.
MINIDNN_HD Words rounded_to_bfloat16(Floats v) {
  const Words u = (Words)v, nearest = u + 0x7fff + (u >> 16 & 1);
  return v != v ? u | 0x400000 : nearest;
}
MINIDNN_HD Halves to_bfloat16(Floats v) { return __builtin_convertvector(rounded_to_bfloat16(v) >> 16, Halves); }

#if defined(__F16C__)
typedef short EightHalves __attribute__((vector_size(16)));
typedef float EightFloats __attribute__((vector_size(32)));
#if defined(__AVX512F__)
MINIDNN_HD Floats floats_of(Halves h, const float16*) {
  const EightHalves low = (EightHalves)__builtin_shufflevector(h, h, 0, 1, 2, 3, 4, 5, 6, 7),
                    high = (EightHalves)__builtin_shufflevector(h, h, 8, 9, 10, 11, 12, 13, 14, 15);
  return __builtin_shufflevector(__builtin_ia32_vcvtph2ps256(low), __builtin_ia32_vcvtph2ps256(high), 0, 1, 2, 3, 4, 5,
                                 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
MINIDNN_HD Halves to_float16(Floats v) {
  EightFloats low = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7),
              high = __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  return (Halves)__builtin_shufflevector(__builtin_ia32_vcvtps2ph256(low, 0), __builtin_ia32_vcvtps2ph256(high, 0), 0,
                                         1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
#else
MINIDNN_HD Floats floats_of(Halves h, const float16*) { return __builtin_ia32_vcvtph2ps256((EightHalves)h); }
MINIDNN_HD Halves to_float16(Floats v) { return (Halves)__builtin_ia32_vcvtps2ph256(v, 0); }
#endif
#else
MINIDNN_HD Floats floats_of(Halves halves, const float16*) {
  Words h = __builtin_convertvector(halves, Words), sign = (h & 0x8000) << 16, magnitude = h & 0x7fff;
  // `number` is the result for finite values: multiplying by 2^112 corrects the bias of the exponent, and converts
  // subnormals exactly.
  Words number = (Words)((Floats)(magnitude << 13) * 0x1p112f), special = magnitude << 13 | 0x7f800000;
  Words is_special = (Words)((Vector<int32_t>)magnitude >= 0x7c00);
  return (Floats)(sign | (number & ~is_special) | (special & is_special));
}
// Rounds floats to float16, as the scalar conversion of half.h does. The function computes the results of all cases,
// and masks select one of them.
MINIDNN_HD Halves to_float16(Floats v) {
  Words u = (Words)v, sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
  Vector<int32_t> m = (Vector<int32_t>)magnitude;
  Words is_large = (Words)(m >= 0x47800000), is_nan = (Words)(m > 0x7f800000), is_small = (Words)(m < 0x38800000);
  Words large = 0x7c00 | (is_nan & 0x200), small = (Words)((Floats)magnitude + 0.5f) - 0x3f000000;
  Words normal = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
  Words bits = (large & is_large) | (small & is_small) | (normal & ~is_large & ~is_small);
  return __builtin_convertvector(sign | bits, Halves);
}
#endif
MINIDNN_HD Floats load_floats(const float16* from) { return floats_of(load_halves(from), from); }

// Rounds each float of a vector once, and stores the vector. `to` may be unaligned.
MINIDNN_HD void store_floats(float* to, Floats v) { store(to, v); }
MINIDNN_HD Halves halves_of(Floats v, const bfloat16*) { return to_bfloat16(v); }
MINIDNN_HD Halves halves_of(Floats v, const float16*) { return to_float16(v); }
template <class T> MINIDNN_HD void store_floats(T* to, Floats v) {
  const Halves h = halves_of(v, to);
  __builtin_memcpy(to, &h, sizeof h);
}

// Two vectors with consecutive elements, in the order that is cheapest to load. For bfloat16, `first` has the even
// elements and `second` the odd ones.
struct Pair {
  Floats first, second;
};
template <class T> constexpr bool kIsInterleaved = false;
template <> inline constexpr bool kIsInterleaved<bfloat16> = true;

template <class T> MINIDNN_HD Pair load_pair(const T* from) {
  if constexpr (kIsInterleaved<T>) {
    Words both;
    __builtin_memcpy(&both, from, sizeof both);
    return {(Floats)(both << 16), (Floats)(both & 0xffff0000)};
  } else {
    return {load_floats(from), load_floats(from + kFloats)};
  }
}
template <class T> MINIDNN_HD void store_pair(T* to, const Pair& p) {
  if constexpr (kIsInterleaved<T>) {
    const Words both = rounded_to_bfloat16(p.first) >> 16 | (rounded_to_bfloat16(p.second) & 0xffff0000);
    __builtin_memcpy(to, &both, sizeof both);
  } else {
    store_floats(to, p.first);
    store_floats(to + kFloats, p.second);
  }
}

// load_as_pair() and store_from_pair() load and store floats in memory order, with lanes in the order of load_pair()
// for type T.
template <class T> MINIDNN_HD Pair load_as_pair(const float* from) {
  Pair p{load(from), load(from + kFloats)};
  if constexpr (kIsInterleaved<T>)
    for (int i = 0; i < kFloats; ++i) {
      p.first[i] = from[2 * i];
      p.second[i] = from[2 * i + 1];
    }
  return p;
}
template <class T> MINIDNN_HD void store_from_pair(float* to, const Pair& p) {
  store(to, p.first);
  store(to + kFloats, p.second);
  if constexpr (kIsInterleaved<T>)
    for (int i = 0; i < kFloats; ++i) {
      to[2 * i] = p.first[i];
      to[2 * i + 1] = p.second[i];
    }
}

// load_first() and store_first() access only the first n < kFloats elements of a vector in memory. load_first() sets
// the other lanes to zero.
#if defined(__AVX512F__)
template <class T> MINIDNN_HD Floats load_first(const T* from, int64_t n) {
  typedef short Shorts __attribute__((vector_size(32)));
  const auto bits = reinterpret_cast<const short*>(from);
  return floats_of((Halves)__builtin_ia32_loaddquhi256_mask(bits, Shorts{}, (unsigned short)((1 << n) - 1)), from);
}
template <class T> MINIDNN_HD void store_first(T* to, int64_t n, Floats v) {
  typedef short Shorts __attribute__((vector_size(32)));
  __builtin_ia32_storedquhi256_mask(reinterpret_cast<short*>(to), (Shorts)halves_of(v, to),
                                    (unsigned short)((1 << n) - 1));
}
MINIDNN_HD Floats load_first(const float* from, int64_t n) {
  return __builtin_ia32_loadups512_mask(from, Floats{}, (unsigned short)((1 << n) - 1));
}
MINIDNN_HD void store_first(float* to, int64_t n, Floats v) {
  __builtin_ia32_storeups512_mask(to, v, (unsigned short)((1 << n) - 1));
}
#else
template <class T> MINIDNN_HD Floats load_first(const T* from, int64_t n) {
  T some[kFloats];
  __builtin_memset(some, 0, sizeof some);
  for (int64_t i = 0; i < n; ++i) some[i] = from[i];
  return load_floats(some);
}
template <class T> MINIDNN_HD void store_first(T* to, int64_t n, Floats v) {
  T some[kFloats];
  store_floats(some, v);
  for (int64_t i = 0; i < n; ++i) to[i] = some[i];
}
#if defined(__AVX__)
MINIDNN_HD Floats load_first(const float* from, int64_t n) {
  return __builtin_ia32_maskloadps256(reinterpret_cast<const Floats*>(from), first_lanes<Floats>(n));
}
MINIDNN_HD void store_first(float* to, int64_t n, Floats v) {
  __builtin_ia32_maskstoreps256(reinterpret_cast<Floats*>(to), first_lanes<Floats>(n), v);
}
#endif
#endif

// Writes long contiguous spans from front to back with stores that bypass the caches. It is for results that no cache
// can hold. A staging buffer with the alignment of the destination collects elements to whole vectors.
template <class T> class Streamer {
 public:
  static constexpr int64_t kCapacity = 2048 / int64_t(sizeof(T));

  MINIDNN_HD explicit Streamer(T* to) { begin(to); }
  // Sets the address of the next elements.
  MINIDNN_HD void move_to(T* to) {
    if (to == span_ + end_) return;
    drain();
    begin(to);
  }
  // Returns the address to which the caller must write the next elements, at most kCapacity, before it calls advance().
  MINIDNN_HD T* next() { return stage_ + end_; }
  MINIDNN_HD void advance(int64_t n) {
    end_ += n;
    if (end_ >= kCapacity) flush();
  }
  MINIDNN_HD void finish() {
    drain();
#ifdef __x86_64__
    __builtin_ia32_sfence();
#endif
  }

 private:
  static constexpr int64_t kWhole = kVectorBytes / int64_t(sizeof(T));

  MINIDNN_HD void begin(T* to) {
    begin_ = end_ = int64_t(reinterpret_cast<uintptr_t>(to) % kVectorBytes / sizeof(T));
    span_ = to - begin_;
  }
  MINIDNN_HD void flush() {
    int64_t at = 0;
    if (begin_ > 0) {
      for (; begin_ < kWhole && begin_ < end_; ++begin_) span_[begin_] = stage_[begin_];
      if (begin_ < kWhole) return;  // the first vector is not yet full
      at = kWhole;
    }
    for (; at + kWhole <= end_; at += kWhole) stream(span_ + at, stage_ + at);
    begin_ = 0;
    span_ += at;
    end_ -= at;
    for (int64_t i = 0; i < end_; ++i) stage_[i] = stage_[at + i];
  }
  MINIDNN_HD void drain() {
    flush();
    for (; begin_ < end_; ++begin_) span_[begin_] = stage_[begin_];
  }
  MINIDNN_HD static void stream(T* to, const T* from) {
    typedef long long Whole __attribute__((vector_size(kVectorBytes)));
    Whole v;
    __builtin_memcpy(&v, from, sizeof v);
#if defined(__AVX512F__)
    __builtin_ia32_movntdq512(reinterpret_cast<Whole*>(to), v);
#elif defined(__AVX__)
    __builtin_ia32_movntdq256(reinterpret_cast<Whole*>(to), v);
#elif defined(__SSE2__)
    __builtin_ia32_movntdq(reinterpret_cast<Whole*>(to), v);
#else
    __builtin_memcpy(to, &v, sizeof v);
#endif
  }

  alignas(kVectorBytes) T stage_[2 * kCapacity + kWhole];
  T* span_;              // element i of the staging buffer will be stored at span_[i]
  int64_t begin_, end_;  // the elements of the staging buffer that are not stored yet
};

}  // namespace minidnn::MINIDNN_ISA
