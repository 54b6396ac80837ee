// SPDX-License-Identifier: Apache-2.0
// Normalizes one row at a time: one loop sums the row, and a second loop writes the result. A row of usual length stays
// in a first-level cache between the two. Sums of kChunk elements are float32 (float64 for float64), and are
// added in float64.
#include "cpp/layer_norm/cpu/contiguous_rows_kernel.h"

#include "cpp/simd/lanes.h"

namespace minidnn::MINIDNN_ISA {
namespace {

// The number of elements that are summed before the sum is added to a float64 sum.
constexpr int64_t kChunk = 4096;
static_assert(kChunk % kFloats == 0);

// Calls f(i, lanes) for each vector of n elements, where i is its first element. The last vector may have fewer
// elements than lanes.
template <class T, class F> MINIDNN_HD void each_vector(int64_t n, const F& f) {
  int64_t i = 0;
  for (; i + kWidth<T> <= n; i += kWidth<T>) f(i, int64_t(kWidth<T>));
  if (i < n) f(i, n - i);
}
template <class T> MINIDNN_HD Lanes<T> read(const T* from, int64_t lanes) {
  return lanes == kWidth<T> ? load_floats(from) : load_first(from, lanes);
}
template <class T> MINIDNN_HD void write(T* to, int64_t lanes, Lanes<T> v) {
  if (lanes == kWidth<T>) store_floats(to, v);
  else store_first(to, lanes, v);
}
// The sums of d and of d^2, where d = x - about for a given number `about`.
struct Sums {
  double first = 0, squares = 0;
};
template <class T> MINIDNN_HD Sums sums_about(const T* x, int64_t n, Accumulator<T> about) {
  // The number of independent sums. With several sums, an addition need not wait for the previous addition.
  constexpr int64_t kChains = 4;
  const Lanes<T> center = lanes_of<T>(about);
  Sums sums;
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    Lanes<T> a[kChains]{}, b[kChains]{};
    auto add = [&](int64_t k, Lanes<T> d) __attribute__((always_inline)) {
      a[k] += d;
      b[k] += d * d;
    };
    const T* from = x + begin;
    const int64_t count = min_of(kChunk, n - begin);
    int64_t i = 0;
    for (; i + kChains * kWidth<T> <= count; i += kChains * kWidth<T>)
#pragma GCC unroll 2
      for (int64_t k = 0; k < kChains; k += 2) {
        const PairOf<T> p = load_pair(from + i + k * kWidth<T>);
        add(k, p.first - center);
        add(k + 1, p.second - center);
      }
    for (; i + kWidth<T> <= count; i += kWidth<T>) add(0, load_floats(from + i) - center);
    // The remaining elements do not fill a vector. They are loaded as the last lanes of a vector that begins before
    // them.
    if (i < count && count >= kWidth<T>)
      add(1, lanes_from(int(kWidth<T> - (count - i)), load_floats(from + count - kWidth<T>) - center));
    else if (i < count) add(1, lanes_before(count, load_first(from, count) - center));
    auto total = [](const Lanes<T>(&v)[kChains])
                     __attribute__((always_inline)) { return double(sum_lanes((v[0] + v[1]) + (v[2] + v[3]))); };
    sums.first += total(a);
    sums.squares += total(b);
  }
  return sums;
}

// Computes the statistics of a row from d = x - center, where center is the mean of the first elements. If that is
// further from the mean of the row than a standard deviation, the row is summed again around its mean. So the
// subtraction E[d^2] - E[d]^2 loses at most one bit.
template <class T> struct Statistics {
  Accumulator<T> mean, rest, inv_std;  // as in NormStatistics
};
template <class T> MINIDNN_HD Statistics<T> statistics_of(const T* x, int64_t n, double eps, bool centered) {
  using Acc = Accumulator<T>;
  constexpr int64_t kFew = 64;
  Acc center = 0;
  if (centered) {
    const int64_t few = min_of(n, kFew);
    const Acc guess = Acc(sums_about(x, few, 0).first / double(few));
    center = guess - guess == 0 ? guess : 0;
  }
  Sums sums = sums_about(x, n, center);
  double shift = 0;
  if (centered) {
    shift = sums.first / double(n);
    if (shift * sums.first * 2 > sums.squares) {
      center = Acc(double(center) + shift);
      sums = sums_about(x, n, center);
      shift = sums.first / double(n);
    }
  }
  Statistics<T> s;
  const double var = sums.squares / double(n) - shift * shift;
  s.mean = Acc(double(center) + shift);
  s.rest = Acc((double(center) - double(s.mean)) + shift);
  s.inv_std = Acc(1) / maths::sqrt(Acc(var < 0 ? 0 : var) + Acc(eps));
  return s;
}

template <class T> MINIDNN_HD void normalize_row(const T* x, const Statistics<T>& s, const Accumulator<T>* scale,
                                                 const Accumulator<T>* bias, T* y, int64_t n) {
  const Lanes<T> center = lanes_of<T>(s.mean), off = lanes_of<T>(s.rest), factor = lanes_of<T>(s.inv_std);
  each_vector<T>(n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
    Lanes<T> v = ((read(x + i, lanes) - center) - off) * factor;
    if (scale) v *= read(scale + i, lanes);
    if (bias) v += read(bias + i, lanes);
    write(y + i, lanes, v);
  });
}
template <class T> MINIDNN_HD Statistics<T> keep_statistics(const LayerNormKernels::Forward& row, int64_t n) {
  const Statistics<T> s = statistics_of(static_cast<const T*>(row.x), n, row.eps, row.mean != nullptr);
  if (row.mean) *static_cast<Accumulator<T>*>(row.mean) = s.mean;
  *static_cast<Accumulator<T>*>(row.inv_std) = s.inv_std;
  return s;
}
template <class T> MINIDNN_HD const Accumulator<T>* parameters(const void* from) {
  return static_cast<const Accumulator<T>*>(from);
}
template <class T> void forward(const LayerNormKernels::Forward& row, int64_t n) {
  normalize_row(static_cast<const T*>(row.x), keep_statistics<T>(row, n), parameters<T>(row.scale),
                parameters<T>(row.bias), static_cast<T*>(row.y), n);
}
NormStatistics statistics(const float* x, int64_t n, float eps, bool centered) {
  const Statistics<float> s = statistics_of(x, n, double(eps), centered);
  return {s.mean, s.rest, s.inv_std};
}
void normalize(const float* x, const NormStatistics& s, const float* scale, const float* bias, float* y, int64_t n) {
  normalize_row(x, Statistics<float>{s.mean, s.rest, s.inv_std}, scale, bias, y, n);
}

