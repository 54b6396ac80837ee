// SPDX-License-Identifier: Apache-2.0
// Transposition in registers. Only files X_isa.cpp, which are compiled once per instruction set, include this header.
#pragma once
#include "cpp/simd/simd.h"

namespace minidnn::MINIDNN_ISA {
namespace {

// Transposes a square block of n x n elements in log2(n) stages. Each stage interleaves the rows of the upper half with
// the rows of the lower half.
template <class T> inline void transpose_block(Vector<T> (&v)[kLanes<T>]) {
  constexpr int n = kLanes<T>;
  typedef decltype(Vector<T>{} < Vector<T>{}) Mask;
  Mask low, high;
  for (int i = 0; i < n; ++i) {
    low[i] = i / 2 + i % 2 * n;
    high[i] = low[i] + n / 2;
  }
#pragma GCC unroll 4
  for (int stage = 1; stage < n; stage *= 2) {
    Vector<T> next[n];
#pragma GCC unroll 16
    for (int i = 0; i < n / 2; ++i) {
      next[2 * i] = __builtin_shuffle(v[i], v[i + n / 2], low);
      next[2 * i + 1] = __builtin_shuffle(v[i], v[i + n / 2], high);
    }
#pragma GCC unroll 16
    for (int i = 0; i < n; ++i) v[i] = next[i];
  }
}

// Transposes a square tile whose rows are 16-byte vectors, in stages. Each stage interleaves the first half of the rows
// with the second half.
template <class T> struct TransposeTile {
  static constexpr int kSide = 16 / int(sizeof(T));
  typedef T V __attribute__((vector_size(16)));
  typedef decltype(V() == V()) Lanes;

  // Stores only the first `columns` rows of the transposed tile.
  static inline __attribute__((always_inline)) void transpose(const T* const x[kSide], T* to, int64_t to_step,
                                                              int columns = kSide) {
    V rows[kSide], next[kSide];
    Lanes low{}, high{};
    for (int i = 0; i < kSide; ++i) {
      __builtin_memcpy(&rows[i], x[i], 16);
      low[i] = i / 2 + i % 2 * kSide;
      high[i] = low[i] + kSide / 2;
    }
#pragma GCC unroll 4
    for (int round = 1; round < kSide; round *= 2) {
#pragma GCC unroll 8
      for (int i = 0; i < kSide / 2; ++i) {
        next[2 * i] = __builtin_shuffle(rows[i], rows[i + kSide / 2], low);
        next[2 * i + 1] = __builtin_shuffle(rows[i], rows[i + kSide / 2], high);
      }
      for (int i = 0; i < kSide; ++i) rows[i] = next[i];
    }
    for (int i = 0; i < columns; ++i) __builtin_memcpy(to + i * to_step, &rows[i], 16);
  }
};

// Computes to[j * to_step + i] = from[i * step + j] for all i < across and j < along. to_step must be at least
// `across`. 16 bytes after the last row of `to` must be writable.
template <class T>
void transpose_tile(const T* from, int64_t step, T* to, int64_t to_step, int64_t across, int64_t along) {
  constexpr int64_t kSide = TransposeTile<T>::kSide;
  const int64_t across_whole = across & -kSide, along_whole = along & -kSide;
  const T* rows[kSide];
  // A vector at the end of a row of `to` also overwrites the start of the next row. So the last columns are written
  // first.
  if (across_whole < across)
    for (int64_t j = 0; j < along_whole; j += kSide) {
      for (int64_t i = 0; i < kSide; ++i) rows[i] = from + min_of(across_whole + i, across - 1) * step + j;
      TransposeTile<T>::transpose(rows, to + j * to_step + across_whole, to_step);
    }
  for (int64_t i = across_whole; i < across; ++i)
    for (int64_t j = along_whole; j < along; ++j) to[j * to_step + i] = from[i * step + j];
  for (int64_t i = 0; i < across_whole; i += kSide) {
    for (int64_t j = 0; j < along_whole; j += kSide) {
      for (int64_t k = 0; k < kSide; ++k) rows[k] = from + (i + k) * step + j;
      TransposeTile<T>::transpose(rows, to + j * to_step + i, to_step);
    }
    if (along_whole == along) continue;
    // A vector may extend beyond the end of its row, but not of `from`.
    if (step > 0 && (i + kSide - 1) * step + along_whole + kSide <= (across - 1) * step + along) {
      for (int64_t k = 0; k < kSide; ++k) rows[k] = from + (i + k) * step + along_whole;
      TransposeTile<T>::transpose(rows, to + along_whole * to_step + i, to_step, int(along - along_whole));
    } else {
      for (int64_t k = 0; k < kSide; ++k)
        for (int64_t j = along_whole; j < along; ++j) to[j * to_step + i + k] = from[(i + k) * step + j];
    }
  }
}

}  // namespace
}  // namespace minidnn::MINIDNN_ISA
