// SPDX-License-Identifier: Apache-2.0
// Elementwise kernels that read and write every element once: each block holds one slice of a dense tensor in
// registers.
// A slice is a number of 16-byte vectors for each thread; a thread loads all of them before it uses any. The grid has
// one block for each slice: in a grid-stride loop, blocks would wait for their loads in each iteration. If an address
// is not a multiple of 16, and in the last slice, elements are loaded one by one, neighbouring elements by neighbouring
// threads: this has as many bytes in flight, with more instructions. Offsets have 64 bits.
#pragma once
#include "cpp/core/hd.h"
#include "cuda/device/slice.h"

namespace minidnn {

template <int bytes> struct BitsOf;
template <> struct BitsOf<1> {
  using type = uint8_t;
};
template <> struct BitsOf<2> {
  using type = uint16_t;
};
template <> struct BitsOf<4> {
  using type = uint32_t;
};
template <> struct BitsOf<8> {
  using type = uint64_t;
};

// Neighbouring elements packed in words. As an array of elements, each would take its own register where branches join,
// and would be unpacked immediately after the load.
template <class T, int items> struct alignas(items * sizeof(T) < 16 ? items * sizeof(T) : 16) Items {
  static constexpr int kBytes = items * int(sizeof(T)), kBits = 8 * int(sizeof(T));
  using Bits = typename BitsOf<sizeof(T)>::type;
  using Word = typename BitsOf<(kBytes < 4 ? kBytes : sizeof(T) == 8 ? 8 : 4)>::type;
  static constexpr int kInWord = int(sizeof(Word) / sizeof(T));
  Word word[kBytes / int(sizeof(Word))];

  __device__ __forceinline__ T get(int i) const {
    return __builtin_bit_cast(T, Bits(word[i / kInWord] >> (i % kInWord * kBits)));
  }
  // Called for i = 0, 1, 2 ...: the first element of a word clears the word.
  __device__ __forceinline__ void put(int i, T v) {
    const Word bits = Word(__builtin_bit_cast(Bits, v));
    if (i % kInWord == 0) word[i / kInWord] = bits;
    else word[i / kInWord] |= bits << (i % kInWord * kBits);
  }
};

// V elements of the concatenation of `low` and `high`, from element `first` on, 0 <= first < V.
template <class T, int V>
__device__ __forceinline__ Items<T, V> cut(const Items<T, V>& low, const Items<T, V>& high, uint32_t first) {
  constexpr int kWords = V * int(sizeof(T)) / 4;
  uint32_t word[2 * kWords];
#pragma unroll
  for (int i = 0; i < kWords; ++i) word[i] = low.word[i], word[kWords + i] = high.word[i];
  const uint32_t words = first * uint32_t(sizeof(T)) / 4;
#pragma unroll
  for (int step = kWords / 2; step > 0; step /= 2) {
#pragma unroll
    for (int i = 0; i + step < 2 * kWords; ++i) word[i] = words & uint32_t(step) ? word[i + step] : word[i];
  }
  Items<T, V> v;
#pragma unroll
  for (int i = 0; i < kWords; ++i)
    v.word[i] = sizeof(T) == 2 ? __funnelshift_r(word[i], word[i + 1], first % 2 * 16) : word[i];
  return v;
}

// The slice of a block. A thread holds `vectors` times `items` elements of each tensor.
template <int vectors, int items> struct Slice {
  static constexpr int kItems = kSliceThreads * vectors * items;
  int64_t begin, n;
  bool whole;  // the slice is complete and aligned: load vectors

  __device__ __forceinline__ Slice(int64_t n, bool aligned)
      : begin(int64_t(blockIdx.x) * kItems), n(n), whole(aligned && begin + kItems <= n) {}

  __device__ __forceinline__ int64_t vector_at(int v) const {
    return begin + (v * kSliceThreads + int(threadIdx.x)) * items;
  }
  __device__ __forceinline__ int64_t item_at(int v, int i) const {
    return begin + (v * items + i) * kSliceThreads + int(threadIdx.x);
  }

  template <class T> __device__ __forceinline__ void load(const void* from, Items<T, items> (&to)[vectors]) const {
    const T* x = static_cast<const T*>(from);
    if (whole) {
#pragma unroll
      for (int v = 0; v < vectors; ++v) to[v] = *reinterpret_cast<const Items<T, items>*>(x + vector_at(v));
    } else {
#pragma unroll
      for (int v = 0; v < vectors; ++v)
#pragma unroll
        for (int i = 0; i < items; ++i) {
          const int64_t at = item_at(v, i);
          to[v].put(i, at < n ? x[at] : T());
        }
    }
  }
  template <class T> __device__ __forceinline__ void store(void* to, const Items<T, items> (&from)[vectors]) const {
    T* y = static_cast<T*>(to);
    if (whole) {
#pragma unroll
      for (int v = 0; v < vectors; ++v) *reinterpret_cast<Items<T, items>*>(y + vector_at(v)) = from[v];
    } else {
#pragma unroll
      for (int v = 0; v < vectors; ++v)
#pragma unroll
        for (int i = 0; i < items; ++i) {
          const int64_t at = item_at(v, i);
          if (at < n) y[at] = from[v].get(i);
        }
    }
  }
};

}  // namespace minidnn
