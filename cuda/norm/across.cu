// SPDX-License-Identifier: Apache-2.0
// Local response norm of dense tensors. A thread asks for its strip, and for the channels beside it, all at once: those
// others ask for too, and they come from the L1. Windows are summed anew for each element, for a sum that slides would
// keep what large elements left behind. Backward, g (local_norm_math.h) meets its neighbours in shared memory; where a
// block ends amid the channels, it also computes what the next one has.
#include "cpp/norm/local_norm_math.h"
#include "cuda/device/elementwise.cuh"
#include "cuda/norm/across.h"
#include "cuda/norm/power.cuh"

namespace minidnn {

// Channels [-kAcrossSide, kOwn + kAcrossSide) of kItems positions; channel 0 is the strip's first. What lies outside of
// x is zero, and maybe what no window has.
template <class T, int items, bool whole> struct Planes {
  static constexpr int kOwn = kAcrossOwn, kItems = items;
  static constexpr int kLines = kOwn + 2 * kAcrossSide, kThreads = 32 * kAcrossWarps;
  using Line = Items<T, kItems>;
  int64_t at[whole ? 1 : kItems];  // of the strip's first channel
  bool inside[whole ? 1 : kItems];
  int64_t channel, plane, channels;
  int64_t first, last;  // the block's own channels

  __device__ __forceinline__ explicit Planes(const NormAcross& r) : plane(r.plane), channels(r.channels) {
    const uint32_t columns = r.by_tiles.quotient(blockIdx.x), tile = blockIdx.x - columns * r.tiles;
    first = int64_t(tile) * r.step, last = min_of(first + r.step, channels);
    channel = first - r.halo + int64_t(threadIdx.x / 32) * kOwn;
#pragma unroll
    for (int i = 0; i < (whole ? 1 : kItems); ++i) {
      const uint32_t column = (columns * (whole ? 1 : kItems) + i) * 32 + threadIdx.x % 32;
      const uint32_t sample = r.of_plane.quotient(column), position = column - sample * r.of_plane.divisor;
      inside[i] = column < r.columns;
      at[i] = (int64_t(sample) * channels + channel) * plane + int64_t(position) * (whole ? kItems : 1);
    }
  }
  __device__ __forceinline__ bool has(int l) const { return channel + l >= 0 && channel + l < channels; }
  __device__ __forceinline__ bool writes(int l) const { return channel + l >= first && channel + l < last; }
  __device__ __forceinline__ Line load(const T* from, int l) const {
    Line line{};
    if constexpr (whole) {
      if (inside[0] && has(l)) line = *reinterpret_cast<const Line*>(from + at[0] + l * plane);
    } else {
#pragma unroll
      for (int i = 0; i < kItems; ++i) line.put(i, inside[i] && has(l) ? from[at[i] + l * plane] : T());
    }
    return line;
  }
  __device__ __forceinline__ void store(T* to, const Line (&lines)[kOwn]) const {
#pragma unroll
    for (int l = 0; l < kOwn; ++l)
      if (writes(l)) {
        if constexpr (whole) {
          if (inside[0]) *reinterpret_cast<Line*>(to + at[0] + l * plane) = lines[l];
        } else {
#pragma unroll
          for (int i = 0; i < kItems; ++i)
            if (inside[i]) to[at[i] + l * plane] = lines[l].get(i);
        }
      }
  }

  struct Values {
    Line line[kLines];
    __device__ __forceinline__ void load(const Planes& s, const T* from, int behind, int ahead) {
#pragma unroll
      for (int l = -kAcrossSide; l < kOwn + kAcrossSide; ++l)
        if (l >= 0 && l < kOwn) line[l + kAcrossSide] = s.load(from, l);
        else line[l + kAcrossSide] = l >= -behind && l < kOwn + ahead ? s.load(from, l) : Line{};
    }
    __device__ __forceinline__ float get(int l, int i) const { return float(line[l + kAcrossSide].get(i)); }
  };
  struct Own {
    Line line[kOwn];
    __device__ __forceinline__ void load(const Planes& s, const T* from) {
#pragma unroll
      for (int l = 0; l < kOwn; ++l) line[l] = s.load(from, l);
    }
    __device__ __forceinline__ float get(int l, int i) const { return float(line[l].get(i)); }
    __device__ __forceinline__ void put(int l, int i, float v) { line[l].put(i, T(v)); }
    __device__ __forceinline__ void store(const Planes& s, T* to) const { s.store(to, line); }
  };

  // g of a block, four positions of a channel at a time, those of neighbouring threads beside each other.
  static constexpr int kGroup = 4, kShared = kAcrossWarps * kOwn * 32 * kItems;
  __device__ __forceinline__ static int place(int row, int i) {
    return ((row * (kItems / kGroup) + i / kGroup) * 32 + int(threadIdx.x % 32)) * 4;
  }
  __device__ __forceinline__ void share(float* shared, int i, const float (&g)[kGroup][kOwn]) const {
#pragma unroll
    for (int l = 0; l < kOwn; ++l)
      *reinterpret_cast<float4*>(shared + place(int(threadIdx.x / 32) * kOwn + l, i)) = {g[0][l], g[1][l], g[2][l],
                                                                                         g[3][l]};
  }
  __device__ __forceinline__ void gather(const float* shared, int i, int behind, int ahead,
                                         float (&g)[kGroup][kLines]) const {
#pragma unroll
    for (int l = -kAcrossSide; l < kOwn + kAcrossSide; ++l) {
      const int row = int(threadIdx.x / 32) * kOwn + l;
      const bool there = l >= -behind && l < kOwn + ahead && row >= 0 && row < int(blockDim.x / 32) * kOwn;
      const float4 v = there ? *reinterpret_cast<const float4*>(shared + place(row, i)) : float4{};
      const int to = l + kAcrossSide;
      g[0][to] = v.x, g[1][to] = v.y, g[2][to] = v.z, g[3][to] = v.w;
    }
  }
};

template <class T, bool whole> struct Rows {
  static constexpr int kOwn = whole ? 16 / int(sizeof(T)) : kAcrossOwn, kItems = 1, kThreads = kAcrossThreads;
  using Beside = Items<T, kAcrossSide>;
  using Line = Items<T, kOwn>;
  int64_t at, channel, channels;
  bool inside, own;

  // Backward, the first and the last thread are there for their neighbours.
  __device__ __forceinline__ explicit Rows(const NormAcross& r) : channels(r.channels) {
    const int64_t strip = int64_t(blockIdx.x) * r.step - r.halo + threadIdx.x;
    inside = strip >= 0 && strip < r.columns;
    own = inside && threadIdx.x >= r.halo && threadIdx.x < r.halo + r.step;
    const uint32_t column = inside ? uint32_t(strip) : 0u, row = r.of_plane.quotient(column);
    channel = int64_t(column - row * r.of_plane.divisor) * kOwn;
    at = int64_t(row) * channels + channel;
  }
  __device__ __forceinline__ bool has(int l) const { return channel + l >= 0 && channel + l < channels; }
  template <class Some> __device__ __forceinline__ Some load(const T* from, int l) const {
    Some some{};
    if constexpr (whole) {
      if (inside && has(l)) some = *reinterpret_cast<const Some*>(from + at + l);
    } else {
#pragma unroll
      for (int k = 0; k < kAcrossOwn; ++k) some.put(k, inside && has(l + k) ? from[at + l + k] : T());
    }
    return some;
  }

  struct Values {
    Beside before, after;
    Line line;
    __device__ __forceinline__ void load(const Rows& s, const T* from, int, int) {
      line = s.load<Line>(from, 0);
      before = s.load<Beside>(from, -kAcrossSide);
      after = s.load<Beside>(from, kOwn);
    }
    __device__ __forceinline__ float get(int l, int) const {
      return float(l < 0 ? before.get(l + kAcrossSide) : l < kOwn ? line.get(l) : after.get(l - kOwn));
    }
  };
  struct Own {
    Line line;
    __device__ __forceinline__ void load(const Rows& s, const T* from) { line = s.load<Line>(from, 0); }
    __device__ __forceinline__ float get(int l, int) const { return float(line.get(l)); }
    __device__ __forceinline__ void put(int l, int, float v) { line.put(l, T(v)); }
    __device__ __forceinline__ void store(const Rows& s, T* to) const {
      if (!s.own) return;
      if constexpr (whole) *reinterpret_cast<Line*>(to + s.at) = line;
      else {
#pragma unroll
        for (int k = 0; k < kOwn; ++k)
          if (s.has(k)) to[s.at + k] = line.get(k);
      }
    }
  };

  // g of a block, four channels of a position at a time, likewise.
  static constexpr int kGroup = 1, kLines = kOwn + 2 * kAcrossSide, kShared = kThreads * kOwn;
  __device__ __forceinline__ static int place(int strip, int l) { return (l / 4 * kThreads + strip) * 4; }
  __device__ __forceinline__ void share(float* shared, int, const float (&g)[kGroup][kOwn]) const {
#pragma unroll
    for (int l = 0; l < kOwn; l += 4)
      *reinterpret_cast<float4*>(shared + place(int(threadIdx.x), l)) = {g[0][l], g[0][l + 1], g[0][l + 2],
                                                                         g[0][l + 3]};
  }
  __device__ __forceinline__ void gather(const float* shared, int, int, int, float (&g)[kGroup][kLines]) const {
#pragma unroll
    for (int l = -kAcrossSide; l < kOwn + kAcrossSide; l += 4) {
      const int beside = l < 0 ? -1 : l < kOwn ? 0 : 1;
      const float4 v =
          own && has(l) ? *reinterpret_cast<const float4*>(shared + place(int(threadIdx.x) + beside, l - beside * kOwn))
                        : float4{};
      const int to = l + kAcrossSide;
      g[0][to] = v.x, g[0][to + 1] = v.y, g[0][to + 2] = v.z, g[0][to + 3] = v.w;
    }
  }
};

template <int lines> __device__ __forceinline__ float window(const float (&v)[lines], int l, int behind, int ahead) {
  float sum = v[l];
#pragma unroll
  for (int o = 1; o <= kAcrossSide; ++o) {
    if (o <= behind) sum += v[l - o];
    if (o <= ahead) sum += v[l + o];
  }
  return sum;
}
// s of a strip at one of its positions.
template <class Strip>
__device__ __forceinline__ void sums(const typename Strip::Values& x, const AcrossFactors& f, int i, int behind,
                                     int ahead, float (&s)[Strip::kOwn]) {
  float squares[Strip::kOwn + 2 * kAcrossSide];
#pragma unroll
  for (int l = -kAcrossSide; l < Strip::kOwn + kAcrossSide; ++l) {
    const float v = x.get(l, i);
    squares[l + kAcrossSide] = v * v;
  }
#pragma unroll
  for (int l = 0; l < Strip::kOwn; ++l) s[l] = f.k + f.scale * window(squares, l + kAcrossSide, behind, ahead);
}

template <class T, class Strip, int size>  // 0: any
__global__ void __launch_bounds__(Strip::kThreads, size ? 3 : 2)
    norm_across_forward(const __grid_constant__ NormAcross r, LocalNormArgs a, AcrossFactors f) {
  const Strip strip(r);
  const int behind = size ? (size - 1) / 2 : r.behind, ahead = size ? size / 2 : r.ahead;
  typename Strip::Values x;
  x.load(strip, static_cast<const T*>(a.x), behind, ahead);
  typename Strip::Own y;
#pragma unroll
  for (int i = 0; i < Strip::kItems; ++i) {
    float s[Strip::kOwn];
    sums<Strip>(x, f, i, behind, ahead, s);
#pragma unroll
    for (int l = 0; l < Strip::kOwn; ++l) y.put(l, i, x.get(l, i) * power_of<T>(s[l], f.beta));
  }
  y.store(strip, static_cast<T*>(a.out));
}

template <class T, class Strip, int size>  // 0: any
__global__ void __launch_bounds__(Strip::kThreads, 2)
    norm_across_backward(const __grid_constant__ NormAcross r, LocalNormArgs a, AcrossFactors f) {
  __shared__ float4 room[Strip::kShared / 4];
  float* const shared = &room[0].x;
  const Strip strip(r);
  const int behind = size ? (size - 1) / 2 : r.behind, ahead = size ? size / 2 : r.ahead;
  typename Strip::Values x;
  typename Strip::Own dy;
  x.load(strip, static_cast<const T*>(a.x), behind, ahead);
  dy.load(strip, static_cast<const T*>(a.dy));
  float own[Strip::kItems][Strip::kOwn];
#pragma unroll
  for (int first = 0; first < Strip::kItems; first += Strip::kGroup) {
    float g[Strip::kGroup][Strip::kOwn];
#pragma unroll
    for (int i = 0; i < Strip::kGroup; ++i) {
      float s[Strip::kOwn];
      sums<Strip>(x, f, first + i, behind, ahead, s);
#pragma unroll
      for (int l = 0; l < Strip::kOwn; ++l) {
        const float some = dy.get(l, first + i) * power_of<T>(s[l], f.beta);
        own[first + i][l] = some;
        g[i][l] = strip.has(l) ? some * __fdividef(x.get(l, first + i), s[l]) : 0.f;
      }
    }
    strip.share(shared, first, g);
  }
  __syncthreads();
#pragma unroll
  for (int first = 0; first < Strip::kItems; first += Strip::kGroup) {
    float g[Strip::kGroup][Strip::kLines];
    strip.gather(shared, first, ahead, behind, g);
#pragma unroll
    for (int i = 0; i < Strip::kGroup; ++i)
#pragma unroll
      for (int l = 0; l < Strip::kOwn; ++l)
        dy.put(l, first + i,
               own[first + i][l] - f.slope * x.get(l, first + i) * window(g[i], l + kAcrossSide, ahead, behind));
  }
  dy.store(strip, static_cast<T*>(a.out));
}

}  // namespace minidnn
