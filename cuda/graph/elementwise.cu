// SPDX-License-Identifier: Apache-2.0
// graph_elementwise: a region of a graph whose results depend on single elements. The struct Region is generated
// (cpp/graph/element_source.h) and follows this file in the program. It has no address arithmetic and no loop:
//   using Loads = Types<bfloat16, float>; using Stores = Types<bfloat16>;   the dtypes of tensors
//   kVectors, kWidth                   a thread has kVectors vectors of kWidth elements of each tensor
//   kRandoms                           the number of dropouts
//   random<k>(args, group)             the random words of elements 4 * group to 4 * group + 3 for dropout k
//   of(lane, args)                     computes one element: lane.load<k>(), lane.store<k>(v), lane.random<k>()
// - Grid: one block per tile of kTileThreads * kVectors * kWidth elements. Block: kTileThreads threads.
// - A whole tile is processed by vectors if each operand is dense, a single number, one value for each vector, or
//   repeated along the last dimension with a period of whole vectors. If not, elements are processed one by one.
// - Bytes: each tensor is read once or written once. A thread loads all its vectors before it uses the first one.
#include "cpp/random/random_math.h"
#include "cpp/transform/transform_math.h"
#include "cuda/device/element_access.cuh"
#include "cuda/device/fast_activation.cuh"
#include "cuda/graph/elementwise_params.h"

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

// The random words of elements 4 * group to 4 * group + 3, as in random_four().
__device__ __forceinline__ Four random_words_of(uint64_t seed, uint64_t offset, uint64_t group) {
  return philox({{uint32_t(group), uint32_t(group >> 32), uint32_t(offset), uint32_t(offset >> 32)}}, uint32_t(seed),
                uint32_t(seed >> 32));
}

// Dropout of one element, which is kept unless its random word is below the threshold.
template <class A> __device__ __forceinline__ A dropout(A x, uint32_t word, uint64_t threshold, A factor) {
  return uint64_t(word) < threshold ? A(0) : x * factor;
}

// The random words of kWidth elements, for each dropout.
template <int kRandoms, int kWidth> struct RandomWords {
  uint32_t of[kRandoms > 0 ? kRandoms : 1][kWidth];
};

// Element i of vector v of all tensors.
template <class Region, int kVectors, int kWidth> struct ElementLane {
  Tensors<kVectors, kWidth, typename Region::Loads>& loads;
  Tensors<kVectors, kWidth, typename Region::Stores>& stores;
  const RandomWords<Region::kRandoms, kWidth>& words;
  int v, i;

  template <int k> __device__ __forceinline__ auto load() const {
    auto& t = tensor<k>(loads);
    using T = typename Decay<decltype(t)>::type;
    return value_of<T>(t.vectors[v].get(i));
  }
  template <int k, class A> __device__ __forceinline__ void store(A value) const {
    auto& t = tensor<k>(stores);
    using T = typename Decay<decltype(t)>::type;
    t.vectors[v].put(i, Stored<T>(value));
  }
  template <int k> __device__ __forceinline__ uint32_t random() const { return words.of[k][i]; }
};

