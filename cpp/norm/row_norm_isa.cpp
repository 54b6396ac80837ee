// SPDX-License-Identifier: Apache-2.0
// A row at a time: sums by vectors in pieces, which join in float64, then the map. A row of usual length stays in a
// first-level cache from one pass to the next.
#include "cpp/norm/row_norm_kernels.h"

#include "cpp/cpu/floats.h"

namespace minidnn::MINIDNN_ISA {
namespace {

constexpr int64_t kPiece = 4096;  // elements whose sums stay float32
static_assert(kPiece % kFloats == 0);

// Calls f(i, lanes) for the vectors of n elements: i is a vector's first, and `lanes` count, fewer in the last.
template <class F> MINIDNN_HD void each_vector(int64_t n, const F& f) {
  int64_t i = 0;
  for (; i + kFloats <= n; i += kFloats) f(i, int64_t(kFloats));
  if (i < n) f(i, n - i);
}
template <class T> MINIDNN_HD Floats read(const T* from, int64_t lanes) {
  return lanes == kFloats ? load_floats(from) : load_first(from, lanes);
}
template <class T> MINIDNN_HD void write(T* to, int64_t lanes, Floats v) {
  if (lanes == kFloats) store_floats(to, v);
  else store_first(to, lanes, v);
}
MINIDNN_HD Floats kept(Floats v, int64_t lanes) {
  if (lanes < kFloats)
    for (int64_t k = lanes; k < kFloats; ++k) v[k] = 0;
  return v;
}

// sum(x - about) and, if wanted, sum((x - about)^2).
template <bool squared, class T> MINIDNN_HD void sums_about(const T* x, int64_t n, float about, double* sum,
                                                            double* squares) {
  const Floats center = floats(about);
  *sum = *squares = 0;
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    Floats a{}, b{};
    const T* from = x + begin;
    each_vector(min_of(kPiece, n - begin), [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
      const Floats d = kept(read(from + i, lanes) - center, lanes);
      a += d;
      if (squared) b += d * d;
    });
    *sum += double(sum_of_lanes(a));
    if (squared) *squares += double(sum_of_lanes(b));
  }
}

// A mean, what rounding took from it, and the inverse deviation.
struct Statistics {
  float mean = 0, rest = 0, inv_std = 0;
};
template <class T> Statistics statistics_of(const T* x, int64_t n, float eps, bool centered) {
  Statistics s;
  double sum = 0, squares = 0;
  if (centered) {
    const float first = float(x[0]);
    sums_about<false>(x, n, first, &sum, &squares);
    s.mean = float(double(first) + sum / double(n));
  }
  sums_about<true>(x, n, s.mean, &sum, &squares);
  double var = squares / double(n);
  if (centered) {
    const double away = sum / double(n);
    s.rest = float(away);
    var -= away * away;
  }
  s.inv_std = 1 / __builtin_sqrtf(float(var < 0 ? 0 : var) + eps);
  return s;
}

template <class T>
void forward(const void* from, const float* scale, const float* bias, int64_t n, float eps, void* to, float* mean,
             float* inv_std) {
  const T* x = static_cast<const T*>(from);
  T* y = static_cast<T*>(to);
  const Statistics s = statistics_of(x, n, eps, mean != nullptr);
  if (mean) *mean = s.mean;
  *inv_std = s.inv_std;
  const Floats center = floats(s.mean), off = floats(s.rest), factor = floats(s.inv_std);
  each_vector(n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
    Floats v = ((read(x + i, lanes) - center) - off) * factor;
    if (scale) v *= read(scale + i, lanes);
    if (bias) v += read(bias + i, lanes);
    write(y + i, lanes, v);
  });
}

