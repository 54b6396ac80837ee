// SPDX-License-Identifier: Apache-2.0
// Padding of a tensor to a dense y (without gaps). The kernel writes y in vectors of 16 bytes. The vectors are aligned,
// whatever the addresses at which the lines of y (along its innermost dimension) begin.
// Grid: enough blocks of 256 threads; each thread writes pad_vectors() vectors. No shared memory.
// A thread loads the words of a vector one by one from x. All loads of a warp are from a few cache lines of 128 bytes,
// so most of them hit in L1. Each cache line of x is read from memory once, and each cache line of y is written once.
// Words are copied one by one at the two ends of y, and if the lines of y are shorter than a vector.
// Numerics: exact.
#include "cuda/device/vec.cuh"
#include "cuda/pad/vectorized_params.h"

namespace minidnn {
namespace {

template <class Word> struct PadVector {
  static constexpr int kWords = 16 / int(sizeof(Word));
  Word words[kWords];
  __device__ __forceinline__ uint4 joined() const {
    if constexpr (kWords == 1) {
      return words[0];
    } else {
      constexpr int kBits = 8 * int(sizeof(Word));
      uint64_t halves[2]{};
#pragma unroll
      for (int k = 0; k < kWords; ++k) halves[2 * k / kWords] |= uint64_t(words[k]) << k * kBits % 64;
      return {uint32_t(halves[0]), uint32_t(halves[0] >> 32), uint32_t(halves[1]), uint32_t(halves[1] >> 32)};
    }
  }
};

template <class Word> __device__ __forceinline__ Word pad_word(const PadLines& l, PadMode mode, const Word* x,
                                                               const Word& value, int64_t at) {
  const int64_t number = l.width.quotient(at);
  int64_t from;
  const bool inside = l.begin(mode, uint32_t(number), from);
  const int32_t i = pad_source(mode, int32_t(at - number * int64_t(l.width.divisor)) - l.line.before, l.line.size);
  return inside && uint32_t(i) < uint32_t(l.line.size) ? x[from + i * l.line.x] : value;
}

// Computes the 16-byte vector that starts at word `at` of y. Its words are in at most two lines of y (along the
// innermost dimension).
template <class Word> __device__ __forceinline__ void pad_vector(const PadLines& l, PadMode mode, const Word* x,
                                                                 const Word& value, int64_t at, PadVector<Word>& y) {
  constexpr int kWords = PadVector<Word>::kWords, kNowhere = -(1 << 30);
  const int width = int(l.width.divisor), step = int(l.line.x * int64_t(sizeof(Word)));
  const int64_t number = l.width.quotient(at);
  const int column = int(uint32_t(at) - uint32_t(number) * uint32_t(width));
  uint32_t plane = uint32_t(number);
  const int row = l.outer[0].divmod(plane);
  int64_t plane_at = 0;
  bool in_plane = l.add_plane(mode, plane, plane_at);
  int64_t here = plane_at, next = plane_at;
  int i_here = column - l.line.before, i_next = i_here - width;
  if (!l.add_row(mode, row, here) || !in_plane) i_here = kNowhere;
  if (kWords > 1 && column + kWords > width) {
    int next_row = row + 1;
    if (next_row == int(l.outer[0].divisor)) {
      next_row = 0;
      next = 0;
      in_plane = l.add_plane(mode, plane + 1, next);
    }
    if (!l.add_row(mode, next_row, next) || !in_plane) i_next = kNowhere;
  }
  const char *x_here = reinterpret_cast<const char*>(x + here), *x_next = reinterpret_cast<const char*>(x + next);
#pragma unroll
  for (int k = 0; k < kWords; ++k) {
    const bool in_next = kWords > 1 && column + k >= width;
    const int i = pad_source(mode, (in_next ? i_next : i_here) + k, l.line.size);
    y.words[k] = value;
    if (mode != PadMode::constant || uint32_t(i) < uint32_t(l.line.size))
      y.words[k] = *reinterpret_cast<const Word*>((in_next ? x_next : x_here) + int64_t(i) * step);
  }
}

template <class Word> __device__ __forceinline__ void pad_all(const PadLines& l, PadMode mode, const Word* x, Word* y,
                                                              const Word& value) {
  using Vector = PadVector<Word>;
  constexpr int kWords = Vector::kWords, kVectors = pad_vectors(kWords);
  // The first vector may start before y, because vectors start at multiples of 16 bytes. The words before y are not
  // written.
  const int64_t first = (int64_t(blockIdx.x) * (kPadThreads * kVectors) + threadIdx.x) * kWords -
                        int64_t(reinterpret_cast<uint64_t>(y) % 16 / sizeof(Word));
  Vector vectors[kVectors];
  auto whole = [&](int v) {
    const int64_t at = first + v * (kPadThreads * kWords);
    return at >= 0 && at + kWords <= l.words && l.width.divisor >= kWords;
  };
#pragma unroll
  for (int v = 0; v < kVectors; ++v)
    if (whole(v)) pad_vector(l, mode, x, value, first + v * (kPadThreads * kWords), vectors[v]);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int64_t at = first + v * (kPadThreads * kWords);
    if (whole(v)) {
      st_global_v4(y + at, vectors[v].joined());
    } else {
#pragma unroll 1
      for (int64_t i = max_of<int64_t>(at, 0); i < min_of(at + kWords, l.words); ++i)
        y[i] = pad_word(l, mode, x, value, i);
    }
  }
}

}  // namespace

template <class Word> __global__ void __launch_bounds__(kPadThreads)
    pad_vectorized(const __grid_constant__ PadLines l, const Word* x, Word* y, const __grid_constant__ uint4 value) {
  const Word& word = reinterpret_cast<const Word&>(value);
  switch (l.mode) {
    case PadMode::constant:
      return pad_all(l, PadMode::constant, x, y, word);
    case PadMode::replicate:
      return pad_all(l, PadMode::replicate, x, y, word);
    case PadMode::reflect:
      return pad_all(l, PadMode::reflect, x, y, word);
  }
}

}  // namespace minidnn