template <int k = 0, class Lists>
__device__ __forceinline__ void load_all_vectors(const ElementwiseGrid& g, const ElementwiseArgs& args, int64_t at,
                                                 Lists& to) {
  if constexpr (requires { to.rest; }) {
    load_vectors(g.load[k], g.period[k], args.load[k], at, to.vectors);
    load_all_vectors<k + 1>(g, args, at, to.rest);
  }
}
template <int k = 0, class Lists>
__device__ __forceinline__ void load_all_elements(const ElementwiseGrid& g, const ElementwiseArgs& args, int64_t at,
                                                  Lists& to) {
  if constexpr (requires { to.rest; }) {
    load_elements(g, g.load[k], args.load[k], at, to.vectors);
    load_all_elements<k + 1>(g, args, at, to.rest);
  }
}
template <int kVectors, int kWidth, int k = 0, class Lists>
__device__ __forceinline__ void store_all_vectors(const ElementwiseArgs& args, int64_t at, const Lists& from) {
  if constexpr (requires { from.rest; }) {
    using Vector = Decay<decltype(from.vectors[0])>;
    using T = Stored<typename Lists::type>;
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
      *reinterpret_cast<Vector*>(static_cast<T*>(args.store[k]) + at + v * kTileThreads * kWidth) = from.vectors[v];
    store_all_vectors<kVectors, kWidth, k + 1>(args, at, from.rest);
  }
}
template <int kWidth, int k = 0, class Lists>
__device__ __forceinline__ void store_all_elements(const ElementwiseGrid& g, const ElementwiseArgs& args, int64_t at,
                                                   const Lists& from) {
  if constexpr (requires { from.rest; }) {
    using T = Stored<typename Lists::type>;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const int64_t element = at + i * kTileThreads;
      if (element < g.indexing.n)
        static_cast<T*>(args.store[k])[offset_of(g, g.store[k], element)] = from.vectors[0].get(i);
    }
    store_all_elements<kWidth, k + 1>(g, args, at, from.rest);
  }
}

// The random words of kWidth elements. They are neighbours from element `at` on or, if kStep > 1, kStep apart.
template <class Region, int kWidth, int kStep, int k = 0>
__device__ __forceinline__ void random_words(const ElementwiseArgs& args, int64_t at,
                                             RandomWords<Region::kRandoms, kWidth>& words) {
  if constexpr (k < Region::kRandoms) {
    if constexpr (kStep == 1) {
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
        const uint64_t element = uint64_t(at + i * kStep);
        const Four four = Region::template random<k>(args, element / 4);
        const uint32_t low = element & 1 ? four.word[1] : four.word[0],
                       high = element & 1 ? four.word[3] : four.word[2];
        words.of[k][i] = element & 2 ? high : low;
      }
    }
    random_words<Region, kWidth, kStep, k + 1>(args, at, words);
  }
}

template <class Region, int kVectors, int kWidth, int kStep>
__device__ __forceinline__ void compute_all(const ElementwiseArgs& args, int64_t at,
                                            Tensors<kVectors, kWidth, typename Region::Loads>& loads,
                                            Tensors<kVectors, kWidth, typename Region::Stores>& stores) {
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    RandomWords<Region::kRandoms, kWidth> words;
    random_words<Region, kWidth, kStep>(args, at + v * kTileThreads * kWidth, words);
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      Region::of(ElementLane<Region, kVectors, kWidth>{loads, stores, words, v, i}, args);
  }
}

template <class Region>
__global__ void __launch_bounds__(kTileThreads, Region::kMinBlocks)
    graph_elementwise(const __grid_constant__ ElementwiseGrid g, const __grid_constant__ ElementwiseArgs args,
                      int64_t by_vectors) {
  constexpr int kVectors = Region::kVectors, kWidth = Region::kWidth, kAtOnce = 4;
  constexpr int kTile = kTileThreads * kVectors * kWidth;
  static_assert(kTile % (kTileThreads * kAtOnce) == 0);
  const int64_t begin = int64_t(blockIdx.x) * kTile;
  if (by_vectors && begin + kTile <= g.indexing.n) {
    const int64_t at = begin + int(threadIdx.x) * kWidth;
    Tensors<kVectors, kWidth, typename Region::Loads> loads;
    Tensors<kVectors, kWidth, typename Region::Stores> stores;
    load_all_vectors(g, args, at, loads);
    compute_all<Region, kVectors, kWidth, 1>(args, at, loads, stores);
    store_all_vectors<kVectors, kWidth>(args, at, stores);
    return;
  }
#pragma unroll 1
  for (int i = int(threadIdx.x); i < kTile; i += kTileThreads * kAtOnce) {
    Tensors<1, kAtOnce, typename Region::Loads> loads;
    Tensors<1, kAtOnce, typename Region::Stores> stores;
    load_all_elements(g, args, begin + i, loads);
    compute_all<Region, 1, kAtOnce, kTileThreads>(args, begin + i, loads, stores);
    store_all_elements<kAtOnce>(g, args, begin + i, stores);
  }
}

}  // namespace minidnn
