// SPDX-License-Identifier: Apache-2.0
// What generated kernels of regions share: the vectors of several tensors, rounding, and dropout.
#pragma once
#include "cpp/random/random_math.h"
#include "cpp/transform/transform_math.h"
#include "cuda/device/element_access.cuh"
#include "cuda/device/fast_activation.cuh"
#include "cuda/device/philox.cuh"

namespace minidnn {

template <class... T> struct Types {};

template <class T> struct DecayOf {
  using type = T;
};
template <class T> struct DecayOf<T&> : DecayOf<T> {};
template <class T> struct DecayOf<const T> : DecayOf<T> {};
template <class T> using Decay = typename DecayOf<T>::type;  // T without & and const

// Vectors of several tensors.
template <int kVectors, int kWidth, class List> struct Tensors;
template <int kVectors, int kWidth> struct Tensors<kVectors, kWidth, Types<>> {};
template <int kVectors, int kWidth, class T, class... Rest> struct Tensors<kVectors, kWidth, Types<T, Rest...>> {
  using type = T;
  Vec<Stored<T>, kWidth> vectors[kVectors];
  Tensors<kVectors, kWidth, Types<Rest...>> rest;
};
template <int k, class Tensors> __device__ __forceinline__ auto& tensor(Tensors& all) {
  if constexpr (k == 0) return all;
  else return tensor<k - 1>(all.rest);
}

// Rounds a value to the dtype T. A float or a double stays as it is. Its bits are combined with the parameter `zero`,
// whose value the compiler does not know. So the compiler cannot fuse a product with the next sum.
template <class T> __device__ __forceinline__ PointwiseType<T> rounded(PointwiseType<T> v, int64_t zero) {
  if constexpr (sizeof(PointwiseType<T>) == sizeof(T) && PointwiseTypeOf<T>::operand == 1) {
    if constexpr (sizeof(T) == 4) return __uint_as_float(__float_as_uint(v) ^ uint32_t(zero));
    else return __longlong_as_double(__double_as_longlong(v) ^ zero);
  } else if constexpr (PointwiseTypeOf<T>::operand == 4) return v;
  else return PointwiseType<T>(T(v));
}

// Dropout of one element, which is kept unless its random word is below the threshold.
template <class A> __device__ __forceinline__ A dropout(A x, uint32_t word, uint64_t threshold, A factor) {
  // The threshold is at most 2^32. It is compared by its two words, because a kernel has 32-bit comparisons.
  const bool all = threshold >> 32 != 0;
  return all | (word < uint32_t(threshold)) ? A(0) : x * factor;
}

// The random words of kWidth elements, for each dropout.
template <int kRandoms, int kWidth> struct RandomWords {
  uint32_t of[kRandoms > 0 ? kRandoms : 1][kWidth];
};

// The random words of kWidth elements. They are neighbours from element `at` on (kNeighbours), or `step` apart.
template <class Region, int kWidth, bool kNeighbours, int k = 0, class Args>
__device__ __forceinline__ void random_words(const Args& args, int64_t at, int step,
                                             RandomWords<Region::kRandoms, kWidth>& words) {
  if constexpr (k < Region::kRandoms) {
    if constexpr (kNeighbours) {
      static_assert(kWidth % 4 == 0);
#pragma unroll
      for (int i = 0; i < kWidth; i += 4) {
        const Four four = Region::template random<k>(args, uint64_t(at + i) / 4);
#pragma unroll
        for (int j = 0; j < 4; ++j) words.of[k][i + j] = four.word[j];
      }
    } else {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const uint64_t element = uint64_t(at + i * step);
        const Four four = Region::template random<k>(args, element / 4);
        const uint32_t low = element & 1 ? four.word[1] : four.word[0],
                       high = element & 1 ? four.word[3] : four.word[2];
        words.of[k][i] = element & 2 ? high : low;
      }
    }
    random_words<Region, kWidth, kNeighbours, k + 1>(args, at, step, words);
  }
}

}  // namespace minidnn