template <class T>
void backward(const LayerNormKernels::Backward& row, int64_t n, void* sums, bool centered) {
  using Acc = Accumulator<T>;
  Acc *const dscale = static_cast<Acc*>(sums), *const dbias = centered ? dscale + n : nullptr;
  const T *x = static_cast<const T*>(row.x), *dy = static_cast<const T*>(row.dy);
  const Accumulator<T>* scale = parameters<T>(row.scale);
  T* dx = static_cast<T*>(row.dx);
  const Lanes<T> center = lanes_of<T>(Accumulator<T>(row.mean)), factor = lanes_of<T>(Accumulator<T>(row.inv_std));
  double first = 0, second = 0;
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    Lanes<T> a{}, b{};
    each_vector<T>(min_of(kChunk, n - begin), [&](int64_t at, int64_t lanes) __attribute__((always_inline)) {
      const int64_t i = begin + at;
      const Lanes<T> x_hat = (read(x + i, lanes) - center) * factor, g = read(dy + i, lanes);
      const Lanes<T> scaled = scale ? g * read(scale + i, lanes) : g;
      a += lanes_before(lanes, scaled);
      b += lanes_before(lanes, scaled * x_hat);
      write(dscale + i, lanes, read(dscale + i, lanes) + g * x_hat);
      if (dbias) write(dbias + i, lanes, read(dbias + i, lanes) + g);
    });
    first += double(sum_lanes(a));
    second += double(sum_lanes(b));
  }
  const Lanes<T> offset = lanes_of<T>(dbias ? Acc(first / double(n)) : Acc(0)),
                 slope = lanes_of<T>(Acc(second / double(n)));
  each_vector<T>(n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
    const Lanes<T> x_hat = (read(x + i, lanes) - center) * factor, g = read(dy + i, lanes);
    const Lanes<T> scaled = scale ? g * read(scale + i, lanes) : g;
    write(dx + i, lanes, factor * (scaled - offset - x_hat * slope));
  });
}

// Computes map(x[i], dy[i]) for n elements. If `to` is null, the results are written to the array y. If not, `to`
// writes them with non-temporal stores.
template <class T, class Map>
MINIDNN_HD void map_plane(const T* x, const T* dy, int64_t n, T* y, Streamer<T>* to, const Map& map) {
  constexpr int64_t kPair = 2 * kWidth<T>;
  for (int64_t begin = 0, some; begin < n; begin += some) {
    some = to ? min_of(Streamer<T>::kCapacity, n - begin) : n;
    T* const out = to ? to->next() : y;
    int64_t i = 0;
    for (; i + kPair <= some; i += kPair) {
      const PairOf<T> xs = load_pair(x + begin + i), dys = load_pair(dy + begin + i);
      store_pair(out + i, PairOf<T>{map(xs.first, dys.first), map(xs.second, dys.second)});
    }
    const T *rest = x + begin + i, *dy_rest = dy + begin + i;
    each_vector<T>(some - i, [&](int64_t at, int64_t lanes) __attribute__((always_inline)) {
      write(out + i + at, lanes, map(read(rest + at, lanes), read(dy_rest + at, lanes)));
    });
    if (to) to->advance(some);
  }
}

