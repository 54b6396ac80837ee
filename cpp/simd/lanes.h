// SPDX-License-Identifier: Apache-2.0
// Vectors of doubles, by the names that simd.h has for vectors of floats. So a loop can be a template over the type T of
// elements: it computes with vectors of Accumulator<T>. Only files X_isa.cpp include this header.
#pragma once
#include "cpp/simd/simd.h"

namespace minidnn::MINIDNN_ISA {

template <class T> using Lanes = Vector<Accumulator<T>>;
template <class T> constexpr int kWidth = kLanes<Accumulator<T>>;

using Doubles = Vector<double>;
struct DoublePair {
  Doubles first, second;
};
template <class T> struct PairFor {
  using type = Pair;
};
template <> struct PairFor<double> {
  using type = DoublePair;
};
template <class T> using PairOf = typename PairFor<T>::type;

// Returns a vector with v in every lane. v - 0 keeps -0.
template <class T> MINIDNN_HD Lanes<T> lanes_of(Accumulator<T> v) { return v - Lanes<T>{}; }

MINIDNN_HD Doubles load_floats(const double* from) { return load(from); }
MINIDNN_HD void store_floats(double* to, Doubles v) { store(to, v); }
MINIDNN_HD DoublePair load_pair(const double* from) { return {load(from), load(from + kLanes<double>)}; }
MINIDNN_HD void store_pair(double* to, const DoublePair& p) {
  store(to, p.first);
  store(to + kLanes<double>, p.second);
}
#if defined(__AVX512F__)
MINIDNN_HD Doubles load_first(const double* from, int64_t n) {
  return __builtin_ia32_loadupd512_mask(from, Doubles{}, (unsigned char)((1 << n) - 1));
}
MINIDNN_HD void store_first(double* to, int64_t n, Doubles v) {
  __builtin_ia32_storeupd512_mask(to, v, (unsigned char)((1 << n) - 1));
}
#elif defined(__AVX__)
MINIDNN_HD Doubles load_first(const double* from, int64_t n) {
  return __builtin_ia32_maskloadpd256(reinterpret_cast<const Doubles*>(from),
                                      (Vector<long long>)first_lanes<Doubles>(n));
}
MINIDNN_HD void store_first(double* to, int64_t n, Doubles v) {
  __builtin_ia32_maskstorepd256(reinterpret_cast<Doubles*>(to), (Vector<long long>)first_lanes<Doubles>(n), v);
}
#else
MINIDNN_HD Doubles load_first(const double* from, int64_t n) {
  Doubles v{};
  for (int64_t i = 0; i < n; ++i) v[i] = from[i];
  return v;
}
MINIDNN_HD void store_first(double* to, int64_t n, Doubles v) {
  for (int64_t i = 0; i < n; ++i) to[i] = v[i];
}
#endif

}  // namespace minidnn::MINIDNN_ISA
