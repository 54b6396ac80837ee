// SPDX-License-Identifier: Apache-2.0
// The kernels of the pointwise functions (pointwise_math.h). Each kernel serves a group of functions. A `switch`
// between the loads and the stores selects the function. The grid has one block per tile (cuda/device/block_tile.cuh).
// - A whole tile is processed by 16-byte vectors, kVectors per thread, if each operand is of one of these kinds: dense;
//   a single number; one value for each vector (such as the bias of a channel in NCHW); repeated along the last
//   dimension, with a period of whole vectors.
// - If an operand is of any other kind, or if the tile is incomplete, elements are processed one by one. A thread takes
//   up to four at a time, and computes the offset of each.
#include "cuda/device/element_access.cuh"
#include "cuda/pointwise/pointwise_params.h"

namespace minidnn {

template <class T, class First, class Result, int kVectors, int kWidth> struct ApplyToAll {
  Vec<Stored<First>, kWidth> (&a)[kVectors];
  Vec<Stored<T>, kWidth> (&b)[kVectors];
  Vec<Stored<T>, kWidth> (&c)[kVectors];
  Vec<Result, kWidth> (&out)[kVectors];
  template <class Name> __device__ __forceinline__ void operator()(Name) const {
    using A = PointwiseType<T>;
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        out[v].put(i, Result(PointwiseOp<Name::op>::of(A(value_of<First>(a[v].get(i))), value_of<T>(b[v].get(i)),
                                                       value_of<T>(c[v].get(i)))));
  }
};

template <bool kFirst, class A, class B> struct Choose {
  using type = A;
};
template <class A, class B> struct Choose<false, A, B> {
  using type = B;
};

template <class T, PointwiseGroup group> struct PointwiseBlock {
  static constexpr bool kTests = group == PointwiseGroup::test1 || group == PointwiseGroup::test2;
  static constexpr int kOperands = group <= PointwiseGroup::test1 ? 1 : group <= PointwiseGroup::test2 ? 2 : 3;
  using First = typename Choose<group == PointwiseGroup::select, bool, T>::type;
  using Result = typename Choose<kTests, uint8_t, Stored<T>>::type;

  const PointwiseGrid& g;
  const PointwiseArgs& args;
  Pointwise op;

  template <int kVectors, int kWidth> __device__ __forceinline__ void by_vectors(int64_t at) const {
    Vec<Stored<First>, kWidth> a[kVectors];
    Vec<Stored<T>, kWidth> b[kVectors] = {}, c[kVectors] = {};
    Vec<Result, kWidth> out[kVectors];
    load_vectors(g.indexing.a, g.a, args.a, at, a);
    if constexpr (kOperands > 1) load_vectors(g.indexing.b, g.b, args.b, at, b);
    if constexpr (kOperands > 2) load_vectors(g.indexing.c, g.c, args.c, at, c);
    if constexpr (group == PointwiseGroup::maths1 || group == PointwiseGroup::maths2) {
      // Long functions are compiled only once: the loop is not unrolled, and each iteration processes vector 0, and
      // then shifts the other vectors down.
#pragma unroll 1
      for (int v = 0; v < kVectors; ++v) {
        Vec<Stored<First>, kWidth> first[1] = {a[0]};
        Vec<Stored<T>, kWidth> second[1] = {b[0]}, third[1] = {};
        Vec<Result, kWidth> result[1];
        with_pointwise<group, T>(op, ApplyToAll<T, First, Result, 1, kWidth>{first, second, third, result});
#pragma unroll
        for (int i = 0; i + 1 < kVectors; ++i) {
          a[i] = a[i + 1];
          b[i] = b[i + 1];
          out[i] = out[i + 1];
        }
        out[kVectors - 1] = result[0];
      }
    } else with_pointwise<group, T>(op, ApplyToAll<T, First, Result, kVectors, kWidth>{a, b, c, out});
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
      *reinterpret_cast<Vec<Result, kWidth>*>(static_cast<Result*>(args.out) + at + v * kTileThreads * kWidth) = out[v];
  }

  template <int kWidth> __device__ __forceinline__ void by_elements(int64_t at) const {
    Vec<Stored<First>, kWidth> a[1];
    Vec<Stored<T>, kWidth> b[1] = {}, c[1] = {};
    Vec<Result, kWidth> out[1];
    load_elements(g, g.indexing.a, args.a, at, a);
    if constexpr (kOperands > 1) load_elements(g, g.indexing.b, args.b, at, b);
    if constexpr (kOperands > 2) load_elements(g, g.indexing.c, args.c, at, c);
    with_pointwise<group, T>(op, ApplyToAll<T, First, Result, 1, kWidth>{a, b, c, out});
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const int64_t element = at + i * kTileThreads;
      if (element < g.indexing.n) static_cast<Result*>(args.out)[offset_of(g, g.indexing.out, element)] = out[0].get(i);
    }
  }
};

// The kernel of a group of pointwise functions. `by_vectors` is 1 if all operands allow 16-byte accesses, which the
// host checks.
template <class T, PointwiseGroup group>
__global__ void __launch_bounds__(kTileThreads, group <= PointwiseGroup::test1 ? 5 : 4)
    pointwise_vectorized(const __grid_constant__ PointwiseGrid g, const __grid_constant__ PointwiseArgs args,
                         int64_t op, int64_t by_vectors) {
  constexpr int kVectors = pointwise_vectors_of(sizeof(T)), kWidth = 16 / int(sizeof(T));
  constexpr int kTile = kTileThreads * kVectors * kWidth, kAtOnce = kVectors * kWidth < 4 ? kVectors * kWidth : 4;
  // The tile is a multiple of what an iteration processes, so that no iteration writes to the tile of the next block.
  static_assert(kTile % (kTileThreads * kAtOnce) == 0);
  const PointwiseBlock<T, group> block{g, args, Pointwise(op)};
  const int64_t begin = int64_t(blockIdx.x) * kTile;
  if (by_vectors && begin + kTile <= g.indexing.n) {
    block.template by_vectors<kVectors, kWidth>(begin + int(threadIdx.x) * kWidth);
    return;
  }
#pragma unroll 1
  for (int i = int(threadIdx.x); i < kTile; i += kTileThreads * kAtOnce) block.template by_elements<kAtOnce>(begin + i);
}

}  // namespace minidnn
