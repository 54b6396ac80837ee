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
#include "cuda/graph/elementwise_params.h"
#include "cuda/graph/region_tensors.cuh"

namespace minidnn {

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

template <class Region, int kVectors, int kWidth, int kStep>
__device__ __forceinline__ void compute_all(const ElementwiseArgs& args, int64_t at,
                                            Tensors<kVectors, kWidth, typename Region::Loads>& loads,
                                            Tensors<kVectors, kWidth, typename Region::Stores>& stores) {
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    RandomWords<Region::kRandoms, kWidth> words;
    random_words<Region, kWidth, kStep == 1>(args, at + v * kTileThreads * kWidth, kStep, words);
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
