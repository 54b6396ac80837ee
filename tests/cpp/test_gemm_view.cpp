// SPDX-License-Identifier: Apache-2.0
// Problems lowered to GemmViews, walked by plain loops, against the arithmetic of the direct engines, on random
// problems.
#include <cmath>
#include <iostream>
#include <random>
#include <vector>

#include "cuda/gemm/lower.h"

using namespace minidnn;

static int failures = 0;
static std::mt19937_64 random_bits(20261121);
static int64_t pick(int64_t low, int64_t high) { return low + int64_t(random_bits() % uint64_t(high - low + 1)); }

static std::vector<double> numbers(int64_t n) {
  std::vector<double> v(static_cast<size_t>(n));
  for (double& x : v) x = double(pick(-8, 8));  // products and sums are exact
  return v;
}

// y += the product, by the view alone.
static void walk(const GemmView& v, const double* a, const double* b, double* y) {
  for (int64_t g = 0; g < v.batch.size; ++g)
    for (int64_t m = 0; m < v.m.size; ++m)
      for (int64_t n = 0; n < v.n.size; ++n) {
        GemmDigits at_g = digits_of(v.batch, g), at_m = digits_of(v.m, m), at_n = digits_of(v.n, n);
        double sum = 0;
        for (int64_t k = 0; k < v.k.size; ++k) {
          GemmDigits at_k = digits_of(v.k, k);
          if (!inside(v.a.window, at_m, at_k) || !inside(v.b.window, at_n, at_k)) continue;
          auto element = [&](const GemmOperand& o, const GemmDigits& row) {
            return o.offset + offset_of(o.row, row) + offset_of(o.k, at_k) + offset_of(o.batch, at_g);
          };
          sum += a[element(v.a, at_m)] * b[element(v.b, at_n)];
        }
        y[v.y_offset + offset_of(v.y_m, at_m) + offset_of(v.y_n, at_n) + offset_of(v.y_batch, at_g)] += sum;
      }
}

static TensorDesc described(Shape shape, bool channels_last) {
  return dense(DType::float64, shape, channels_last ? Layout::channels_last : Layout::channels_first, "test");
}

static void check(const std::string& what, const std::vector<double>& got, const std::vector<double>& want) {
  for (size_t i = 0; i < got.size(); ++i)
    if (got[i] != want[i] && ++failures < 20) {
      std::cout << what << ": element " << i << " is " << got[i] << ", should be " << want[i] << std::endl;
      return;
    }
}

static void check_conv() {
  const int64_t spatial = pick(1, 3), groups = pick(1, 3), channels = groups * pick(1, 3),
                filters = groups * pick(1, 3);
  ConvProblem p;
  Shape x{pick(1, 3), channels}, w{filters, channels / groups}, y{x[0], filters};
  for (int64_t j = 0; j < spatial; ++j) {
    int64_t stride = pick(1, 3), dilation = pick(1, 3), window = pick(1, 3), reach = dilation * (window - 1) + 1;
    int64_t before = pick(0, 3), after = pick(0, 3), size = std::max<int64_t>(pick(1, 9), reach - before - after);
    p.spatial.stride[j] = stride, p.spatial.dilation[j] = dilation;
    p.spatial.before[j] = before, p.spatial.after[j] = after;
    x.push_back(size), w.push_back(window), y.push_back((before + size + after - reach) / stride + 1);
  }
  p.groups = groups, p.flip = pick(0, 1);
  p.x = described(x, pick(0, 1)), p.w = described(w, pick(0, 1)), p.y = described(y, pick(0, 1));
  p.direction = ConvDirection(pick(0, 2));
  std::vector<double> of_x = numbers(p.x.numel()), of_w = numbers(p.w.numel()), of_y = numbers(p.y.numel());
  std::vector<double>& out = p.direction == ConvDirection::forward         ? of_y
                             : p.direction == ConvDirection::backward_data ? of_x
                                                                           : of_w;
  std::vector<double> got(out.size()), want(out.size());
  ConvArgs args{of_x.data(), of_w.data(), nullptr, nullptr, of_y.data(), want.data()};
  ConvGeometry g = conv_geometry(p);
  if (p.direction == ConvDirection::backward_filter) {
    Solo solo;
    for (int64_t i = 0; i < conv_weights(g); ++i) conv_filter_element<double, double>(g, args, i, solo);
  } else {
    for (int64_t i = 0; i < conv_out_numel(g); ++i) {
      ConvPoint point(g, conv_out(g), i);
      ConvWindow window;
      window.move_to(g, point);
      conv_element<double, double>(g, args, point, window);
    }
  }
  GemmArgs gemm = gemm_args(p, args);
  for (const GemmView& v : gemm_views(p))
    walk(v, static_cast<const double*>(gemm.a), static_cast<const double*>(gemm.b), got.data());
  check(Family<ConvProblem>::text(p), got, want);
  std::fill(got.begin(), got.end(), 0);
  for (const GemmView& v : gemm_views(p))
    walk(transposed(v), static_cast<const double*>(gemm.b), static_cast<const double*>(gemm.a), got.data());
  check("transposed " + Family<ConvProblem>::text(p), got, want);
}

static void check_matmul() {
  Shape batch;
  for (int64_t i = pick(0, 3); i > 0; --i) batch.push_back(pick(1, 3));
  int64_t m = pick(1, 5), n = pick(1, 5), k = pick(0, 5);
  auto with = [&](int64_t rows, int64_t columns) {
    Shape shape = batch;
    shape.push_back(rows), shape.push_back(columns);
    return described(shape, false);
  };
  MatmulProblem p{with(m, k), with(k, n)};
  p.y = with(m, n);
  std::vector<double> a = numbers(p.a.numel()), b = numbers(p.b.numel()), got(size_t(p.y.numel())), want = got;
  MatmulArgs args{a.data(), b.data(), nullptr, nullptr, want.data()};
  for (int64_t i = 0; i < p.y.numel(); ++i) matmul_element<double, double>(p, args, i);
  walk(gemm_view(p), a.data(), b.data(), got.data());
  check(Family<MatmulProblem>::text(p), got, want);
}

int main() {
  for (int i = 0; i < 3000; ++i) check_conv();
  for (int i = 0; i < 300; ++i) check_matmul();
  std::cout << (failures ? "FAILED" : "ok") << std::endl;
  return failures != 0;
}
