// SPDX-License-Identifier: Apache-2.0
// GCC's and Clang's vector types, with the register width of the instruction set that the file is compiled for. Only
// for X_isa.cpp files.
#pragma once
#include <cstdint>

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

// Load and store; the address may be unaligned.
template <class T> inline __attribute__((always_inline)) Vector<T> load(const T* from) {
  Vector<T> v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
template <class T> inline __attribute__((always_inline)) void store(T* to, Vector<T> v) {
  __builtin_memcpy(to, &v, sizeof v);
}
// Keeps v in a register: for a value in memory, GCC emits a separate load for each use.
template <class V> inline __attribute__((always_inline)) V held(V v) {
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#elif defined(__x86_64__)
  asm("" : "+x"(v));
#else
  asm("" : "+w"(v));
#endif
  return v;
}
// counted(): calls f(Count<n>{}) for 1 <= n <= most. evenly(): splits [0, n) into the fewest groups of at most `most`,
// of nearly equal sizes, and calls f(first, Count<size>{}) for each.
template <int n> struct Count {
  static constexpr int value = n;
};
template <int most, class F> inline __attribute__((always_inline)) void counted(int64_t n, F&& f) {
  if constexpr (most > 1)
    if (n < most) return counted<most - 1>(n, f);
  f(Count<most>{});
}
template <int most, class F> inline __attribute__((always_inline)) void evenly(int64_t n, F&& f) {
  for (int64_t times = (n + most - 1) / most, first = 0, some; times > 0; --times, first += some) {
    some = (n - first + times - 1) / times;
    counted<most>(some, [&](auto count) { f(first, count); });
  }
}
// Reduces all lanes with op, by halves.
template <class Op> inline __attribute__((always_inline)) float reduce_lanes(Vector<float> v, Op op) {
  Vector<int32_t> lane;
  for (int i = 0; i < kLanes<float>; ++i) lane[i] = i;
#pragma GCC unroll 4
  for (int half = kLanes<float> / 2; half > 0; half /= 2) v = op(v, __builtin_shuffle(v, lane ^ half));
  return v[0];
}

}  // namespace minidnn::MINIDNN_ISA
