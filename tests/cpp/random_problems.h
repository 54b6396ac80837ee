// SPDX-License-Identifier: Apache-2.0
// Random convolutions and matrix products, for tests of the code that converts them to GEMMs. The expected results are
// computed with the functions of the direct engines. The random numbers start from the same seed in every test program,
// so the problems of a program are the same in every run.
#pragma once
#include <iostream>
#include <random>
#include <vector>

#include "cpp/conv/conv.h"
#include "cpp/matmul/matmul.h"

namespace minidnn {

inline int failures = 0;
inline void fail(const std::string& text) {
  if (++failures < 20) std::cout << text << std::endl;
}

inline std::mt19937_64 random_bits(20261121);
inline int64_t pick(int64_t low, int64_t high) { return low + int64_t(random_bits() % uint64_t(high - low + 1)); }

// Returns random integers from -most to most. Sums of their products are exact in floating point.
template <class T> std::vector<T> numbers(int64_t n, int64_t most) {
  std::vector<T> v(static_cast<size_t>(n));
  for (T& x : v) x = T(pick(-most, most));
  return v;
}

template <class T>
void check(const std::string& what, const std::vector<T>& got, const std::vector<T>& want) {
  for (size_t i = 0; i < got.size(); ++i)
    if (got[i] != want[i]) return fail(cat(what, ": element ", i, " is ", got[i], ", should be ", want[i]));
}

inline TensorDesc described(DType t, Shape shape, bool channels_last) {
  return dense(t, shape, channels_last ? Layout::channels_last : Layout::channels_first, "test");
}

// The sizes of a random convolution. It has one to three spatial dimensions, and any direction except the bias
// gradient.
struct ConvSizes {
  // most: the largest random spatial size of x, unless a window would not fit
  int64_t groups, channels, filters, images, most;
};
inline ConvProblem random_conv(DType t, const ConvSizes& s) {
  ConvProblem p;
  Shape x{s.images, s.channels}, w{s.filters, s.channels / s.groups}, y{s.images, s.filters};
  const int64_t spatial = pick(1, 3);
  for (int64_t j = 0; j < spatial; ++j) {
    int64_t stride = pick(1, 3), dilation = pick(1, 3), window = pick(1, 3), reach = dilation * (window - 1) + 1;
    int64_t before = pick(0, 3), after = pick(0, 3), size = std::max<int64_t>(pick(1, s.most), reach - before - after);
    p.spatial.stride[j] = stride;
    p.spatial.dilation[j] = dilation;
    p.spatial.before[j] = before;
    p.spatial.after[j] = after;
    x.push_back(size);
    w.push_back(window);
    y.push_back((before + size + after - reach) / stride + 1);
  }
  p.groups = s.groups;
  p.flip = pick(0, 1);
  p.direction = ConvDirection(pick(0, 2));
  p.x = described(t, x, pick(0, 1));
  p.w = described(t, w, pick(0, 1));
  p.y = described(t, y, pick(0, 1));
  return p;
}

// Random inputs of a convolution, and the expected result `want`.
template <class T> struct ConvNumbers {
  std::vector<T> x, w, y, want;
  ConvArgs args;  // args.out points to `want`

  ConvNumbers(const ConvProblem& p, int64_t most)
      : x(numbers<T>(p.x.numel(), most)), w(numbers<T>(p.w.numel(), most)), y(numbers<T>(p.y.numel(), most)) {
    want.resize((p.direction == ConvDirection::forward         ? y
                 : p.direction == ConvDirection::backward_data ? x
                                                               : w)
                    .size());
    args = {x.data(), w.data(), nullptr, nullptr, y.data(), want.data()};
    const ConvGeometry g = conv_geometry(p);
    if (p.direction == ConvDirection::backward_filter) {
      SingleThread thread;
      for (int64_t i = 0; i < conv_weights(g); ++i) conv_filter_element<T, T>(g, args, i, thread);
      return;
    }
    for (int64_t i = 0; i < conv_out_numel(g); ++i) {
      ConvPoint point(g, conv_out(g), i);
      ConvWindow window;
      window.move_to(g, point);
      conv_element<T, T>(g, args, point, window);
    }
  }
};

}  // namespace minidnn
