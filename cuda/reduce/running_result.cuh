// SPDX-License-Identifier: Apache-2.0
// The float32 accumulator of a thread, for contiguous_axis.cu and strided_axis.cu. A thread loads 16-byte vectors,
// kReduceAhead at a time. The order of additions depends only on the shape and the device, so results are reproducible.
#pragma once
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/device/ptx/math.cuh"
#include "cuda/device/vec.cuh"
#include "cuda/reduce/lanes.cuh"

namespace minidnn {

constexpr int kAhead = kReduceAhead;

// Maps each element before it is reduced, as reduction::mapped() does, but without branches: its bits are masked and
// flipped. For some modes, the value is then squared or tested for zero.
struct Map {
  uint32_t keep, flip;
  bool squares, tests;
  float if_zero, sign;

  __device__ explicit Map(ReduceMode m)
      : keep(m == ReduceMode::norm1 || m == ReduceMode::amax ? 0x7fffffff : 0xffffffff),
        flip(m == ReduceMode::min ? 0x80000000 : 0),
        squares(m == ReduceMode::norm2 || m == ReduceMode::sumsq),
        tests(m == ReduceMode::any || m == ReduceMode::all),
        if_zero(m == ReduceMode::all ? 1.f : 0.f),
        sign(m == ReduceMode::argmin ? -1.f : 1.f) {}
};

// The result of the elements that a thread has reduced so far. Elements must arrive in the order of their indices. For
// argmax and argmin, `index` is relative to the first element of the chunk. The initial state, -inf at index 0, is also
// correct if all elements are -inf.
template <ReduceKind kKind> struct RunningResult {
  float value = reduction::identity<kKind, float>().value;
  __device__ Partial<kKind> from(int64_t) const { return {value}; }
};
template <> struct RunningResult<ReduceKind::arg> {
  float value = -INFINITY;
  int32_t index = 0;
  __device__ Partial<ReduceKind::arg> from(int64_t first) const { return {value, first + index}; }
};

template <ReduceKind kKind>
__device__ __forceinline__ void take(RunningResult<kKind>& s, float v, [[maybe_unused]] int32_t index, const Map& map) {
  if constexpr (kKind == ReduceKind::arg) {
    const float largest = max_nan(__fmaf_rn(v, map.sign, 0.f), s.value);  // The addition of 0 converts -0 to 0.
    if (__float_as_uint(largest) != __float_as_uint(s.value)) s.index = index;
    s.value = largest;
    return;
  }
  v = __uint_as_float((__float_as_uint(v) & map.keep) ^ map.flip);
  if constexpr (kKind == ReduceKind::sum) {
    s.value += v * (map.squares ? v : 1.f);
  } else if constexpr (kKind == ReduceKind::prod) {
    s.value *= v;
  } else if constexpr (kKind == ReduceKind::max) {
    const float truth = v == 0 ? map.if_zero : 1.f - map.if_zero;
    v = map.tests ? truth : v;
    s.value = max_nan(s.value, v);
  }
}

}  // namespace minidnn
