// SPDX-License-Identifier: Apache-2.0
// Local response norm of dense tensors. A strip is a group of adjacent channels of one position.
// - NCHW (lrn_cross_channel_planes): each thread loops over the channels of some positions (see sliding_window.cuh).
// - NHWC: each thread computes a strip. It also loads the channels before and after the strip, mostly from the L1
//   cache, and issues all loads before it uses the first value.
// - Numerics: the elements of each window are summed separately, because a sliding sum would keep the rounding errors
//   of large elements that have left the window.
// - Backward in NHWC: threads exchange the factor g (lrn_math.h) through shared memory. A block also computes g of the
//   strips before and after its own strips.
#include "cuda/lrn/cross_channel_params.h"
#include "cuda/lrn/power.cuh"
#include "cuda/lrn/sliding_window.cuh"

namespace minidnn {

// The kernel of local response norm for NCHW tensors. kSize is the window size, or 0 if the kernel supports any size.
// kWhole requires that each plane begins at a multiple of 16 bytes.
template <class T, int kVec, bool kWhole, int kSize, bool kBackward>
__global__ void __launch_bounds__(kWindowThreads, window_threads_per_sm(false) / kWindowThreads)
    lrn_cross_channel_planes(const __grid_constant__ SlidingWindowParams r, const __grid_constant__ SmemLayout smem,
                             LrnArgs a, LrnFactors f) {
  extern __shared__ __align__(16) unsigned char shared[];
  SlidingWindow<T, kVec, Axis::none, kWhole, false, kSize, kBackward>(r, smem, shared).run(a, f);
}

template <class T, bool kWhole> struct Rows {
  static constexpr int kOwn = kWhole ? 16 / int(sizeof(T)) : kStripChannels;
  static constexpr int kLines = kOwn + 2 * kMaxSide;
  using Side = Vec<T, kMaxSide>;
  using Line = Vec<T, kOwn>;
  int64_t at, channel, channels;
  bool inside, own;

  // In backward (r.halo is 1), the first and the last thread of a block compute only the factors g (lrn_math.h), for
  // the adjacent threads.
  __device__ __forceinline__ explicit Rows(const CrossChannelParams& r) : channels(r.channels) {
    const int64_t strip = int64_t(blockIdx.x) * r.step - r.halo + threadIdx.x;
    inside = strip >= 0 && strip < r.columns;
    own = inside && threadIdx.x >= r.halo && threadIdx.x < r.halo + r.step;
    const uint32_t column = inside ? uint32_t(strip) : 0u, row = r.of_row.quotient(column);
    channel = int64_t(column - row * r.of_row.divisor) * kOwn;
    at = int64_t(row) * channels + channel;
  }
  __device__ __forceinline__ bool has(int l) const { return channel + l >= 0 && channel + l < channels; }
  template <class Some> __device__ __forceinline__ Some load(const T* from, int l) const {
    Some some{};
    if constexpr (kWhole) {
      if (inside && has(l)) some = *reinterpret_cast<const Some*>(from + at + l);
    } else {
#pragma unroll
      for (int k = 0; k < kStripChannels; ++k) some.put(k, inside && has(l + k) ? from[at + l + k] : T());
    }
    return some;
  }

  struct Values {
    Side before, after;
    Line line;
    __device__ __forceinline__ void load(const Rows& s, const T* from) {
      line = s.load<Line>(from, 0);
      before = s.load<Side>(from, -kMaxSide);
      after = s.load<Side>(from, kOwn);
    }
    __device__ __forceinline__ float get(int l) const {
      return float(l < 0 ? before.get(l + kMaxSide) : l < kOwn ? line.get(l) : after.get(l - kOwn));
    }
  };
  struct Own {
    Line line;
    __device__ __forceinline__ void load(const Rows& s, const T* from) { line = s.load<Line>(from, 0); }
    __device__ __forceinline__ float get(int l) const { return float(line.get(l)); }
    __device__ __forceinline__ void put(int l, float v) { line.put(l, T(v)); }
    __device__ __forceinline__ void store(const Rows& s, T* to) const {
      if (!s.own) return;
      if constexpr (kWhole) *reinterpret_cast<Line*>(to + s.at) = line;
      else {
#pragma unroll
        for (int k = 0; k < kOwn; ++k)
          if (s.has(k)) to[s.at + k] = line.get(k);
      }
    }
  };

  // The number of floats in shared memory for the factors g (lrn_math.h) of a block, [channels of a thread /
  // 4][threads][4].
  static constexpr int kShared = kCrossChannelThreads * kOwn;
  __device__ __forceinline__ static int smem_offset(int strip, int l) {
    return (l / 4 * kCrossChannelThreads + strip) * 4;
  }
  __device__ __forceinline__ void share(float* shared, const float (&g)[kOwn]) const {
#pragma unroll
    for (int l = 0; l < kOwn; l += 4)
      *reinterpret_cast<float4*>(shared + smem_offset(int(threadIdx.x), l)) = {g[l], g[l + 1], g[l + 2], g[l + 3]};
  }
  __device__ __forceinline__ void gather(const float* shared, float (&g)[kLines]) const {
#pragma unroll
    for (int l = -kMaxSide; l < kOwn + kMaxSide; l += 4) {
      const int neighbor = l < 0 ? -1 : l < kOwn ? 0 : 1;
      const float4 v =
          own && has(l)
              ? *reinterpret_cast<const float4*>(shared + smem_offset(int(threadIdx.x) + neighbor, l - neighbor * kOwn))
              : float4{};
      const int to = l + kMaxSide;
      g[to] = v.x;
      g[to + 1] = v.y;
      g[to + 2] = v.z;
      g[to + 3] = v.w;
    }
  }
};

template <int kLines> __device__ __forceinline__ float window(const float (&v)[kLines], int l, int behind, int ahead) {
  float sum = v[l];
#pragma unroll
  for (int o = 1; o <= kMaxSide; ++o) {
    if (o <= behind) sum += v[l - o];
    if (o <= ahead) sum += v[l + o];
  }
  return sum;
}
// Computes the divisor s (see lrn_math.h) for each element of the thread's channels.
template <class Strip>
__device__ __forceinline__ void sums(const typename Strip::Values& x, const LrnFactors& f, int behind, int ahead,
                                     float (&s)[Strip::kOwn]) {
  float squares[Strip::kLines];
#pragma unroll
  for (int l = -kMaxSide; l < Strip::kOwn + kMaxSide; ++l) {
    const float v = x.get(l);
    squares[l + kMaxSide] = v * v;
  }
#pragma unroll
  for (int l = 0; l < Strip::kOwn; ++l) s[l] = f.k + f.scale * window(squares, l + kMaxSide, behind, ahead);
}

template <class T, bool kWhole, int kSize>
__global__ void __launch_bounds__(kCrossChannelThreads, kSize ? 3 : 2)
    lrn_cross_channel_forward(const __grid_constant__ CrossChannelParams r, LrnArgs a, LrnFactors f) {
  using Strip = Rows<T, kWhole>;
  const Strip strip(r);
  const int behind = kSize ? (kSize - 1) / 2 : r.behind, ahead = kSize ? kSize / 2 : r.ahead;
  typename Strip::Values x;
  x.load(strip, static_cast<const T*>(a.x));
  typename Strip::Own y;
  float s[Strip::kOwn];
  sums<Strip>(x, f, behind, ahead, s);
#pragma unroll
  for (int l = 0; l < Strip::kOwn; ++l) y.put(l, x.get(l) * power_of<T>(s[l], f.beta));
  y.store(strip, static_cast<T*>(a.out));
}

template <class T, bool kWhole, int kSize>
__global__ void __launch_bounds__(kCrossChannelThreads, 2)
    lrn_cross_channel_backward(const __grid_constant__ CrossChannelParams r, LrnArgs a, LrnFactors f) {
  using Strip = Rows<T, kWhole>;
  __shared__ float4 smem[Strip::kShared / 4];
  float* const shared = &smem[0].x;
  const Strip strip(r);
  const int behind = kSize ? (kSize - 1) / 2 : r.behind, ahead = kSize ? kSize / 2 : r.ahead;
  typename Strip::Values x;
  typename Strip::Own dy;
  x.load(strip, static_cast<const T*>(a.x));
  dy.load(strip, static_cast<const T*>(a.dy));
  float own[Strip::kOwn], g[Strip::kOwn], s[Strip::kOwn];
  sums<Strip>(x, f, behind, ahead, s);
#pragma unroll
  for (int l = 0; l < Strip::kOwn; ++l) {
    own[l] = dy.get(l) * power_of<T>(s[l], f.beta);
    g[l] = strip.has(l) ? own[l] * __fdividef(x.get(l), s[l]) : 0.f;
  }
  strip.share(shared, g);
  __syncthreads();
  float around[Strip::kLines];
  strip.gather(shared, around);
#pragma unroll
  for (int l = 0; l < Strip::kOwn; ++l)
    dy.put(l, own[l] - f.slope * x.get(l) * window(around, l + kMaxSide, ahead, behind));
  dy.store(strip, static_cast<T*>(a.out));
}

}  // namespace minidnn