template <class T> void forward_planes(const LayerNormKernels::Forward& row, const NormPlanes& planes) {
  const auto [channels, n, non_temporal] = planes;
  const T* x = static_cast<const T*>(row.x);
  using Acc = Accumulator<T>;
  const Acc *scale = parameters<T>(row.scale), *bias = parameters<T>(row.bias);
  T* y = static_cast<T*>(row.y);
  const Statistics<T> s = keep_statistics<T>(row, channels * n);
  const Lanes<T> center = lanes_of<T>(s.mean), off = lanes_of<T>(s.rest);
  Streamer<T> streamer(y);
  for (int64_t c = 0; c < channels; ++c, x += n, y += n) {
    const Lanes<T> factor = lanes_of<T>(s.inv_std * (scale ? scale[c] : Acc(1))),
                   added = lanes_of<T>(bias ? bias[c] : Acc(0));
    map_plane(x, x, n, y, non_temporal ? &streamer : nullptr, [&](Lanes<T> v, Lanes<T>) __attribute__((always_inline)) {
      return ((v - center) - off) * factor + added;
    });
  }
  if (non_temporal) streamer.finish();
}

// The sum of dy and the sum of dy * x_hat over a plane (H x W of one channel).
struct GradientSums {
  double dy = 0, products = 0;
};
template <class T>
MINIDNN_HD GradientSums sum_plane_gradients(const T* x, const T* dy, int64_t n, Lanes<T> center, double inv_std) {
  GradientSums sums;
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    Lanes<T> a[4]{}, b[4]{};
    auto add = [&](int64_t k, Lanes<T> v, Lanes<T> g) __attribute__((always_inline)) {
      a[k] += g;
      b[k] += g * v;
    };
    const int64_t count = min_of(kChunk, n - begin);
    int64_t i = 0;
    for (; i + 4 * kWidth<T> <= count; i += 4 * kWidth<T>)
#pragma GCC unroll 2
      for (int64_t k = 0; k < 4; k += 2) {
        const PairOf<T> xs = load_pair(x + begin + i + k * kWidth<T>), dys = load_pair(dy + begin + i + k * kWidth<T>);
        add(k, xs.first - center, dys.first);
        add(k + 1, xs.second - center, dys.second);
      }
    each_vector<T>(count - i, [&](int64_t j, int64_t lanes) __attribute__((always_inline)) {
      // lanes after the end of the plane (H x W of one channel) are zero
      const Lanes<T> g = read(dy + begin + i + j, lanes);
      add(0, lanes_before(lanes, read(x + begin + i + j, lanes) - center), g);
    });
    sums.dy += double(sum_lanes((a[0] + a[1]) + (a[2] + a[3])));
    sums.products += double(sum_lanes((b[0] + b[1]) + (b[2] + b[3]))) * inv_std;
  }
  return sums;
}

template <class T>
void backward_planes(const LayerNormKernels::Backward& row, const NormPlanes& planes, void* results) {
  using Acc = Accumulator<T>;
  Acc* const sums = static_cast<Acc*>(results);
  const auto [channels, n, non_temporal] = planes;
  const T *x = static_cast<const T*>(row.x), *dy = static_cast<const T*>(row.dy);
  const Accumulator<T>* scale = parameters<T>(row.scale);
  T* dx = static_cast<T*>(row.dx);
  const Lanes<T> center = lanes_of<T>(Accumulator<T>(row.mean)), factor = lanes_of<T>(Accumulator<T>(row.inv_std));
  double first = 0, second = 0;
  for (int64_t c = 0; c < channels; ++c) {
    const GradientSums plane = sum_plane_gradients(x + c * n, dy + c * n, n, center, row.inv_std);
    sums[2 * c] = Acc(plane.products);
    sums[2 * c + 1] = Acc(plane.dy);
    const double factor_c = scale ? double(scale[c]) : 1;
    first += factor_c * plane.dy;
    second += factor_c * plane.products;
  }
  const double count = double(channels * n);
  const Lanes<T> offset = lanes_of<T>(Acc(first / count)), slope = lanes_of<T>(Acc(second / count));
  Streamer<T> streamer(dx);
  for (int64_t c = 0; c < channels; ++c, x += n, dy += n, dx += n) {
    const Lanes<T> by = lanes_of<T>(scale ? scale[c] : Acc(1));
    map_plane(x, dy, n, dx, non_temporal ? &streamer : nullptr,
              [&](Lanes<T> v, Lanes<T> g) __attribute__((always_inline)) {
                return factor * (g * by - offset - (v - center) * factor * slope);
              });
  }
  if (non_temporal) streamer.finish();
}

template <class T> constexpr LayerNormKernels::Typed kTyped{forward<T>, backward<T>, forward_planes<T>,
                                                            backward_planes<T>};

}  // namespace

extern const LayerNormKernels layer_norm_kernels;
const LayerNormKernels layer_norm_kernels = {kTyped<float>,  kTyped<bfloat16>, kTyped<float16>,
                                             kTyped<double>, statistics,       normalize};

}  // namespace minidnn::MINIDNN_ISA
