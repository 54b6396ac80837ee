// SPDX-License-Identifier: Apache-2.0
// Runs of contiguous elements for X_isa.cpp files: any floating dtype read and written as float, and stores past the
// caches. The bits are core/half.h's, payloads of float16 NaNs apart.
#pragma once
#include "cpp/core/half.h"
#include "cpp/cpu/vector.h"

namespace minidnn::MINIDNN_ISA {

// Loops take whole multiples of it, so that they need no remainder: a run is copied to memory of ours where it ends.
constexpr int64_t kStep = 16;
// Elements converted at a time: the floats stay in the first-level cache, and stores past it come in bursts.
constexpr int64_t kRun = 256;

// In an unnamed namespace, as all that a file compiled per instruction set defines (cpp/cpu/isa.h).
namespace {

template <class T> void widen(const T* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; i += kStep)
#pragma GCC unroll 16
    for (int j = 0; j < kStep; ++j) to[i + j] = float(from[i + j]);
}
template <class T> void narrow(const float* from, T* to, int64_t n) {
  for (int64_t i = 0; i < n; i += kStep)
    for (int j = 0; j < kStep; ++j) to[i + j] = T(from[i + j]);
}

#ifdef __F16C__
template <> void widen(const float16* from, float* to, int64_t n) {
  typedef short Halves __attribute__((vector_size(16)));
  for (int64_t i = 0; i < n; i += 8) {
    Halves h;
    __builtin_memcpy(&h, from + i, sizeof h);
    auto v = __builtin_ia32_vcvtph2ps256(h);
    __builtin_memcpy(to + i, &v, sizeof v);
  }
}
template <> void narrow(const float* from, float16* to, int64_t n) {
  typedef float Floats __attribute__((vector_size(32)));
  for (int64_t i = 0; i < n; i += 8) {
    Floats v;
    __builtin_memcpy(&v, from + i, sizeof v);
    auto h = __builtin_ia32_vcvtps2ph256(v, 0);  // to nearest, ties to even
    __builtin_memcpy(to + i, &h, sizeof h);
  }
}
#endif

// Whole cache lines, from an aligned address on, past the caches: the lines need not be read before.
[[maybe_unused]] void stream(const void* from, void* to, int64_t bytes) {
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
[[maybe_unused]] void streams_end() {  // before anyone else reads
#ifdef __SSE__
  __builtin_ia32_sfence();
#endif
}
// How many elements before the first cache line of `to` begins.
template <class T> int64_t until_line(const T* to) {
  return int64_t(-reinterpret_cast<uintptr_t>(to) & 63) / int64_t(sizeof(T));
}

inline __attribute__((always_inline)) int64_t whole_steps(int64_t n) { return (n + kStep - 1) & -kStep; }

// n elements, at most kRun, as floats, with zeros up to a whole number of steps: where they lie, or in `room`.
template <class T> const float* read_run(const T* from, float* room, int64_t n) {
  if constexpr (sizeof(T) == 4) {
    if (n % kStep == 0) return from;
    __builtin_memset(room + (n & -kStep), 0, kStep * sizeof(float));
    __builtin_memcpy(room, from, size_t(n) * sizeof(float));
  } else {
    int64_t whole = n & -kStep;
    widen(from, room, whole);
    if (whole < n) {
      T rest[kStep] = {};
      __builtin_memcpy(rest, from + whole, size_t(n - whole) * sizeof(T));
      widen(rest, room + whole, kStep);
    }
  }
  return room;
}

// n elements, at most kRun; past the caches only where they are whole lines from an aligned address on.
template <class T> void write_run(const float* from, T* to, int64_t n, bool past_caches) {
  if constexpr (sizeof(T) == 4) {
    if (past_caches) stream(from, to, n * 4);
    else __builtin_memcpy(to, from, size_t(n) * 4);
  } else {
    alignas(64) T rounded[kRun];
    int64_t whole = past_caches ? 0 : n & -kStep;
    narrow(from, to, whole);
    narrow(from + whole, rounded, whole_steps(n - whole));
    if (past_caches) stream(rounded, to, n * 2);
    else __builtin_memcpy(to + whole, rounded, size_t(n - whole) * 2);
  }
}

// n elements of `to`, run by run: make(i, run, floats) computes those from i on, a whole number of steps of them.
template <class T, class Make>
inline __attribute__((always_inline)) void write_all(T* to, int64_t n, bool past_caches, Make make) {
  alignas(64) float results[kRun];
  for (int64_t i = 0, run; i < n; i += run) {
    run = min_of(kRun, n - i);
    if (past_caches && i == 0 && until_line(to)) run = min_of(run, until_line(to));
    const bool straight = sizeof(T) == 4 && run % kStep == 0 && !past_caches;
    float* floats = straight ? reinterpret_cast<float*>(to + i) : results;
    make(i, run, floats);
    if (!straight) write_run(results, to + i, run, past_caches && run == kRun);
  }
}

}  // namespace
}  // namespace minidnn::MINIDNN_ISA
