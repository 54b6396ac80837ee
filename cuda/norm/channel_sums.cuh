// SPDX-License-Identifier: Apache-2.0
// The arithmetic of batch norm and group norm on dense tensors, for cuda.batch_norm.two_pass,
// cuda.batch_norm.persistent and cuda.layer_norm.two_pass_groups.
//
// Numerics: neither |mean| >> std nor a first element that is an outlier costs precision.
// - Planes (NCHW): threads subtract the first element of the channel from x. A thread computes the mean and the sum of
//   squares of a few vectors, and joins them to its moments by Chan's formula.
// - Columns (NHWC): a thread subtracts its own first element from x, and sums the differences and their squares. Few
//   digits are lost, because (first element - mean)^2 <= n times the variance of its n elements, and n is small.
//
// A forward partial result is four floats: the count, the mean, the sum of squares about the mean, and the value to
// which the mean is relative. A backward partial result is two sums.
#pragma once
#include "cpp/batch_norm/batch_norm_math.h"
#include "cuda/device/vec.cuh"
#include "cuda/norm/moments.cuh"
#include "cuda/norm/parameters.cuh"

namespace minidnn {

// Applies the gradient of relu: sets an element of dy to 0 where y <= 0, and keeps it where y is positive or NaN.
template <class T, int kVec>
__device__ __forceinline__ void keep_where_positive(Vec<T, kVec>& dy, const Vec<T, kVec>& y) {
  if constexpr (kVec == 1) dy.put(0, y[0] <= 0 ? T(0.f) : dy.get(0));
  else {
#pragma unroll
    for (int i = 0; i < Vec<T, kVec>::kWords; ++i) {
      uint32_t& word = dy.word[i];
      if constexpr (sizeof(T) == 4) word = y[i] <= 0 ? 0 : word;
      else word &= (y[2 * i] <= 0 ? 0 : 0xffff) | (y[2 * i + 1] <= 0 ? 0 : 0xffff0000);
    }
  }
}

template <bool kBackward> struct SumsOf {
  using type = Moments<float>;
};
template <> struct SumsOf<true> {
  using type = Gradients<float>;
};

__device__ __forceinline__ float4 partial_of(const Moments<float>& m, float first) {
  return {m.n, m.mean, m.squares, first};
}
__device__ __forceinline__ float4 partial_of(const Gradients<float>& g, float) { return {g.dy, g.product, 0, 0}; }

// For NCHW: the vectors begin to end - 1 of one channel, numbered through all images, which a block processes.
template <class T, int kVec> struct PlaneTile {
  static constexpr bool kColumns = false;
  const ChannelTiling& s;
  int64_t channel;
  uint32_t begin, end, chunk;
  __device__ PlaneTile(const ChannelTiling& split, uint32_t block) : s(split) {
    channel = s.by_chunks.quotient(block);
    chunk = block - uint32_t(channel) * s.chunks;
    begin = chunk * s.chunk;
    end = min_of(begin + s.chunk, s.items);
  }
  __device__ __forceinline__ int64_t offset(uint32_t item) const {
    const uint32_t image = s.by_plane.quotient(item);
    return (int64_t(image) * s.channels + channel) * s.plane + int64_t(item - image * s.by_plane.divisor) * kVec;
  }
};

// Adds the first `have` of kUnroll vectors of one channel to `total`: moments of x - `first` (forward), or sums of
// gradients (backward). `first` is the first element of the channel.
template <class T, int kVec, int kUnroll>
__device__ __forceinline__ void add_vectors(Moments<float>& total, const Vec<T, kVec> (&x)[kUnroll], uint32_t have,
                                            float first) {
  float sum = 0;
#pragma unroll
  for (int u = 0; u < kUnroll; ++u)
    if (u < have) {
#pragma unroll
      for (int k = 0; k < kVec; ++k) sum += x[u][k] - first;
    }
  const float n = float(have * kVec);
  Moments<float> some{n, sum * (1.f / n), 0};
#pragma unroll
  for (int u = 0; u < kUnroll; ++u)
    if (u < have) {
#pragma unroll
      for (int k = 0; k < kVec; ++k) {
        const float away = (x[u][k] - first) - some.mean;
        some.squares += away * away;
      }
    }
  total.join(some);
}
template <class T, int kVec, int kUnroll>
__device__ __forceinline__ void add_vectors(Gradients<float>& total, const Vec<T, kVec> (&x)[kUnroll],
                                            const Vec<T, kVec> (&dy)[kUnroll], uint32_t have, float mean) {
  Gradients<float> some{};
#pragma unroll
  for (int u = 0; u < kUnroll; ++u)
    if (u < have) {
#pragma unroll
      for (int k = 0; k < kVec; ++k) {
        some.dy += dy[u][k];
        some.product += dy[u][k] * (x[u][k] - mean);
      }
    }
  total.join(some);
}

// For NHWC: the elements that a block processes, `width` vectors of channels in each of the rows begin to end - 1. A
// thread has the same vector of channels in every s.rows-th row.
template <int kVec> struct ColumnTile {
  static constexpr bool kColumns = true;
  const ChannelTiling& s;
  int64_t channel, sample, start;  // `start` is the offset of the sample in elements.
  uint32_t row, begin, end, chunk;
  bool idle;
  __device__ ColumnTile(const ChannelTiling& split, uint32_t block) : s(split) {
    const uint32_t all_tiles = s.by_chunks.quotient(block);
    chunk = block - all_tiles * s.chunks;
    sample = s.by_tiles.quotient(all_tiles);
    start = sample * s.items * s.channels;
    const uint32_t tile = all_tiles - uint32_t(sample) * s.tiles;
    row = s.by_width.quotient(threadIdx.x);
    const uint32_t vector = tile * s.width + threadIdx.x - row * s.width;
    channel = int64_t(vector) * kVec;
    idle = row >= s.rows || vector >= s.vectors;
    begin = chunk * s.chunk;
    end = idle ? 0 : min_of(begin + s.chunk, s.items);
  }
  __device__ __forceinline__ int64_t offset(uint32_t item) const {
    return start + int64_t(item) * s.channels + channel;
  }
  // Returns the channel's index over all samples.
  __device__ __forceinline__ int64_t of_all() const { return sample * s.channels + channel; }
};

template <class T, int kVec, bool kColumns> struct TileOf {
  using type = PlaneTile<T, kVec>;
};
template <class T, int kVec> struct TileOf<T, kVec, true> {
  using type = ColumnTile<kVec>;
};

template <int kVec> struct ColumnMoments {
  float n, mean[kVec], squares[kVec];
  __device__ __forceinline__ void join(const ColumnMoments& o) {
#pragma unroll
    for (int k = 0; k < kVec; ++k) {
      Moments<float> both{n, mean[k], squares[k]};
      both.join({o.n, o.mean[k], o.squares[k]});
      mean[k] = both.mean;
      squares[k] = both.squares;
    }
    n += o.n;
  }
  // Joins the moments of the lanes of a warp whose indices are equal modulo `first`, a power of two. The lowest lane
  // obtains the result.
  __device__ __forceinline__ void join_lanes(uint32_t first) {
#pragma unroll 1
    for (uint32_t lane = first; lane < 32; lane *= 2) {
      ColumnMoments o;
      o.n = shuffle_xor(n, lane);
#pragma unroll
      for (int k = 0; k < kVec; ++k) {
        o.mean[k] = shuffle_xor(mean[k], lane);
        o.squares[k] = shuffle_xor(squares[k], lane);
      }
      join(o);
    }
  }
  __device__ __forceinline__ float4 partial(int k, float shift) const { return {n, mean[k], squares[k], shift}; }
};
// A thread's sums of x - shift and of (x - shift)^2, for each element of a vector. `shift` is the thread's first value
// of x.
template <int kVec> struct ColumnAdds {
  using Joined = ColumnMoments<kVec>;
  float n, sum[kVec], squares[kVec], shift[kVec];
  // Adds the first `have` of kUnroll vectors to the thread's sums.
  template <class T, int kUnroll> __device__ __forceinline__ void add(const Vec<T, kVec> (&x)[kUnroll], uint32_t have) {
    if (n == 0) {
#pragma unroll
      for (int k = 0; k < kVec; ++k) shift[k] = x[0][k];
    }
#pragma unroll
    for (int k = 0; k < kVec; ++k) {
      float some = 0, square = 0;
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        if (u < have) {
          const float away = x[u][k] - shift[k];
          some += away;
          square += away * away;
        }
      sum[k] += some;
      squares[k] += square;
    }
    n += float(have);
  }
  // Returns the moments of this thread's elements. The means are relative to `of_block`, the shift of the block's first
  // thread for the same channels.
  __device__ __forceinline__ Joined relative_to_block(const ColumnTile<kVec>& tile, float* shifts,
                                                      float (&of_block)[kVec]) const {
    const uint32_t at = (threadIdx.x - tile.row * tile.s.width) * kVec;
    if (tile.row == 0) {
#pragma unroll
      for (int k = 0; k < kVec; ++k) shifts[at + k] = shift[k];
    }
    __syncthreads();
    Joined m{n};
    const float weight = n > 0 ? 1 / n : 0.f;
#pragma unroll
    for (int k = 0; k < kVec; ++k) {
      of_block[k] = shifts[at + k];
      const float from_shift = sum[k] * weight;
      m.mean[k] = n > 0 ? (shift[k] - of_block[k]) + from_shift : 0.f;
      m.squares[k] = max_or_nan(squares[k] - sum[k] * from_shift, 0.f);
    }
    return m;
  }
};
template <int kVec> struct ColumnGradients {
  float dy[kVec], product[kVec];
  __device__ __forceinline__ void join(const ColumnGradients& o) {
#pragma unroll
    for (int k = 0; k < kVec; ++k) {
      dy[k] += o.dy[k];
      product[k] += o.product[k];
    }
  }
  __device__ __forceinline__ void join_lanes(uint32_t first) {
#pragma unroll 1
    for (uint32_t lane = first; lane < 32; lane *= 2)
#pragma unroll
      for (int k = 0; k < kVec; ++k) {
        dy[k] += shuffle_xor(dy[k], lane);
        product[k] += shuffle_xor(product[k], lane);
      }
  }
  __device__ __forceinline__ float4 partial(int k, float) const { return {dy[k], product[k], 0, 0}; }
};
template <int kVec> struct ColumnGradientAdds {
  using Joined = ColumnGradients<kVec>;
  Joined sums;
  float mean[kVec];
  template <class T, int kUnroll>
  __device__ __forceinline__ void add(const Vec<T, kVec> (&x)[kUnroll], const Vec<T, kVec> (&dy)[kUnroll],
                                      uint32_t have) {
#pragma unroll
    for (int k = 0; k < kVec; ++k) {
      float some = 0, products = 0;
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        if (u < have) {
          some += dy[u][k];
          products += dy[u][k] * (x[u][k] - mean[k]);
        }
      sums.dy[k] += some;
      sums.product[k] += products;
    }
  }
  __device__ __forceinline__ Joined relative_to_block(const ColumnTile<kVec>&, float*, float (&)[kVec]) const {
    return sums;
  }
};
template <int kVec, bool kBackward> struct ColumnAddsOf {
  using type = ColumnAdds<kVec>;
};
template <int kVec> struct ColumnAddsOf<kVec, true> {
  using type = ColumnGradientAdds<kVec>;
};
// Joins the sums of `rows` rows of `width` threads by a tree over shared memory (`left`). The first row of threads
// obtains the result.
template <class Sums>
__device__ __forceinline__ void join_rows(Sums& total, Sums* left, uint32_t rows, uint32_t width, uint32_t row,
                                          uint32_t column) {
#pragma unroll 1
  while (rows > 1) {
    const uint32_t half = (rows + 1) / 2;
    if (half <= row && row < rows) left[(row - half) * width + column] = total;
    __syncthreads();
    if (row < rows - half) total.join(left[row * width + column]);
    __syncthreads();
    rows = half;
  }
}

// These functions add up the partial results of a channel or group, in float64. All means are taken relative to
// `about`, the mean of one partial result, so that no divisions are needed. Few digits are lost: if this partial result
// has m of n elements, (about - mean)^2 <= n / m times the variance.
__device__ __forceinline__ double mean_of(const float4& partial) { return double(partial.w) + double(partial.y); }
struct MomentSums {
  double away, squares;
  __device__ __forceinline__ void add(const float4& v, double about) {
    const double n = double(v.x), difference = mean_of(v) - about;
    away += n * difference;
    squares += double(v.z) + n * difference * difference;
  }
  __device__ __forceinline__ void join(const MomentSums& o) {
    away += o.away;
    squares += o.squares;
  }
  template <int kFirst = 1> __device__ __forceinline__ void join_warp() {
#pragma unroll
    for (int lane = kFirst; lane < 32; lane *= 2) {
      away += shuffle_xor(away, lane);
      squares += shuffle_xor(squares, lane);
    }
  }
  __device__ __forceinline__ double squares_of(double n) const { return max_or_nan(squares - away / n * away, 0.0); }
};
struct GradientSums : Gradients<double> {
  __device__ __forceinline__ void add(const float4& v, double) { join({double(v.x), double(v.y)}); }
};

template <bool kBackward> struct FinishOf {
  using type = MomentSums;
};
template <> struct FinishOf<true> {
  using type = GradientSums;
};

// The result for a channel. In forward, `first` is the mean, `second` is inv_std, and `squares` is the sum of squares
// about the mean. In backward, `first` is dbias and `second` is dscale.
struct Statistic {
  float first, second;
  double squares;
};
__device__ __forceinline__ Statistic statistic_of(const ChannelTiling& s, const BatchNormArgs& a, int64_t, double about,
                                                  const MomentSums& total) {
  const double n = double(s.members), squares = total.squares_of(n);
  return {float(about + total.away / n), norm::inverse_std(float(squares / n), a.eps), squares};
}
__device__ __forceinline__ Statistic statistic_of(const ChannelTiling&, const BatchNormArgs& a, int64_t channel, double,
                                                  const GradientSums& total) {
  return {float(total.dy), float(total.product * double(typed<float>(a.inv_std)[channel])), 0};
}
template <bool kBackward>
__device__ __forceinline__ void write_statistic(const ChannelTiling& s, const BatchNormArgs& a, int64_t channel,
                                                const Statistic& of) {
  static_cast<float*>(kBackward ? a.dbias : a.mean)[channel] = of.first;
  static_cast<float*>(kBackward ? a.dscale : a.inv_std)[channel] = of.second;
  if (kBackward || !a.running_mean) return;
  const float momentum = float(a.momentum), keep = float(1 - a.momentum);
  float& running_mean = static_cast<float*>(a.running_mean)[channel];
  float& running_var = static_cast<float*>(a.running_var)[channel];
  running_mean = keep * running_mean + momentum * of.first;
  running_var = keep * running_var + momentum * float(of.squares / max_of(double(s.members) - 1, 1.0));
}

// Returns the coefficients of channel c. In forward, `first` is the mean and `second` is inv_std. In backward, `first`
// is dbias and `second` is dscale, and the function also reads a.mean and a.inv_std.
template <bool kBackward>
__device__ __forceinline__ ChannelCoefficients line_of(const ChannelTiling& s, const BatchNormArgs& a, int64_t c,
                                                       float first, float second) {
  const float scale = typed<float>(a.scale)[c];
  if constexpr (!kBackward) return {first, scale * second, typed<float>(a.bias)[c], 0};
  else {
    const float inv_std = typed<float>(a.inv_std)[c], per_member = 1 / float(s.members), factor = scale * inv_std;
    return {typed<float>(a.mean)[c], factor, factor * (first * per_member), factor * (second * per_member * inv_std)};
  }
}

// Computes y or dx of the vector at offset `at`, and stores it. kCoefficients is 1 if all elements of the vector have
// the same coefficients. If not, it is the number of elements. In backward with relu, dy has passed through the
// gradient of relu already.
template <class T, int kVec, bool kBackward, int kCoefficients>
__device__ __forceinline__ void map_vector(const BatchNormArgs& a, int64_t at, const Vec<T, kVec>& x,
                                           const Vec<T, kVec>& dy, const Vec<T, kVec>& other,
                                           const ChannelCoefficients (&lines)[kCoefficients]) {
  float out[kVec];
#pragma unroll
  for (int k = 0; k < kVec; ++k) {
    const ChannelCoefficients& c = lines[kCoefficients == 1 ? 0 : k];
    const float deviation = x[k] - c.mean;
    if constexpr (kBackward) out[k] = dy[k] * c.factor - c.offset - deviation * c.slope;
    else {
      out[k] = deviation * c.factor + c.offset;
      if (a.other) out[k] += other[k];
      if (a.relu) out[k] = out[k] < 0 ? 0.f : out[k];
    }
  }
  Vec<T, kVec>::pack(out).store(static_cast<T*>(a.out) + at);
  if constexpr (kBackward)
    if (a.dresidual) dy.store(static_cast<T*>(a.dresidual) + at);
}

}  // namespace minidnn
