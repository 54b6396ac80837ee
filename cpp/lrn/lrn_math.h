// SPDX-License-Identifier: Apache-2.0
// The formulas of local response norm (windows over channels) and local contrast norm (windows over space), for CPU and
// CUDA:
//   y_i = x_i s_i^-beta,  s_i = k + alpha / n sum (x_j - m_i)^2 over the window W(i)
// n is the number of elements of a whole window. m_i is the mean that the caller gives for element i; it is 0 in local
// response norm. The gradient of x_i needs the weight g_j = dy_j x_j s_j^(-beta - 1) of each j whose window contains i.
// A first loop stores these weights, which would otherwise be computed once per neighbour.
#pragma once
#include "cpp/core/host_device/desc.h"
#include "cpp/core/host_device/half.h"
#include "cpp/core/host_device/maths.h"

namespace minidnn {

// In lrn, windows extend over dimension 1. In lcn, windows extend over dimensions 2 and later.
enum class LocalNorm : int64_t { lrn, lcn };

struct LrnProblem {
  LocalNorm kind{};
  int64_t backward = 0;
  // Only the backward function uses `dy`. `out` describes y in the forward function, and dx in the backward function.
  // x, dy and out have the same dtype and shape, and any strides.
  TensorDesc x, dy, out;
  // `means` and its gradient `dmeans` are for local contrast norm. They have the shape and dtype of x. Rank 0 means
  // that they are absent, and that all means are zero.
  TensorDesc means, dmeans;
  // The number of elements of a window along each dimension: (size - 1) / 2 before its center, the center, and size / 2
  // after it.
  int64_t size = 1;
  int64_t alignment = 16;
};

struct LrnArgs {
  const void* x = nullptr;
  const void* dy = nullptr;
  void* out = nullptr;
  const void* means = nullptr;  // if null, all means are zero
  void* dmeans = nullptr;
  // alpha as the caller gives it, not yet divided by the number of elements of a window
  double alpha = 0, beta = 0, k = 0;
};

// Returns s^-beta. If s is 0, the result is infinite. If s is infinite, the result is 0.
template <class Acc> MINIDNN_HD Acc inverse_power(Acc s, Acc beta) { return maths::exp(-beta * maths::log(s)); }

// The extent of a window along `count` dimensions of x, from dimension `first` on: `behind` elements before its center,
// and `ahead` elements after it.
struct LocalWindow {
  int64_t first, count, behind, ahead;
  MINIDNN_HD explicit LocalWindow(const LrnProblem& p)
      : first(p.kind == LocalNorm::lrn ? 1 : 2),
        count(p.kind == LocalNorm::lrn ? 1 : p.x.rank - 2),
        behind((p.size - 1) / 2),
        ahead(p.size / 2) {}
};

// Returns the number n of elements of a whole window, by which alpha is divided even if the window extends outside x.
MINIDNN_HD double window_elements(const LrnProblem& p) {
  double elements = 1;
  for (int64_t d = 0; d < LocalWindow(p).count; ++d) elements *= double(p.size);
  return elements;
}

namespace local_norm {

constexpr int kMostDims = 3;

struct Index {
  int64_t at[kMaxRank];
  MINIDNN_HD Index(const TensorDesc& d, int64_t linear) {
    for (int i = int(d.rank) - 1; i >= 0; --i) {
      at[i] = linear % d.shape[i];
      linear /= d.shape[i];
    }
  }
  MINIDNN_HD int64_t in(const TensorDesc& d) const {
    int64_t offset = 0;
    for (int i = 0; i < d.rank; ++i) offset += at[i] * d.stride[i];
    return offset;
  }
};

// Calls f(d0, d1, d2) for each neighbour of `center` that is inside the window and x, with its distances from `center`.
template <class F>
MINIDNN_HD void each_neighbour(const LrnProblem& p, const LocalWindow& w, const Index& center, int64_t behind,
                               int64_t ahead, const F& f) {
  int64_t begin[kMostDims]{}, end[kMostDims]{1, 1, 1};
  for (int i = 0; i < w.count; ++i) {
    const int64_t at = center.at[w.first + i];
    begin[i] = max_of(-behind, -at);
    end[i] = min_of(ahead + 1, p.x.shape[w.first + i] - at);
  }
  for (int64_t a = begin[0]; a < end[0]; ++a)
    for (int64_t b = begin[1]; b < end[1]; ++b)
      for (int64_t c = begin[2]; c < end[2]; ++c) f(a, b, c);
}
MINIDNN_HD int64_t neighbour_offset(const TensorDesc& d, const LocalWindow& w, int64_t a, int64_t b, int64_t c) {
  const int64_t* stride = d.stride + w.first;
  return a * stride[0] + (w.count > 1 ? b * stride[1] : 0) + (w.count > 2 ? c * stride[2] : 0);
}

// An element x_i, its mean m_i, and the sum s_i over its window.
template <class T> struct Center {
  using Acc = Accumulator<T>;
  Acc x, mean = 0, s, scale;  // scale is alpha divided by the number of elements of a whole window
  MINIDNN_HD Center(const LrnProblem& p, const LocalWindow& w, const LrnArgs& a, const Index& i) {
    scale = Acc(a.alpha) / Acc(window_elements(p));
    const T* from = static_cast<const T*>(a.x) + i.in(p.x);
    x = Acc(*from);
    if (a.means) mean = Acc(static_cast<const T*>(a.means)[i.in(p.means)]);
    Acc squares = 0;
    each_neighbour(p, w, i, w.behind, w.ahead, [&](int64_t d0, int64_t d1, int64_t d2) {
      const Acc deviation = Acc(from[neighbour_offset(p.x, w, d0, d1, d2)]) - mean;
      squares += deviation * deviation;
    });
    s = Acc(a.k) + scale * squares;
  }
};

}  // namespace local_norm

template <class T>
MINIDNN_HD void local_norm_forward(const LrnProblem& p, const LrnArgs& a, int64_t linear) {
  using Acc = Accumulator<T>;
  const local_norm::Index i(p.x, linear);
  const local_norm::Center<T> c(p, LocalWindow(p), a, i);
  static_cast<T*>(a.out)[i.in(p.out)] = T(c.x * inverse_power(c.s, Acc(a.beta)));
}

// Writes the weight g_i of one element to the row-major array g. If the call has means, also writes the gradient of
// m_i:
//   dm_i = 2 beta alpha / n g_i sum (x_j - m_i) over all j in the window W(i)
template <class T>
MINIDNN_HD void local_norm_weight(const LrnProblem& p, const LrnArgs& a, Accumulator<T>* g, int64_t linear) {
  using Acc = Accumulator<T>;
  const LocalWindow w(p);
  const local_norm::Index i(p.x, linear);
  const local_norm::Center<T> c(p, w, a, i);
  const Acc dy = Acc(static_cast<const T*>(a.dy)[i.in(p.dy)]), own = dy * c.x * (inverse_power(c.s, Acc(a.beta)) / c.s);
  g[linear] = own;
  if (!a.dmeans) return;
  const T* from = static_cast<const T*>(a.x) + i.in(p.x);
  Acc sum = 0;
  local_norm::each_neighbour(p, w, i, w.behind, w.ahead, [&](int64_t d0, int64_t d1, int64_t d2) {
    sum += Acc(from[local_norm::neighbour_offset(p.x, w, d0, d1, d2)]) - c.mean;
  });
  static_cast<T*>(a.dmeans)[i.in(p.dmeans)] = T(2 * Acc(a.beta) * c.scale * own * sum);
}

// Writes dx_i = dy_i s_i^-beta - 2 beta alpha / n sum g_j (x_i - m_j). The sum is over all j whose window contains i.
template <class T>
MINIDNN_HD void local_norm_backward(const LrnProblem& p, const LrnArgs& a, const Accumulator<T>* g, int64_t linear) {
  using Acc = Accumulator<T>;
  const LocalWindow w(p);
  const local_norm::Index i(p.x, linear);
  const local_norm::Center<T> c(p, w, a, i);
  int64_t stride[kMaxRank], step = 1;  // `stride` has the strides of the row-major array g.
  for (int d = int(p.x.rank) - 1; d >= 0; --d) {
    stride[d] = step;
    step *= p.x.shape[d];
  }
  const int64_t* of_g = stride + w.first;
  const T* means = a.means ? static_cast<const T*>(a.means) + i.in(p.means) : nullptr;
  Acc sum = 0;
  local_norm::each_neighbour(p, w, i, w.ahead, w.behind, [&](int64_t d0, int64_t d1, int64_t d2) {
    const int64_t at = d0 * of_g[0] + (w.count > 1 ? d1 * of_g[1] : 0) + (w.count > 2 ? d2 * of_g[2] : 0);
    const Acc mean = means ? Acc(means[local_norm::neighbour_offset(p.means, w, d0, d1, d2)]) : Acc(0);
    sum += g[linear + at] * (c.x - mean);
  });
  const Acc dy = Acc(static_cast<const T*>(a.dy)[i.in(p.dy)]);
  static_cast<T*>(a.out)[i.in(p.out)] = T(dy * inverse_power(c.s, Acc(a.beta)) - 2 * Acc(a.beta) * c.scale * sum);
}

}  // namespace minidnn
