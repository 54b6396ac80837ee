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

template <class T>
void forward(const void* from, const float* scale, const float* bias, int64_t n, float eps, void* to, float* mean_out,
             float* inv_std_out) {
  const T* x = static_cast<const T*>(from);
  T* y = static_cast<T*>(to);
  double sum = 0, squares = 0;
  float mean = 0, rest = 0;
  if (mean_out) {
    const float first = float(x[0]);
    sums_about<false>(x, n, first, &sum, &squares);
    const double exact = double(first) + sum / double(n);
    mean = float(exact);
    *mean_out = mean;
  }
  sums_about<true>(x, n, mean, &sum, &squares);
  double var = squares / double(n);
  if (mean_out) {
    const double away = sum / double(n);  // what rounding the mean took
    rest = float(away);
    var -= away * away;
  }
  const float inv_std = 1 / __builtin_sqrtf(float(var < 0 ? 0 : var) + eps);
  *inv_std_out = inv_std;
  const Floats center = floats(mean), off = floats(rest), factor = floats(inv_std);
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

}  // namespace

extern const RowNormKernels row_norm_kernels;
const RowNormKernels row_norm_kernels = {
    {forward<float>, backward<float>}, {forward<bfloat16>, backward<bfloat16>}, {forward<float16>, backward<float16>}};

}  // namespace minidnn::MINIDNN_ISA
