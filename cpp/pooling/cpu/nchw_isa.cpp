// SPDX-License-Identifier: Apache-2.0
// The gradient of max pooling for contiguous rows, computed for a slice (some adjacent rows) at a time. First, the
// maximum of each window is found. Then each element of dx is computed as the sum of dy over the windows that have
// their maximum there, and written once.
#include "cpp/pooling/cpu/nchw_kernel.h"
#include "cpp/simd/simd.h"

namespace minidnn::MINIDNN_ISA {
namespace {

using cpu::pooling::kMostStride, cpu::pooling::kMostWindow, cpu::pooling::SliceLayout;
using detail::Range, detail::taps_in_x, detail::windows_over;
using Ints = Vector<int32_t>;

MINIDNN_HD Ints load_ints(const int32_t* from) {
  Ints v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
template <int n> struct First {
  static constexpr int value = n;
};
// An integer that is a compile-time constant n, or the run-time `value` if n is 0. A division by a compile-time
// constant needs no division instruction.
template <int n> struct Known {
  int64_t value;
  MINIDNN_HD operator int64_t() const { return n ? n : value; }
};
MINIDNN_HD Ints lanes() {
  Ints v;
  for (int i = 0; i < kFloats; ++i) v[i] = i;
  return v;
}

// load_halved() loads two vectors, and returns the even and the odd elements. store_joined() is the inverse.
template <class T> MINIDNN_HD Pair load_halved(const T* from) {
  if constexpr (kIsInterleaved<T>) return load_pair(from);
  const Floats a = load_floats(from), b = load_floats(from + kFloats);
  return {__builtin_shuffle(a, b, 2 * lanes()), __builtin_shuffle(a, b, 2 * lanes() + 1)};
}
template <class T> MINIDNN_HD void store_joined(T* to, Floats even, Floats odd) {
  if constexpr (kIsInterleaved<T>) return store_pair(to, Pair{even, odd});
  const Ints low = lanes() / 2 + lanes() % 2 * kFloats;
  store_floats(to, __builtin_shuffle(even, odd, low));
  store_floats(to + kFloats, __builtin_shuffle(even, odd, low + kFloats / 2));
}

// Computes slices of rows of dx. If `window` is not 0, windows have `window` x `window` elements, stride `step`, and no
// dilation.
template <class T, int window, int step> class Slice {
 public:
  Slice(const PoolingProblem& problem, int64_t most_rows, float* memory) : p(problem), layout(problem, most_rows) {
    xs = memory;
    dys = xs + down * right * layout.x_plane;
    argmax = reinterpret_cast<int32_t*>(dys + layout.plane);
    for (int64_t i = 0; i < down * right * layout.x_plane; ++i) xs[i] = -INFINITY;
    for (int64_t i = 0; i < layout.plane; ++i) {
      dys[i] = 0;
      argmax[i] = 0;
    }
    const SpatialAttributes& s = p.spatial;
    for (int64_t r = 0; r < p.window[1]; ++r)
      for (int64_t c = 0; c < p.window[2]; ++c)
        tap_at[r * p.window[2] + c] = (r * s.dilation[1] % down * right + c * s.dilation[2] % right) * layout.x_plane +
                                      r * s.dilation[1] / down * layout.pitch + c * s.dilation[2] / right;
    // In ascending order of the windows over an element, so that dy is always summed in this order. A later window has
    // the element at an earlier position.
    for (int64_t i = 0; i < down * right; ++i) {
      over_begin[i + 1] = over_begin[i];
      for (int64_t r = p.window[1]; r-- > 0;)
        for (int64_t c = p.window[2]; c-- > 0;) {
          const int64_t y = r * s.dilation[1], x = c * s.dilation[2];
          if (y % down == i / right && x % right == i % right)
            over[over_begin[i + 1]++] = {int32_t(-(y / down * layout.pitch + x / right)), int32_t(r * p.window[2] + c)};
        }
    }
    for (int64_t k = 0; k < right; ++k) {
      remainder[k] = (s.before[2] + k) % right;
      skipped[k] = (s.before[2] + k) / right;
    }
  }

  // Computes the rows `rows` of dx. Any memory of x before x_end may be read.
  void run(const T* x, const T* x_end, const T* dy, T* dx, Range rows, bool non_temporal) {
    // The rows of windows over these rows of dx. If there are gaps between windows, the windows above are included, so
    // that `first` is never after the first row of dx.
    Range windows{windows_over(p, 1, rows.begin).begin, windows_over(p, 1, rows.end - 1).end};
    windows.begin = min_of(windows.begin, (rows.begin + p.spatial.before[1]) / down);
    windows.end = max_of(windows.begin, windows.end);
    const int64_t first = p.spatial.input_index(1, windows.begin, 0),
                  end = p.spatial.input_index(1, windows.end - 1, p.window[1] - 1) + 1;
    // A lane becomes NaN if it loads a NaN or an infinite element.
    Floats special{};
    for (int64_t h = first; h < end; ++h) {
      float* const to = xs + (h - first) % down * right * layout.x_plane + (h - first) / down * layout.pitch;
      if (h >= 0 && h < H) load_row(x + h * p.x.stride[3], x_end, to, special);
      else
        for (int64_t k = 0; k < right; ++k)
          for (int64_t i = 0; i < layout.pitch; ++i) to[k * layout.x_plane + i] = -INFINITY;
    }
    for (int64_t p1 = windows.begin; p1 < windows.end; ++p1) load_dy(dy + p1 * p.dy.stride[3], p1 - windows.begin);
    // dy is set to zero for rows of dx below all windows.
    for (int64_t row = windows.size(); row <= (rows.end - 1 - first) / down; ++row)
      for (int64_t i = 0; i < layout.pitch; ++i) dys[(row + layout.above) * layout.pitch + layout.left + i] = 0;
    find(windows, any_of(special != special), x);

    Streamer<T> to(dx);
    T* const dx_end = dx + (rows.end - 1) * p.out.stride[3] + W;
    for (int64_t h = rows.begin; h < rows.end; ++h) {
      T* const row = dx + h * p.out.stride[3];
      // Prefetches the rows of x for the next slice.
      const T* const next = x + (h + rows.size()) * p.x.stride[3];
      for (int64_t w = 0; w < W; w += 64 / int64_t(sizeof(T))) __builtin_prefetch(next + w);
      const int64_t y = h - first;
      const int64_t at = (y / down + layout.above) * layout.pitch + layout.left, remainders = y % down * right;
      if (!non_temporal) {
        write(row, p.out.stride[3] == W ? dx_end : row + W, 0, W, at, remainders);
        continue;
      }
      to.move_to(row);
      const int64_t some = to.kCapacity / (right * kFloats) * (right * kFloats);
      for (int64_t w = 0; w < W; w += some) {
        const int64_t n = min_of(some, W - w);
        write(to.next(), to.next() + to.kCapacity, w, n, at, remainders);
        to.advance(n);
      }
    }
    if (non_temporal) to.finish();
  }

 private:
  // Loads a row of x and splits it by the remainder of the column modulo the stride. Elements after the row become
  // -inf.
  void load_row(const T* x, const T* x_end, float* to, Floats& special_lanes) {
    const int64_t stride = right * kFloats;
    // A local copy, which the compiler can keep in a register.
    Floats special = special_lanes;
    auto put = [&](int64_t k, int64_t i, Floats v)
                   __attribute__((always_inline)) { store(to + remainder[k] * layout.x_plane + skipped[k] + i, v); };
    auto split = [&](const T* from, int64_t i, auto change) __attribute__((always_inline)) {
      if (right == 1) {
        const Floats v = load_floats(from);
        special += v * 0.0f;
        put(0, i, change(0, v));
      } else if (right == 2) {
        const Pair v = load_halved(from);
        special += v.first * 0.0f + v.second * 0.0f;
        put(0, i, change(0, v.first));
        put(1, i, change(1, v.second));
      } else {
        for (int64_t k = 0; k < right; ++k) {
          Floats v{};
          for (int lane = 0; lane < kFloats; ++lane) v[lane] = float(from[lane * right + k]);
          special += v * 0.0f;
          put(k, i, change(k, v));
        }
      }
    };
    int64_t w = 0, i = 0;
    for (; w + stride <= W; w += stride, i += kFloats) split(x + w, i, [](int64_t, Floats v) { return v; });
    special_lanes = special;
    if (w == W) return;
    T rest[kMostStride * kFloats];
    const T* from = x + w;
    if (x_end - from < stride) {
      __builtin_memcpy(rest, from, size_t(W - w) * sizeof(T));
      for (int64_t k = W - w; k < stride; ++k) rest[k] = T(0);
      from = rest;
    }
    split(from, i, [&](int64_t k, Floats v) __attribute__((always_inline)) {
      return select(lanes() < int32_t((W - w - k + right - 1) / right), v, floats(-INFINITY));
    });
    special_lanes = special;
  }
  void load_dy(const T* dy, int64_t p1) {
    float* to = dys + (p1 + layout.above) * layout.pitch + layout.left;
    int64_t q = 0;
    for (; q + kFloats <= Q; q += kFloats) store(to + q, load_floats(dy + q));
    for (; q < Q; ++q) to[q] = float(dy[q]);
  }

  MINIDNN_HD static void update(Floats& most, Ints& at, Floats v, int32_t tap) {
    at = v > most ? Ints{} + tap : at;
    most = v > most ? v : most;
  }
  void find(Range windows, bool has_special, const T* x) {
    int32_t* const to = argmax + layout.above * layout.pitch + layout.left;
    const int64_t n = windows.size() * layout.pitch;
    for (int64_t i = 0; i < n; i += kFloats) {
      Floats most;
      Ints at{};
      if constexpr (window != 0) {
        const float* from = xs + i;
        most = load(from);
#pragma GCC unroll 4
        for (int r = 0; r < window; ++r)
#pragma GCC unroll 4
          for (int c = 0; c < window; ++c)
            if (r + c > 0)
              update(most, at,
                     load(from + (r % step * step + c % step) * layout.x_plane + r / step * layout.pitch + c / step),
                     r * window + c);
      } else {
        most = load(xs + tap_at[0] + i);
        for (int64_t k = 1; k < p.window[1] * p.window[2]; ++k) update(most, at, load(xs + tap_at[k] + i), int32_t(k));
      }
      __builtin_memcpy(to + i, &at, sizeof at);
    }
    // If an element is NaN or infinite, slower code searches the maxima again: a NaN is larger than every number, and a
    // window of -inf has its maximum at its first element inside x.
    if (!has_special) return;
    for (int64_t p1 = windows.begin; p1 < windows.end; ++p1)
      for (int64_t q = 0; q < Q; ++q) {
        const int64_t y[kMaxSpatial] = {0, p1, q};
        float largest = -INFINITY;
        int64_t tap = -1;
        detail::each_tap(p, y, [&](int64_t offset, int64_t number, int64_t) {
          const float v = float(x[offset]);
          if (tap < 0 || v > largest || (v != v && largest == largest)) {
            largest = v;
            tap = number;
          }
          return true;
        });
        to[(p1 - windows.begin) * layout.pitch + q] = int32_t(tap);
      }
  }

  // Writes n elements of a row of dx, from column w on. `at` is the offset of the row's first window in `argmax` and
  // `dys`. Memory up to `end` may be overwritten.
  void write(T* to, const T* end, int64_t w, int64_t n, int64_t at, int64_t remainders) {
    const int64_t stride = right * kFloats;
    at += w / right;
    // Returns the gradients of columns w + (i + lane) * right + k, one per lane. `right` is the horizontal stride.
    auto of = [&](int64_t k, int64_t i) __attribute__((always_inline)) {
      const Over *t = over + over_begin[remainders + remainder[k]], *const last =
                                                                        over +
                                                                        over_begin[remainders + remainder[k] + 1];
      const int64_t from = at + skipped[k] + i;
      Floats sum{};
      for (; t < last; ++t) sum += load_ints(argmax + from + t->at) == t->tap ? load(dys + from + t->at) : Floats{};
      return sum;
    };
    int64_t i = 0, e = 0;
    if constexpr (step != 0) {
      if (remainders == 0) i = write_rows<0>(to, end, n, at);
      else i = write_rows<1>(to, end, n, at);
      e = i * step;
    } else if (right == 1)
      for (; e < n && end - (to + e) >= stride; e += stride, i += kFloats) store_floats(to + e, of(0, i));
    else if (right == 2)
      for (; e < n && end - (to + e) >= stride; e += stride, i += kFloats) store_joined(to + e, of(0, i), of(1, i));
    for (; e < n; e += stride, i += kFloats)
      for (int64_t k = 0; k < right; ++k) {
        const Floats v = of(k, i);
        for (int lane = 0; lane < kFloats; ++lane)
          if (const int64_t there = e + lane * right + k; there < n) to[there] = T(v[lane]);
      }
  }

  // Writes a row of dx as long as whole vectors fit. Returns the number of written elements divided by the stride.
  template <int r0> MINIDNN_HD int64_t write_rows(T* to, const T* end, int64_t n, int64_t at) {
    auto of = [&](auto first, int64_t from) __attribute__((always_inline)) {
      constexpr int c0 = first.value;
      Floats sum{};
#pragma GCC unroll 4
      for (int r = (window - 1 - r0) / step * step + r0; r >= 0; r -= step)
#pragma GCC unroll 4
        for (int c = (window - 1 - c0) / step * step + c0; c >= 0; c -= step) {
          const int64_t there = from - r / step * layout.pitch - c / step;
          sum += load_ints(argmax + there) == r * window + c ? load(dys + there) : Floats{};
        }
      return sum;
    };
    int64_t i = 0;
    const int64_t whole = min_of((n + step * kFloats - 1) / (step * kFloats), (end - to) / (step * kFloats)) * kFloats;
    if constexpr (step == 1) {
      for (; i < whole; i += kFloats) store_floats(to + i, of(First<0>{}, at + skipped[0] + i));
    } else if (remainder[0] == 0) {
      for (; i < whole; i += kFloats)
        store_joined(to + 2 * i, of(First<0>{}, at + skipped[0] + i), of(First<1>{}, at + skipped[1] + i));
    } else {
      for (; i < whole; i += kFloats)
        store_joined(to + 2 * i, of(First<1>{}, at + skipped[0] + i), of(First<0>{}, at + skipped[1] + i));
    }
    return i;
  }

  // A window over an element. `tap` is the element's index within the window. `at` is the offset of the window in
  // `argmax` and `dys`, relative to the window that begins at the element.
  struct Over {
    int32_t at, tap;
  };

  const PoolingProblem& p;
  const SliceLayout layout;
  const Known<step> down{p.spatial.stride[1]}, right{p.spatial.stride[2]};
  const int64_t H = spatial_size(p.x, 1), W = spatial_size(p.x, 2), Q = spatial_size(p.dy, 2);
  float *xs, *dys;
  int32_t* argmax;
  int64_t tap_at[kMostWindow * kMostWindow];
  // One list of the windows over an element for each pair of remainders: row modulo vertical stride, and column modulo
  // horizontal stride.
  Over over[kMostWindow * kMostWindow];
  int64_t over_begin[kMostStride * kMostStride + 1]{}, remainder[kMostStride], skipped[kMostStride];
};

template <class T, int window, int step>
void pool_slices(const PoolingProblem& p, const PoolingArgs& args, const PoolingNchwChunk& chunk, float* memory) {
  Slice<T, window, step> slice(p, chunk.rows, memory);
  const int64_t H = spatial_size(p.x, 1), slices = ceil_div(H, chunk.rows), C = p.x.shape[1], D = spatial_size(p.x, 0);
  const T* x_end = static_cast<const T*>(args.x) + 1;
  for (int i = 0; i < p.x.rank; ++i) x_end += (p.x.shape[i] - 1) * p.x.stride[i];
  for (int64_t item = chunk.begin; item < chunk.end; ++item) {
    const int64_t row = item % slices * chunk.rows, d = item / slices % D, c = item / slices / D % C,
                  n = item / slices / D / C;
    auto at = [&](const TensorDesc& t) { return n * t.stride[0] + c * t.stride[1] + d * t.stride[2]; };
    slice.run(static_cast<const T*>(args.x) + at(p.x), x_end, static_cast<const T*>(args.dy) + at(p.dy),
              static_cast<T*>(args.out) + at(p.out), {row, min_of(row + chunk.rows, H)}, chunk.non_temporal);
  }
}

template <class T>
void run(const PoolingProblem& p, const PoolingArgs& args, const PoolingNchwChunk& chunk, float* memory) {
  auto is = [&](int64_t window, int64_t step) {
    bool same = true;
    for (int i = 1; i < kMaxSpatial; ++i)
      same = same && p.window[i] == window && p.spatial.stride[i] == step && p.spatial.dilation[i] == 1;
    return same;
  };
  (is(3, 2)   ? pool_slices<T, 3, 2>
   : is(2, 2) ? pool_slices<T, 2, 2>
   : is(3, 1) ? pool_slices<T, 3, 1>
              : pool_slices<T, 0, 0>)(p, args, chunk, memory);
}

}  // namespace

extern const PoolingNchwKernels pooling_nchw_kernels;
const PoolingNchwKernels pooling_nchw_kernels = {run<float>, run<bfloat16>, run<float16>};

}  // namespace minidnn::MINIDNN_ISA