template <class T>
void backward(const void* from, const void* gradient, const float* scale, int64_t n, float mean, float inv_std,
              void* to, float* dscale, float* dbias) {
  const T *x = static_cast<const T*>(from), *dy = static_cast<const T*>(gradient);
  T* dx = static_cast<T*>(to);
  const Floats center = floats(mean), factor = floats(inv_std);
  double first = 0, second = 0;
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    Floats a{}, b{};
    each_vector(min_of(kPiece, n - begin), [&](int64_t at, int64_t lanes) __attribute__((always_inline)) {
      const int64_t i = begin + at;
      const Floats x_hat = (read(x + i, lanes) - center) * factor, g = read(dy + i, lanes);
      const Floats scaled = scale ? g * read(scale + i, lanes) : g;
      a += kept(scaled, lanes), b += kept(scaled * x_hat, lanes);
      write(dscale + i, lanes, read(dscale + i, lanes) + g * x_hat);
      if (dbias) write(dbias + i, lanes, read(dbias + i, lanes) + g);
    });
    first += double(sum_of_lanes(a)), second += double(sum_of_lanes(b));
  }
  const Floats offset = floats(dbias ? float(first / double(n)) : 0.f), slope = floats(float(second / double(n)));
  each_vector(n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
    const Floats x_hat = (read(x + i, lanes) - center) * factor, g = read(dy + i, lanes);
    const Floats scaled = scale ? g * read(scale + i, lanes) : g;
    write(dx + i, lanes, factor * (scaled - offset - x_hat * slope));
  });
}

template <class T>
void forward_planes(const void* from, const float* scale, const float* bias, int64_t channels, int64_t n, float eps,
                    void* to, float* mean, float* inv_std) {
  const T* x = static_cast<const T*>(from);
  T* y = static_cast<T*>(to);
  const Statistics s = statistics_of(x, channels * n, eps, true);
  *mean = s.mean, *inv_std = s.inv_std;
  const Floats center = floats(s.mean), off = floats(s.rest);
  for (int64_t c = 0; c < channels; ++c, x += n, y += n) {
    const Floats factor = floats(s.inv_std * (scale ? scale[c] : 1)), added = floats(bias ? bias[c] : 0);
    each_vector(n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
      write(y + i, lanes, ((read(x + i, lanes) - center) - off) * factor + added);
    });
  }
}

template <class T>
void backward_planes(const void* from, const void* gradient, const float* scale, int64_t channels, int64_t n,
                     float mean, float inv_std, void* to, float* sums) {
  const T *x = static_cast<const T*>(from), *dy = static_cast<const T*>(gradient);
  T* dx = static_cast<T*>(to);
  const Floats center = floats(mean), factor = floats(inv_std);
  double first = 0, second = 0;
  for (int64_t c = 0; c < channels; ++c) {
    double of_dy = 0, of_products = 0;
    for (int64_t begin = 0; begin < n; begin += kPiece) {
      Floats a{}, b{};
      each_vector(min_of(kPiece, n - begin), [&](int64_t at, int64_t lanes) __attribute__((always_inline)) {
        const int64_t i = c * n + begin + at;
        const Floats g = read(dy + i, lanes);  // zero behind the end
        a += g, b += g * kept(read(x + i, lanes) - center, lanes);
      });
      of_dy += double(sum_of_lanes(a)), of_products += double(sum_of_lanes(b)) * double(inv_std);
    }
    sums[2 * c] = float(of_products), sums[2 * c + 1] = float(of_dy);
    const double by = scale ? double(scale[c]) : 1;
    first += by * of_dy, second += by * of_products;
  }
  const double count = double(channels * n);
  const Floats offset = floats(float(first / count)), slope = floats(float(second / count));
  for (int64_t c = 0; c < channels; ++c) {
    const Floats by = floats(scale ? scale[c] : 1);
    each_vector(n, [&](int64_t at, int64_t lanes) __attribute__((always_inline)) {
      const int64_t i = c * n + at;
      const Floats x_hat = (read(x + i, lanes) - center) * factor;
      write(dx + i, lanes, factor * (read(dy + i, lanes) * by - offset - x_hat * slope));
    });
  }
}

template <class T> constexpr RowNormKernels::Typed kTyped{forward<T>, backward<T>, forward_planes<T>,
                                                          backward_planes<T>};

}  // namespace

extern const RowNormKernels row_norm_kernels;
const RowNormKernels row_norm_kernels = {kTyped<float>, kTyped<bfloat16>, kTyped<float16>};

}  // namespace minidnn::MINIDNN_ISA
